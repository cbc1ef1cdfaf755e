//! Checks whether an operator can move a shard to a node, and builds the commit that requests it.
//! Pure: the input is the view, the result is a commit or a refusal.

use std::sync::Arc;

use crate::commits::{Commits, Seen, Target};
use crate::records::{Mode, NodeId, NodeState, ShardId, ShardRecord};
use crate::store::Commit;
use crate::view::View;

/// Why a shard is not moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoveRefusal {
    /// The cluster has no such region or singleton.
    #[error("there is no region {region}; regions: {}", known.join(", "))]
    NoSuchRegion {
        /// The region.
        region: Arc<str>,
        /// The regions and singletons of the cluster.
        known: Vec<String>,
    },
    /// The region has fewer shards.
    #[error("region {region} has the shards 0 to {last}")]
    NoSuchShard {
        /// The region.
        region: Arc<str>,
        /// The number of its last shard.
        last: u32,
    },
    /// The node owns the shard already.
    #[error("{owner} owns it already")]
    AlreadyThere {
        /// The node.
        owner: NodeId,
    },
    /// The node is not a member, or it leaves.
    #[error("{node} is {state}: only a node that is up receives shards")]
    NotUp {
        /// The node.
        node: NodeId,
        /// Its state.
        state: NodeState,
    },
    /// The node is cordoned, not available, or shuts down.
    #[error("{node} takes no shards: it is cordoned, not ready, or shuts down")]
    NotReady {
        /// The node.
        node: NodeId,
    },
    /// The node has not declared the region, or has declared it with `proxy`.
    #[error("{node} does not host {region}; it hosts {}", listed(hosts))]
    NotHosted {
        /// The node.
        node: NodeId,
        /// The region.
        region: Arc<str>,
        /// The regions and singletons that the node hosts.
        hosts: Vec<String>,
    },
    /// No node owns the shard.
    #[error("no node owns it; the leader places it as soon as a node can take it")]
    NoOwner,
    /// The owner of the shard has vanished.
    #[error("its owner {owner} has vanished; the leader gives it to another node soon")]
    OwnerVanished {
        /// The owner.
        owner: NodeId,
    },
    /// The cluster has no leader.
    #[error("the cluster has no leader now; try again")]
    NoLeader,
    /// The whole cluster is being stopped.
    #[error("the cluster is being stopped")]
    Stopping,
}

/// Returns the commit that requests a move, or `None` if the shard is moving to that node already. The
/// commit is the one with which the leader requests a move for balance.
pub(crate) fn request(
    commits: &Commits,
    view: &View,
    shard: &ShardId,
    target: Target<'_>,
) -> Result<Option<Commit>, MoveRefusal> {
    let record = view.shards.get(shard).ok_or_else(|| unknown(view, shard))?;
    if view.mode() == Mode::Stopping {
        return Err(MoveRefusal::Stopping);
    }
    check(target, &shard.region)?;
    let to = target.id;
    let ownership = record.value.ownership().ok_or(MoveRefusal::NoOwner)?;
    let owner = &ownership.owner;
    if !view.is_alive(ownership) {
        return Err(MoveRefusal::OwnerVanished { owner: owner.clone() });
    }
    if owner == to {
        return Err(MoveRefusal::AlreadyThere { owner: owner.clone() });
    }
    // A move is never taken back, but it can be given another target.
    if matches!(&record.value, ShardRecord::Moving { to: before, .. } if before == to) {
        return Ok(None);
    }
    let leader = view.leader.as_ref().ok_or(MoveRefusal::NoLeader)?.created;
    Ok(Some(commits.request_move(leader, Seen { id: shard, record }, ownership, target)))
}

/// Checks that a node can receive shards of a region.
fn check(target: Target<'_>, region: &Arc<str>) -> Result<(), MoveRefusal> {
    let Target { id, record } = target;
    let (node, value) = (id.clone(), &record.value);
    if value.can_receive(region) {
        return Ok(());
    }
    Err(if value.state != NodeState::Up {
        MoveRefusal::NotUp { node, state: value.state }
    } else if !value.hosts.contains(region) {
        let hosts = value.hosts.iter().map(ToString::to_string).collect();
        MoveRefusal::NotHosted { node, region: Arc::clone(region), hosts }
    } else {
        MoveRefusal::NotReady { node }
    })
}

fn unknown(view: &View, shard: &ShardId) -> MoveRefusal {
    let region = Arc::clone(&shard.region);
    let mut known: Vec<String> = view.shards.keys().map(|it| it.region.to_string()).collect();
    known.dedup();
    match view.shards.keys().filter(|it| it.region == region).map(|it| it.number).max() {
        Some(last) => MoveRefusal::NoSuchShard { region, last },
        None => MoveRefusal::NoSuchRegion { region, known },
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests;
