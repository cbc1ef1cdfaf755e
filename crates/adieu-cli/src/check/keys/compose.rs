//! The keys of compose files, from the schema of the Compose Specification.
//!
//! `provider` is missing on purpose: another program runs such a service.

use super::Keys;

pub(crate) static FILE: Keys = Keys::new(
    "a compose file",
    "services include configs secrets",
    "version name networks volumes models",
)
.extended_by("x-");

pub(crate) static SERVICE: Keys = Keys::new(
    "a service",
    "build command configs entrypoint env_file environment extends image isolation labels pid \
     platform pre_stop runtime secrets stop_grace_period stop_signal tty ulimits volumes working_dir",
    "annotations attach blkio_config cap_add cap_drop cgroup cgroup_parent container_name cpu_count \
     cpu_percent cpu_period cpu_quota cpu_rt_period cpu_rt_runtime cpu_shares cpus cpuset \
     credential_spec depends_on deploy develop device_cgroup_rules devices dns dns_opt dns_search \
     domainname expose external_links extra_hosts gpus group_add healthcheck hostname init ipc \
     label_file links logging mac_address mem_limit mem_reservation mem_swappiness memswap_limit \
     models network_mode networks oom_kill_disable oom_score_adj pids_limit ports post_start \
     privileged profiles pull_policy pull_refresh_after read_only restart scale \
     security_opt shm_size stdin_open storage_opt sysctls tmpfs use_api_socket user \
     userns_mode uts volume_driver volumes_from",
)
.with(&[("extends", &EXTENDS), ("env_file", &ENV_FILE), ("pre_stop", &HOOK)])
.extended_by("x-");

static EXTENDS: Keys = Keys::new("extends", "service file", "");

static ENV_FILE: Keys = Keys::new("env_file", "path format", "required");

static HOOK: Keys =
    Keys::new("a hook", "command", "environment per_replica privileged user working_dir")
        .extended_by("x-");
