//! Clusters as tables.

use std::fmt::Write;
use std::time::Duration;

use anstyle::Style;

use super::seen::{
    Clusters, FailingLink, Gone, LastMove, Moving, Node, Region, Seen, Singleton, Vanished,
};
use crate::duration::short;
use crate::fit::{fitted, harmless, width};

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

/// The widest column.
const MAX_WIDTH: usize = 40;

/// The most moves that are listed.
const MOST_MOVES: usize = 20;

pub(super) fn draw(clusters: &Clusters) -> String {
    let drawn: Vec<_> = clusters.clusters.iter().map(draw_one).collect();
    drawn.join("\n")
}

fn draw_one(seen: &Seen) -> String {
    let Seen {
        cluster,
        node,
        stage,
        leader,
        loss,
        waiting_for,
        session_left_ms,
        is_stopping,
        nodes,
        vanished,
        gone,
        singletons,
        regions,
        last_moves,
        failing_links,
    } = seen;
    let stops = if *is_stopping { ", which stops" } else { "" };
    let mut out = format!(
        "{BOLD}cluster {}{BOLD:#}{stops}, as {} sees it\n  {}",
        harmless(cluster),
        harmless(node),
        match stage.as_str() {
            "outside" => "not in the cluster".into(),
            stage => harmless(stage),
        }
    );
    match (loss, *session_left_ms > 0.0) {
        (Some(loss), _) => {
            let _ = write!(out, ": {}", harmless(loss));
        }
        (None, true) if stage != "outside" => {
            let left = millis(*session_left_ms);
            let _ = write!(out, ", may act without the store for {left}");
        }
        (None, _) => {}
    }
    out.push('\n');
    if let Some(waiting) = waiting_for {
        let _ = writeln!(out, "  {}, {}", harmless(&waiting.what), millis(waiting.for_ms));
    }
    if !nodes.is_empty() {
        let rows = nodes.iter().map(|it| node_row(it, leader.as_deref())).collect();
        out += &table("Nodes", ["node", "state", "build", "zone", "address", ""], rows);
    }
    if leader.is_none() && !nodes.is_empty() {
        out += "  no leader\n";
    }
    if !singletons.is_empty() {
        let rows = singletons.iter().map(singleton_row).collect();
        out += &table("Singletons", ["singleton", "owner", "fence", "state"], rows);
    }
    if !regions.is_empty() {
        let rows = regions.iter().map(region_row).collect();
        let head = ["region", "shards", "owners", "moving", "entities here", "kept here"];
        out += &table("Regions", head, rows);
        let moves = regions.iter().flat_map(|it| it.moves.iter().map(move |moving| (it, moving)));
        let moves = moves.map(|(it, Moving { shard, from, to })| {
            [format!("{}/{shard}", it.name), from.clone(), to.clone()]
        });
        let moves: Vec<_> = moves.take(MOST_MOVES).collect();
        if !moves.is_empty() {
            out += &table("Moves", ["shard", "from", "to"], moves);
        }
    }
    if !last_moves.is_empty() {
        let is_singleton = |name: &str| singletons.iter().any(|it| it.name == name);
        let rows = last_moves.iter().map(|it| move_row(it, is_singleton(&it.name))).collect();
        out += &table("Last moves", ["shard", "from", "to", "took", "why", "ago"], rows);
    }
    if !failing_links.is_empty() {
        let rows = failing_links.iter().map(|FailingLink { node, address, for_ms, error }| {
            [node.clone(), address.clone(), millis(*for_ms), error.clone()]
        });
        out += &table("Links that fail", ["to", "address", "for", "error"], rows.collect());
    }
    if !vanished.is_empty() || !gone.is_empty() {
        let vanished = vanished.iter().map(|Vanished { node, for_ms }| {
            [node.clone(), format!("vanished {} ago", millis(*for_ms))]
        });
        let gone = gone.iter().map(|Gone { node, how }| [node.clone(), how.clone()]);
        out += &table("No longer there", ["node", "how"], vanished.chain(gone).collect());
    }
    out
}

fn node_row(it: &Node, leader: Option<&str>) -> [String; 6] {
    let Node { node, state, ready, build, zone, address, renewed_ms } = it;
    let mut notes = Vec::new();
    if leader == Some(node) {
        notes.push("leads".to_owned());
    }
    if !ready && state == "up" {
        notes.push("not ready".to_owned());
    }
    if let Some(renewed) = renewed_ms {
        notes.push(format!("renewed {} ago", millis(*renewed)));
    }
    let or_dash = |text: Option<&str>| text.filter(|it| !it.is_empty()).unwrap_or("-").to_owned();
    [
        node.clone(),
        state.clone(),
        or_dash(Some(build)),
        or_dash(zone.as_deref()),
        or_dash(address.as_deref()),
        notes.join(", "),
    ]
}

fn singleton_row(it: &Singleton) -> [String; 4] {
    let Singleton { name, owner, fence, state, moves_to, instance } = it;
    let state = match (instance, moves_to) {
        (Some(instance), None) => format!("{state}, {instance}"),
        (_, Some(to)) => format!("{state} to {to}"),
        (None, None) => state.clone(),
    };
    let fence = fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string());
    [name.clone(), owner.clone().unwrap_or_else(|| "-".to_owned()), fence, state]
}

fn region_row(it: &Region) -> [String; 6] {
    let Region { name, shards, free, entities, kept, owners, moves } = it;
    let mut by_owner: Vec<_> =
        owners.iter().map(|(owner, shards)| format!("{owner} {}", shards.len())).collect();
    if *free > 0 {
        by_owner.push(format!("none {free}"));
    }
    [
        name.clone(),
        shards.to_string(),
        by_owner.join(", "),
        moves.len().to_string(),
        entities.to_string(),
        kept.to_string(),
    ]
}

fn move_row(it: &LastMove, is_singleton: bool) -> [String; 6] {
    let LastMove { name, shard, from, to, took_ms, why, ago_ms } = it;
    let shard = if is_singleton { name.clone() } else { format!("{name}/{shard}") };
    let from = from.clone().unwrap_or_else(|| "-".to_owned());
    [shard, from, to.clone(), millis(*took_ms), why.clone(), millis(*ago_ms)]
}

/// A heading, and columns as wide as they need to be.
fn table<const N: usize>(title: &str, head: [&str; N], rows: Vec<[String; N]>) -> String {
    let widths: [usize; N] = std::array::from_fn(|at| {
        let cells = rows.iter().map(|row| width(&harmless(&row[at])));
        cells.chain([head[at].len()]).max().unwrap_or(0).min(MAX_WIDTH)
    });
    let line = |cells: [String; N]| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            line += "  ";
            line += &fitted(cell, width);
        }
        line.trim_end().to_owned()
    };
    let mut out = format!("\n{BOLD}{title}{BOLD:#}\n");
    let _ = writeln!(out, "{DIM}{}{DIM:#}", line(head.map(str::to_owned)));
    for row in rows {
        let _ = writeln!(out, "{}", line(row));
    }
    out
}

pub(super) fn millis(millis: f64) -> String {
    short(Duration::try_from_secs_f64(millis / 1e3).unwrap_or_default())
}
