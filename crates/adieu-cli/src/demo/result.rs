//! The result: a table for people, JSON for programs.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::LoadedFleet;
use super::drawing::{Drawn, LEGEND, ReplicaResult, causes, figures, millis, timelines};
use super::load::Counts;
use super::replica::Kind;
use super::spool::Orders;

/// The width of a figure.
const CELL: usize = 10;

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

// === impl Outcome ===

impl Outcome {
    pub(super) fn of(loaded: &LoadedFleet) -> Self {
        let LoadedFleet { fleet, load, spool } = loaded;
        Self {
            kind: fleet.kind,
            size: fleet.size(),
            restarts: fleet.restarts(),
            counts: load.counts(),
            orders: spool.count().unwrap_or_default(),
            replicas: ReplicaResult::all(&fleet.members()),
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

/// Returns the result for programs: of adieu, and under `compare` that of the plain server.
pub(super) fn json(outcomes: &[Outcome]) -> String {
    all_json(outcomes.iter().map(Outcome::json))
}

/// Returns the JSON of the first outcome, with that of the second, if there is one, under `compare`.
pub(super) fn all_json(mut outcomes: impl Iterator<Item = Value>) -> String {
    let mut json = outcomes.next().unwrap_or_default();
    if let Some(other) = outcomes.next() {
        json["compare"] = other;
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
    let drawn: Vec<_> = outcomes.iter().map(Outcome::drawn).collect();
    figures(&drawn, CELL, columns, &mut out);
    causes(outcomes.iter().flat_map(|outcome| &outcome.counts.why), columns, &mut out);
    timelines(&drawn, columns, &mut out);
    out.push_str(LEGEND);
    if let Some(folder) = reports {
        let name = outcomes.first().and_then(|outcome| outcome.replicas.first());
        let name = name.map_or("orders-1a", |replica| &replica.name);
        let file = folder.join("adieu").join(format!("{name}.json"));
        let _ = writeln!(out, "\nWhere the time went: adieu report {}", file.display());
    }
    out
}

impl Outcome {
    fn drawn(&self) -> Drawn<'_> {
        let Counts { requests, failed, slowest, orders, .. } = &self.counts;
        let figures = vec![
            ("requests", requests.to_string(), false),
            ("failed", failed.to_string(), true),
            ("slowest", format!("{} ms", slowest.as_millis()), false),
            ("restarts", self.restarts.to_string(), false),
            ("orders", orders.to_string(), false),
            ("lost", self.lost().to_string(), true),
        ];
        Drawn { title: self.kind.title(), figures, replicas: &self.replicas }
    }
}
