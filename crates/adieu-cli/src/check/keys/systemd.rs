//! The keys of a unit, from `systemd --dump-configuration-items` and the news of later versions.
//!
//! `PAMName` is missing on purpose: a session may take the processes out of the control group.
//! `RuntimeMaxSec` and a watchdog end a service with its usual timeout. `FinalKillSignal` and
//! `TimeoutStopFailureMode` count only when the timeout is over.

use super::Keys;

/// Sections with other names begin with `X-`, or systemd ignores them.
pub(crate) static SECTIONS: [&str; 3] = ["Unit", "Service", "Install"];

pub(crate) static UNIT: Keys = Keys::new(
    "[Unit]",
    "DefaultDependencies JobRunningTimeoutSec JobTimeoutAction JobTimeoutSec",
    "\
     After AllowIsolate AssertACPower AssertArchitecture AssertCPUFeature AssertCPUPressure \
     AssertCPUs AssertCapability AssertControlGroupController AssertCredential \
     AssertDirectoryNotEmpty AssertEnvironment AssertFileIsExecutable AssertFileNotEmpty \
     AssertFirmware AssertFirstBoot AssertGroup AssertHost AssertIOPressure \
     AssertKernelCommandLine AssertKernelModuleLoaded AssertKernelVersion AssertMemory \
     AssertMemoryPressure AssertNeedsUpdate AssertOSRelease AssertPathExists \
     AssertPathExistsGlob AssertPathIsDirectory AssertPathIsEncrypted AssertPathIsMountPoint \
     AssertPathIsReadWrite AssertPathIsSocket AssertPathIsSymbolicLink AssertSecurity \
     AssertUser AssertVersion AssertVirtualization Before BindTo BindsTo CollectMode \
     ConditionACPower ConditionArchitecture ConditionCPUFeature ConditionCPUPressure \
     ConditionCPUs ConditionCapability ConditionControlGroupController ConditionCredential \
     ConditionDirectoryNotEmpty ConditionEnvironment ConditionFileIsExecutable \
     ConditionFileNotEmpty ConditionFirmware ConditionFirstBoot ConditionGroup ConditionHost \
     ConditionIOPressure ConditionKernelCommandLine ConditionKernelModuleLoaded \
     ConditionKernelVersion ConditionMemory ConditionMemoryPressure ConditionNeedsUpdate \
     ConditionOSRelease ConditionPathExists ConditionPathExistsGlob ConditionPathIsDirectory \
     ConditionPathIsEncrypted ConditionPathIsMountPoint ConditionPathIsReadWrite \
     ConditionPathIsSocket ConditionPathIsSymbolicLink ConditionSecurity ConditionUser \
     ConditionVersion ConditionVirtualization Conflicts Description Documentation \
     FailureAction FailureActionExitStatus IgnoreOnIsolate JobTimeoutRebootArgument \
     JoinsNamespaceOf OnFailure OnFailureIsolate OnFailureJobMode OnSuccess OnSuccessJobMode \
     PartOf PropagateReloadFrom PropagateReloadTo PropagatesReloadTo PropagatesStopTo \
     RebootArgument RefuseManualStart RefuseManualStop ReloadPropagatedFrom Requires \
     RequiresMountsFor RequiresOverridable Requisite RequisiteOverridable SourcePath \
     StartLimitAction StartLimitBurst StartLimitInterval StartLimitIntervalSec \
     StopPropagatedFrom StopWhenUnneeded SuccessAction SuccessActionExitStatus \
     SurviveFinalKillSignal Upholds Wants WantsMountsFor",
)
.extended_by("X-");

