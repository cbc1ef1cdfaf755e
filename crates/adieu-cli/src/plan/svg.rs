//! A plan as a picture: one row for each rank, the critical path marked.

use std::collections::HashMap;
use std::fmt::Write;

use adieu::{PhaseView, PlanView};

use super::time;

const WIDTH: usize = 270;
const HEIGHT: usize = 46;
const GAP_X: usize = 40;
const GAP_Y: usize = 28;
const MARGIN: usize = 24;
/// Above the picture, for its heading.
const HEAD: usize = 34;

/// Where a phase stands: its row is its rank.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    column: usize,
}

pub(super) fn draw(plan: &PlanView) -> String {
    let PlanView { phases, order: _, critical_path } = plan;
    let places = places(plan);
    let rows = places.values().map(|place| place.row + 1).max().unwrap_or(1);
    let columns = places.values().map(|place| place.column + 1).max().unwrap_or(1);
    let width = (2 * MARGIN + columns * (WIDTH + GAP_X) - GAP_X).max(420);
    let height = 2 * MARGIN + HEAD + rows * (HEIGHT + GAP_Y) - GAP_Y;
    let is_critical = |name: &String| critical_path.phases.contains(name);
    let is_critical_edge = |from: &String, to: &String| {
        critical_path.phases.windows(2).any(|pair| pair[0] == *from && pair[1] == *to)
    };

    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>Plan of a shutdown</title>
<style>
  svg {{ background: #ffffff; font: 13px system-ui, sans-serif }}
  rect {{ fill: #f4f6f8; stroke: #8a94a0 }} path {{ fill: none; stroke: #8a94a0 }}
  text {{ fill: #1c2126 }} .small {{ fill: #56606b; font-size: 11px }}
  .critical rect {{ fill: #fff1e0; stroke: #b85c00; stroke-width: 2 }}
  path.critical {{ stroke: #b85c00; stroke-width: 2 }} marker path {{ fill: #8a94a0; stroke: none }}
  #to-critical path {{ fill: #b85c00 }}
  .disabled rect {{ stroke-dasharray: 5 4; fill: none }} .disabled text {{ fill: #8a94a0 }}
  @media (prefers-color-scheme: dark) {{
    svg {{ background: #15181c }} text {{ fill: #e8ecf0 }} .small {{ fill: #a8b2bd }}
    rect {{ fill: #22272e; stroke: #6b7682 }} path {{ stroke: #6b7682 }}
    .critical rect {{ fill: #3d2a12; stroke: #ff9f43 }} path.critical {{ stroke: #ff9f43 }}
    marker path {{ fill: #6b7682 }} #to-critical path {{ fill: #ff9f43 }}
    .disabled text {{ fill: #6b7682 }}
  }}
</style>
<defs>
  <marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z"/></marker>
  <marker id="to-critical" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z"/></marker>
</defs>
<text x="{MARGIN}" y="{y}">worst case {worst_case} <tspan class="small">along the marked phases, if each has tasks</tspan></text>
"#,
        y = MARGIN + 12,
        worst_case = time(critical_path.worst_case_ms),
    );
    for phase in phases {
        for on in &phase.depends_on {
            let (class, end) = if is_critical_edge(on, &phase.name) {
                ("critical", "to-critical")
            } else {
                ("", "to")
            };
            let path = edge(places[on.as_str()], places[phase.name.as_str()]);
            let _ = writeln!(out, r#"<path class="{class}" marker-end="url(#{end})" d="{path}"/>"#);
        }
    }
    for phase in phases {
        let PhaseView { name, depends_on: _, timeout_ms, recover, enabled } = phase;
        let (x, y) = corner(places[name.as_str()]);
        let class = match (enabled, is_critical(name)) {
            (false, _) => "disabled",
            (true, true) => "critical",
            (true, false) => "",
        };
        let recover = if *recover { "" } else { " · does not recover" };
        let disabled = if *enabled { "" } else { " · disabled" };
        let (name, timeout) = (escape(&shortened(name)), time(*timeout_ms));
        let (text_x, name_y, small_y) = (x + 12, y + 20, y + 36);
        let _ = writeln!(
            out,
            r#"<g class="{class}"><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/><text x="{text_x}" y="{name_y}">{name}</text><text class="small" x="{text_x}" y="{small_y}">{timeout}{recover}{disabled}</text></g>"#,
        );
    }
    out + "</svg>\n"
}

/// A phase's row is the length of the longest way to it; in a row they stand in order, under what
/// they depend on where that place is free.
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

fn corner(place: Place) -> (usize, usize) {
    let Place { row, column } = place;
    (MARGIN + column * (WIDTH + GAP_X), MARGIN + HEAD + row * (HEIGHT + GAP_Y))
}

/// To the next row straight down; farther, through the gaps between rows and columns, so that no
/// line crosses a phase.
fn edge(from: Place, to: Place) -> String {
    let ((from_x, from_y), (to_x, to_y)) = (corner(from), corner(to));
    let (x1, y1) = (from_x + WIDTH / 2, from_y + HEIGHT);
    if from.row + 1 == to.row {
        let (x2, y2) = (to_x + WIDTH / 2, to_y);
        let bend = y1 + GAP_Y / 2;
        return format!("M{x1} {y1}C{x1} {bend} {x2} {bend} {x2} {y2}");
    }
    // A column's lines keep apart, by where they come from.
    let apart = 5 * (from.row % 4);
    let below = y1 + GAP_Y / 2;
    let (gutter, into) = if from.column < to.column {
        (to_x - GAP_X + 10 + apart, to_x)
    } else {
        (to_x + WIDTH + 10 + apart, to_x + WIDTH)
    };
    let y2 = to_y + HEIGHT / 2;
    format!("M{x1} {y1}L{x1} {below}L{gutter} {below}L{gutter} {y2}L{into} {y2}")
}

fn shortened(name: &str) -> String {
    const FITS: usize = 36;
    if name.chars().count() <= FITS {
        return name.to_owned();
    }
    name.chars().take(FITS - 1).chain(['…']).collect()
}

fn escape(text: &str) -> String {
    // XML has no way to write a control character at all.
    let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
