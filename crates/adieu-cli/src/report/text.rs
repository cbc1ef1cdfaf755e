//! A report as a chart for the terminal.

use std::fmt::Write;
use std::time::Duration;

use anstyle::{AnsiColor, Style};

use super::axis::Axis;
use super::compare::{Comparison, Pair};
use super::gantt::{Gantt, Row, legend};
use crate::duration::short;
use crate::fit::{fitted, flowed, harmless, shortened, width};

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
/// The width of a duration: `999ms`, `59.9s`, `12m 30s`.
const TIME: usize = 7;

pub(super) fn draw(gantt: &Gantt<'_>, columns: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{BOLD}{}{BOLD:#}", harmless(&gantt.heading()));
    let _ = writeln!(out, "{DIM}began {}{DIM:#}", harmless(&gantt.report.started_at));
    if gantt.rows.is_empty() {
        out.push_str("\nNo phase had a task.\n");
        explain(gantt, &mut out);
        return out;
    }
    let names = name_columns(gantt.rows.iter(), columns);
    // The mark, the name, the time, and the spaces between them.
    let canvas = Canvas::new(names + TIME + 6, columns, |ticks| {
        Axis::new(gantt.report.took, gantt.report.allowed, ticks)
    });
    canvas.head(&mut out);
    for row in &gantt.rows {
        let (mark, name) = (mark(row), name(row, names));
        let took = row.took().map_or_else(|| "-".into(), short);
        let _ = writeln!(out, "{mark}{name}  {took:>TIME$}  {}", canvas.bar(row));
    }
    canvas.foot(&mut out);
    let _ =
        writeln!(out, "{}", key(gantt.rows.iter(), gantt.report.allowed, &canvas.axis, columns));
    explain(gantt, &mut out);
    out
}

/// Writes the phases that decided the duration, and the failures.
fn explain(gantt: &Gantt<'_>, out: &mut String) {
    let decided = gantt.decided();
    if !decided.is_empty() {
        let _ = writeln!(out, "\n{BOLD}Phases that decided the duration{BOLD:#}");
    }
    for (took, name) in decided {
        let _ = writeln!(out, "  {:>TIME$}  {}", short(took), harmless(&name));
    }
    let wrong: Vec<_> = gantt.failures().collect();
    let findings = &gantt.report.findings;
    if !wrong.is_empty() || !findings.is_empty() {
        let _ = writeln!(out, "\n{BOLD}Failures{BOLD:#}");
    }
    for row in wrong {
        let (style, sign) = (style(row), row.outcome.sign());
        let (name, ended) = (row.full_name(), row.ended());
        let _ = writeln!(out, "  {style}{sign}{style:#} {}: {}", harmless(&name), harmless(&ended));
    }
    for found in findings {
        let _ = writeln!(out, "  ! {}: {}", harmless(&found.name), harmless(&found.what));
    }
}

pub(super) fn compare(comparison: &Comparison<'_>, columns: usize) -> String {
    let Comparison { before, after, pairs } = comparison;
    let mut out = String::new();
    let _ = writeln!(out, "before: {}", harmless(&before.heading()));
    let _ = writeln!(out, "after:  {}", harmless(&after.heading()));
    let _ = writeln!(out, "{BOLD}{}{BOLD:#}", comparison.verdict());
    if !pairs.is_empty() {
        let rows = || pairs.iter().flat_map(|pair| pair.before.iter().chain(&pair.after));
        let names = name_columns(rows(), columns);
        let canvas = Canvas::new(names + 2 * TIME + 14, columns, |ticks| comparison.axis(ticks));
        canvas.head(&mut out);
        for pair in pairs {
            compare_row(pair, names, &canvas, &mut out);
        }
        canvas.foot(&mut out);
        let _ = writeln!(out, "{}", key(rows(), after.report.allowed, &canvas.axis, columns));
    }
    let changes = comparison.changes();
    if !changes.is_empty() {
        let _ = writeln!(out, "\n{BOLD}Changes{BOLD:#}");
    }
    for change in changes {
        let _ = writeln!(out, "  {}", harmless(&change));
    }
    out
}

fn compare_row(pair: &Pair<'_>, names: usize, canvas: &Canvas, out: &mut String) {
    let Pair { before, after } = pair;
    let blank = " ".repeat(names + 2);
    let time = |row: &Option<Row<'_>>| match row {
        Some(row) => row.took().map_or_else(|| "-".into(), short),
        None => String::new(),
    };
    let bar = |row: &Option<Row<'_>>| match row {
        Some(row) => canvas.bar(row),
        None => canvas.empty(),
    };
    let full = |row: &Option<Row<'_>>| {
        row.as_ref().map_or_else(|| blank.clone(), |row| mark(row) + &name(row, names))
    };
    // The name is on the first of the two lines, or on the only one.
    if before.is_some() {
        let (name, took) = (full(before), time(before));
        let what = if after.is_none() { "gone" } else { "" };
        let _ = writeln!(
            out,
            "{name}  {DIM}before{DIM:#} {took:>TIME$} {what:<TIME$}  {}",
            bar(before)
        );
    }
    if let Some(row) = after {
        let first = if before.is_none() {
            full(after)
        } else {
            // The sign may differ from that on the first line.
            let indent = if row.task.is_some() { 4 } else { 2 };
            let (style, sign) = (style(row), row.outcome.sign());
            let rest = " ".repeat((names + 2).saturating_sub(indent + 1));
            format!("{}{style}{sign}{style:#}{rest}", mark(row) + &" ".repeat(indent - 2))
        };
        let (took, apart) = (time(after), pair.difference());
        let apart = if before.is_none() { "new" } else { apart.as_str() };
        let _ = writeln!(out, "{first}  after  {took:>TIME$} {apart:<TIME$}  {}", bar(after));
    }
}

