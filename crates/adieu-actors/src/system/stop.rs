//! Drains one actor and its children, while the rest of the system runs.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::Deadline;

use super::ActorSystem;
use crate::countdown::Countdown;
use crate::drain::{Members, update_dead_letters};
use crate::gather::gather;
use crate::node::Node;
use crate::panics::caught;
use crate::path::NodePath;
use crate::quiet::{Found, until_sent};
#[cfg(any(feature = "kameo", feature = "ractor"))]
use crate::record::Record;
use crate::report::DrainReport;
use crate::state::SystemState;
#[cfg(any(feature = "kameo", feature = "ractor"))]
use crate::timeouts::Timeouts;
use crate::tree::Stop;

/// Announces the drain of a part of the tree, until it is dropped.
struct Announced<'a> {
    state: &'a SystemState,
    stop: Stop,
}

/// While it exists, no node can be added at or below the path.
struct Seal<'a> {
    state: &'a SystemState,
    path: &'a NodePath,
}

// === impl ActorSystem ===

impl ActorSystem {
    /// Drains one actor and its children, children first. Actors that have not ended when the
    /// timeout has elapsed are killed.
    ///
    /// Returns `None` if there is no actor at this path, or if it is being drained with the whole
    /// system.
    ///
    /// # Cancel safety
    ///
    /// The drain continues if the future is dropped, and the system waits for it before it
    /// terminates.
    pub async fn stop(&self, path: &NodePath, timeout: Duration) -> Option<DrainReport> {
        let top = Arc::clone(self.state.tree().get(path)?);
        self.state.stop(path.clone(), Some(top), timeout).await
    }

    /// Drains the children of an actor, and not the actor itself. Children that have not ended when
    /// the timeout has elapsed are killed.
    ///
    /// When an actor stops, its children are stopped automatically. This is for an actor that continues
    /// without them.
    ///
    /// # Cancel safety
    ///
    /// As [`ActorSystem::stop`].
    pub async fn stop_children(&self, path: &NodePath, timeout: Duration) -> DrainReport {
        let stopped = self.state.stop(path.clone(), None, timeout).await;
        stopped.unwrap_or_else(DrainReport::empty)
    }

    /// Waits until the children of an actor that ends have ended. Stops them, unless a drain does.
    ///
    /// From now on the actor refuses messages and children: it processes no further message, and
    /// no code would stop children that join now.
    #[cfg(any(feature = "kameo", feature = "ractor"))]
    pub(crate) async fn end_children(record: &Record) {
        let is_draining = record.is_draining();
        record.wait_for_children().await;
        record.close();
        if !is_draining
            && let Some(system) = Self::of(record)
            && !system.state.tree().is_taken_by_other(record.path())
        {
            system.stop_children(record.path(), Timeouts::STATELESS).await;
        }
    }
}

// === impl SystemState ===

impl SystemState {
    /// Drains the node at this path, if it is given, and its children.
    ///
    /// This runs in a task of its own. If the drain were dropped half-way, parents would lose their
    /// children before they have stopped, or children would wait for a parent that has gone.
    async fn stop(
        self: &Arc<Self>,
        path: NodePath,
        top: Option<Arc<dyn Node>>,
        timeout: Duration,
    ) -> Option<DrainReport> {
        let state = Arc::clone(self);
        let deadline = Deadline::after(timeout);
        let stopped = self.stops.spawn(async move {
            state.drain_subtree(&path, top, &Countdown::until(deadline)).await
        });
        stopped.await.ok()
    }

    async fn drain_subtree(
        &self,
        path: &NodePath,
        top: Option<Arc<dyn Node>>,
        countdown: &Countdown,
    ) -> DrainReport {
        let cx = self.drain_cx(countdown);
        let stop = Stop { path: path.clone(), includes_top: top.is_some() };
        let _announced = Announced::new(self, stop);
        let mut group = self.tree().below(path);
        let nodes = || {
            let below = self.tree().below(path).nodes;
            let nodes: Vec<_> = top.iter().cloned().chain(below).collect();
            for node in &nodes {
                caught(|| node.begin_drain());
            }
            nodes
        };
        drop(nodes());
        let mut found = Found::new();
        self.finish_work(&cx, || nodes().into(), &mut found).await;
        let _seal = Seal::new(self, path);
        // Nodes that ended during the wait are only in the first group, nodes that were spawned
        // during it only in the second.
        group.add_missing(self.tree().below(path));
        let members = Members::from(gather(path, top, group)).found(&found);
        let nodes = members.nodes();
        let mut report = members.drain(&cx).await;
        until_sent(nodes.iter()).await;
        update_dead_letters(&mut report.nodes, &nodes);
        report
    }
}

// === impl Announced ===

impl<'a> Announced<'a> {
    fn new(state: &'a SystemState, stop: Stop) -> Self {
        state.tree().begin_stop(stop.clone());
        Self { state, stop }
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.state.tree().end_stop(&self.stop);
    }
}

// === impl Seal ===

impl<'a> Seal<'a> {
    fn new(state: &'a SystemState, path: &'a NodePath) -> Self {
        state.tree().seal(path.clone());
        Self { state, path }
    }
}

impl Drop for Seal<'_> {
    fn drop(&mut self) {
        self.state.tree().unseal(self.path);
    }
}
