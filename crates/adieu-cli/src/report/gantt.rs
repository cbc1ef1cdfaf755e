//! The content of a report chart, for every format: its rows, and the phases that decided the
//! duration.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use adieu::{Outcome, PhaseReport, Report, TaskReport};

/// The longest time between the end of a dependency and the start of a phase that it allowed: the
/// engine makes a step every 20 ms at the latest.
const AT_ONCE: Duration = Duration::from_millis(25);

/// The error of a sum of times that are rounded to microseconds.
const ROUNDED: Duration = Duration::from_micros(3);

/// A report as rows.
pub(super) struct Gantt<'a> {
    pub(super) report: &'a Report,
    /// Phases that have tasks, each followed by them.
    pub(super) rows: Vec<Row<'a>>,
}

/// A phase, or a task in it.
#[derive(Clone)]
pub(super) struct Row<'a> {
    pub(super) phase: &'a str,
    /// `None` for the phase itself.
    pub(super) task: Option<&'a str>,
    pub(super) outcome: &'a Outcome,
    pub(super) detail: Option<&'a str>,
    /// The timeout of a phase; the timeout of a task is not reported.
    pub(super) timeout: Option<Duration>,
    /// When it started and how long it took, if it did.
    pub(super) ran: Option<(Duration, Duration)>,
    /// Whether it decided how long the shutdown took.
    pub(super) critical: bool,
}

impl<'a> Gantt<'a> {
    pub(super) fn new(report: &'a Report) -> Self {
        let critical: HashSet<usize> = critical_path(&report.phases).into_iter().collect();
        let mut rows = Vec::new();
        for (number, phase) in report.phases.iter().enumerate() {
            // A phase without tasks does nothing, and there are many of them.
            if phase.tasks.is_empty() {
                continue;
            }
            let is_critical = critical.contains(&number);
            rows.push(Row {
                phase: &phase.name,
                task: None,
                outcome: &phase.outcome,
                detail: None,
                timeout: Some(phase.timeout),
                ran: phase.started.zip(phase.took),
                critical: is_critical,
            });
            let last = phase.tasks.iter().filter_map(end_of_task).max();
            let mut decides = is_critical;
            for task in &phase.tasks {
                // Of several tasks that ended at the same time, only the first is marked.
                let critical = decides && last.is_some() && end_of_task(task) == last;
                decides = decides && !critical;
                rows.push(Row {
                    phase: &phase.name,
                    task: Some(&task.name),
                    outcome: &task.outcome,
                    detail: task.detail.as_deref(),
                    timeout: None,
                    ran: task.started.zip(task.took),
                    critical,
                });
            }
        }
        Self { report, rows }
    }

    /// Returns the phases that decided the duration, each with the task that ended last, and their
    /// times.
    pub(super) fn decided(&self) -> Vec<(Duration, String)> {
        let phases = self.rows.iter().filter(|row| row.critical && row.task.is_none());
        let task_of = |phase: &str| {
            let mut tasks = self.rows.iter().filter(|row| row.critical && row.task.is_some());
            tasks.find(|task| task.phase == phase)
        };
        let decided = phases.filter_map(|phase| {
            // A phase that took no time has decided nothing.
            let took = phase.took().filter(|took| *took >= Duration::from_millis(1))?;
            Some((took, task_of(phase.phase).unwrap_or(phase).full_name()))
        });
        decided.collect()
    }

    /// Returns the failures: tasks, and phases of which no task failed.
    pub(super) fn failures(&self) -> impl Iterator<Item = &Row<'a>> {
        let has_failed = |row: &&Row<'a>| !row.outcome.is_clean();
        let by_task: HashSet<&str> = self
            .rows
            .iter()
            .filter(|row| row.task.is_some())
            .filter(has_failed)
            .map(|row| row.phase)
            .collect();
        self.rows
            .iter()
            .filter(has_failed)
            .filter(move |row| row.task.is_some() || !by_task.contains(row.phase))
    }

    /// Returns `shutdown clean in 6.9s of 27s: SIGTERM, exit code 0`.
    pub(super) fn heading(&self) -> String {
        let Report { outcome, reason, took, allowed, exit_code, .. } = self.report;
        let (took, allowed) = (crate::duration::short(*took), crate::duration::short(*allowed));
        format!("shutdown {outcome} in {took} of {allowed}: {reason}, exit code {exit_code}")
    }
}