/// Returns the width of the names, including sign and indentation.
fn name_columns<'r>(rows: impl Iterator<Item = &'r Row<'r>>, columns: usize) -> usize {
    let longest =
        rows.map(|row| width(&harmless(row.name())) + if row.task.is_some() { 4 } else { 2 });
    longest.max().unwrap_or(0).clamp(12, columns * 2 / 5)
}

fn name(row: &Row<'_>, columns: usize) -> String {
    let (style, sign) = (style(row), row.outcome.sign());
    match row.task {
        Some(task) => format!("  {style}{sign}{style:#} {}", fitted(task, columns - 4)),
        None => {
            let name = fitted(row.phase, columns - 2);
            format!("{style}{sign}{style:#} {BOLD}{name}{BOLD:#}")
        }
    }
}

fn mark(row: &Row<'_>) -> String {
    let style = AnsiColor::Cyan.on_default().bold();
    if row.critical { format!("{style}*{style:#} ") } else { "  ".into() }
}

fn style(row: &Row<'_>) -> Style {
    let color = match row.outcome.sign() {
        '+' => AnsiColor::Green,
        '-' => AnsiColor::BrightBlack,
        '>' => AnsiColor::Yellow,
        'x' | '?' => AnsiColor::Magenta,
        _ => AnsiColor::Red,
    };
    color.on_default()
}

/// Returns the legend of the signs that occur.
fn key<'r>(
    rows: impl Iterator<Item = &'r Row<'r>> + Clone,
    allowed: Duration,
    axis: &Axis,
    columns: usize,
) -> String {
    let mut parts: Vec<_> = legend(rows.clone().map(|row| row.outcome))
        .into_iter()
        .map(|(sign, word, _)| format!("{sign} {word}"))
        .collect();
    if rows.clone().any(|row| row.critical) {
        parts.push("* decided how long it took".into());
    }
    let allowed = short(allowed);
    parts.push(match axis.deadline {
        Some(_) => format!("┊ deadline {allowed}"),
        None => format!("deadline {allowed}, far to the right"),
    });
    let lines = flowed(&parts, columns);
    format!("{DIM}{}{DIM:#}", lines.join("\n"))
}

/// The area in which bars are drawn.
struct Canvas {
    /// Its first column.
    left: usize,
    columns: usize,
    axis: Axis,
}

impl Canvas {
    fn new(left: usize, all: usize, axis: impl FnOnce(u32) -> Axis) -> Self {
        let columns = all.saturating_sub(left).max(10);
        // The width of a tick's label and some room.
        let ticks = u32::try_from(columns / 9).unwrap_or(1);
        Self { left, columns, axis: axis(ticks) }
    }

    /// Returns the column of a position from 0 to 1.
    fn column(&self, at: f64) -> usize {
        ((at * self.columns as f64) as usize).min(self.columns - 1)
    }

    fn head(&self, out: &mut String) {
        let mut names = String::new();
        for (at, name) in self.axis.ticks() {
            let column = self.column(at);
            let used = width(&names);
            // A label must not cover the label before it, and must not leave the area.
            if used <= column && column + width(&name) <= self.columns {
                names.extend(std::iter::repeat_n(' ', column - used));
                names.push_str(&name);
                names.push(' ');
            }
        }
        let left = " ".repeat(self.left);
        let _ = writeln!(out, "\n{left}{DIM}{}{DIM:#}", names.trim_end());
        self.line('┬', out);
    }

    fn foot(&self, out: &mut String) {
        self.line('┴', out);
    }

    fn line(&self, tick: char, out: &mut String) {
        let mut line = vec!['─'; self.columns];
        for (at, _) in self.axis.ticks() {
            line[self.column(at)] = tick;
        }
        if let Some(deadline) = self.axis.deadline {
            line[self.column(self.axis.at(deadline))] = '┊';
        }
        let left = " ".repeat(self.left);
        let _ = writeln!(out, "{left}{DIM}{}{DIM:#}", String::from_iter(line));
    }

    /// Returns the bar of a row: thin for a phase, thick for a task, a mark if it took no time.
    fn bar(&self, row: &Row<'_>) -> String {
        let Some((started, _)) = row.ran else {
            // The outcome may cover the line of the deadline.
            return format!("{DIM}{}{DIM:#}", shortened(&row.outcome.to_string(), self.columns));
        };
        let from = self.column(self.axis.at(started));
        let end = self.axis.at(row.end().unwrap_or(started)) * self.columns as f64;
        let to = (end.ceil() as usize).clamp(from + 1, self.columns);
        let is_short = end - self.axis.at(started) * (self.columns as f64) < 0.5;
        let fill = match (is_short, row.task) {
            (true, _) => '▏',
            (false, Some(_)) => '█',
            (false, None) => '━',
        };
        let style = style(row);
        let bar = String::from_iter(std::iter::repeat_n(fill, to - from));
        let (before, after) = (self.space(0, from), self.space(to, self.columns));
        format!("{before}{style}{bar}{style:#}{after}").trim_end().to_owned()
    }

    fn empty(&self) -> String {
        self.space(0, self.columns).trim_end().to_owned()
    }

    /// Returns empty columns, with the line of the deadline.
    fn space(&self, from: usize, to: usize) -> String {
        let deadline = self.axis.deadline.map(|deadline| self.column(self.axis.at(deadline)));
        let cell = |column| if Some(column) == deadline { "┊" } else { " " };
        (from..to).map(cell).collect()
    }
}
