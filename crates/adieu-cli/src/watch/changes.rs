//! The changes between two observations of a service.

use std::time::Duration;

use adieu::{CheckState, Outcome, Readiness, Stage};
use serde_json::{Value, json};

use crate::admin::{Observed, UncleanTask, WaitingFor};
use crate::duration::short;
use crate::fit::harmless;

/// A change of the state.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Stage(Stage),
    Readiness(Readiness),
    Check { name: String, state: CheckState, detail: Option<String> },
    PhaseStarted(String),
    TaskStarted { phase: String, task: String },
    TaskCancelled { phase: String, task: String, why: CancelCause },
    TaskOver { phase: String, task: String, end: End },
    PhaseOver { phase: String, outcome: Option<Outcome> },
}

/// Why a task is being cancelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CancelCause {
    /// Its timeout has elapsed.
    TimedOut,
    /// Its time was shortened, or it was being cancelled when it was first observed.
    Other,
}

/// How a task ended, as far as that is known. Older services report outcomes only at the end.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    Known(Outcome),
    /// The task had time left, so it was not cut off: it has finished or failed.
    InTime,
    /// The task had no time left.
    OutOfTime,
}

/// How much shorter the time of a task may appear only because polls take time.
const TOLERANCE: Duration = Duration::from_millis(50);

/// Returns the changes, in an order in which they can have happened. A task that began and ended
/// between two polls is missing; the report contains it.
pub(super) fn changes(before: Option<&Observed>, now: &Observed) -> Vec<Change> {
    let mut changes = Vec::new();
    if before.is_none_or(|before| before.stage != now.stage) && now.stage != Stage::Over {
        changes.push(Change::Stage(now.stage));
    }
    if before.is_none_or(|before| before.readiness != now.readiness) {
        changes.push(Change::Readiness(now.readiness));
    }
    let known = before.map_or(&[][..], |before| &before.checks);
    // In a shutdown the owners of checks end, so failing checks are not reported.
    let checks = if now.stage == Stage::Up { &now.checks[..] } else { &[] };
    for check in checks.iter().filter(|check| !known.contains(check)) {
        let (name, state, detail) = (check.name.clone(), check.state, check.detail.clone());
        changes.push(Change::Check { name, state, detail });
    }
    let between = now.elapsed.saturating_sub(before.map_or(now.elapsed, |before| before.elapsed));
    let before = before.map_or(&[][..], |before| &before.waiting_for);
    let is_in =
        |task: &WaitingFor, among: &[WaitingFor]| among.iter().any(|other| is_same(task, other));
    let runs = |phase: &str, among: &[WaitingFor]| among.iter().any(|task| task.phase == phase);
    let once = |phases: Vec<&WaitingFor>| {
        let mut names: Vec<String> = Vec::new();
        for task in phases {
            if !names.contains(&task.phase) {
                names.push(task.phase.clone());
            }
        }
        names
    };
    for task in before.iter().filter(|task| !is_in(task, &now.waiting_for)) {
        let end = end_of(task, between, now);
        let (phase, task) = (task.phase.clone(), task.task.clone());
        changes.push(Change::TaskOver { phase, task, end });
    }
    let ended = before.iter().filter(|task| !runs(&task.phase, &now.waiting_for)).collect();
    changes.extend(once(ended).into_iter().map(|phase| {
        let report = now.report.as_ref().and_then(|report| report.phase(&phase));
        let outcome = report.map(|report| report.outcome.clone());
        Change::PhaseOver { phase, outcome }
    }));
    let begun = now.waiting_for.iter().filter(|task| !runs(&task.phase, before)).collect();
    changes.extend(once(begun).into_iter().map(Change::PhaseStarted));
    for WaitingFor { phase, task, .. } in now.waiting_for.iter().filter(|task| !is_in(task, before))
    {
        changes.push(Change::TaskStarted { phase: phase.clone(), task: task.clone() });
    }
    for task in now.waiting_for.iter().filter(|task| is_cancelled(task)) {
        let known = before.iter().find(|other| is_same(task, other));
        if known.is_some_and(is_cancelled) {
            continue;
        }
        let left = known.and_then(WaitingFor::left);
        let is_timeout = left.is_some_and(|left| left <= between + TOLERANCE);
        let why = if is_timeout { CancelCause::TimedOut } else { CancelCause::Other };
        let (phase, task) = (task.phase.clone(), task.task.clone());
        changes.push(Change::TaskCancelled { phase, task, why });
    }
    if now.stage == Stage::Over {
        changes.push(Change::Stage(now.stage));
    }
    changes
}