impl Row<'_> {
    pub(super) fn name(&self) -> &str {
        self.task.unwrap_or(self.phase)
    }

    /// Returns `service-requests-done / drain http`.
    pub(super) fn full_name(&self) -> String {
        match self.task {
            Some(task) => format!("{} / {task}", self.phase),
            None => self.phase.to_owned(),
        }
    }

    pub(super) fn took(&self) -> Option<Duration> {
        self.ran.map(|(_, took)| took)
    }

    pub(super) fn end(&self) -> Option<Duration> {
        self.ran.map(|(started, took)| started.saturating_add(took))
    }

    /// Returns the outcome, with the last progress of the task.
    pub(super) fn ended(&self) -> String {
        match self.detail {
            Some(detail) => format!("{} ({detail})", self.outcome),
            None => self.outcome.to_string(),
        }
    }
}

/// Returns the word for an outcome, and the class by which pictures colour it.
pub(super) fn appearance(outcome: &Outcome) -> (&'static str, &'static str) {
    // The sign distinguishes outcomes, so the colours follow it.
    match outcome.sign() {
        '+' => ("finished", "finished"),
        '-' => ("skipped", "skipped"),
        'x' => ("cancelled or aborted", "stopped"),
        '!' => ("failed or panicked", "failed"),
        '>' => ("timed out", "late"),
        _ => ("abandoned, still running", "left"),
    }
}

/// Returns the entries of a legend for the outcomes that occur: sign, word, class.
pub(super) fn legend<'a>(
    outcomes: impl Iterator<Item = &'a Outcome>,
) -> Vec<(char, &'static str, &'static str)> {
    let occurring: HashSet<char> = outcomes.map(Outcome::sign).collect();
    let all = [
        ('+', "finished", "finished"),
        ('-', "skipped", "skipped"),
        ('x', "cancelled or aborted", "stopped"),
        ('!', "failed or panicked", "failed"),
        ('>', "timed out", "late"),
        ('?', "abandoned, still running", "left"),
    ];
    all.into_iter().filter(|(sign, _, _)| occurring.contains(sign)).collect()
}

fn end_of_task(task: &TaskReport) -> Option<Duration> {
    Some(task.started?.saturating_add(task.took?))
}

fn end_of_phase(phase: &PhaseReport) -> Option<Duration> {
    Some(phase.started?.saturating_add(phase.took?))
}

/// Returns the phases that decided the duration, as indices, the last phase first: the phase that
/// ended last, before it the dependency of that phase that ended last, and so on.
fn critical_path(phases: &[PhaseReport]) -> Vec<usize> {
    let numbers: HashMap<&str, usize> =
        phases.iter().enumerate().map(|(number, phase)| (phase.name.as_str(), number)).collect();
    // If two end at the same time, the later one in the plan counts, so that a phase that takes no
    // time does not hide the phases after it.
    let last_of = |among: &mut dyn Iterator<Item = usize>| {
        among.filter_map(|number| Some((end_of_phase(&phases[number])?, number))).max()
    };
    let mut path = Vec::new();
    let mut seen = HashSet::new();
    // Limits the work in a report with many phases that never ran.
    let mut patience = 1_000_000;
    let mut at = last_of(&mut (0..phases.len()));
    while let Some((_, number)) = at {
        // A report may come from another tool: a cycle must not loop for ever.
        if !seen.insert(number) {
            break;
        }
        path.push(number);
        let Some(started) = phases[number].started else { break };
        // Times are rounded, and sums of them once more.
        let started = started.saturating_add(ROUNDED);
        let before = |other: &usize| {
            *other != number && end_of_phase(&phases[*other]).is_some_and(|end| end <= started)
        };
        let waited_for = waited_for(phases, &numbers, number, &mut patience);
        let dependency = last_of(&mut waited_for.into_iter().filter(before));
        at = match dependency {
            Some((end, _)) if started.saturating_sub(end) <= AT_ONCE => dependency,
            // The phase started later than its dependencies allow. In a sequential plan, a phase
            // waits for the phase before it, whether it depends on that phase or not.
            _ => last_of(&mut (0..phases.len()).filter(before))
                .filter(|(end, _)| dependency.is_some() || started.saturating_sub(*end) <= AT_ONCE),
        };
    }
    path
}

