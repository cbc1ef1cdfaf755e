//! A plan for graphviz.

use std::fmt::Write;

use adieu::{PhaseView, PlanView};

use super::timeout;

pub(super) fn draw(plan: &PlanView) -> String {
    let PlanView { phases, order: _, critical_path } = plan;
    let critical = |name: &String| critical_path.phases.contains(name);
    let mut out = String::from("digraph plan {\n  node [shape=box, fontname=\"sans-serif\"];\n");
    for phase in phases {
        let PhaseView { name, recover, enabled, .. } = phase;
        let mut style = Vec::new();
        if !enabled {
            style.push("dashed");
        }
        if critical(name) {
            style.push("bold");
        }
        let recover = if *recover { "" } else { ", no recover" };
        let (id, style) = (quote(name), style.join(","));
        let label = quote(&format!("{name}\n{}{recover}", timeout(phase)));
        let _ = writeln!(out, "  {id} [label={label}, style=\"{style}\"];");
    }
    for phase in phases {
        for on in &phase.depends_on {
            let style = if critical(&phase.name) && critical(on) { " [style=bold]" } else { "" };
            let _ = writeln!(out, "  {} -> {}{style};", quote(on), quote(&phase.name));
        }
    }
    out + "}\n"
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
