//! The result: a table for people, JSON for programs.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use super::LoadedFleet;
use super::frame::title;
use super::load::Counts;
use super::member::{End, Snapshot};
use super::replica::Kind;
use super::spool::Orders;
use crate::fit::wrapped;

/// The maximum width of a timeline, and its minimum width if the ending is on the same line.
const CELLS: usize = 48;
const FEWEST_CELLS: usize = 16;

/// The width of the table with a row for each fleet. If there is less room, the table has a row for
/// each figure.
const TABLE: usize = 78;

/// The result of one fleet.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    kind: Kind,
    size: usize,
    restarts: usize,
    counts: Counts,
    orders: Orders,
    replicas: Vec<ReplicaResult>,
}

/// The result of one replica.
#[derive(Clone, Debug)]
struct ReplicaResult {
    name: String,
    seen: Snapshot,
}

// === impl Outcome ===

impl Outcome {
    pub(super) fn of(loaded: &LoadedFleet) -> Self {
        let LoadedFleet { fleet, load } = loaded;
        let members = fleet.members();
        let replica = |member: &std::sync::Arc<super::member::Member>| ReplicaResult {
            name: member.name.clone(),
            seen: member.seen(),
        };
        Self {
            kind: fleet.kind,
            size: fleet.size(),
            restarts: fleet.restarts(),
            counts: load.counts(),
            orders: fleet.spool.count().unwrap_or_default(),
            replicas: members.iter().map(replica).collect(),
        }
    }

    /// Returns whether no request failed, no order was lost, and every replica exited with 0.
    pub(super) fn is_well(&self) -> bool {
        let ended_well =
            |replica: &ReplicaResult| replica.end().is_some_and(|end| end.exit_code == 0);
        self.counts.failed == 0 && self.lost() == 0 && self.replicas.iter().all(ended_well)
    }

    /// Returns the number of orders that a replica did not finish shipping, or that are missing.
    fn lost(&self) -> u64 {
        let Orders { waiting, in_progress, shipped } = self.orders;
        let count = |orders: usize| u64::try_from(orders).unwrap_or(u64::MAX);
        count(in_progress)
            + self.counts.orders.saturating_sub(count(waiting + in_progress + shipped))
    }

    /// Returns the figures, and each replica with its successor.
    fn json(&self) -> Value {
        let places = self.replicas.iter().take(self.size).enumerate().map(|(place, replica)| {
            let successor = self.replicas.get(self.size + place);
            let mut replica = replica.json();
            replica["successor"] = successor.map_or(Value::Null, ReplicaResult::json);
            replica
        });
        let Counts { requests, failed, slowest, orders, why } = &self.counts;
        json!({
            "requests": requests,
            "failed": failed,
            "restarts": self.restarts,
            "slowest_ms": millis(*slowest),
            "orders": { "taken": orders, "shipped": self.orders.shipped, "lost": self.lost() },
            "failures": why,
            "replicas": places.collect::<Vec<_>>(),
        })
    }
}

impl ReplicaResult {
    fn end(&self) -> Option<&End> {
        self.seen.end.as_ref()
    }

