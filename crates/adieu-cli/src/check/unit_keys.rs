//! The keys of a unit that hold one value, by the rules of systemd.
//!
//! systemd ignores a value that it does not accept, and keeps the value that was set before it. An
//! empty value is such a value for all of these keys but `KillMode`.

use std::time::Duration;

use super::ini::{Ini, Setting};
use super::place::{Finding, Fix, Level};
use super::signs::Sign;
use super::workload::Workload;
use super::{launch, spans, stop_signal};

pub(crate) const SERVICE: &str = "Service";

/// The kind of value that a key takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Span,
    Signal,
    KillMode,
    Boolean,
}

/// The keys that decide how a service is stopped.
const KEYS: [(&str, Kind); 7] = [
    ("TimeoutStopSec", Kind::Span),
    ("TimeoutSec", Kind::Span),
    ("KillSignal", Kind::Signal),
    ("RestartKillSignal", Kind::Signal),
    ("KillMode", Kind::KillMode),
    ("SendSIGHUP", Kind::Boolean),
    ("SendSIGKILL", Kind::Boolean),
];

const KILL_MODES: [&str; 4] = ["control-group", "mixed", "process", "none"];

/// Parses a boolean of systemd, in any case.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" | "true" | "t" | "on" => Some(true),
        "0" | "no" | "n" | "false" | "f" | "off" => Some(false),
        _ => None,
    }
}

/// Returns the setting of a key that counts: the last one with a value that systemd accepts.
pub(crate) fn last<'a>(unit: &'a Ini, key: &str) -> Option<&'a Setting> {
    let kind = KEYS.iter().find(|(known, _)| *known == key).map(|(_, kind)| *kind)?;
    let settings = unit.settings(SERVICE).filter(|setting| setting.key == key);
    settings.filter(|setting| kind.accepts(&setting.value)).last()
}

/// Returns the setting of a boolean that is on.
pub(crate) fn on<'a>(unit: &'a Ini, key: &str) -> Option<&'a Setting> {
    last(unit, key).filter(|setting| boolean(&setting.value) == Some(true))
}

/// Returns the setting of a boolean that is off.
pub(crate) fn off<'a>(unit: &'a Ini, key: &str) -> Option<&'a Setting> {
    last(unit, key).filter(|setting| boolean(&setting.value) == Some(false))
}

/// Returns the mode of `KillMode`, if one is set.
pub(crate) fn kill_mode(unit: &Ini) -> Option<&Setting> {
    last(unit, "KillMode").filter(|mode| !mode.value.is_empty())
}

/// Returns the time that `TimeoutStopSec` and `TimeoutSec` set, and the setting that counts. The last
/// of both counts.
pub(crate) fn stop_timeout(unit: &Ini) -> Option<(Option<Duration>, &Setting)> {
    let of = |setting: &Setting| match setting.key.as_str() {
        "TimeoutStopSec" | "TimeoutSec" => spans::systemd(&setting.value).ok(),
        _ => None,
    };
    unit.settings(SERVICE).filter_map(|setting| Some((of(setting)?, setting))).last()
}

/// Returns whether standard input is a terminal, by which a process concludes that a person runs
/// it.
pub(crate) fn terminal(unit: &Ini) -> Sign {
    let input = unit.last(SERVICE, "StandardInput").map(|setting| setting.value.as_str());
    match input {
        Some("tty" | "tty-force" | "tty-fail") => Sign::Present,
        Some("" | "null" | "data" | "socket" | "file:/dev/null") | None => Sign::Usual,
        Some(_) => Sign::Unseen,
    }
}

/// Returns the finding about several commands, of which systemd accepts only one.
pub(crate) fn several_starts(unit: &Ini) -> Option<Finding> {
    let kind = unit.last(SERVICE, "Type").map(|kind| kind.value.as_str());
    let starts = unit.list(SERVICE, "ExecStart");
    let second = starts.get(1).filter(|_| kind != Some("oneshot"))?;
    let problem = "systemd refuses a unit with several ExecStart, unless it has Type=oneshot";
    let advice = "keep one; in a drop-in, write an empty ExecStart= before it";
    Some(Finding::new(Level::Unknown, second.place.clone(), problem, advice))
}

