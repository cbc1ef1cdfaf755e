//! A report as a picture.

use std::fmt::Write;

use super::axis::Axis;
use super::compare::{Comparison, Pair};
use super::gantt::{Gantt, Row, appearance, legend};
use crate::duration::short;
use crate::picture::{escape, framed, label, small_label, small_width};

const WIDTH: f64 = 1180.0;
const MARGIN: f64 = 20.0;
/// The start and the end of the bars.
const LEFT: f64 = 310.0;
const RIGHT: f64 = 850.0;
/// The first row of bars, below the heading and the axis.
const TOP: f64 = 112.0;
const ROW: f64 = 22.0;
const PAIR: f64 = 32.0;
/// The distance between the lines of the legend.
const LEGEND: f64 = 20.0;

pub(super) fn draw(gantt: &Gantt<'_>) -> String {
    let Gantt { report, rows } = gantt;
    let axis = Axis::new(report.took, report.allowed, 8);
    let bottom = TOP + ROW * rows.len() as f64;
    let began = format!("began {}", report.started_at);
    let mut out = heading(&[&gantt.heading()], &began);
    bands(rows.iter().map(|row| row.task.is_none()), ROW, &mut out);
    grid(&axis, report.allowed, bottom, &mut out);
    links(gantt, &axis, &mut out);
    for (number, row) in rows.iter().enumerate() {
        let top = TOP + ROW * number as f64;
        let _ = writeln!(out, "<g><title>{}</title>", escape(&story(row)));
        name(row, top + 15.0, &mut out);
        bar(row, &axis, top + 5.0, 12.0, "", &mut out);
        let took = row.took().map_or_else(|| "-".into(), short);
        ending(&took, &row.ended(), appearance(row.outcome).1, top + 15.0, &mut out);
        out.push_str("</g>\n");
    }
    let mut keys = outcomes(rows.iter());
    if rows.iter().any(|row| row.critical) {
        keys.push(Key::Critical);
    }
    let height = key(&keys, bottom + 14.0, &mut out);
    framed(&gantt.heading(), WIDTH, height, &out)
}

pub(super) fn compare(comparison: &Comparison<'_>) -> String {
    let Comparison { before, after, pairs } = comparison;
    let axis = comparison.axis(8);
    let bottom = TOP + PAIR * pairs.len() as f64;
    let (old, new) =
        (format!("before: {}", before.heading()), format!("after: {}", after.heading()));
    let mut out = heading(&[&old, &new], &comparison.verdict());
    bands(
        pairs.iter().map(|pair| pair.row().is_some_and(|row| row.task.is_none())),
        PAIR,
        &mut out,
    );
    grid(&axis, after.report.allowed, bottom, &mut out);
    for (number, pair) in pairs.iter().enumerate() {
        let top = TOP + PAIR * number as f64;
        let Pair { before, after } = pair;
        let Some(row) = pair.row() else { continue };
        let stories = [("before", before), ("after", after)].map(|(when, row)| {
            row.as_ref().map_or_else(String::new, |row| format!("{when}: {}. ", story(row)))
        });
        let _ = writeln!(out, "<g><title>{}</title>", escape(&stories.concat()));
        name(row, top + 20.0, &mut out);
        if let Some(before) = before {
            bar(before, &axis, top + 5.0, 9.0, "0.5", &mut out);
        }
        if let Some(after) = after {
            bar(after, &axis, top + 16.0, 11.0, "", &mut out);
        }
        let time =
            |row: &Option<Row<'_>>| row.as_ref().and_then(Row::took).map_or("-".into(), short);
        let times = format!("{} → {}", time(before), time(after));
        let change = match (pair.difference().as_str(), pair.change()) {
            ("=", change) if change.is_empty() => "unchanged".into(),
            ("=", change) => change,
            (apart, change) => format!("{apart} {change}"),
        };
        let class = after.as_ref().map_or("skipped", |row| appearance(row.outcome).1);
        two_lines(&times, change.trim(), class, top, &mut out);
        out.push_str("</g>\n");
    }
    let mut keys = outcomes(pairs.iter().flat_map(|pair| pair.before.iter().chain(&pair.after)));
    keys.push(Key::Before);
    keys.push(Key::Critical);
    let height = key(&keys, bottom + 14.0, &mut out);
    framed(&format!("Two shutdowns: {}", comparison.verdict()), WIDTH, height, &out)
}

