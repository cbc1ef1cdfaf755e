//! The parts of a result for people: figures side by side, and timelines.

use std::fmt::Write;
use std::time::Duration;

use anstyle::{AnsiColor, Style};

use super::member::{End, Snapshot};
use crate::fit::wrapped;

/// The maximum width of a timeline, and its minimum width if the ending is on the same line.
const CELLS: usize = 48;
const FEWEST_CELLS: usize = 16;

/// The width of the table with a row for each fleet. If there is less room, the table has a row for
/// each figure.
pub(super) const TABLE: usize = 78;

/// A figure: its name, its value, and whether it should be zero.
pub(super) type Figure = (&'static str, String, bool);

/// The result of one fleet, as it is drawn.
#[derive(Clone, Debug)]
pub(super) struct Drawn<'a> {
    pub(super) title: &'static str,
    pub(super) figures: Vec<Figure>,
    pub(super) replicas: &'a [ReplicaResult],
}

/// One replica: its name, and how it was last seen.
#[derive(Clone, Debug)]
pub(super) struct ReplicaResult {
    pub(super) name: String,
    pub(super) seen: Snapshot,
}

// === impl ReplicaResult ===

impl ReplicaResult {
    /// Returns the results of these members.
    pub(super) fn all(members: &[std::sync::Arc<super::member::Member>]) -> Vec<Self> {
        let of = |member: &std::sync::Arc<super::member::Member>| Self {
            name: member.name.clone(),
            seen: member.seen(),
        };
        members.iter().map(of).collect()
    }

    pub(super) fn end(&self) -> Option<&End> {
        self.seen.end.as_ref()
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let Snapshot { started, ready, signalled, .. } = &self.seen;
        serde_json::json!({
            "name": self.name,
            "exit_code": self.end().map(|end| end.exit_code),
            "started_ms": millis(*started),
            "ready_ms": ready.map(millis),
            "signalled_ms": signalled.map(millis),
            "gone_ms": self.end().map(|end| millis(end.at)),
            "report": self.end().and_then(|end| end.report.clone()),
        })
    }

    /// Returns the timeline: `·` starting, `█` ready, `▒` signalled to stop.
    fn cells(&self, of: Duration, cells: usize) -> String {
        let Snapshot { started, ready, signalled, .. } = &self.seen;
        let end = self.end().map_or(of, |end| end.at);
        (0..cells)
            .map(|cell| {
                let at = of.mul_f64((cell as f64 + 0.5) / cells as f64);
                match () {
                    () if at < *started || at >= end => ' ',
                    () if signalled.is_some_and(|signalled| at >= signalled) => '▒',
                    () if ready.is_some_and(|ready| at >= ready) => '█',
                    () => '·',
                }
            })
            .collect()
    }
}

