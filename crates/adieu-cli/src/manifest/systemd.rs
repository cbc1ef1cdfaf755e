//! A systemd unit.

use super::Numbers;
use crate::check::GRACE_VAR;

pub(super) fn write(numbers: &Numbers<'_>) -> String {
    let Numbers { name, exec, grace, config, .. } = numbers;
    let mut environment = format!("Environment={GRACE_VAR}={grace}\n");
    let variables = match (&config.flat, config.target(name)) {
        (Some(flat), _) => flat,
        (None, Some(target)) => {
            environment +=
                &format!("# Install the configuration there.\nEnvironment=ADIEU_CONFIG={target}\n");
            &config.variables
        }
        (None, None) => &config.variables,
    };
    if config.file.is_some() && config.flat.is_some() {
        environment += "# The configuration that these numbers follow from.\n";
    }
    for (variable, value) in variables {
        environment += &format!("Environment={}\n", quoted(&format!("{variable}={value}")));
    }
    format!(
        "\
[Unit]
Description={name}
Wants=network-online.target
After=network-online.target

[Service]
# The feature `systemd` reports readiness and progress, and extends the timeout during progress.
Type=notify
ExecStart={exec}
# The worst case of the plan, with the lame duck, the exit and a margin.
TimeoutStopSec={grace}s
{environment}# SIGTERM to the main process alone, SIGKILL to all remaining processes.
KillMode=mixed
Restart=on-failure
DynamicUser=yes

[Install]
WantedBy=multi-user.target
"
    )
}

/// Escapes a value for systemd: in quotes if it contains white space, and `%` written twice.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    if text.contains([' ', '"', '\'', '\t']) { format!("\"{text}\"") } else { text }
}
