//! What a manifest says about stopping one process.

use std::time::Duration;

use adieu::Platform;

use super::place::{Finding, Place};

/// A process that somebody stops.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Deployment, unit, service.
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Which of its containers; empty if there is no such thing.
    pub(crate) container: String,
    pub(crate) place: Place,
    pub(crate) supervisor: Supervisor,
    pub(crate) grace: Grace,
    /// How long the platform waits before it sends its signal.
    pub(crate) pre_stop: Duration,
    /// Whether that fails, so that it waits no time at all.
    pub(crate) pre_stop_fails: bool,
    /// How many native sidecars are stopped after it.
    pub(crate) sidecars: u32,
    /// What the process is told of all this in its environment.
    pub(crate) told: Told,
    /// Where it is told, if it is.
    pub(crate) told_at: Option<Place>,
    /// How long it takes a balancer that probes as the manifest does, and where that says so.
    pub(crate) probe: Option<(Duration, Place)>,
    /// Where it says that there is no other of its kind, if it does.
    pub(crate) alone: Option<Place>,
    /// Whether routers send requests to it that must be sent elsewhere.
    pub(crate) routed: bool,
    pub(crate) findings: Vec<Finding>,
}

/// Who stops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supervisor {
    Kubernetes,
    Systemd,
    Compose,
    /// No manifest says.
    Unknown,
}

/// How long the platform waits before it kills.
#[derive(Clone, Debug)]
pub(crate) struct Grace {
    /// `None` if it never does.
    pub(crate) span: Option<Duration>,
    /// Whether the key is not there, and the platform's own habit holds.
    pub(crate) assumed: bool,
    /// Where it is set, or would be.
    pub(crate) place: Place,
}

/// What the environment of the process says, as the engine reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) grace: Option<u64>,
    pub(crate) pre_stop: Option<u64>,
}

/// The variables by which it is told.
pub(crate) const GRACE_VAR: &str = "TERMINATION_GRACE_PERIOD_SECONDS";
pub(crate) const PRE_STOP_VAR: &str = "PRESTOP_SECONDS";

// === impl Workload ===

impl Workload {
    /// One that nobody has described.
    pub(crate) fn nameless() -> Self {
        Self {
            kind: "configuration".into(),
            name: String::new(),
            container: String::new(),
            place: Place::start(),
            supervisor: Supervisor::Unknown,
            grace: Grace::habit_of(Supervisor::Unknown, Place::start()),
            pre_stop: Duration::ZERO,
            pre_stop_fails: false,
            sidecars: 0,
            told: Told::default(),
            told_at: None,
            probe: None,
            alone: None,
            routed: true,
            findings: Vec::new(),
        }
    }

    /// How it is called where there are several.
    pub(crate) fn title(&self) -> String {
        match self.container.as_str() {
            "" => format!("{} {}", self.kind, self.name).trim_end().to_owned(),
            container => format!("{} {}, container {container}", self.kind, self.name),
        }
    }

    /// Whether this is the one that was asked for.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.container == name
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// The key that says how long it waits.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Kubernetes => "terminationGracePeriodSeconds",
            Self::Systemd => "TimeoutStopSec",
            Self::Compose => "stop_grace_period",
            Self::Unknown => "grace",
        }
    }

    /// How long it waits if nobody says, and what the process takes it to be if nobody tells it.
    pub(crate) fn habit(self) -> Duration {
        let platform = match self {
            Self::Kubernetes | Self::Unknown => Platform::Kubernetes,
            Self::Systemd => Platform::Systemd,
            Self::Compose => Platform::Docker,
        };
        platform.kill_after().unwrap_or_default()
    }
}

// === impl Grace ===

impl Grace {
    /// What the key says.
    pub(crate) fn said(span: Option<Duration>, place: Place) -> Self {
        Self { span, assumed: false, place }
    }

    /// The key is not there, but would be at this place.
    pub(crate) fn habit_of(supervisor: Supervisor, place: Place) -> Self {
        let path = format!("{}.{}", place.path, supervisor.key());
        let place = Place { path: path.trim_start_matches('.').into(), ..place };
        Self { span: Some(supervisor.habit()), assumed: true, place }
    }
}

// === impl Told ===

impl Told {
    /// Takes what a variable says; whether it is one that says how long there is.
    pub(crate) fn hear(&mut self, name: &str, value: &str) -> bool {
        let seconds = value.trim().parse().ok();
        match name {
            GRACE_VAR => self.grace = seconds,
            PRE_STOP_VAR => self.pre_stop = seconds,
            _ => {}
        }
        name == GRACE_VAR
    }

    /// How long the process takes itself to have; `None` if it is not told.
    pub(crate) fn kill_after(self) -> Option<Duration> {
        let left = self.grace?.saturating_sub(self.pre_stop.unwrap_or_default());
        Some(Duration::from_secs(left.max(1)))
    }
}
