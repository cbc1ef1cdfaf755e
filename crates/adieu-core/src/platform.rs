//! Recognises the platform that stops the process, and determines how long it waits before it
//! kills.

mod unit;

use std::fmt;
use std::time::Duration;

pub(crate) use unit::Unit;

/// The platform of the process, as far as its environment shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Platform {
    /// A pod: 30 s from SIGTERM to SIGKILL, unless the manifest sets another time.
    Kubernetes,
    /// A systemd service: `TimeoutStopSec` of its unit, or 90 s if that is not known.
    Systemd,
    /// A container: 10 s, unless `stop_grace_period` or `--time` sets another time.
    Docker,
    /// A terminal: no limit, because a person decides when to kill the process.
    Terminal,
    /// An unknown platform: no limit.
    Unknown,
}

/// The properties of the environment from which the platform is recognised. A separate value, so
/// that tests can set it.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "all combinations are possible")]
pub(crate) struct Signs {
    pub(crate) kubernetes: bool,
    pub(crate) systemd: bool,
    pub(crate) docker: bool,
    pub(crate) terminal: bool,
}

// === impl Platform ===

impl Platform {
    /// Recognises the platform from this process's environment.
    #[must_use]
    pub fn detect() -> Self {
        use std::io::IsTerminal;
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self::from_signs(Signs {
            kubernetes: is_set("KUBERNETES_SERVICE_HOST"),
            systemd: is_set("NOTIFY_SOCKET") || is_set("INVOCATION_ID"),
            docker: std::path::Path::new("/.dockerenv").exists(),
            terminal: std::io::stdin().is_terminal(),
        })
    }

    pub(crate) fn from_signs(signs: Signs) -> Self {
        let Signs { kubernetes, systemd, docker, terminal } = signs;
        match () {
            () if kubernetes => Self::Kubernetes,
            // Before systemd: a login session under systemd sets INVOCATION_ID for its shells.
            () if terminal => Self::Terminal,
            () if systemd => Self::Systemd,
            () if docker => Self::Docker,
            () => Self::Unknown,
        }
    }

    /// Returns the platform's default time from its signal to the kill; `None` if it does not kill.
    #[must_use]
    pub fn kill_after(self) -> Option<Duration> {
        match self {
            Self::Kubernetes => Some(Duration::from_secs(30)),
            Self::Systemd => Some(Duration::from_secs(90)),
            Self::Docker => Some(Duration::from_secs(10)),
            Self::Terminal | Self::Unknown => None,
        }
    }

    /// Describes how to make the platform wait this long, and how to pass the value to the process.
    pub(crate) fn how_to_allow(self, wait: Duration) -> String {
        let seconds = wait.as_secs();
        let usual = self.kill_after().unwrap_or_default().as_secs();
        let set = match self {
            Self::Kubernetes => format!("terminationGracePeriodSeconds: {seconds} in the manifest"),
            Self::Systemd => format!("TimeoutStopSec={seconds} in the unit"),
            Self::Docker => {
                format!("docker run --stop-timeout {seconds}, or stop_grace_period: {seconds}s")
            }
            Self::Terminal | Self::Unknown => "its grace period".into(),
        };
        format!(
            "assuming {usual}s for platform {self}: set {set}, and ADIEU__KILL_AFTER={seconds}s"
        )
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kubernetes => "kubernetes",
            Self::Systemd => "systemd",
            Self::Docker => "docker",
            Self::Terminal => "terminal",
            Self::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s315_the_advice_names_the_setting_of_the_platform() {
        let enough = Duration::from_secs(24);
        assert_eq!(
            Platform::Docker.how_to_allow(enough),
            "assuming 10s for platform docker: set docker run --stop-timeout 24, or \
             stop_grace_period: 24s, and ADIEU__KILL_AFTER=24s"
        );
        assert_eq!(
            Platform::Kubernetes.how_to_allow(enough),
            "assuming 30s for platform kubernetes: set terminationGracePeriodSeconds: 24 in the \
             manifest, and ADIEU__KILL_AFTER=24s"
        );
    }

    #[test]
    fn if_several_platforms_match_the_most_specific_one_is_chosen() {
        let none = Signs::default();
        let cases = [
            (none, Platform::Unknown, None),
            (Signs { terminal: true, systemd: true, ..none }, Platform::Terminal, None),
            (Signs { systemd: true, docker: true, ..none }, Platform::Systemd, Some(90)),
            (Signs { docker: true, ..none }, Platform::Docker, Some(10)),
            (Signs { kubernetes: true, docker: true, ..none }, Platform::Kubernetes, Some(30)),
        ];
        for (signs, platform, secs) in cases {
            let found = Platform::from_signs(signs);
            assert_eq!(found, platform);
            assert_eq!(found.kill_after(), secs.map(Duration::from_secs));
        }
    }
}
