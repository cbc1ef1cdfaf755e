//! The changes in a cluster between two polls, one line each.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::seen::{Clusters, Seen};
use crate::fit::harmless;

/// Lists the nodes and singletons of the first poll.
pub(super) fn first(clusters: &Clusters) -> String {
    clusters.clusters.iter().map(|it| lines(&BTreeMap::new(), &facts(it))).collect()
}

/// Lists the changes since the last poll.
pub(super) fn between(before: &Clusters, after: &Clusters) -> String {
    let each = after.clusters.iter().map(|now| {
        let before = before.named(&now.cluster);
        lines(&before.as_ref().map(facts).unwrap_or_default(), &facts(now))
    });
    each.collect()
}

/// Returns the state of each node and singleton, by its name.
fn facts(seen: &Seen) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut fact = |what: String, how: String| drop(facts.insert(what, how));
    let cluster = &seen.cluster;
    fact(format!("{cluster}: leader"), seen.leader.clone().unwrap_or_else(|| "none".to_owned()));
    if let Some(waiting) = &seen.waiting_for {
        fact(format!("{cluster}: {} waits", seen.node), waiting.what.clone());
    }
    for it in &seen.nodes {
        let ready = if it.ready { "" } else { ", not ready" };
        fact(format!("{cluster}: node {}", it.node), format!("{}{ready}", it.state));
    }
    for it in &seen.vanished {
        fact(format!("{cluster}: node {}", it.node), "vanished".to_owned());
    }
    for it in &seen.gone {
        // A node of this name may be back.
        if seen.nodes.iter().all(|node| node.node != it.node) {
            fact(format!("{cluster}: node {}", it.node), format!("gone, {}", it.how));
        }
    }
    for it in &seen.singletons {
        let owner = it.owner.as_deref().unwrap_or("no node");
        let fence = it.fence.map_or_else(String::new, |fence| format!(", fence {fence}"));
        fact(format!("{cluster}: singleton {}", it.name), format!("{}, {owner}{fence}", it.state));
    }
    for it in &seen.regions {
        for (owner, shards) in &it.owners {
            let count = format!("{} of {} shards", shards.len(), it.shards);
            fact(format!("{cluster}: region {} on {owner}", it.name), count);
        }
        for moving in &it.moves {
            let shard = format!("{cluster}: shard {}/{}", it.name, moving.shard);
            fact(shard, format!("moves from {} to {}", moving.from, moving.to));
        }
    }
    for it in &seen.failing_links {
        let link = format!("{cluster}: link from {} to {}", seen.node, it.node);
        fact(link, format!("fails: {}", it.error));
    }
    facts
}

fn lines(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    for (what, how) in after.iter().filter(|(what, how)| before.get(*what) != Some(*how)) {
        let _ = writeln!(out, "{}: {}", harmless(what), harmless(how));
    }
    for what in before.keys().filter(|what| !after.contains_key(*what)) {
        let _ = writeln!(out, "{}: no longer", harmless(what));
    }
    out
}
