//! The keys of `[Container]`, from the source of quadlet in podman 5.
//!
//! `GlobalArgs` is missing on purpose: its options may name other configuration files.

use super::Keys;

/// Sections with other names begin with `X-`, or are ignored.
pub(crate) static SECTIONS: [&str; 5] = ["Unit", "Service", "Install", "Container", "Quadlet"];

pub(crate) static CONTAINER: Keys = Keys::new(
    "[Container]",
    "ContainersConfModule Entrypoint Environment EnvironmentFile EnvironmentHost Exec \
     HealthOnFailure Pod PodmanArgs Secret StopSignal StopTimeout Volume",
    "AddCapability AddDevice AddHost Annotation AppArmor AutoUpdate CgroupsMode ContainerName DNS \
     DNSOption DNSSearch DropCapability ExposeHostPort GIDMap Group GroupAdd HealthCmd \
     HealthInterval HealthLogDestination HealthMaxLogCount HealthMaxLogSize HealthRetries \
     HealthStartPeriod HealthStartupCmd HealthStartupInterval HealthStartupRetries \
     HealthStartupSuccess HealthStartupTimeout HealthTimeout HostName HttpProxy IP IP6 Image Label \
     LogDriver LogOpt Mask Memory Mount Network NetworkAlias NoNewPrivileges Notify PidsLimit \
     PublishPort Pull ReadOnly ReadOnlyTmpfs ReloadCmd ReloadSignal RemapGid RemapUid RemapUidSize \
     RemapUsers Retry RetryDelay Rootfs RunInit SeccompProfile SecurityLabelDisable \
     SecurityLabelFileType SecurityLabelLevel SecurityLabelNested SecurityLabelType ServiceName \
     ShmSize StartWithPod SubGIDMap SubUIDMap Sysctl Timezone Tmpfs UIDMap Ulimit Unmask User UserNS \
     VolatileTmp WorkingDir",
)
.extended_by("X-");
