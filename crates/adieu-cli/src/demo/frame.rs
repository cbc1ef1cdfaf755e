//! The output of the demo while it runs: a frame of bars, or a line for each change.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use tokio::time::Instant;

use super::KILL_AFTER;
use super::LoadedFleet;
use super::load::Counts;
use super::member::{Snapshot, State};
use crate::fit::flowed;

/// The maximum and the minimum width of a bar. If there is less room, no bar is shown.
const BAR: usize = 20;
const SHORTEST_BAR: usize = 5;

/// How many columns the rest of a line takes, without the phase at its end.
const AROUND_BAR: usize = 52;

/// The state of all fleets at one moment.
#[derive(Clone, Debug)]
pub(super) struct View {
    elapsed: Duration,
    fleets: Vec<FleetView>,
}

/// The state of one fleet.
#[derive(Clone, Debug)]
pub(super) struct FleetView {
    pub(super) title: &'static str,
    /// The processes that are restarted, such as `3 replicas of an order service`.
    pub(super) what: String,
    /// Parts of a line, each with its colours.
    pub(super) summary: Vec<String>,
    /// The counts for the lines that are printed every five seconds if they have changed.
    pub(super) counts: String,
    pub(super) rows: Vec<Row>,
}

/// One replica.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    /// The count that the bar of a serving replica shows, and its unit.
    pub(super) count: usize,
    pub(super) unit: &'static str,
    pub(super) seen: Snapshot,
}

/// The lines that have been printed so far, if frames cannot be drawn.
#[derive(Debug, Default)]
pub(super) struct Changes {
    printed: BTreeMap<(usize, String), String>,
    /// The last summary of each fleet: its time in units of five seconds, and its counts.
    summaries: BTreeMap<usize, (u64, String)>,
}

// === impl View ===

impl View {
    pub(super) fn new(began: Instant, fleets: Vec<FleetView>) -> Self {
        Self { elapsed: began.elapsed(), fleets }
    }

    pub(super) fn of(fleets: &[LoadedFleet], began: Instant) -> Self {
        let fleets = fleets.iter().map(|LoadedFleet { fleet, load, .. }| {
            let counts = load.counts();
            FleetView {
                title: fleet.kind.title(),
                what: format!("{} replicas of an order service", fleet.size()),
                summary: summary(&counts, fleet.restarts(), fleet.size()).into(),
                counts: format!("{} requests, {} failed", counts.requests, counts.failed),
                rows: fleet
                    .members()
                    .iter()
                    .map(|member| Row {
                        name: member.name.clone(),
                        count: member.in_flight(),
                        unit: "in flight",
                        seen: member.seen(),
                    })
                    .collect(),
            }
        });
        Self::new(began, fleets.collect())
    }

    /// Returns the frame, in this many columns.
    pub(super) fn frame(&self, columns: usize) -> String {
        let bar = columns.saturating_sub(AROUND_BAR).min(BAR);
        let bar = if bar < SHORTEST_BAR { 0 } else { bar };
        let mut lines = Vec::new();
        for fleet in &self.fleets {
            let (bold, title, what) = (Style::new().bold(), fleet.title, &fleet.what);
            let elapsed = seconds(self.elapsed);
            lines.push(format!(
                "{bold}{title}{bold:#}  {elapsed:.1}s: {what}, restarted under load"
            ));
            let summary = flowed(&fleet.summary, columns.saturating_sub(2));
            lines.extend(summary.into_iter().map(|line| format!("  {line}")));
            lines.extend(fleet.rows.iter().map(|row| row.line(bar)));
            lines.push(String::new());
        }
        lines.join("\n")
    }
}

fn summary(counts: &Counts, restarts: usize, size: usize) -> [String; 4] {
    let Counts { requests, failed, slowest, .. } = counts;
    let style = if *failed == 0 { AnsiColor::Green } else { AnsiColor::Red }.on_default();
    [
        format!("requests {requests}"),
        format!("{style}failed {failed}{style:#}"),
        format!("slowest {} ms", slowest.as_millis()),
        format!("restarted {restarts} of {size}"),
    ]
}