/// Returns the finding about a limit of processor time.
pub(crate) fn cpu_limit(unit: &Ini) -> Option<Finding> {
    let limit = last_of(unit, "LimitCPU").filter(|limit| limit.value != "infinity")?;
    let finding = launch::limits_processor_time(limit.place.clone());
    Some(finding.fixed_by(Fix::Line("LimitCPU=infinity".into())))
}

fn last_of<'a>(unit: &'a Ini, key: &str) -> Option<&'a Setting> {
    unit.last(SERVICE, key).filter(|setting| !setting.value.is_empty())
}

/// Returns the finding about a job that may not take long, if something else happens then.
pub(crate) fn job_timeout(unit: &Ini) -> Option<Finding> {
    let action = unit.last("Unit", "JobTimeoutAction").filter(|action| action.value != "none")?;
    let keys = ["JobTimeoutSec", "JobRunningTimeoutSec"];
    let limit = keys.iter().find_map(|key| unit.last("Unit", key))?;
    let problem = format!("a stop that takes longer ends in {}", action.value);
    let advice = "leave it out: TimeoutStopSec is the limit of a stop";
    let finding = Finding::new(Level::Unknown, limit.place.clone(), problem, advice);
    Some(finding.fixed_by(Fix::Line("JobTimeoutAction=none".into())))
}

/// Returns the finding about a unit that systemd does not stop when the machine shuts down. Then its
/// processes are signalled last of all, together with the others that still run.
pub(crate) fn without_shutdown(unit: &Ini) -> Option<Finding> {
    let default = unit.last("Unit", "DefaultDependencies");
    let off = default.filter(|setting| boolean(&setting.value) == Some(false))?;
    let conflicts = unit.list("Unit", "Conflicts");
    let mut conflicts = conflicts.iter().flat_map(|setting| setting.value.split_whitespace());
    if conflicts.any(|other| other == "shutdown.target") {
        return None;
    }
    let problem = "systemd does not stop this unit before the machine shuts down";
    let advice = "leave it out, or write Conflicts=shutdown.target and Before=shutdown.target";
    let finding = Finding::new(Level::Unknown, off.place.clone(), problem, advice);
    Some(finding.fixed_by(Fix::Line("DefaultDependencies=yes".into())))
}

/// Reports the values that systemd ignores.
pub(crate) fn report_ignored(unit: &Ini, workload: &mut Workload) {
    for (key, kind) in KEYS {
        let mut kept: Option<&Setting> = None;
        for setting in unit.settings(SERVICE).filter(|setting| setting.key == key) {
            workload.findings.extend(kind.ignored(setting, kept));
            if kind.accepts(&setting.value) {
                kept = Some(setting).filter(|setting| !setting.value.is_empty());
            }
        }
    }
}

// === impl Kind ===

impl Kind {
    fn accepts(self, value: &str) -> bool {
        match self {
            Self::Span => !value.is_empty() && spans::systemd(value).is_ok(),
            // An unknown name may be a signal, and is judged as one. Names in lower case are none.
            Self::Signal => !value.is_empty() && !is_lower_case(value),
            Self::KillMode => value.is_empty() || KILL_MODES.contains(&value),
            Self::Boolean => boolean(value).is_some(),
        }
    }

