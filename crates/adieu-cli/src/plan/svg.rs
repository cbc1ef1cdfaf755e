//! A plan as a picture: one row for each rank, the critical path marked.

mod routes;

use std::collections::HashMap;
use std::fmt::Write;

use adieu::{PhaseView, PlanView};

use super::timeout;
use crate::duration::time;
use crate::picture::{escape, framed, label, small_label};
use routes::{Edge, Routes};

const WIDTH: usize = 290;
const HEIGHT: usize = 46;
const MARGIN: usize = 24;
/// The height of the heading.
const HEAD: usize = 34;

/// The position of a phase in the grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    row: usize,
    column: usize,
}

pub(super) fn draw(plan: &PlanView) -> String {
    let PlanView { phases, order: _, critical_path } = plan;
    let places = places(plan);
    let is_critical_edge = |from: &String, to: &String| {
        critical_path.phases.windows(2).any(|pair| pair[0] == *from && pair[1] == *to)
    };
    let edges = phases.iter().flat_map(|phase| {
        phase.depends_on.iter().filter_map(|on| {
            let (from, to) = (*places.get(on.as_str())?, *places.get(phase.name.as_str())?);
            Some((Edge { from, to }, is_critical_edge(on, &phase.name)))
        })
    });
    // Marked lines are drawn last, so that no other line covers them.
    let mut edges: Vec<_> = edges.collect();
    edges.sort_by_key(|(_, critical)| *critical);
    let routes = Routes::new(places.values(), edges.iter().map(|(edge, _)| edge));
    let (width, height) = routes.size();

    let mut out = String::from("<defs>\n");
    for (id, class) in [("to", "tip"), ("to-critical", "tip critical")] {
        let _ = writeln!(
            out,
            r#"  <marker id="{id}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path class="{class}" d="M0 0L8 4L0 8z"/></marker>"#
        );
    }
    let _ = writeln!(
        out,
        r#"</defs>
<text x="{MARGIN}" y="{}">worst case {} <tspan class="small dim">along the phases marked *, if each has tasks</tspan></text>"#,
        MARGIN + 12,
        time(critical_path.worst_case_ms),
    );
    for (edge, critical) in &edges {
        let (class, end) = if *critical { ("way critical", "to-critical") } else { ("way", "to") };
        let path = routes.path(edge);
        let _ = writeln!(out, r#"<path class="{class}" marker-end="url(#{end})" d="{path}"/>"#);
    }
    for phase in phases {
        let is_critical = critical_path.phases.contains(&phase.name);
        if let Some(place) = places.get(phase.name.as_str()) {
            self::phase(phase, routes.corner(*place), is_critical, &mut out);
        }
    }
    framed("Plan of a shutdown", width as f64, height as f64, &out)
}

fn phase(phase: &PhaseView, (x, y): (usize, usize), is_critical: bool, out: &mut String) {
    let PhaseView { name, depends_on, timeout_ms: _, open_ended: _, recover, enabled } = phase;
    let class = match (enabled, is_critical) {
        (false, _) => "box disabled",
        (true, true) => "box critical",
        (true, false) => "box",
    };
    let dim = if *enabled { "" } else { " dim" };
    let star = if is_critical { "* " } else { "" };
    let recover = if *recover { "" } else { " · does not recover" };
    let disabled = if *enabled { "" } else { " · disabled" };
    let about = format!("{}{recover}{disabled}", timeout(phase));
    let after = if depends_on.is_empty() { "-".into() } else { depends_on.join(", ") };
    let (text_x, name_y, small_y, room) = (x + 12, y + 20, y + 36, (WIDTH - 24) as f64);
    let _ = writeln!(
        out,
        r#"<g><title>{}</title><rect class="{class}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/><text class="{}" x="{text_x}" y="{name_y}">{}</text><text class="small dim" x="{text_x}" y="{small_y}">{}</text></g>"#,
        escape(&format!("{name}: {about}; after {after}")),
        dim.trim(),
        label(&format!("{star}{name}"), room),
        small_label(&about, room),
    );
}

/// Returns the position of each phase. Its row is the length of the longest path to it. Its column
/// is that of a dependency if it is free, or else the next free one.
fn places(plan: &PlanView) -> HashMap<&str, Place> {
    let mut places: HashMap<&str, Place> = HashMap::new();
    let mut taken: Vec<Vec<usize>> = Vec::new();
    for phase in &plan.phases {
        let before = phase.depends_on.iter().filter_map(|on| places.get(on.as_str()));
        let row = before.clone().map(|place| place.row + 1).max().unwrap_or(0);
        if taken.len() <= row {
            taken.resize(row + 1, Vec::new());
        }
        let wanted = before.map(|place| place.column).min().unwrap_or(0);
        let column = (wanted..).find(|column| !taken[row].contains(column)).unwrap_or(wanted);
        taken[row].push(column);
        places.insert(&phase.name, Place { row, column });
    }
    places
}