pub(crate) static SERVICE: Keys = Keys::new(
    "[Service]",
    "\
     Environment EnvironmentFile ExecStart ExecStop KillMode KillSignal LimitCPU PassEnvironment \
     RestartKillSignal SendSIGHUP SendSIGKILL StandardInput TimeoutSec TimeoutStopSec Type \
     UnsetEnvironment",
    "\
     AllowedCPUs AllowedMemoryNodes AmbientCapabilities AppArmorProfile \
     BPFDelegateAttachments BPFDelegateCommands BPFDelegateMaps BPFDelegatePrograms \
     BPFProgram BindNetworkInterface BindPaths BindReadOnlyPaths BlockIOAccounting \
     BlockIODeviceWeight BlockIOReadBandwidth BlockIOWeight BlockIOWriteBandwidth BusName \
     CPUAccounting CPUAffinity CPUPressureThresholdSec CPUPressureWatch CPUQuota \
     CPUQuotaPeriodSec CPUSchedulingPolicy CPUSchedulingPriority CPUSchedulingResetOnFork \
     CPUShares CPUWeight CacheDirectory CacheDirectoryAccounting CacheDirectoryMode \
     CacheDirectoryQuota CapabilityBoundingSet ConfigurationDirectory \
     ConfigurationDirectoryMode CoredumpFilter CoredumpReceive DebugInvocation \
     DefaultMemoryLow DefaultMemoryMin DefaultStartupMemoryLow Delegate DelegateNamespaces \
     DelegateSubgroup DeviceAllow DevicePolicy DisableControllers DynamicUser ExecCondition \
     ExecPaths ExecReload ExecReloadPost ExecSearchPath ExecStartPost ExecStartPre \
     ExecStopPost ExitType ExtensionDirectories ExtensionImagePolicy ExtensionImages \
     ExtraFileDescriptors FailureAction FileDescriptorStoreMax FileDescriptorStorePreserve \
     FinalKillSignal Group GuessMainPID IOAccounting IODeviceLatencyTargetSec IODeviceWeight \
     IOPressureThresholdSec IOPressureWatch IOReadBandwidthMax IOReadIOPSMax \
     IOSchedulingClass IOSchedulingPriority IOWeight IOWriteBandwidthMax IOWriteIOPSMax \
     IPAccounting IPAddressAllow IPAddressDeny IPCNamespacePath IPEgressFilterPath \
     IPIngressFilterPath IgnoreSIGPIPE ImportCredential InaccessibleDirectories \
     InaccessiblePaths KeyringMode LUOSession LimitAS LimitCORE LimitDATA LimitFSIZE \
     LimitLOCKS LimitMEMLOCK LimitMSGQUEUE LimitNICE LimitNOFILE LimitNPROC LimitRSS \
     LimitRTPRIO LimitRTTIME LimitSIGPENDING LimitSTACK LoadCredential \
     LoadCredentialEncrypted LockPersonality LogExtraFields LogFilterPatterns LogLevelMax \
     LogNamespace LogRateLimitBurst LogRateLimitIntervalSec LogsDirectory \
     LogsDirectoryAccounting LogsDirectoryMode LogsDirectoryQuota ManagedOOMMemoryPressure \
     ManagedOOMMemoryPressureDurationSec ManagedOOMMemoryPressureLimit ManagedOOMPreference \
     ManagedOOMSwap MemoryAccounting MemoryDenyWriteExecute MemoryHigh MemoryKSM MemoryLimit \
     MemoryLow MemoryMax MemoryMin MemoryPressureThresholdSec MemoryPressureWatch \
     MemorySwapMax MemoryTHP MemoryZSwapMax MemoryZSwapWriteback MountAPIVFS MountFlags \
     MountImagePolicy MountImages NFTSet NUMAMask NUMAPolicy NetworkNamespacePath Nice \
     NoExecPaths NoNewPrivileges NonBlocking NotifyAccess OOMPolicy OOMScoreAdjust OpenFile \
     PIDFile PermissionsStartOnly Personality PrivateBPF PrivateDevices PrivateIPC \
     PrivateMounts PrivateNetwork PrivatePIDs PrivateTmp PrivateUsers ProcSubset ProtectClock \
     ProtectControlGroups ProtectHome ProtectHostname ProtectKernelLogs ProtectKernelModules \
     ProtectKernelTunables ProtectProc ProtectSystem ReadOnlyDirectories ReadOnlyPaths \
     ReadWriteDirectories ReadWritePaths RebootArgument RefreshOnReload ReloadSignal \
     RemainAfterExit RemoveIPC Restart RestartForceExitStatus RestartMaxDelaySec RestartMode \
     RestartPreventExitStatus RestartSec RestartSteps RestrictAddressFamilies \
     RestrictFileSystems RestrictNamespaces RestrictNetworkInterfaces RestrictRealtime \
     RestrictSUIDSGID RootDirectory RootDirectoryStartOnly RootEphemeral RootHash \
     RootHashSignature RootImage RootImageOptions RootImagePolicy RootMStack RootVerity \
     RuntimeDirectory RuntimeDirectoryMode RuntimeDirectoryPreserve RuntimeMaxSec \
     RuntimeRandomizedExtraSec SELinuxContext SecureBits SetCredential SetCredentialEncrypted \
     SetLoginEnvironment Slice SmackProcessLabel SocketBindAllow SocketBindDeny Sockets \
     StandardError StandardInputData StandardInputText StandardOutput \
     StartLimitAction StartLimitBurst StartLimitInterval StartupAllowedCPUs \
     StartupAllowedMemoryNodes StartupBlockIOWeight StartupCPUShares StartupCPUWeight \
     StartupIOWeight StartupMemoryHigh StartupMemoryLow StartupMemoryMax StartupMemoryMin \
     StartupMemorySwapMax StartupMemoryZSwapMax StateDirectory StateDirectoryAccounting \
     StateDirectoryMode StateDirectoryQuota SuccessExitStatus SupplementaryGroups \
     SyslogFacility SyslogIdentifier SyslogLevel SyslogLevelPrefix SystemCallArchitectures \
     SystemCallErrorNumber SystemCallFilter SystemCallLog TTYColumns TTYPath TTYReset TTYRows \
     TTYVHangup TTYVTDisallocate TasksAccounting TasksMax TemporaryFileSystem TimeoutAbortSec \
     TimeoutCleanSec TimeoutStartFailureMode TimeoutStartSec TimeoutStopFailureMode \
     TimerSlackNSec UMask USBFunctionDescriptors USBFunctionStrings User UserNamespacePath \
     UtmpIdentifier UtmpMode WatchdogSec WatchdogSignal WorkingDirectory",
)
.extended_by("X-");
