//! A plan for Markdown.

use std::fmt::Write;

use adieu::{PhaseView, PlanView};

use super::timeout;

pub(super) fn draw(plan: &PlanView) -> String {
    let PlanView { phases, order, critical_path } = plan;
    // Names may contain syntax of mermaid, so nodes are numbered and names are labels.
    let id = |name: &String| order.iter().position(|other| other == name).unwrap_or(0);
    let mut out = String::from("flowchart TD\n");
    for phase in phases {
        let PhaseView { name, recover, enabled, .. } = phase;
        let recover = if *recover { "" } else { ", no recover" };
        let disabled = if *enabled { "" } else { ", disabled" };
        let label = name.replace('"', "#quot;");
        let timeout = timeout(phase);
        let _ = writeln!(out, "  p{}[\"{label}<br/>{timeout}{recover}{disabled}\"]", id(name));
    }
    for phase in phases {
        for on in &phase.depends_on {
            let critical = [on, &phase.name].iter().all(|name| critical_path.phases.contains(name));
            let arrow = if critical { "==>" } else { "-->" };
            let _ = writeln!(out, "  p{} {arrow} p{}", id(on), id(&phase.name));
        }
    }
    out
}