/// Writes the figures of the fleets side by side. If there is room, each figure has `cell` columns.
pub(super) fn figures(fleets: &[Drawn<'_>], cell: usize, columns: usize, out: &mut String) {
    let names: Vec<_> = fleets.iter().map(|fleet| fleet.title).collect();
    let figures: Vec<_> = fleets.iter().map(|fleet| &fleet.figures).collect();
    if columns >= TABLE {
        let heads = figures.iter().take(1).copied().flatten();
        let heads = heads.map(|(head, ..)| column(head, cell, BOLD));
        let _ = writeln!(out, "{:<18}{}", "", heads.collect::<String>());
        for (name, figures) in names.iter().zip(&figures) {
            let row =
                figures.iter().map(|(_, figure, zero)| column(figure, cell, style(figure, *zero)));
            let _ = writeln!(out, "{name:<18}{}", row.collect::<String>());
        }
        return;
    }
    let widths: Vec<_> = names.iter().map(|name| (name.len() + 2).max(10)).collect();
    let heads = names.iter().zip(&widths).map(|(name, width)| column(name, *width, BOLD));
    let _ = writeln!(out, "{:<8}{}", "", heads.collect::<String>());
    for number in 0..figures.first().map_or(0, |figures| figures.len()) {
        let row = figures.iter().map(|figures| &figures[number]);
        let head = row.clone().next().map_or("", |(head, ..)| head);
        let cells = row
            .zip(&widths)
            .map(|((_, figure, zero), width)| column(figure, *width, style(figure, *zero)));
        let _ = writeln!(out, "{head:<8}{}", cells.collect::<String>());
    }
}

/// Writes the timeline of each replica, and how it ended.
pub(super) fn timelines(fleets: &[Drawn<'_>], columns: usize, out: &mut String) {
    let replicas = || fleets.iter().flat_map(|fleet| fleet.replicas);
    let ends = replicas().filter_map(|replica| replica.end().map(|end| end.at));
    let end = ends.max().unwrap_or_default();
    let names = if columns >= TABLE { 18 } else { 12 };
    let hows = replicas().map(|replica| how(replica).len() + 2).max().unwrap_or(0);
    let beside = columns.saturating_sub(names + hows).min(CELLS);
    // If there is too little room beside the timeline, the ending goes below it.
    let is_below = beside < FEWEST_CELLS;
    let cells = if is_below { columns.saturating_sub(names).min(CELLS) } else { beside };
    for fleet in fleets {
        let (title, last) = (fleet.title, format!("{:.1}s", end.as_secs_f64()));
        // A title that is longer than the column gets a line of its own.
        let title = if title.len() < names {
            format!("{BOLD}{title:<names$}{BOLD:#}")
        } else {
            format!("{BOLD}{title}{BOLD:#}\n{:names$}", "")
        };
        let _ = writeln!(out, "\n{title}0s{last:>width$}", width = cells.saturating_sub(2));
        for replica in fleet.replicas {
            let (name, line, how) = (&replica.name, replica.cells(end, cells), how(replica));
            let gap = if is_below { format!("\n{:names$}", "") } else { "  ".into() };
            let line = if is_below { line.trim_end() } else { &line };
            let _ = writeln!(out, "  {name:<width$}{line}{gap}{how}", width = names - 2);
        }
    }
}

/// Explains the timelines.
pub(super) const LEGEND: &str = "\n· starting   █ ready   ▒ stopping\n";

/// Writes causes, with their counts.
pub(super) fn causes<'a>(
    why: impl Iterator<Item = (&'a String, &'a u64)>,
    columns: usize,
    out: &mut String,
) {
    let indent = if columns >= TABLE { 18 } else { 0 };
    for (why, count) in why {
        let lead = format!("{:indent$}{count:>10} x ", "");
        let lines = wrapped(why, columns.saturating_sub(lead.len()));
        let rest = format!("\n{:width$}", "", width = lead.len());
        let _ = writeln!(out, "{lead}{}", lines.join(&rest));
    }
}

const BOLD: Style = Style::new().bold();

fn column(text: &str, columns: usize, style: Style) -> String {
    format!("{style}{text:>columns$}{style:#}")
}

fn style(figure: &str, should_be_zero: bool) -> Style {
    match (should_be_zero, figure) {
        (false, _) => Style::new(),
        (true, "0") => AnsiColor::Green.on_default(),
        (true, _) => AnsiColor::Red.on_default(),
    }
}

fn how(replica: &ReplicaResult) -> String {
    let Some(End { at, exit_code, report }) = replica.end() else {
        return "still running".into();
    };
    let took = at.saturating_sub(replica.seen.signalled.unwrap_or(*at)).as_secs_f64();
    let outcome = report.as_ref().and_then(|report| report["outcome"]["kind"].as_str());
    match (exit_code, outcome) {
        (137, _) => format!("killed after {took:.1}s"),
        (code, Some(outcome)) => format!("{outcome} in {took:.1}s, exit code {code}"),
        (code, None) => format!("gone in {took:.1}s, exit code {code}"),
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
