//! The record that this node writes about itself, and its state according to the table. Pure: views
//! come in, proposals go out.
//!
//! # Invariants
//!
//! 1. A record is this node's if this node's session wrote it: not by its name, which an earlier
//!    process may have had.
//! 2. A node that has lost its place proposes nothing, ever again. There is no way back but a new
//!    process.
//! 3. A node removes itself only when it owns nothing.

use std::fmt;
use std::sync::Arc;

use crate::commits::{Commits, Me};
use crate::proposal::{Proposal, Purpose};
use crate::records::{
    ConfigRecord, Departure, Drain, Mode, NodeId, NodeRecord, NodeState, RegionConfig,
};
use crate::store::{Revision, SessionId};
use crate::view::View;

const PROTOCOL: &str = "protocol";

/// The declaration of a node that joins.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) id: NodeId,
    pub(crate) session: SessionId,
    pub(crate) record: NodeRecord,
    pub(crate) config: ConfigRecord,
}

/// The goal of the node. It only rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Goal {
    /// Be a member.
    #[default]
    Stay,
    /// Give the shards of regions away.
    DrainRegions,
    /// Leave.
    Leave,
    /// Give the singletons away, too.
    DrainSingletons,
    /// Be removed.
    BeRemoved,
}

/// The stage of a node, from joining to leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// It has no record yet.
    Outside,
    /// It waits for the leader's acknowledgement.
    Joining,
    /// It is a member.
    Up,
    /// It leaves.
    Leaving,
    /// The leader has acknowledged that it leaves.
    Exiting,
    /// The node has left.
    Removed,
    /// It has lost its place.
    Down,
}

/// Why a node has lost its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// It could not keep its session in time, by its own clock.
    Expired,
    /// The store has ended its session.
    Ended,
    /// An operator has declared it dead.
    DeclaredDead,
    /// The store shows an earlier state than before: it was restored from a backup, or replaced by an
    /// empty one. Fences of that state may have been used already.
    WentBack,
}

/// The setting in which a node differs from the cluster that it joins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "configuration does not fit the cluster: {field} is {ours} here and {theirs} in the cluster; {}",
    remedy(field)
)]
pub struct Incompatible {
    /// The setting, such as `regions.cart.shards`.
    pub field: String,
    /// Its value here.
    pub ours: String,
    /// Its value in the cluster.
    pub theirs: String,
}

/// This node's own record, as a machine.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    declared: Declared,
    goal: Goal,
    is_ready: bool,
    incarnation: Option<Revision>,
    has_left: bool,
    loss: Option<Loss>,
    incompatible: Option<Incompatible>,
}

// === impl Member ===

impl Member {
    pub(crate) fn new(declared: Declared) -> Self {
        Self {
            is_ready: declared.record.ready,
            declared,
            goal: Goal::Stay,
            incarnation: None,
            has_left: false,
            loss: None,
            incompatible: None,
        }
    }

    /// Returns this node as commits name it; `None` while it has no record.
    pub(crate) fn me(&self) -> Option<Me> {
        let Declared { id, session, .. } = &self.declared;
        self.incarnation.map(|incarnation| Me { id: id.clone(), incarnation, session: *session })
    }

    pub(crate) fn id(&self) -> &NodeId {
        &self.declared.id
    }

    pub(crate) fn goal(&self) -> Goal {
        self.goal
    }

    pub(crate) fn raise_goal(&mut self, goal: Goal) {
        self.goal = self.goal.max(goal);
    }

    pub(crate) fn set_ready(&mut self, is_ready: bool) {
        self.is_ready = is_ready;
    }

    pub(crate) fn lose(&mut self, loss: Loss) {
        if !self.has_left {
            self.loss.get_or_insert(loss);
        }
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.loss
    }

    pub(crate) fn incompatible(&self) -> Option<&Incompatible> {
        self.incompatible.as_ref()
    }

    pub(crate) fn stage(&self, view: &View) -> Stage {
        if self.has_left {
            return Stage::Removed;
        }
        if self.loss.is_some() {
            return Stage::Down;
        }
        let record = self.incarnation.and_then(|it| view.node(&self.declared.id, it));
        match record.map(|record| record.value.state) {
            None => Stage::Outside,
            Some(NodeState::Joining) => Stage::Joining,
            Some(NodeState::Up) => Stage::Up,
            Some(NodeState::Leaving) => Stage::Leaving,
            Some(NodeState::Exiting) => Stage::Exiting,
            Some(NodeState::Down) => Stage::Down,
        }
    }

    /// Returns whether the node was requested to leave: by an operator, by another node, or because
    /// the whole cluster stops.
    pub(crate) fn is_asked_to_leave(&self, view: &View) -> bool {
        match self.stage(view) {
            Stage::Leaving | Stage::Exiting => true,
            Stage::Joining | Stage::Up => view.mode() == Mode::Stopping,
            Stage::Outside | Stage::Removed | Stage::Down => false,
        }
    }