    /// Returns the finding about a value that does not have the effect that it seems to have.
    fn ignored(self, setting: &Setting, kept: Option<&Setting>) -> Option<Finding> {
        let Setting { key, value, place } = setting;
        let held = kept.map_or("the default", |kept| kept.value.as_str());
        if value.is_empty() && self == Self::KillMode {
            // Since version 246 an empty value restores the default.
            let kept = kept.filter(|kept| kept.value != "control-group")?;
            let problem = format!(
                "systemd before version 246 ignores the empty value and keeps {}",
                kept.value
            );
            let advice = "write KillMode=control-group";
            let fix = Fix::Line("KillMode=control-group".into());
            let finding = Finding::new(Level::Unknown, place.clone(), problem, advice);
            return Some(finding.fixed_by(fix));
        }
        if self.accepts(value) {
            return None;
        }
        if value.is_empty() {
            let problem = format!("an empty value does not reset {key}: {held} still holds");
            let advice = "write the value that is meant";
            return Some(Finding::new(Level::Warning, place.clone(), problem, advice));
        }
        let problem = format!("systemd ignores {value}, and {held} holds");
        let advice = match self {
            Self::Span => "write a time such as 30s or 1min 30s",
            Self::Signal => "write a signal such as SIGTERM, in upper case",
            Self::KillMode => "write mixed, or leave it out",
            Self::Boolean => "write yes or no",
        };
        // Another version of systemd may accept it.
        Some(Finding::new(Level::Unknown, place.clone(), problem, advice))
    }
}

/// Returns whether a text would be a signal in upper case, but is not as it is written.
fn is_lower_case(text: &str) -> bool {
    stop_signal::is_known(text) && text.chars().any(|c| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::ini;

    /// Returns the values that hold, in the order of the keys.
    fn held(settings: &str) -> String {
        let unit = ini::read(&format!("[Service]\n{settings}"), None).unwrap();
        let timeout = stop_timeout(&unit).map(|(span, _)| format!("{span:?}"));
        let others = ["KillSignal", "RestartKillSignal", "KillMode", "SendSIGHUP"];
        let others = others.map(|key| last(&unit, key).map(|found| found.value.clone()));
        let all: Vec<_> = [timeout].into_iter().chain(others).flatten().collect();
        all.join(" ")
    }

    /// The expected values were read from systemd 252 with `systemctl show`.
    #[test]
    fn s830_a_value_that_systemd_does_not_accept_leaves_the_value_before_it() {
        for (settings, expected) in [
            ("TimeoutStopSec=10\nTimeoutStopSec=", "Some(10s)"),
            ("TimeoutSec=10\nTimeoutSec=", "Some(10s)"),
            ("TimeoutStopSec=10\nTimeoutSec=", "Some(10s)"),
            ("TimeoutStopSec=10\nTimeoutStopSec=soon", "Some(10s)"),
            ("TimeoutStopSec=60 ; was 90", ""),
            ("TimeoutStopSec=\"10\"", ""),
            ("TimeoutStopSec=10\nTimeoutSec=1min 20s", "Some(80s)"),
            ("TimeoutStopSec=10\nTimeoutStopSec=0", "None"),
            ("KillSignal=SIGQUIT\nKillSignal=", "SIGQUIT"),
            ("KillSignal=SIGQUIT\nKillSignal=sigterm", "SIGQUIT"),
            ("KillSignal=SIGQUIT\nKillSignal=TERM", "TERM"),
            ("RestartKillSignal=SIGQUIT\nRestartKillSignal=", "SIGQUIT"),
            ("KillMode=mixed\nKillMode=", ""),
            ("KillMode=mixed\nKillMode=bogus", "mixed"),
            ("SendSIGHUP=yes\nSendSIGHUP=", "yes"),
            ("SendSIGHUP=yes\nSendSIGHUP=maybe", "yes"),
        ] {
            assert_eq!(held(settings), expected, "{settings}");
        }
    }

    #[test]
    fn s831_booleans_of_systemd_are_read_in_each_spelling() {
        for text in ["1", "yes", "y", "true", "t", "on", "Yes", "T", "ON"] {
            assert_eq!(boolean(text), Some(true), "{text}");
        }
        for text in ["0", "no", "n", "false", "f", "off", "No", "F", "OFF"] {
            assert_eq!(boolean(text), Some(false), "{text}");
        }
        for text in ["", "maybe", "2", "yess", " yes"] {
            assert_eq!(boolean(text), None, "{text}");
        }
    }
}
