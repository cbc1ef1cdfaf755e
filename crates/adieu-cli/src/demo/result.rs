//! What came of it: a table for people, JSON for programs.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use super::Act;
use super::frame::title;
use super::load::Counts;
use super::member::{End, Seen};
use super::replica::Kind;
use super::spool::Orders;

/// How many columns a timeline has.
const COLUMNS: usize = 48;

/// What came of one fleet.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    kind: Kind,
    size: usize,
    restarts: usize,
    counts: Counts,
    orders: Orders,
    replicas: Vec<Lived>,
}

/// How a replica lived.
#[derive(Clone, Debug)]
struct Lived {
    name: String,
    seen: Seen,
}

// === impl Outcome ===

impl Outcome {
    pub(super) fn of(act: &Act) -> Self {
        let Act { fleet, load } = act;
        let members = fleet.members();
        let lived = |member: &std::sync::Arc<super::member::Member>| Lived {
            name: member.name.clone(),
            seen: member.seen(),
        };
        Self {
            kind: fleet.kind,
            size: fleet.size(),
            restarts: fleet.restarts(),
            counts: load.counts(),
            orders: fleet.spool.count().unwrap_or_default(),
            replicas: members.iter().map(lived).collect(),
        }
    }

    /// No request failed, no order was lost, every replica ended as it should.
    pub(super) fn is_well(&self) -> bool {
        let ended_well = |lived: &Lived| lived.end().is_some_and(|end| end.exit_code == 0);
        self.counts.failed == 0 && self.lost() == 0 && self.replicas.iter().all(ended_well)
    }

    /// Orders that somebody began to ship and never will, or that are nowhere at all.
    fn lost(&self) -> u64 {
        let Orders { waiting, under_way, shipped } = self.orders;
        let count = |orders: usize| u64::try_from(orders).unwrap_or(u64::MAX);
        count(under_way) + self.counts.orders.saturating_sub(count(waiting + under_way + shipped))
    }

    /// The replicas by their place: the one that was restarted, and its successor.
    fn json(&self) -> Value {
        let places = self.replicas.iter().take(self.size).enumerate().map(|(place, lived)| {
            let successor = self.replicas.get(self.size + place);
            let mut replica = lived.json();
            replica["successor"] = successor.map_or(Value::Null, Lived::json);
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

impl Lived {
    fn end(&self) -> Option<&End> {
        self.seen.end.as_ref()
    }

    fn json(&self) -> Value {
        let Seen { born, ready, told, .. } = &self.seen;
        json!({
            "name": self.name,
            "exit_code": self.end().map(|end| end.exit_code),
            "started_ms": millis(*born),
            "ready_ms": ready.map(millis),
            "told_ms": told.map(millis),
            "gone_ms": self.end().map(|end| millis(end.at)),
            "report": self.end().and_then(|end| end.report.clone()),
        })
    }

    /// A cell for each moment: `-` starting, `=` ready, `#` told to stop.
    fn cells(&self, of: Duration) -> String {
        let Seen { born, ready, told, .. } = &self.seen;
        let end = self.end().map_or(of, |end| end.at);
        (0..COLUMNS)
            .map(|column| {
                let at = of.mul_f64((column as f64 + 0.5) / COLUMNS as f64);
                match () {
                    () if at < *born || at >= end => ' ',
                    () if told.is_some_and(|told| at >= told) => '▒',
                    () if ready.is_some_and(|ready| at >= ready) => '█',
                    () => '·',
                }
            })
            .collect()
    }
}

/// The result for programs: of adieu, and beside it that of the plain server.
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

/// The result for people.
pub(super) fn table(outcomes: &[Outcome], is_interrupted: bool, reports: Option<&Path>) -> String {
    let bold = Style::new().bold();
    let mut out = String::new();
    if is_interrupted {
        out.push_str("interrupted; until then:\n\n");
    }
    let heads = ["requests", "failed", "slowest", "restarts", "orders", "lost"];
    let _ = write!(out, "{:<18}", "");
    heads.iter().for_each(|head| out.push_str(&format!("{bold}{head:>10}{bold:#}")));
    out.push('\n');
    for outcome in outcomes {
        let Counts { requests, failed, slowest, orders, .. } = &outcome.counts;
        let slowest = format!("{} ms", slowest.as_millis());
        let _ = writeln!(
            out,
            "{:<18}{requests:>10}{}{slowest:>10}{:>10}{orders:>10}{}",
            title(outcome.kind),
            none_is_well(*failed),
            outcome.restarts,
            none_is_well(outcome.lost()),
        );
    }
    for outcome in outcomes {
        for (why, count) in &outcome.counts.why {
            let _ = writeln!(out, "{:<18}{count:>10} x {why}", "");
        }
    }
    let all = outcomes.iter().flat_map(|outcome| &outcome.replicas);
    let end = all.filter_map(|lived| lived.end().map(|end| end.at)).max().unwrap_or_default();
    for outcome in outcomes {
        let last = format!("{:.1}s", end.as_secs_f64());
        let _ = writeln!(
            out,
            "\n{bold}{:<18}{bold:#}0s{last:>width$}",
            title(outcome.kind),
            width = COLUMNS - 2
        );
        for lived in &outcome.replicas {
            let _ = writeln!(out, "  {:<16}{}  {}", lived.name, lived.cells(end), how(lived));
        }
    }
    out.push_str("\n· starting   █ ready   ▒ told to stop\n");
    if let Some(folder) = reports {
        let name = outcomes.first().and_then(|outcome| outcome.replicas.first());
        let name = name.map_or("orders-1a", |lived| &lived.name);
        let file = folder.join("adieu").join(format!("{name}.json"));
        let _ = writeln!(out, "\nWhere the time went: adieu report {}", file.display());
    }
    out
}

fn none_is_well(count: u64) -> String {
    let style = if count == 0 { AnsiColor::Green } else { AnsiColor::Red }.on_default();
    format!("{style}{count:>10}{style:#}")
}

fn how(lived: &Lived) -> String {
    let Some(End { at, exit_code, report }) = lived.end() else {
        return "still there".into();
    };
    let took = at.saturating_sub(lived.seen.told.unwrap_or(*at)).as_secs_f64();
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