    /// Updates the state of this node from a view.
    pub(crate) fn see(&mut self, view: &View) {
        let Declared { id, session, config, .. } = &self.declared;
        let record = view.nodes.get(id).filter(|record| record.session == Some(*session));
        match (record, self.incarnation) {
            (Some(record), _) => {
                self.incarnation = Some(record.created);
                if record.value.state == NodeState::Down {
                    self.lose(Loss::DeclaredDead);
                }
            }
            (None, Some(incarnation)) => {
                let left = |gone: &crate::records::GoneRecord| {
                    gone.how == Departure::Left && gone.incarnation == incarnation
                };
                if view.gone.get(id).is_some_and(|gone| left(&gone.value)) {
                    self.has_left = true;
                } else {
                    self.lose(Loss::Ended);
                }
            }
            (None, None) => {
                let theirs = view.config.as_ref().map(|config| &config.value);
                self.incompatible = theirs.and_then(|theirs| difference(config, theirs));
            }
        }
    }

    /// Returns the next change of this node's own record, if one is due.
    pub(crate) fn decide(&self, view: &View, commits: &Commits) -> Option<Proposal> {
        if self.has_left || self.loss.is_some() {
            return None;
        }
        match self.me() {
            None => self.join(view, commits),
            Some(me) => self.go_on(&me, view, commits),
        }
    }

    fn join(&self, view: &View, commits: &Commits) -> Option<Proposal> {
        let Declared { id, session, record, config } = &self.declared;
        if self.goal != Goal::Stay || self.incompatible.is_some() || view.nodes.contains_key(id) {
            // The record of an earlier process of this name goes with its session.
            return None;
        }
        if view.mode() == Mode::Stopping {
            // The first node of an empty cluster starts it again; others wait until it is empty.
            let starts = view.nodes.is_empty();
            return starts.then(|| {
                Purpose::SetMode.proposes(commits.set_mode(view.mode.as_ref(), Mode::Running))
            });
        }
        let missing = |before: &ConfigRecord| {
            config.regions.keys().any(|region| !before.regions.contains_key(region))
        };
        match &view.config {
            Some(before) if !missing(&before.value) => {
                let record = NodeRecord { ready: self.is_ready, ..record.clone() };
                Some(Purpose::Join.proposes(commits.join(id, *session, &record, before)))
            }
            before => {
                let mut merged = before.as_ref().map(|it| it.value.clone()).unwrap_or_default();
                if before.is_none() {
                    merged.protocol = config.protocol;
                }
                for (region, settings) in &config.regions {
                    merged.regions.entry(Arc::clone(region)).or_insert(*settings);
                }
                Some(Purpose::Configure.proposes(commits.configure(view, &merged)))
            }
        }
    }

    fn go_on(&self, me: &Me, view: &View, commits: &Commits) -> Option<Proposal> {
        let node = view.node(&me.id, me.incarnation)?;
        let drain = match self.goal {
            Goal::Stay => Drain::Nothing,
            Goal::DrainRegions | Goal::Leave => Drain::Regions,
            Goal::DrainSingletons | Goal::BeRemoved => Drain::Singletons,
        };
        let drain = drain.max(node.value.drain);
        let ready = self.is_ready && drain == Drain::Nothing;
        if (node.value.ready, node.value.drain) != (ready, drain) {
            let commit = commits.announce(&me.id, node, ready, drain);
            return Some(Purpose::Announce.proposes(commit));
        }
        if self.goal >= Goal::Leave && node.value.state <= NodeState::Up {
            let others = view.in_state(NodeState::Up).any(|(id, _)| *id != me.id);
            let resigns = view.led_under(me.session).filter(|_| others);
            return Some(Purpose::Leave.proposes(commits.leave(&me.id, node, resigns)));
        }
        if self.goal >= Goal::BeRemoved && view.owned_by(&me.id, me.incarnation).next().is_none() {
            return Some(Purpose::Remove.proposes(commits.removed(me, view)));
        }
        None
    }
}

/// Returns the first setting in which two configurations cannot be used together.
fn difference(ours: &ConfigRecord, theirs: &ConfigRecord) -> Option<Incompatible> {
    let differ = |field: String, ours: &dyn fmt::Display, theirs: &dyn fmt::Display| {
        Some(Incompatible { field, ours: ours.to_string(), theirs: theirs.to_string() })
    };
    if ours.protocol != theirs.protocol {
        return differ(PROTOCOL.to_owned(), &ours.protocol, &theirs.protocol);
    }
    ours.regions.iter().find_map(|(name, ours)| {
        let RegionConfig { kind, shards } = theirs.regions.get(name)?;
        if ours.kind != *kind {
            return differ(format!("regions.{name}.kind"), &ours.kind, kind);
        }
        if ours.shards != *shards {
            return differ(format!("regions.{name}.shards"), &ours.shards, shards);
        }
        None
    })
}

/// Returns what to do about a setting that differs. The table keeps the settings of its regions, also
/// while no node is in the cluster.
fn remedy(field: &str) -> &'static str {
    match field {
        PROTOCOL => {
            "run builds that support a common protocol, or use another name for the cluster"
        }
        _ => "use the same value, or another name: the cluster keeps it, even if all nodes stop",
    }
}

// === impl Loss ===

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Expired => "the session could not be kept in time",
            Self::Ended => "the store has ended the session",
            Self::DeclaredDead => "an operator has declared the node dead",
            Self::WentBack => {
                "the store went back to an earlier state: it was restored or replaced"
            }
        })
    }
}

// === impl Stage ===

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Outside => "outside",
            Self::Joining => "joining",
            Self::Up => "up",
            Self::Leaving => "leaving",
            Self::Exiting => "exiting",
            Self::Removed => "removed",
            Self::Down => "down",
        })
    }
}

#[cfg(test)]
mod tests;
