//! A systemd unit.

use super::Numbers;
use crate::check::GRACE_VAR;

pub(super) fn write(numbers: &Numbers<'_>) -> String {
    let Numbers { name, exec, grace, .. } = numbers;
    format!(
        "\
[Unit]
Description={name}
Wants=network-online.target
After=network-online.target

[Service]
# Readiness, what is waited for, and more time while something gets done: the feature `systemd`.
Type=notify
ExecStart={exec}
# What the plan takes at worst, with the lame duck, the exit and a margin.
TimeoutStopSec={grace}s
Environment={GRACE_VAR}={grace}
# SIGTERM to the main process alone, SIGKILL to all that is left.
KillMode=mixed
Restart=on-failure
DynamicUser=yes

[Install]
WantedBy=multi-user.target
"
    )
}