    fn json(&self) -> Value {
        let Snapshot { started, ready, signalled, .. } = &self.seen;
        json!({
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

/// Returns the result for programs: of adieu, and under `compare` that of the plain server.
pub(super) fn json(outcomes: &[Outcome]) -> String {
    let mut json = Value::Null;
    for outcome in outcomes {
        match outcome.kind {
            Kind::Adieu => json = outcome.json(),
            Kind::Plain => json["compare"] = outcome.json(),
        }
    }
    format!("{json:#}\n")
}

/// Returns the result for people, in this many columns.
pub(super) fn table(
    outcomes: &[Outcome],
    is_interrupted: bool,
    reports: Option<&Path>,
    columns: usize,
) -> String {
    let mut out = String::new();
    if is_interrupted {
        out.push_str("interrupted; until then:\n\n");
    }
    figures(outcomes, columns, &mut out);
    failures(outcomes, columns, &mut out);
    timelines(outcomes, columns, &mut out);
    out.push_str("\n· starting   █ ready   ▒ stopping\n");
    if let Some(folder) = reports {
        let name = outcomes.first().and_then(|outcome| outcome.replicas.first());
        let name = name.map_or("orders-1a", |replica| &replica.name);
        let file = folder.join("adieu").join(format!("{name}.json"));
        let _ = writeln!(out, "\nWhere the time went: adieu report {}", file.display());
    }
    out
}

/// A figure: its name, its value, and whether it should be zero.
type Figure = (&'static str, String, bool);

impl Outcome {
    fn figures(&self) -> [Figure; 6] {
        let Counts { requests, failed, slowest, orders, .. } = &self.counts;
        [
            ("requests", requests.to_string(), false),
            ("failed", failed.to_string(), true),
            ("slowest", format!("{} ms", slowest.as_millis()), false),
            ("restarts", self.restarts.to_string(), false),
            ("orders", orders.to_string(), false),
            ("lost", self.lost().to_string(), true),
        ]
    }
}

/// Writes the figures of the fleets side by side.
fn figures(outcomes: &[Outcome], columns: usize, out: &mut String) {
    let names: Vec<_> = outcomes.iter().map(|outcome| title(outcome.kind).to_owned()).collect();
    let figures: Vec<_> = outcomes.iter().map(Outcome::figures).collect();
    if columns >= TABLE {
        let heads = figures.iter().take(1).flatten().map(|(head, ..)| column(head, 10, BOLD));
        let _ = writeln!(out, "{:<18}{}", "", heads.collect::<String>());
        for (name, figures) in names.iter().zip(&figures) {
            let row =
                figures.iter().map(|(_, figure, zero)| column(figure, 10, style(figure, *zero)));
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

/// Writes the causes of failed requests, with their counts.
fn failures(outcomes: &[Outcome], columns: usize, out: &mut String) {
    let indent = if columns >= TABLE { 18 } else { 0 };
    for (why, count) in outcomes.iter().flat_map(|outcome| &outcome.counts.why) {
        let lead = format!("{:indent$}{count:>10} x ", "");
        let lines = wrapped(why, columns.saturating_sub(lead.len()));
        let rest = format!("\n{:width$}", "", width = lead.len());
        let _ = writeln!(out, "{lead}{}", lines.join(&rest));
    }
}

/// Writes the timeline of each replica, and how it ended.
fn timelines(outcomes: &[Outcome], columns: usize, out: &mut String) {
    let replicas = || outcomes.iter().flat_map(|outcome| &outcome.replicas);
    let ends = replicas().filter_map(|replica| replica.end().map(|end| end.at));
    let end = ends.max().unwrap_or_default();
    let names = if columns >= TABLE { 18 } else { 12 };
    let hows = replicas().map(|replica| how(replica).len() + 2).max().unwrap_or(0);
    let beside = columns.saturating_sub(names + hows).min(CELLS);
    // If there is too little room beside the timeline, the ending goes below it.
    let is_below = beside < FEWEST_CELLS;
    let cells = if is_below { columns.saturating_sub(names).min(CELLS) } else { beside };
    for outcome in outcomes {
        let (title, last) = (title(outcome.kind), format!("{:.1}s", end.as_secs_f64()));
        // A title that is longer than the column gets a line of its own.
        let title = if title.len() < names {
            format!("{BOLD}{title:<names$}{BOLD:#}")
        } else {
            format!("{BOLD}{title}{BOLD:#}\n{:names$}", "")
        };
        let _ = writeln!(out, "\n{title}0s{last:>width$}", width = cells.saturating_sub(2));
        for replica in &outcome.replicas {
            let (name, line, how) = (&replica.name, replica.cells(end, cells), how(replica));
            let gap = if is_below { format!("\n{:names$}", "") } else { "  ".into() };
            let line = if is_below { line.trim_end() } else { &line };
            let _ = writeln!(out, "  {name:<width$}{line}{gap}{how}", width = names - 2);
        }
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

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
