//! The result of the cluster's demo: a table for people, JSON for programs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::carts::{Faults, Logs};
use super::load::Counts;
use super::{Hosts, Side};
use crate::demo::drawing::{Drawn, LEGEND, ReplicaResult, causes, figures, millis, timelines};
use crate::demo::result::all_json;
use crate::fit::wrapped;

/// The width of a figure.
const CELL: usize = 8;

/// The result of one side: with adieu, or with the comparison.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    hosts: Hosts,
    restarts: usize,
    counts: Counts,
    faults: Faults,
    /// How often each shard has moved.
    moves: BTreeMap<u32, u64>,
    nodes: Vec<ReplicaResult>,
}

// === impl Outcome ===

impl Outcome {
    pub(super) fn of(side: &Side) -> io::Result<Self> {
        let Side { hosts, fleet, folder, .. } = side;
        let logs = Logs::read(folder)?;
        let counts = side.counts();
        Ok(Self {
            hosts: *hosts,
            restarts: fleet.restarts(),
            faults: logs.judge(&counts.answers),
            counts,
            moves: side.moves.get().cloned().unwrap_or_default(),
            nodes: ReplicaResult::all(&fleet.members()),
        })
    }

    /// Returns whether each ask ran once, was answered truly, and every node ended with 0. If nodes
    /// are killed, asks may be unknown.
    pub(super) fn is_well(&self, kills: bool) -> bool {
        let Faults { lost, doubled, untrue, unknown_ran: _ } = self.faults;
        let is_expected = |code: i32| code == 0 || kills && code == 137;
        let ended = |node: &ReplicaResult| node.end().is_some_and(|it| is_expected(it.exit_code));
        let answers = &self.counts.answers;
        lost + doubled + untrue == 0
            && (kills || answers.not_run.is_empty() && answers.unknown.is_empty())
            && self.nodes.iter().all(ended)
    }

    fn json(&self) -> Value {
        let Faults { lost, doubled, untrue, unknown_ran } = self.faults;
        let answers = &self.counts.answers;
        json!({
            "asks": self.counts.asks(),
            "ran": answers.ran.len(),
            "not_run": answers.not_run.len(),
            "unknown": answers.unknown.len(),
            "unknown_that_ran": unknown_ran,
            "lost": lost,
            "doubled": doubled,
            "untrue": untrue,
            "longest_stall_ms": millis(self.counts.stall),
            "restarts": self.restarts,
            "moves": {
                "total": self.moves.values().sum::<u64>(),
                "fewest": self.moves.values().min(),
                "most": self.moves.values().max(),
                "per_shard": self.per_shard(),
            },
            "why": self.counts.why,
            "nodes": self.nodes.iter().map(ReplicaResult::json).collect::<Vec<_>>(),
        })
    }

    fn per_shard(&self) -> f64 {
        let moves = self.moves.values().sum::<u64>() as f64 / f64::from(super::node::SHARDS);
        (moves * 100.0).round() / 100.0
    }

    fn drawn(&self) -> Drawn<'_> {
        let Faults { lost, doubled, .. } = self.faults;
        let answers = &self.counts.answers;
        let figures = vec![
            ("ran", answers.ran.len().to_string(), false),
            ("not run", answers.not_run.len().to_string(), true),
            ("unknown", answers.unknown.len().to_string(), true),
            ("lost", lost.to_string(), true),
            ("doubled", doubled.to_string(), true),
            ("stall", format!("{} ms", self.counts.stall.as_millis()), false),
            ("moves", format!("{:.1}", self.per_shard()), false),
        ];
        Drawn { title: self.hosts.kind().title(), figures, replicas: &self.nodes }
    }
}

/// Returns the result for programs: of adieu, and under `compare` that of naive re-hashing.
pub(super) fn json(outcomes: &[Outcome]) -> String {
    all_json(outcomes.iter().map(Outcome::json))
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
    let drawn: Vec<_> = outcomes.iter().map(Outcome::drawn).collect();
    figures(&drawn, CELL, columns, &mut out);
    for outcome in outcomes {
        causes(outcome.counts.why.iter(), columns, &mut out);
        let untrue = outcome.faults.untrue;
        if untrue > 0 {
            let line = (format!("reported as not run, and ran: {untrue}"), untrue);
            causes([(&line.0, &line.1)].into_iter(), columns, &mut out);
        }
    }
    timelines(&drawn, columns, &mut out);
    out.push_str(LEGEND);
    out.push('\n');
    for line in EXPLAINED.iter().flat_map(|it| wrapped(it, columns)) {
        out.push_str(&line);
        out.push('\n');
    }
    if let Some(folder) = reports {
        let file = folder.join("adieu").join("carts-1a.json");
        out.push_str(&format!("\nWhere the time went: adieu report {}\n", file.display()));
    }
    out
}

/// Explains the figures.
const EXPLAINED: [&str; 4] = [
    "lost: answered, but not in the cart",
    "doubled: saved by two instances at once, or run twice",
    "stall: the longest ask that ran",
    "moves: of each shard, on average",
];