/// Returns a heading of one or two lines, and a line in the small font.
fn heading(lines: &[&str], small: &str) -> String {
    let mut out = String::new();
    for (number, line) in lines.iter().enumerate() {
        let (y, line) = (30.0 + 18.0 * number as f64, label(line, WIDTH - 2.0 * MARGIN));
        let _ = writeln!(out, r#"<text class="strong" x="{MARGIN}" y="{y}">{line}</text>"#);
    }
    let (y, small) = (32.0 + 18.0 * lines.len() as f64, small_label(small, WIDTH - 2.0 * MARGIN));
    let _ = writeln!(out, r#"<text class="small dim" x="{MARGIN}" y="{y}">{small}</text>"#);
    out
}

/// Draws a band behind each phase, to distinguish it from its tasks.
fn bands(is_phase: impl Iterator<Item = bool>, row: f64, out: &mut String) {
    let (x, width) = (MARGIN - 8.0, WIDTH - 2.0 * MARGIN + 16.0);
    for (number, _) in is_phase.enumerate().filter(|(_, is_phase)| *is_phase) {
        let y = TOP + row * number as f64;
        let _ =
            writeln!(out, r#"<rect class="band" x="{x}" y="{y}" width="{width}" height="{row}"/>"#);
    }
}

/// Draws the ticks with their labels, and the deadline above them.
fn grid(axis: &Axis, allowed: std::time::Duration, bottom: f64, out: &mut String) {
    let deadline = axis.deadline.map(|deadline| place(axis.at(deadline)));
    for (at, name) in axis.ticks() {
        let (x, y) = (px(place(at)), TOP - 8.0);
        // The line of the deadline would cross the label.
        let is_hidden =
            deadline.is_some_and(|deadline| (deadline - x).abs() < small_width(&name) / 2.0 + 2.0);
        let name = if is_hidden { String::new() } else { name };
        let _ = writeln!(
            out,
            r#"<path class="grid" d="M{x} {}V{bottom}"/><text class="small dim" x="{x}" y="{y}" text-anchor="middle">{name}</text>"#,
            TOP - 4.0,
        );
    }
    let (y, allowed) = (TOP - 24.0, short(allowed));
    if let Some(deadline) = deadline {
        let x = px(deadline);
        let _ = writeln!(
            out,
            r#"<path class="deadline" d="M{x} {}V{bottom}"/><text class="small deadline" x="{x}" y="{y}" text-anchor="middle">deadline {allowed}</text>"#,
            TOP - 20.0,
        );
    } else {
        let _ = writeln!(
            out,
            r#"<text class="small dim" x="{RIGHT}" y="{y}" text-anchor="end">deadline {allowed}, far to the right</text>"#,
        );
    }
}

/// Draws a line from the end of each phase of the critical path to the beginning of the next.
fn links(gantt: &Gantt<'_>, axis: &Axis, out: &mut String) {
    let phases = || {
        let rows = gantt.rows.iter().enumerate();
        rows.filter(|(_, row)| row.critical && row.task.is_none())
    };
    for ((above, before), (below, after)) in phases().zip(phases().skip(1)) {
        let (Some(end), Some((start, _))) = (before.end(), after.ran) else { continue };
        let (from, to) = (px(place(axis.at(end))), px(place(axis.at(start))));
        let y = |row: usize| TOP + ROW * row as f64 + ROW / 2.0;
        let (y1, y2) = (y(above), y(below));
        let _ = writeln!(out, r#"<path class="way critical" d="M{from} {y1}H{to}V{y2}"/>"#);
    }
}

/// Draws the sign and the name, in the column on the left.
fn name(row: &Row<'_>, y: f64, out: &mut String) {
    let (class, indent) = (appearance(row.outcome).1, if row.task.is_some() { 18.0 } else { 0.0 });
    let (sign, x) = (escape(&row.outcome.sign().to_string()), MARGIN + 15.0 + indent);
    let strong = if row.task.is_some() { "" } else { "strong" };
    if row.critical {
        let _ = write!(
            out,
            r#"<text class="critical strong" x="{}" y="{}">*</text>"#,
            MARGIN - 3.0,
            y + 2.0
        );
    }
    let name_x = x + 13.0;
    // Bold letters are wider.
    let room = (LEFT - 12.0 - name_x) * if row.task.is_some() { 1.0 } else { 0.94 };
    let _ = writeln!(
        out,
        r#"<text class="{class} strong" x="{x}" y="{y}" text-anchor="middle">{sign}</text><text class="{strong}" x="{name_x}" y="{y}">{}</text>"#,
        label(row.name(), room),
    );
}

/// Draws a bar from start to end. Bars of phases are thin; the critical path has a frame.
fn bar(row: &Row<'_>, axis: &Axis, y: f64, height: f64, opacity: &str, out: &mut String) {
    let Some((started, _)) = row.ran else { return };
    let from = place(axis.at(started));
    let width = (place(axis.at(row.end().unwrap_or(started))) - from).max(2.0);
    let (y, height) =
        if row.task.is_none() { (y + height / 4.0, height / 2.0) } else { (y, height) };
    let opacity =
        if opacity.is_empty() { String::new() } else { format!(r#" opacity="{opacity}""#) };
    let (class, x, width, y, height) =
        (appearance(row.outcome).1, px(from), px(width), px(y), px(height));
    let _ = writeln!(
        out,
        r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="2"{opacity}/>"#,
    );
}

/// Draws the duration and the outcome, in the column on the right.
fn ending(took: &str, ended: &str, class: &str, y: f64, out: &mut String) {
    let x = RIGHT + 62.0;
    let ended_x = x + 10.0;
    let class = if class == "finished" || class == "skipped" { "dim" } else { class };
    let _ = writeln!(
        out,
        r#"<text class="small" x="{x}" y="{y}" text-anchor="end">{}</text><text class="small {class}" x="{ended_x}" y="{y}">{}</text>"#,
        escape(took),
        small_label(ended, WIDTH - MARGIN - ended_x),
    );
}

/// Draws the times, and the change below them.
fn two_lines(times: &str, said: &str, class: &str, top: f64, out: &mut String) {
    let (x, room) = (RIGHT + 14.0, WIDTH - MARGIN - RIGHT - 14.0);
    let class = if class == "finished" || class == "skipped" { "dim" } else { class };
    let _ = writeln!(
        out,
        r#"<text class="small" x="{x}" y="{}">{}</text><text class="small {class}" x="{x}" y="{}">{}</text>"#,
        top + 13.0,
        small_label(times, room),
        top + 26.0,
        small_label(said, room),
    );
}

/// An entry of the legend.
enum Key {
    Outcome(char, &'static str, &'static str),
    Critical,
    Before,
}

fn outcomes<'r>(rows: impl Iterator<Item = &'r Row<'r>>) -> Vec<Key> {
    let outcomes = legend(rows.map(|row| row.outcome));
    outcomes.into_iter().map(|(sign, word, class)| Key::Outcome(sign, word, class)).collect()
}

/// Draws the legend, and returns the height of the picture.
fn key(keys: &[Key], mut top: f64, out: &mut String) -> f64 {
    let mut x = MARGIN;
    for key in keys {
        let (swatch, word) = match key {
            Key::Outcome(sign, word, class) => {
                let swatch =
                    format!(r#"<rect class="{class}" width="14" height="10" y="3" rx="2"/>"#);
                (swatch, format!("{} {word}", sign))
            }
            Key::Critical => {
                let star = r#"<text class="critical strong" x="4" y="14">*</text>"#;
                (star.into(), "decided how long it took".into())
            }
            Key::Before => {
                let bars = r#"<rect class="finished" width="14" height="5" opacity="0.5"/><rect class="finished" width="14" height="6" y="7"/>"#;
                (bars.into(), "pale: before; full: after".into())
            }
        };
        let width = 20.0 + small_width(&word) + 18.0;
        if x + width > WIDTH - MARGIN && x > MARGIN {
            (x, top) = (MARGIN, top + LEGEND);
        }
        let (at, y, word) = (px(x), px(top), escape(&word));
        let _ = writeln!(
            out,
            r#"<g transform="translate({at} {y})">{swatch}<text class="small dim" x="20" y="12">{word}</text></g>"#
        );
        x += width;
    }
    top + LEGEND + 12.0
}

/// Returns the tooltip of a row.
fn story(row: &Row<'_>) -> String {
    let (name, ended) = (row.full_name(), row.ended());
    match row.ran {
        Some((started, took)) => {
            format!("{name}: {ended}; from {} for {}", short(started), short(took))
        }
        None => format!("{name}: {ended}"),
    }
}

fn place(at: f64) -> f64 {
    LEFT + at * (RIGHT - LEFT)
}

/// Rounds to a tenth of a pixel, so that files stay small.
fn px(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
