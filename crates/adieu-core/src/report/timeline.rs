//! Writes a report as a timeline.

use std::fmt;

use super::{Finding, PhaseReport, Report};
use crate::outcome::Outcome;
use crate::time::{Duration, Short};

const INDENT: &str = "    ";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { outcome, reason, started_at: _, took, allowed, exit_code, phases, findings } =
            self;
        let (took, allowed) = (Short(*took), Short(*allowed));
        write!(f, "shutdown {outcome} in {took} of {allowed}: {reason}, exit code {exit_code}")?;

        // Phases without tasks are not shown: most built-in phases have none.
        let shown = || phases.iter().filter(|phase| !phase.tasks.is_empty());
        let widths = shown().flat_map(|phase| {
            let tasks = phase.tasks.iter().map(|task| INDENT.len() + task.name.chars().count());
            tasks.chain([phase.name.chars().count()])
        });
        let width = widths.max().unwrap_or(0).min(60);
        for phase in shown() {
            let PhaseReport { name, outcome, depends_on: _, timeout: _, started, took, tasks } =
                phase;
            line(f, "", name, width, (*started, *took), outcome)?;
            for task in tasks {
                line(f, INDENT, &task.name, width, (task.started, task.took), &task.outcome)?;
                if let Some(detail) = &task.detail {
                    write!(f, " ({detail})")?;
                }
            }
        }
        for Finding { name, what } in findings {
            write!(f, "\n          ! {name}: {what}")?;
        }
        Ok(())
    }
}

fn line(
    f: &mut fmt::Formatter<'_>,
    indent: &str,
    name: &str,
    width: usize,
    (started, took): (Option<Duration>, Option<Duration>),
    outcome: &Outcome,
) -> fmt::Result {
    let shown =
        |time: Option<Duration>| time.map_or_else(|| "-".into(), |time| Short(time).to_string());
    let (started, took, sign) = (shown(started), shown(took), outcome.sign());
    let width = width - indent.len().min(width);
    write!(f, "\n{started:>8}  {indent}{sign} {name:<width$}  {took:>7}  {outcome}")
}
