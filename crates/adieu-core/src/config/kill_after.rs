//! When the platform kills the process, and how that is known.

use std::fmt;
use std::time::Duration;

use crate::plan::LONGEST;
use crate::platform::{Platform, Unit};

/// When the platform kills the process after its signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KillAfter {
    /// Detected from the environment when signals are installed; see [`Platform`].
    #[default]
    Detect,
    /// Never. The timeouts of the phases still limit the shutdown.
    Never,
    /// After this time.
    After(Duration),
}

/// When the platform kills, and the source of that value.
pub(crate) struct Resolved {
    /// `None` if the platform does not kill.
    pub(crate) kill_after: Option<Duration>,
    pub(crate) source: Source,
    /// How to set the value if it could not be found.
    pub(crate) advice: Option<String>,
}

/// The source of the value of `kill-after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Known(String),
    /// The default of this platform.
    Assumed(Platform),
}

// === impl KillAfter ===

impl KillAfter {
    /// Returns the time and its source. May query systemd, which takes a second at most.
    pub(crate) fn resolve(self, env: impl Fn(&str) -> Option<String>) -> Resolved {
        let known = |kill_after, how: &str| Resolved {
            kill_after,
            source: Source::Known(how.into()),
            advice: None,
        };
        match self {
            Self::Never => known(None, "configured"),
            Self::After(after) => known(Some(after), "configured"),
            Self::Detect => {
                // Not our variable, so an invalid value is ignored. The log line about the deadline
                // then shows another source.
                let seconds = |name| {
                    let seconds = env(name).and_then(|value| value.trim().parse::<u64>().ok());
                    seconds.map(Duration::from_secs).filter(|span| *span <= LONGEST)
                };
                if let Some(grace) = seconds("TERMINATION_GRACE_PERIOD_SECONDS") {
                    let spent = seconds("PRESTOP_SECONDS").unwrap_or_default();
                    let left = grace.saturating_sub(spent).max(Duration::from_secs(1));
                    return known(Some(left), "from TERMINATION_GRACE_PERIOD_SECONDS");
                }
                let platform = Platform::detect();
                let mut advice = None;
                if platform == Platform::Systemd {
                    match query_systemd() {
                        Ok(resolved) => return resolved,
                        Err(how_to_set) => advice = Some(how_to_set),
                    }
                }
                let kill_after = platform.kill_after();
                Resolved { kill_after, source: Source::Assumed(platform), advice }
            }
        }
    }
}

// === impl Source ===

impl Source {
    pub(crate) fn configured() -> Self {
        Self::Known("configured".into())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(how) => f.write_str(how),
            Self::Assumed(platform) if platform.kill_after().is_some() => {
                write!(f, "assumed for platform {platform}")
            }
            Self::Assumed(platform) => write!(f, "none on platform {platform}"),
        }
    }
}

/// Returns `TimeoutStopSec` of this process's unit, or advice on how to set it.
fn query_systemd() -> Result<Resolved, String> {
    let unit = Unit::current().ok_or_else(|| "the unit of this process is unknown".to_owned());
    let known = unit.and_then(|unit| Ok((unit.stop_timeout()?, unit)));
    known
        .map(|(kill_after, unit)| {
            let source = Source::Known(format!("TimeoutStopSec of {}", unit.name));
            Resolved { kill_after, source, advice: None }
        })
        .map_err(|problem: String| {
            format!(
                "TimeoutStopSec is unknown, assuming 90s: {problem}; set kill-after, or put \
                 Environment=ADIEU__KILL_AFTER=... with the value of TimeoutStopSec into the unit"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_grace_period_is_read_from_the_environment() {
        let resolve = |grace: &str, prestop: Option<&str>| {
            let env = |name: &str| match name {
                "TERMINATION_GRACE_PERIOD_SECONDS" => Some(grace.to_owned()),
                "PRESTOP_SECONDS" => prestop.map(str::to_owned),
                _ => None,
            };
            let Resolved { kill_after, source, .. } = KillAfter::Detect.resolve(env);
            source.to_string().starts_with("from TERMINATION").then_some(kill_after).flatten()
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(resolve("45", None), seconds(45));
        assert_eq!(resolve("45", Some("10")), seconds(35));
        assert_eq!(resolve("5", Some("10")), seconds(1));
        for invalid in ["45s", "", "-1", "18446744073709551615"] {
            assert_eq!(resolve(invalid, None), None, "{invalid}");
        }
        let after = KillAfter::After(Duration::from_secs(7));
        assert_eq!(after.resolve(|_| None).kill_after, seconds(7));
    }
}
