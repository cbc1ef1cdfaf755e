//! The state of a service, as the admin port reports it.

use std::time::Duration;

use adieu::{CheckState, Outcome, Readiness, Report, Stage};
use serde::Deserialize;
use serde_json::Value;

use crate::fit::harmless;

/// The state of a service, as the admin port reports it.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    /// `None` if the service is too old to send it.
    pub(crate) process: Option<Process>,
    pub(crate) stage: Stage,
    pub(crate) readiness: Readiness,
    pub(crate) reason: Option<String>,
    pub(crate) elapsed: Duration,
    pub(crate) remaining: Duration,
    pub(crate) waiting_for: Vec<WaitingFor>,
    /// The tasks that did not end as they should; `None` if the service is too old to send them.
    pub(crate) unclean: Option<Vec<UncleanTask>>,
    pub(crate) checks: Vec<Check>,
    /// `None` if the service does not report it.
    pub(crate) in_flight: Option<u64>,
    /// Whether work is admitted; `None` if the service does not report it.
    pub(crate) admitting: Option<bool>,
    pub(crate) gates: Vec<Gate>,
    pub(crate) report: Option<Box<Report>>,
    /// The whole answer, for programs.
    pub(crate) raw: Value,
}

/// The process that answered.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Process {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) host: Option<String>,
    pub(crate) pid: u64,
    #[serde(default)]
    uptime_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct WaitingFor {
    pub(crate) phase: String,
    pub(crate) task: String,
    #[serde(default)]
    pub(crate) age_ms: f64,
    #[serde(default)]
    pub(crate) left_ms: Option<f64>,
    #[serde(default)]
    pub(crate) detail: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) state: CheckState,
    pub(crate) detail: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct UncleanTask {
    pub(crate) phase: String,
    pub(crate) task: String,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Gate {
    pub(crate) name: String,
    pub(crate) in_flight: u64,
}

/// The answer as it is sent. Older services, and answers to a change, leave out fields.
#[derive(Deserialize)]
struct Sent {
    #[serde(default)]
    process: Option<Process>,
    stage: String,
    readiness: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    elapsed_ms: f64,
    #[serde(default)]
    remaining_ms: f64,
    #[serde(default)]
    waiting_for: Vec<WaitingFor>,
    #[serde(default)]
    unclean: Option<Vec<UncleanTask>>,
    #[serde(default)]
    checks: Vec<SentCheck>,
    #[serde(default)]
    in_flight: Option<u64>,
    #[serde(default)]
    admitting: Option<bool>,
    #[serde(default)]
    gates: Vec<Gate>,
}

#[derive(Deserialize)]
struct SentCheck {
    name: String,
    state: String,
    #[serde(default)]
    detail: Option<String>,
}

impl Observed {
    /// Returns `None` if this is not the answer of an admin port.
    pub(crate) fn new(raw: Value) -> Option<Self> {
        let Sent {
            process,
            stage,
            readiness,
            reason,
            elapsed_ms,
            remaining_ms,
            waiting_for,
            unclean,
            checks,
            in_flight,
            admitting,
            gates,
        } = Sent::deserialize(&raw).ok()?;
        let report = raw.get("report").filter(|report| !report.is_null());
        let report = report.and_then(|report| crate::report::from_value(report.clone()).ok());
        Some(Self {
            process,
            stage: match stage.as_str() {
                "up" => Stage::Up,
                "shutting-down" => Stage::ShuttingDown,
                "over" => Stage::Over,
                _ => return None,
            },
            readiness: match readiness.as_str() {
                "starting" => Readiness::Starting,
                "ready" => Readiness::Ready,
                "unavailable" => Readiness::Unavailable,
                "cordoned" => Readiness::Cordoned,
                "draining" => Readiness::Draining,
                "stopping" => Readiness::Stopping,
                _ => return None,
            },
            reason,
            elapsed: millis(elapsed_ms),
            remaining: millis(remaining_ms),
            waiting_for,
            unclean,
            checks: checks.into_iter().filter_map(Check::new).collect(),
            in_flight,
            admitting,
            gates,
            report: report.map(Box::new),
            raw,
        })
    }

    /// Returns `3 in flight: http 2, orders 1`, or `None` if the service does not report it.
    pub(crate) fn in_flight_line(&self) -> Option<String> {
        let sum = self.in_flight?;
        let busy = self.gates.iter().filter(|gate| gate.in_flight > 0);
        let gates: Vec<_> =
            busy.map(|Gate { name, in_flight }| format!("{name} {in_flight}")).collect();
        let line = match gates.is_empty() {
            true => format!("{sum} in flight"),
            false => format!("{sum} in flight: {}", gates.join(", ")),
        };
        Some(harmless(&line).into_owned())
    }
}

impl Check {
    fn new(sent: SentCheck) -> Option<Self> {
        let SentCheck { name, state, detail } = sent;
        let state = match state.as_str() {
            "pending" => CheckState::Pending,
            "ready" => CheckState::Ready,
            "failed" => CheckState::Failed,
            _ => return None,
        };
        Some(Self { name, state, detail })
    }
}

impl Process {
    pub(crate) fn uptime(&self) -> Duration {
        millis(self.uptime_ms)
    }

    /// Returns whether this is another process than `before`. Several replicas behind one address
    /// differ by host or process number, a successor by its uptime.
    pub(crate) fn is_another_than(&self, before: &Self) -> bool {
        self.host != before.host || self.pid != before.pid || self.uptime_ms < before.uptime_ms
    }
}

/// `orders (process 4711 on pod-7)`.
impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, host, pid, uptime_ms: _ } = self;
        let host = host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
        write!(f, "{} (process {pid}{})", harmless(name), harmless(&host))
    }
}

impl WaitingFor {
    pub(crate) fn age(&self) -> Duration {
        millis(self.age_ms)
    }

    /// Returns how long until the task is cancelled: zero if it is being cancelled.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.left_ms.map(millis)
    }
}

fn millis(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1e3).unwrap_or_default()
}