// === impl Row ===

impl Row {
    /// Returns the name of the replica, its state, a bar of this many columns, and figures.
    fn line(&self, bar: usize) -> String {
        let Self { name, count, unit, seen } = self;
        let (style, cells, what) = match (seen.state, seen.left) {
            (State::Gone, _) => {
                let what = seen.end.as_ref().map_or_else(String::new, |end| {
                    let took = end.at.saturating_sub(seen.signalled.unwrap_or(end.at));
                    format!("exit code {} after {:.1}s", end.exit_code, seconds(took))
                });
                (Style::new(), None, what)
            }
            (State::Starting, _) => (Style::new(), Some(0), String::new()),
            // The replica was signalled to stop: the bar shows its remaining time.
            (_, Some(left)) => {
                let cells = bar * usize::try_from(left.as_millis()).unwrap_or(0)
                    / usize::try_from(KILL_AFTER.as_millis()).unwrap_or(1);
                let phase = seen.phase.as_deref().unwrap_or("");
                let left = format!("{:.1}s left", seconds(left));
                let what = match bar {
                    // The end of the line may be cut off, so the remaining time comes first.
                    0 => format!("{left}  {count} {unit}"),
                    _ => format!("{count:>3} {unit}  {left}  {phase}"),
                };
                (AnsiColor::Yellow.on_default(), Some(cells), what)
            }
            // The replica serves: the bar shows how much.
            (_, None) => {
                let what = format!("{count:>3} {unit}");
                (AnsiColor::Green.on_default(), Some(*count), what)
            }
        };
        let (full, rest) = match cells {
            Some(cells) => ("█".repeat(cells.min(bar)), "·".repeat(bar - cells.min(bar))),
            None => (String::new(), " ".repeat(bar)),
        };
        let (state, gap) = (word(seen.state), if bar == 0 { "" } else { "  " });
        format!("  {name:<10}  {style}{state:<8}{style:#}{gap}{style}{full}{style:#}{rest}  {what}")
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Ready => "ready",
        State::Draining => "draining",
        State::Gone => "gone",
    }
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}

// === impl Changes ===

impl Changes {
    /// Prints the changes since the last call to stderr.
    pub(super) fn print(&mut self, view: &View) {
        let mut stderr = std::io::stderr().lock();
        for line in self.news(view) {
            // If stderr cannot be written to, the demo continues.
            let _ = writeln!(stderr, "{line}");
        }
    }

    fn news(&mut self, view: &View) -> Vec<String> {
        let mut lines = Vec::new();
        let at = format!("{:>5.1}s", seconds(view.elapsed));
        let are_two = view.fleets.len() > 1;
        for (index, fleet) in view.fleets.iter().enumerate() {
            let of = if are_two { format!("{}: ", fleet.title) } else { String::new() };
            for row in &fleet.rows {
                let news = match (row.seen.state, &row.seen.phase, &row.seen.end) {
                    (_, _, Some(end)) => format!("gone, exit code {}", end.exit_code),
                    (_, Some(phase), _) => format!("draining, {phase}"),
                    (state, None, _) => word(state).to_owned(),
                };
                let printed = self.printed.entry((index, row.name.clone())).or_default();
                // Between two phases there is nothing to report.
                let is_between = row.seen.state == State::Draining
                    && row.seen.phase.is_none()
                    && printed.starts_with("draining");
                if *printed != news && !is_between {
                    lines.push(format!("{at}  {of}{} {news}", row.name));
                    *printed = news;
                }
            }
            // A summary every five seconds, if the counts have changed.
            let (fives, news) = (view.elapsed.as_secs() / 5, &fleet.counts);
            let last = self.summaries.entry(index).or_default();
            if fives > last.0 && *news != last.1 {
                lines.push(format!("{at}  {of}{news}"));
                *last = (fives, news.clone());
            }
        }
        lines
    }
}
