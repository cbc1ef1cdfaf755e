//! Describes the condition that a node waits for.

use crate::member::Stage;
use crate::node::Node;
use crate::records::{Drain, Mode, RegionKind};

/// How a line begins while the node leaves.
pub(crate) const LEAVE: &str = "leave: ";
pub(crate) const STORE: &str = "join: waiting for the store";

/// Returns what a node is waiting for; `None` if it is a member, or no longer in the cluster.
pub(crate) fn line(node: &Node) -> Option<String> {
    let view = node.view();
    let acknowledged = || match &view.leader {
        Some(leader) => format!("waiting for acknowledgement by {}", leader.value.node),
        None => "waiting for a leader to be elected".to_owned(),
    };
    let me = node.me();
    let record = me.as_ref().and_then(|me| view.node(&me.id, me.incarnation));
    let owned = |kind: RegionKind| {
        let owned = me.iter().flat_map(|me| view.owned_by(&me.id, me.incarnation));
        owned.filter(move |(shard, _)| view.kind(&shard.region) == kind)
    };
    match node.stage() {
        Stage::Outside => Some(outside(node)),
        Stage::Joining if record.is_some_and(|record| !record.value.ready) => {
            Some("join: waiting until this process is available and not cordoned".to_owned())
        }
        Stage::Joining => Some(format!("join: {}", acknowledged())),
        // An operator has requested it, and the shutdown has not reached the cluster's phases.
        Stage::Leaving if record.is_some_and(|record| record.value.drain == Drain::Nothing) => {
            Some(format!("{LEAVE}waiting for the earlier phases of the shutdown"))
        }
        Stage::Leaving => Some(match owned(RegionKind::Region).count() {
            0 => format!("{LEAVE}{}", acknowledged()),
            shards => format!("{LEAVE}waiting for {shards} shards to be handed over"),
        }),
        Stage::Exiting => {
            let names = owned(RegionKind::Singleton).map(|(shard, _)| &*shard.region);
            let names = names.collect::<Vec<_>>().join(", ");
            Some(match names.as_str() {
                "" => format!("{LEAVE}waiting for the store"),
                names => format!("{LEAVE}waiting for {names} to be handed over"),
            })
        }
        Stage::Up | Stage::Removed | Stage::Down => None,
    }
}

fn outside(node: &Node) -> String {
    let view = node.view();
    if let Some(incompatible) = node.member.incompatible() {
        return format!("join: {incompatible}");
    }
    if view.mode() == Mode::Stopping && !view.nodes.is_empty() {
        let nodes: Vec<_> = view.nodes.keys().map(ToString::to_string).collect();
        return format!(
            "join: the cluster is being stopped; waiting for the end of: {}",
            nodes.join(", ")
        );
    }
    let id = node.member.id();
    match view.nodes.contains_key(id) {
        true => format!("join: waiting until the earlier node {id} is gone"),
        false => STORE.to_owned(),
    }
}
