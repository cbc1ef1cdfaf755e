//! How a platform stops one process, according to its manifest. The same for all platforms.

use std::collections::BTreeMap;
use std::time::Duration;

use adieu_core::adapter::LONGEST_TIME;

use super::place::{Finding, Level, Place};
use super::signs::Signs;
use super::stop_signal::StopSignal;
use super::supervisor::{Cap, Grace, Supervisor};
use crate::fit::harmless;

/// A process that a platform stops.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Deployment, unit, service.
    pub(crate) kind: String,
    pub(crate) name: String,
    /// The container; empty if there is none.
    pub(crate) container: String,
    pub(crate) place: Place,
    pub(crate) supervisor: Supervisor,
    /// The platform as the process detects it, which may be only the inner one of two.
    pub(crate) seen_inside: Supervisor,
    /// The signs by which it detects that, as far as the manifest changes them.
    pub(crate) signs: Signs,
    pub(crate) grace: Grace,
    /// The longest grace period that the platform allows, if it has a limit.
    pub(crate) cap: Option<Cap>,
    /// The place where `TimeoutStopSec` is missing from a unit, so that the default of the machine
    /// counts.
    pub(crate) default_stop_timeout: Option<Place>,
    /// How long the platform waits before it sends its signal. Counts against the grace period.
    pub(crate) pre_stop: Duration,
    /// How many native sidecars are stopped after it.
    pub(crate) sidecars: u32,
    /// How long the preStop hooks of these sidecars take.
    pub(crate) sidecar_hooks: Duration,
    /// The signals that may be sent to stop it.
    pub(crate) signals: Vec<StopSignal>,
    /// The signals among them that are sent before the platform's own, and in addition to it.
    pub(crate) extra_signals: Vec<StopSignal>,
    /// The grace period and preStop time that the environment of the process states.
    pub(crate) stated: StatedTimes,
    /// The place of that variable.
    pub(crate) stated_at: Option<Place>,
    /// Whether variables that cannot be seen may state them.
    pub(crate) has_unseen_variables: bool,
    /// Variables that change its configuration.
    pub(crate) overrides: Vec<Override>,
    /// The file that it reads its configuration from, if the manifest names one.
    pub(crate) configured: Option<ConfigFile>,
    /// The variables of its environment, as far as they can be seen.
    pub(crate) environment: VisibleVariables,
    /// Processes of this library that are signalled only when this one has ended.
    pub(crate) late: Vec<Workload>,
    /// Other containers of the same pod or task that may be meant instead of this one.
    pub(crate) candidates: Vec<Workload>,
    /// Other components that stop it, with time limits of their own.
    pub(crate) other_stops: Vec<OtherStop>,
    /// How its variables are set.
    pub(crate) set_by: SetBy,
    /// How its manifest writes the grace period.
    pub(crate) format: Format,
    /// The time that a balancer with the same probe takes to notice, and the place of the probe.
    pub(crate) probe: Option<(Duration, Place)>,
    /// Grace periods that hold instead if a probe fails.
    pub(crate) probe_graces: Vec<(Duration, Place)>,
    /// The place that sets a single replica, if one does.
    pub(crate) alone: Option<Place>,
    /// Whether routers send requests to it that must be sent elsewhere.
    pub(crate) routed: bool,
    /// Whether its times are not known, so that there is nothing to add up.
    pub(crate) is_opaque: bool,
    pub(crate) findings: Vec<Finding>,
}

/// A variable in the manifest that overrides a key of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Override {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) place: Place,
}

/// How the variables of a process are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetBy {
    /// By lines of their own.
    Lines,
    /// By options of the command that starts the container.
    Flags,
    /// By the command of the process, which changes the variables that the manifest sets.
    Command,
}

/// The format of a manifest, where a platform has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Usual,
    /// ECS: keys with a capital letter.
    CloudFormation,
    /// Nomad: times in nanoseconds.
    NomadApi,
}

/// The file that a process reads its configuration from.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    /// The path for the process.
    pub(crate) path: String,
    /// Its content, if the manifest carries it.
    pub(crate) text: Option<String>,
    /// Why another file may be meant, if so.
    pub(crate) doubt: Option<&'static str>,
    pub(crate) place: Place,
}

/// The variables of a process that its manifest shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct VisibleVariables {
    pub(crate) values: BTreeMap<String, String>,
    /// The variables that are set, and whose values are elsewhere.
    pub(crate) hidden: BTreeMap<String, Place>,
    /// A source of variables that cannot be seen, if there is one.
    pub(crate) hidden_source: Option<Place>,
}

/// A component other than the platform that stops a process, with a time limit of its own.
#[derive(Clone, Debug)]
pub(crate) struct OtherStop {
    pub(crate) who: String,
    pub(crate) limit: Duration,
    /// The variable or option of the component that sets the limit, if there is one.
    pub(crate) key: Option<&'static str>,
    /// How bad it is if the limit is too short.
    pub(crate) level: Level,
    pub(crate) place: Place,
}

/// The times that the environment of the process states, as the engine reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatedTimes {
    pub(crate) grace: Option<u64>,
    pub(crate) pre_stop: Option<u64>,
}

/// The variables that state them.
pub(crate) const GRACE_VAR: &str = "TERMINATION_GRACE_PERIOD_SECONDS";
pub(crate) const PRE_STOP_VAR: &str = "PRESTOP_SECONDS";

/// The beginning of the line with which a unit sets its own timeout.
pub(crate) const STOP_TIMEOUT: &str = "TimeoutStopSec=";

