//! The keys of jobs of Nomad, as HCL and as the API writes them, and of its drivers for containers
//! and programs.
//!
//! `shutdown_delay` comes before the signal, and does not count against `kill_timeout`. A block
//! `dynamic` in a task is missing on purpose: it makes other blocks.

use super::Keys;
use crate::check::hcl::LABEL;

pub(crate) static FILE: Keys = Keys::new("a job file", "job", "variable variables locals");

pub(crate) static JOB: Keys = Keys::new(
    "a job",
    "constraint dynamic group task vault",
    "affinity all_at_once consul_namespace consul_token datacenters id meta migrate multiregion name \
     namespace node_pool parameterized periodic priority region reschedule spread type ui update \
     vault_namespace vault_token",
)
.with(&[("group", &GROUP), ("task", &TASK), ("vault", &VAULT)])
.extended_by(LABEL);

static GROUP: Keys = Keys::new(
    "a group",
    "constraint dynamic task vault",
    "affinity consul count disconnect ephemeral_disk max_client_disconnect meta migrate network \
     prevent_reschedule_on_lost reschedule restart scaling service shutdown_delay spread \
     stop_after_client_disconnect update volume",
)
.with(&[("task", &TASK), ("vault", &VAULT)])
.extended_by(LABEL);

static TASK: Keys = Keys::new(
    "a task",
    "config constraint consul driver env identity kill_signal kill_timeout lifecycle template \
     vault",
    "action affinity artifact csi_plugin dispatch_payload kind leader logs meta name resources \
     restart scaling schedule secret service shutdown_delay user volume_mount",
)
.with(&[("config", &CONFIG), ("vault", &VAULT)])
.extended_by(LABEL);

static VAULT: Keys = Keys::new(
    "vault",
    "change_mode change_signal",
    "allow_token_expiration cluster disable_file env namespace policies role",
)
.extended_by(LABEL);

/// `isolation` is missing on purpose: only containers of Windows have it.
static CONFIG: Keys = Keys::new(
    "the config of this driver",
    "args command entrypoint image init tty ulimit",
    "advertise_ipv6_address apparmor_profile auth auth_soft_fail cap_add cap_drop cgroup_v1_override \
     cgroup_v2_override cgroupns class class_path container_exists_attempts cpu_cfs_period \
     cpu_hard_limit cpuset_cpus denied_envvars devices dns dns_options dns_search_domains dns_servers \
     extra_hosts extra_labels force_pull group_add healthchecks hostname image_pull_timeout init_path \
     interactive ipc_mode ipv4_address ipv6_address jar_path jvm_options labels load logging \
     mac_address memory_hard_limit memory_reservation memory_swap memory_swappiness mount mounts \
     network_aliases network_mode no_cgroups oom_score_adj pid_mode pids_limit port_map ports \
     privileged readonly_rootfs runtime security_opt selinux_opts shm_size socket storage_opt sysctl \
     tmpfs userns userns_mode uts_mode volume_driver volumes work_dir working_dir",
)
.extended_by(LABEL);

pub(crate) static JSON_JOB: Keys = Keys::new(
    "a job",
    "Constraints ID Name TaskGroups",
    "Affinities AllAtOnce ConsulNamespace ConsulToken CreateIndex Datacenters \
     DispatchIdempotencyToken Dispatched JobModifyIndex Meta Migrate ModifyIndex Multiregion \
     Namespace NodePool NomadTokenID ParameterizedJob ParentID Payload Periodic Priority Region \
     Reschedule Spreads Stable Status StatusDescription Stop SubmitTime Type UI Update VaultNamespace \
     VaultToken Version VersionTag",
)
.with(&[("TaskGroups", &JSON_GROUP)]);

static JSON_GROUP: Keys = Keys::new(
    "a group",
    "Constraints Name Tasks",
    "Affinities Consul Count Disconnect EphemeralDisk MaxClientDisconnect Meta Migrate Networks \
     PreventRescheduleOnLost ReschedulePolicy RestartPolicy Scaling Services ShutdownDelay Spreads \
     StopAfterClientDisconnect Update Volumes",
)
.with(&[("Tasks", &JSON_TASK)]);

static JSON_TASK: Keys = Keys::new(
    "a task",
    "Config Constraints Consul Driver Env Identities Identity KillSignal KillTimeout Lifecycle Name \
     Templates Vault",
    "Actions Affinities Artifacts CSIPluginConfig DispatchPayload Kind Leader LogConfig Meta \
     Resources RestartPolicy ScalingPolicies Schedule Secrets Services ShutdownDelay User \
     VolumeMounts",
)
.with(&[("Config", &CONFIG)]);
