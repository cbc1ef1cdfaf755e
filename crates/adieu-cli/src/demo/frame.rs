//! What the demo shows while it runs: a frame of bars, or a line for each change.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use tokio::time::Instant;

use super::Act;
use super::KILL_AFTER;
use super::load::Counts;
use super::member::{Seen, State};
use super::replica::Kind;

/// How wide a bar is.
const BAR: usize = 20;

/// Everything there is to see at one moment.
#[derive(Clone, Debug)]
pub(super) struct View {
    elapsed: Duration,
    fleets: Vec<FleetView>,
}

#[derive(Clone, Debug)]
struct FleetView {
    kind: Kind,
    size: usize,
    restarts: usize,
    counts: Counts,
    rows: Vec<Row>,
}

/// One replica.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    in_flight: usize,
    seen: Seen,
}

/// What has been said already, where nothing can be drawn.
#[derive(Debug, Default)]
pub(super) struct Changes {
    said: BTreeMap<(usize, String), String>,
    /// When, in fives of seconds, and how it stood.
    summaries: BTreeMap<usize, (u64, (u64, u64))>,
}

// === impl View ===

impl View {
    pub(super) fn of(acts: &[Act], began: Instant) -> Self {
        let fleets = acts.iter().map(|Act { fleet, load }| FleetView {
            kind: fleet.kind,
            size: fleet.size(),
            restarts: fleet.restarts(),
            counts: load.counts(),
            rows: fleet
                .members()
                .iter()
                .map(|member| Row {
                    name: member.name.clone(),
                    in_flight: member.in_flight(),
                    seen: member.seen(),
                })
                .collect(),
        });
        Self { elapsed: began.elapsed(), fleets: fleets.collect() }
    }

    /// What is to be drawn.
    pub(super) fn frame(&self) -> String {
        let mut lines = Vec::new();
        for fleet in &self.fleets {
            let (bold, title) = (Style::new().bold(), title(fleet.kind));
            let (size, elapsed) = (fleet.size, seconds(self.elapsed));
            lines.push(format!(
                "{bold}{title}{bold:#}  {elapsed:.1}s: {size} replicas of an order service, restarted under load"
            ));
            lines.push(format!("  {}", summary(fleet)));
            for row in &fleet.rows {
                lines.push(row.bar());
            }
            lines.push(String::new());
        }
        lines.join("\n")
    }
}

fn summary(fleet: &FleetView) -> String {
    let Counts { requests, failed, slowest, .. } = &fleet.counts;
    let style = if *failed == 0 { AnsiColor::Green } else { AnsiColor::Red }.on_default();
    format!(
        "requests {requests}   {style}failed {failed}{style:#}   slowest {} ms   restarted {} of {}",
        slowest.as_millis(),
        fleet.restarts,
        fleet.size,
    )
}

pub(super) fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Adieu => "adieu",
        Kind::Plain => "plain axum::serve",
    }
}

// === impl Row ===

impl Row {
    fn bar(&self) -> String {
        let Self { name, in_flight, seen } = self;
        let (style, cells, what) = match (seen.state, seen.left) {
            (State::Gone, _) => {
                let what = seen.end.as_ref().map_or_else(String::new, |end| {
                    let took = end.at.saturating_sub(seen.told.unwrap_or(end.at));
                    format!("exit code {} after {:.1}s", end.exit_code, seconds(took))
                });
                return format!("  {name:<10}  {:<8}  {:BAR$}  {what}", word(seen.state), "");
            }
            (State::Starting, _) => (Style::new(), 0, String::new()),
            // Told to stop: what is left of its time.
            (_, Some(left)) => {
                let cells = BAR * usize::try_from(left.as_millis()).unwrap_or(0)
                    / usize::try_from(KILL_AFTER.as_millis()).unwrap_or(1);
                let phase = seen.phase.as_deref().unwrap_or("");
                let what = format!("{in_flight:>3} in flight  {:.1}s left  {phase}", seconds(left));
                (AnsiColor::Yellow.on_default(), cells, what)
            }
            // At work: how much.
            (_, None) => {
                (AnsiColor::Green.on_default(), *in_flight, format!("{in_flight:>3} in flight"))
            }
        };
        let full = "█".repeat(cells.min(BAR));
        let rest = "·".repeat(BAR - cells.min(BAR));
        let state = word(seen.state);
        format!("  {name:<10}  {style}{state:<8}{style:#}  {style}{full}{style:#}{rest}  {what}")
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
    /// Says on stderr what is new.
    pub(super) fn say(&mut self, view: &View) {
        let mut stderr = std::io::stderr().lock();
        for line in self.news(view) {
            // Nothing depends on it.
            let _ = writeln!(stderr, "{line}");
        }
    }

    fn news(&mut self, view: &View) -> Vec<String> {
        let mut lines = Vec::new();
        let at = format!("{:>5.1}s", seconds(view.elapsed));
        let are_two = view.fleets.len() > 1;
        for (index, fleet) in view.fleets.iter().enumerate() {
            let of = if are_two { format!("{}: ", title(fleet.kind)) } else { String::new() };
            for row in &fleet.rows {
                let news = match (row.seen.state, &row.seen.phase, &row.seen.end) {
                    (_, _, Some(end)) => format!("gone, exit code {}", end.exit_code),
                    (_, Some(phase), _) => format!("draining, {phase}"),
                    (state, None, _) => word(state).to_owned(),
                };
                let said = self.said.entry((index, row.name.clone())).or_default();
                // Between two phases there is nothing new.
                let is_between = row.seen.state == State::Draining
                    && row.seen.phase.is_none()
                    && said.starts_with("draining");
                if *said != news && !is_between {
                    lines.push(format!("{at}  {of}{} {news}", row.name));
                    *said = news;
                }
            }
            // Every five seconds, how it stands, while there is something new.
            let Counts { requests, failed, .. } = fleet.counts;
            let (fives, news) = (view.elapsed.as_secs() / 5, (requests, failed));
            let last = self.summaries.entry(index).or_default();
            if fives > last.0 && news != last.1 {
                lines.push(format!("{at}  {of}{requests} requests, {failed} failed"));
                *last = (fives, news);
            }
        }
        lines
    }
}