fn is_same(one: &WaitingFor, other: &WaitingFor) -> bool {
    one.phase == other.phase && one.task == other.task
}

fn is_cancelled(task: &WaitingFor) -> bool {
    task.left().is_some_and(|left| left.is_zero())
}

/// Returns how a task ended that was observed before and is gone `now`, after the time `between`.
fn end_of(task: &WaitingFor, between: Duration, now: &Observed) -> End {
    let report = now.report.as_ref().and_then(|report| report.phase(&task.phase)?.task(&task.task));
    let is_same = |other: &&UncleanTask| other.phase == task.phase && other.task == task.task;
    let unclean = now.unclean.as_ref().map(|unclean| {
        let listed = unclean.iter().find(is_same);
        listed.map_or(Outcome::Finished, |listed| listed.outcome.clone())
    });
    let known = report.map(|report| report.outcome.clone()).or(unclean);
    match (known, task.left()) {
        (Some(outcome), _) => End::Known(outcome),
        (None, Some(left)) if left <= between => End::OutOfTime,
        (None, Some(_) | None) => End::InTime,
    }
}

impl Change {
    /// Returns a line for people.
    pub(super) fn text(&self, seen: &Observed) -> String {
        let what = match self {
            Self::Stage(Stage::ShuttingDown) => {
                let reason = seen.reason.as_deref().unwrap_or("reason unknown");
                format!("shutting down, {} left: {reason}", short(seen.remaining))
            }
            Self::Stage(Stage::Over) => match &seen.report {
                Some(report) => {
                    format!("shutdown over: {}, exit code {}", report.outcome, report.exit_code)
                }
                None => "shutdown over".into(),
            },
            Self::Stage(Stage::Up | _) => match &seen.process {
                Some(process) => format!("{process} up for {}", short(process.uptime())),
                None => "up".into(),
            },
            Self::Readiness(readiness) => readiness.to_string(),
            Self::Check { name, state, detail } => {
                let detail =
                    detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}"));
                format!("check {name} {}{detail}", word(*state))
            }
            Self::PhaseStarted(phase) => format!("{phase} started"),
            Self::PhaseOver { phase, outcome: Some(outcome) } => format!("{phase} {outcome}"),
            Self::PhaseOver { phase, outcome: None } => format!("{phase} over"),
            Self::TaskStarted { phase, task } => format!("{phase} / {task} started"),
            Self::TaskCancelled { phase, task, why } => match why {
                CancelCause::TimedOut => format!("{phase} / {task} timed out, is being cancelled"),
                CancelCause::Other => {
                    format!("{phase} / {task} has no time left, is being cancelled")
                }
            },
            Self::TaskOver { phase, task, end } => match end {
                End::Known(outcome) => format!("{phase} / {task} {outcome}"),
                End::InTime => format!("{phase} / {task} ended"),
                End::OutOfTime => format!("{phase} / {task} ended, out of time"),
            },
        };
        let elapsed = if seen.stage == Stage::Up { "-".into() } else { short(seen.elapsed) };
        format!("{elapsed:>7}  {}\n", harmless(&what))
    }

    /// Returns a line for programs.
    pub(super) fn json(&self, seen: &Observed) -> String {
        let mut object = match self {
            Self::Stage(stage) => {
                let mut object =
                    json!({ "change": "stage", "stage": stage, "reason": seen.reason });
                if *stage == Stage::Over {
                    object["report"] = seen.raw.get("report").cloned().unwrap_or_default();
                }
                object
            }
            Self::Readiness(readiness) => json!({ "change": "readiness", "readiness": readiness }),
            Self::Check { name, state, detail } => {
                json!({ "change": "check", "name": name, "state": state, "detail": detail })
            }
            Self::PhaseStarted(phase) => json!({ "change": "phase-started", "phase": phase }),
            Self::PhaseOver { phase, outcome } => {
                json!({ "change": "phase-over", "phase": phase, "outcome": outcome })
            }
            Self::TaskStarted { phase, task } => {
                json!({ "change": "task-started", "phase": phase, "task": task })
            }
            Self::TaskCancelled { phase, task, why } => {
                let timed_out = *why == CancelCause::TimedOut;
                json!({ "change": "task-cancelled", "phase": phase, "task": task, "timed_out": timed_out })
            }
            Self::TaskOver { phase, task, end } => {
                let (outcome, in_time) = match end {
                    End::Known(outcome) => (Some(outcome), outcome.is_clean()),
                    End::InTime => (None, true),
                    End::OutOfTime => (None, false),
                };
                json!({ "change": "task-over", "phase": phase, "task": task, "outcome": outcome, "in_time": in_time })
            }
        };
        for field in ["elapsed_ms", "remaining_ms", "in_flight"] {
            object[field] = seen.raw.get(field).cloned().unwrap_or(Value::Null);
        }
        format!("{object}\n")
    }
}