/// Returns the phases that a phase waited for. Phases that never ran are replaced by their own
/// dependencies.
fn waited_for(
    phases: &[PhaseReport],
    numbers: &HashMap<&str, usize>,
    number: usize,
    patience: &mut usize,
) -> HashSet<usize> {
    let mut found = HashSet::new();
    let mut open = vec![number];
    while let Some(at) = open.pop() {
        for on in phases[at].depends_on.iter().filter_map(|name| numbers.get(name.as_str())) {
            *patience = patience.saturating_sub(1);
            if found.insert(*on) && phases[*on].started.is_none() && *patience > 0 {
                open.push(*on);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name, the dependencies, the start and the duration of a phase.
    type Declared<'a> = (&'a str, &'a [&'a str], Option<(u64, u64)>);

    fn made(phases: &[Declared<'_>]) -> Vec<PhaseReport> {
        let phase = |(name, after, ran): &Declared<'_>| {
            let outcome = if ran.is_some() {
                serde_json::json!({ "kind": "finished" })
            } else {
                serde_json::json!({ "kind": "skipped", "because": { "cause": "disabled" } })
            };
            serde_json::json!({
                "name": name, "depends_on": after, "outcome": outcome, "timeout_ms": 5000,
                "started_ms": ran.map(|ran| ran.0), "took_ms": ran.map(|ran| ran.1), "tasks": [],
            })
        };
        let phases: Vec<_> = phases.iter().map(phase).collect();
        serde_json::from_value(phases.into()).unwrap()
    }

    fn path(phases: &[Declared<'_>]) -> Vec<String> {
        let phases = made(phases);
        let mut path = critical_path(&phases);
        path.reverse();
        path.into_iter().map(|number| phases[number].name.clone()).collect()
    }

    #[test]
    fn the_longest_wait_decides() {
        let quick_and_slow = path(&[
            ("a", &[], Some((0, 1_000))),
            ("b", &[], Some((0, 3_000))),
            ("c", &["a"], Some((1_000, 500))),
            ("d", &["b", "c"], Some((3_000, 100))),
        ]);
        assert_eq!(quick_and_slow, ["b", "d"]);
        // A phase that never ran is replaced by its dependencies.
        let through =
            path(&[("a", &[], Some((0, 10))), ("b", &["a"], None), ("c", &["b"], Some((10, 10)))]);
        assert_eq!(through, ["a", "c"]);
        // A sequential plan, in which dependencies do not matter.
        let sequential = path(&[
            ("a", &[], Some((0, 1_000))),
            ("b", &[], Some((1_000, 1_000))),
            ("c", &["a"], Some((2_000, 1_000))),
        ]);
        assert_eq!(sequential, ["a", "b", "c"]);
        // A phase that started later than its dependencies allow waited for the phase that ended then.
        let last = path(&[
            ("a", &[], Some((0, 1_000))),
            ("b", &[], Some((0, 2_000))),
            ("actor-system-terminate", &["a"], Some((2_000, 0))),
        ]);
        assert_eq!(last, ["b", "actor-system-terminate"]);
        // Phases without tasks take no time, and are still in order.
        let after = path(&[
            ("a", &[], Some((0, 1_000))),
            ("actor-system-terminate", &["a"], Some((1_000, 0))),
            ("close-resources", &["actor-system-terminate"], Some((1_000, 0))),
        ]);
        assert_eq!(after, ["a", "actor-system-terminate", "close-resources"]);
    }

    #[test]
    fn cycles_of_phases_that_never_ran_end() {
        let phases = made(&[("a", &[], Some((0, 1))), ("b", &["a"], None), ("c", &["b"], None)]);
        let numbers = HashMap::from([("a", 0), ("b", 1), ("c", 2)]);
        let found = |mut patience: usize| {
            let mut found: Vec<_> =
                waited_for(&phases, &numbers, 2, &mut patience).into_iter().collect();
            found.sort_unstable();
            found
        };
        assert_eq!(found(1_000), [0, 1]);
        assert_eq!(found(1), [1]);
    }

    #[test]
    fn a_cycle_in_a_report_does_not_loop() {
        assert_eq!(path(&[("a", &["b"], Some((0, 0))), ("b", &["a"], Some((0, 0)))]).len(), 2);
        assert_eq!(path(&[("a", &["a"], Some((5, 5)))]), ["a"]);
        assert!(path(&[]).is_empty());
    }
}
