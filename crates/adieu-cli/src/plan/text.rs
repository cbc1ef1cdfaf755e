//! A plan as a table.

use std::fmt::Write;

use adieu::{PhaseView, PlanView};

use crate::duration::time;

/// Returns the table. `drain` is the time that admitted work has to finish, if it is open-ended.
pub(super) fn draw(plan: &PlanView, sequential: bool, drain: Option<&str>) -> String {
    let PlanView { phases, order: _, critical_path } = plan;
    let width = phases.iter().map(|phase| phase.name.chars().count()).max().unwrap_or(0).max(5);
    let mut out =
        format!("{:>4}  {:<width$}  {:>8}  {:<7}  after\n", "", "phase", "timeout", "recover");
    for (number, phase) in phases.iter().enumerate() {
        let PhaseView { name, depends_on, timeout_ms, open_ended, recover, enabled } = phase;
        let mark = if critical_path.phases.contains(name) { '*' } else { ' ' };
        let plus = if *open_ended { "+" } else { "" };
        let timeout =
            if *enabled { format!("{}{plus}", time(*timeout_ms)) } else { "disabled".into() };
        let recover = if *recover { "yes" } else { "no" };
        let after = if depends_on.is_empty() { "-".into() } else { depends_on.join(", ") };
        let number = number + 1;
        let _ =
            writeln!(out, "{number:>3}{mark}  {name:<width$}  {timeout:>8}  {recover:<7}  {after}");
    }
    let how =
        if sequential { "one after another" } else { "side by side where nothing forbids it" };
    let worst_case = time(critical_path.worst_case_ms);
    let _ = writeln!(
        out,
        "\nPhases run {how}; actor-system-terminate waits for all but those after it."
    );
    let _ = writeln!(
        out,
        "Worst case {worst_case}: the phases marked * one after another, if each has tasks."
    );
    if let Some(drain) = drain {
        let _ = writeln!(out, "+ Requests have {drain}; drain-timeout sets it.");
    }
    out
}