fn word(state: CheckState) -> &'static str {
    match state {
        CheckState::Ready => "ready",
        CheckState::Failed => "failed",
        CheckState::Pending | _ => "not yet",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(stage: &str, tasks: &[(&str, &str)]) -> Observed {
        let task = |(phase, task): &(&str, &str)| json!({ "phase": phase, "task": task });
        let tasks: Vec<_> = tasks.iter().map(task).collect();
        let readiness = if stage == "up" { "ready" } else { "draining" };
        let status = json!({ "stage": stage, "readiness": readiness, "waiting_for": tasks });
        Observed::new(status).unwrap()
    }

    #[test]
    fn endings_come_before_beginnings_and_the_end_last() {
        let looks = [
            seen("up", &[]),
            seen("shutting-down", &[("unbind", "close a"), ("unbind", "close b")]),
            seen("shutting-down", &[("unbind", "close b")]),
            seen("shutting-down", &[("stop", "cut a")]),
            seen("over", &[]),
        ];
        let mut said = String::new();
        let mut before = None;
        for look in &looks {
            said.extend(changes(before, look).iter().map(|change| {
                let text = change.text(look);
                format!("{}\n", text.trim())
            }));
            before = Some(look);
        }
        expect_test::expect![[r#"
            -  up
            -  ready
            0s  shutting down, 0s left: reason unknown
            0s  draining
            0s  unbind started
            0s  unbind / close a started
            0s  unbind / close b started
            0s  unbind / close a ended
            0s  unbind / close b ended
            0s  unbind over
            0s  stop started
            0s  stop / cut a started
            0s  stop / cut a ended
            0s  stop over
            0s  shutdown over
        "#]]
        .assert_eq(&said);
    }
    /// Returns the state with a task that has this much time left, this long after the beginning.
    fn running(elapsed_ms: u64, left_ms: u64) -> Observed {
        let task = json!({ "phase": "stop", "task": "flush", "left_ms": left_ms });
        let status = json!({
            "stage": "shutting-down", "readiness": "draining",
            "elapsed_ms": elapsed_ms, "waiting_for": [task],
        });
        Observed::new(status).unwrap()
    }

    fn gone(elapsed_ms: u64) -> Observed {
        let status = json!({
            "stage": "shutting-down", "readiness": "draining", "elapsed_ms": elapsed_ms,
        });
        Observed::new(status).unwrap()
    }

    fn last_of(before: &Observed, now: &Observed) -> String {
        let changes = changes(Some(before), now);
        let task = |change: &&Change| {
            matches!(change, Change::TaskOver { .. } | Change::TaskCancelled { .. })
        };
        changes.iter().find(task).map_or_else(String::new, |change| change.text(now))
    }

    #[test]
    fn s484_a_task_that_failed_is_shown_as_failed_before_the_end() {
        let failed = json!({
            "stage": "shutting-down", "readiness": "draining", "elapsed_ms": 1_100,
            "unclean": [{ "phase": "stop", "task": "flush",
                "outcome": { "kind": "failed", "error": "disk full" } }],
        });
        let said = last_of(&running(1_000, 4_000), &Observed::new(failed).unwrap());
        assert!(said.ends_with("stop / flush failed: disk full\n"), "{said}");
        let finished = json!({
            "stage": "shutting-down", "readiness": "draining", "elapsed_ms": 1_100, "unclean": [],
        });
        let said = last_of(&running(1_000, 4_000), &Observed::new(finished).unwrap());
        assert!(said.ends_with("stop / flush finished\n"), "{said}");
    }

    #[test]
    fn s323_a_task_that_timed_out_is_not_reported_as_over() {
        let cases = [
            (running(1_000, 80), running(1_100, 0), "flush timed out, is being cancelled"),
            (
                running(1_000, 4_000),
                running(1_100, 0),
                "flush has no time left, is being cancelled",
            ),
            (running(1_100, 0), gone(1_300), "flush ended, out of time"),
            // The task was cancelled and ended between two polls.
            (running(1_000, 80), gone(1_100), "flush ended, out of time"),
            (running(1_000, 4_000), gone(1_100), "flush ended\n"),
        ];
        for (before, now, expected) in cases {
            let said = last_of(&before, &now);
            assert!(said.contains(expected), "{expected}: {said}");
        }
        assert_eq!(last_of(&running(1_100, 0), &running(1_200, 0)), "", "it is reported once");
    }
}
