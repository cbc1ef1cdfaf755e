//! What is new between two looks at a service.

use adieu::{CheckState, Readiness, Stage};
use serde_json::{Value, json};

use crate::admin::{Seen, WaitingFor};
use crate::duration::short;
use crate::fit::harmless;

/// Something that is new.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Stage(Stage),
    Readiness(Readiness),
    Check { name: String, state: CheckState, detail: Option<String> },
    PhaseStarted(String),
    TaskStarted { phase: String, task: String },
    TaskOver { phase: String, task: String },
    PhaseOver(String),
}

/// What is new, in the order in which it can have happened. What began and ended between two looks
/// is not among it; the report has it.
pub(super) fn changes(before: Option<&Seen>, now: &Seen) -> Vec<Change> {
    let mut changes = Vec::new();
    if before.is_none_or(|before| before.stage != now.stage) && now.stage != Stage::Over {
        changes.push(Change::Stage(now.stage));
    }
    if before.is_none_or(|before| before.readiness != now.readiness) {
        changes.push(Change::Readiness(now.readiness));
    }
    let known = before.map_or(&[][..], |before| &before.checks);
    // In a shutdown those who speak for checks go, and nobody minds.
    let checks = if now.stage == Stage::Up { &now.checks[..] } else { &[] };
    for check in checks.iter().filter(|check| !known.contains(check)) {
        let (name, state, detail) = (check.name.clone(), check.state, check.detail.clone());
        changes.push(Change::Check { name, state, detail });
    }
    let before = before.map_or(&[][..], |before| &before.waiting_for);
    let is_in = |task: &WaitingFor, among: &[WaitingFor]| {
        among.iter().any(|other| other.phase == task.phase && other.task == task.task)
    };
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
    for WaitingFor { phase, task, .. } in
        before.iter().filter(|task| !is_in(task, &now.waiting_for))
    {
        changes.push(Change::TaskOver { phase: phase.clone(), task: task.clone() });
    }
    let ended = before.iter().filter(|task| !runs(&task.phase, &now.waiting_for)).collect();
    changes.extend(once(ended).into_iter().map(Change::PhaseOver));
    let begun = now.waiting_for.iter().filter(|task| !runs(&task.phase, before)).collect();
    changes.extend(once(begun).into_iter().map(Change::PhaseStarted));
    for WaitingFor { phase, task, .. } in now.waiting_for.iter().filter(|task| !is_in(task, before))
    {
        changes.push(Change::TaskStarted { phase: phase.clone(), task: task.clone() });
    }
    if now.stage == Stage::Over {
        changes.push(Change::Stage(now.stage));
    }
    changes
}

impl Change {
    /// One line for people.
    pub(super) fn text(&self, seen: &Seen) -> String {
        let what = match self {
            Self::Stage(Stage::ShuttingDown) => {
                let reason = seen.reason.as_deref().unwrap_or("for no reason that is known");
                format!("shutting down, {} left: {reason}", short(seen.remaining))
            }
            Self::Stage(Stage::Over) => "shutdown over".into(),
            Self::Stage(Stage::Up | _) => "up".into(),
            Self::Readiness(readiness) => readiness.to_string(),
            Self::Check { name, state, detail } => {
                let detail =
                    detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}"));
                format!("check {name} {}{detail}", word(*state))
            }
            Self::PhaseStarted(phase) => format!("{phase} started"),
            Self::PhaseOver(phase) => format!("{phase} over"),
            Self::TaskStarted { phase, task } => format!("{phase} / {task} started"),
            Self::TaskOver { phase, task } => format!("{phase} / {task} over"),
        };
        let elapsed = if seen.stage == Stage::Up { "-".into() } else { short(seen.elapsed) };
        format!("{elapsed:>7}  {}\n", harmless(&what))
    }

    /// One line for programs.
    pub(super) fn json(&self, seen: &Seen) -> String {
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
            Self::PhaseOver(phase) => json!({ "change": "phase-over", "phase": phase }),
            Self::TaskStarted { phase, task } => {
                json!({ "change": "task-started", "phase": phase, "task": task })
            }
            Self::TaskOver { phase, task } => {
                json!({ "change": "task-over", "phase": phase, "task": task })
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

    fn seen(stage: &str, tasks: &[(&str, &str)]) -> Seen {
        let task = |(phase, task): &(&str, &str)| json!({ "phase": phase, "task": task });
        let tasks: Vec<_> = tasks.iter().map(task).collect();
        let readiness = if stage == "up" { "ready" } else { "draining" };
        let status = json!({ "stage": stage, "readiness": readiness, "waiting_for": tasks });
        Seen::new(status).unwrap()
    }

    #[test]
    fn what_is_over_comes_before_what_begins_and_the_end_comes_last() {
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
            0s  shutting down, 0s left: for no reason that is known
            0s  draining
            0s  unbind started
            0s  unbind / close a started
            0s  unbind / close b started
            0s  unbind / close a over
            0s  unbind / close b over
            0s  unbind over
            0s  stop started
            0s  stop / cut a started
            0s  stop / cut a over
            0s  stop over
            0s  shutdown over
        "#]]
        .assert_eq(&said);
    }
}