/// The least `DefaultTimeoutStopSec` of common distributions.
pub(crate) const LEAST_STOP_TIMEOUT: Duration = Duration::from_secs(45);

/// The longest time that the engine accepts: a year.
const LONGEST: u64 = LONGEST_TIME.as_secs();

// === impl Workload ===

impl Workload {
    /// Returns the workload without a manifest.
    pub(crate) fn nameless() -> Self {
        Self::new(Supervisor::Unknown, "configuration", "", Place::start())
    }

    /// Creates a workload with the defaults of its platform.
    pub(crate) fn new(supervisor: Supervisor, kind: &str, name: &str, place: Place) -> Self {
        Self {
            kind: kind.into(),
            name: name.into(),
            container: String::new(),
            supervisor,
            seen_inside: supervisor,
            signs: Signs::default(),
            grace: Grace::default_of(supervisor, place.clone()),
            cap: supervisor.cap(),
            default_stop_timeout: None,
            pre_stop: Duration::ZERO,
            sidecars: 0,
            sidecar_hooks: Duration::ZERO,
            signals: Vec::new(),
            extra_signals: Vec::new(),
            stated: StatedTimes::default(),
            stated_at: None,
            has_unseen_variables: false,
            overrides: Vec::new(),
            configured: None,
            environment: VisibleVariables::default(),
            late: Vec::new(),
            candidates: Vec::new(),
            other_stops: Vec::new(),
            set_by: SetBy::Lines,
            format: Format::Usual,
            probe: None,
            probe_graces: Vec::new(),
            alone: None,
            routed: supervisor == Supervisor::Unknown,
            is_opaque: false,
            findings: Vec::new(),
            place,
        }
    }

    /// Creates a workload of which only the existence is known.
    pub(crate) fn unknown(
        kind: &str,
        name: &str,
        place: Place,
        problem: &str,
        advice: &str,
    ) -> Self {
        let finding = Finding::new(Level::Unknown, place.clone(), problem, advice);
        Self {
            findings: vec![finding],
            routed: false,
            is_opaque: true,
            ..Self::new(Supervisor::Unknown, kind, name, place)
        }
    }

    /// Returns the key of the grace period in its manifest.
    pub(crate) fn grace_key(&self) -> &'static str {
        match self.format {
            Format::Usual => self.supervisor.key(),
            Format::CloudFormation => "StopTimeout",
            Format::NomadApi => "KillTimeout",
        }
    }

    /// Returns the line of its manifest that sets the grace period.
    pub(crate) fn grace_line(&self, seconds: u64) -> String {
        let key = self.grace_key();
        match self.format {
            Format::Usual => self.supervisor.line(seconds),
            Format::CloudFormation => format!("{key}: {seconds}"),
            Format::NomadApi => format!("\"{key}\": {seconds}000000000"),
        }
    }

    /// Adds a signal that another program sends before the platform's own.
    pub(crate) fn add_extra_signal(&mut self, signal: StopSignal) {
        self.signals.push(signal.clone());
        self.extra_signals.push(signal);
    }

    /// Records that its grace period is set to a value that cannot be seen. Then there is nothing to add
    /// up.
    pub(crate) fn hide_grace(&mut self, place: Place, problem: impl Into<String>, advice: &str) {
        self.findings.push(Finding::new(Level::Unknown, place, problem, advice));
        self.is_opaque = true;
    }

    /// Its name in output about several workloads.
    pub(crate) fn title(&self) -> String {
        let title = match self.container.as_str() {
            "" => format!("{} {}", self.kind, self.name).trim_end().to_owned(),
            container => format!("{} {}, container {container}", self.kind, self.name),
        };
        harmless(&title).into_owned()
    }

    /// Returns whether the workload or its container has this name.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.container == name
    }

    /// Returns the time from the platform's request to stop until the kill.
    pub(crate) fn allowed(&self) -> Option<Duration> {
        let cap = self.cap.as_ref().map(|cap| cap.most);
        match (self.grace.span, cap) {
            (Some(span), Some(cap)) => Some(span.min(cap)),
            (span, cap) => span.or(cap),
        }
    }

    /// Returns whether the process queries systemd for its grace period, because nothing states
    /// one.
    pub(crate) fn asks_systemd(&self) -> bool {
        self.stated.grace.is_none() && self.signs.has_systemd(self.seen_inside)
    }

    /// Returns the grace periods that the process may assume from its signal on, if its configuration
    /// sets none, with the likeliest first. `None` is no limit.
    pub(crate) fn assumptions(&self) -> Vec<Option<Duration>> {
        if let Some(stated) = self.stated.kill_after() {
            return vec![Some(stated)];
        }
        let left = self.allowed().map(|grace| grace.saturating_sub(self.pre_stop));
        let mut all = self.signs.assumptions(self.seen_inside, left);
        if self.has_unseen_variables {
            all.push(left);
        }
        all
    }
}

// === impl StatedTimes ===

impl StatedTimes {
    /// Reads a variable. Returns whether it states the grace period.
    pub(crate) fn read_variable(&mut self, name: &str, value: &str) -> bool {
        let seconds = value.trim().parse().ok().filter(|seconds| *seconds <= LONGEST);
        match name {
            GRACE_VAR => self.grace = seconds,
            PRE_STOP_VAR => self.pre_stop = seconds,
            _ => {}
        }
        name == GRACE_VAR
    }

    /// Returns the time that the process assumes to have, or `None` if no variable states it.
    pub(crate) fn kill_after(self) -> Option<Duration> {
        let left = self.grace?.saturating_sub(self.pre_stop.unwrap_or_default());
        Some(Duration::from_secs(left.max(1)))
    }
}
