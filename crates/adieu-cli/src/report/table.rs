//! The rows of a report as a table of a page.

use std::fmt::Write;

use super::compare::Comparison;
use super::gantt::{Gantt, Row, appearance};
use crate::duration::short;
use crate::picture::escape;

pub(super) fn of(gantt: &Gantt<'_>) -> String {
    let mut out = head(&["", "phase or task", "#started", "#took", "#timeout", "outcome"]);
    for row in &gantt.rows {
        let started = row.ran.map_or_else(|| "-".into(), |(started, _)| short(started));
        let took = row.took().map_or_else(|| "-".into(), short);
        let timeout = row.timeout.map_or_else(String::new, short);
        let _ = writeln!(
            out,
            "<tr class=\"{}\"><td>{}</td>{}<td class=\"number\">{started}</td><td class=\"number\">{took}</td><td class=\"number\">{timeout}</td><td>{}</td></tr>",
            class(row),
            sign(row),
            name(row),
            escape(&row.ended()),
        );
    }
    out + "</tbody></table></div>\n"
}

pub(super) fn compare(comparison: &Comparison<'_>) -> String {
    let mut out =
        head(&["before", "after", "phase or task", "before", "after", "difference", "change"]);
    for pair in &comparison.pairs {
        let Some(row) = pair.row() else { continue };
        let signs = [&pair.before, &pair.after];
        let signs = signs.map(|row| row.as_ref().map_or_else(String::new, sign));
        let took = |row: &Option<Row<'_>>| match row {
            Some(row) => row.took().map_or_else(|| "-".into(), short),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "<tr class=\"{}\"><td>{}</td><td>{}</td>{}<td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td></tr>",
            class(row),
            signs[0],
            signs[1],
            name(row),
            took(&pair.before),
            took(&pair.after),
            pair.difference(),
            escape(&pair.change()),
        );
    }
    out + "</tbody></table></div>\n"
}

/// Returns the head of a table. Columns of numbers begin with `#`.
fn head(columns: &[&str]) -> String {
    let column = |name: &&str| match name.strip_prefix('#') {
        Some(number) => format!("<th class=\"number\">{number}</th>"),
        None => format!("<th>{name}</th>"),
    };
    let columns: String = columns.iter().map(column).collect();
    format!("<div class=\"wide\"><table><thead><tr>{columns}</tr></thead><tbody>\n")
}

fn class(row: &Row<'_>) -> &'static str {
    if row.task.is_some() { "task" } else { "phase" }
}

fn sign(row: &Row<'_>) -> String {
    let (word, class) = appearance(row.outcome);
    format!("<b class=\"{class}\" title=\"{word}\">{}</b>", escape(&row.outcome.sign().to_string()))
}

fn name(row: &Row<'_>) -> String {
    let critical = "<b class=\"critical\" title=\"decided how long it took\">*</b>";
    let critical = if row.critical { critical } else { "" };
    format!("<th scope=\"row\">{} {critical}</th>", escape(row.name()))
}
