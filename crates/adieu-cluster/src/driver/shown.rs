//! The progress and readiness of a node, and the log lines of its states.

use std::sync::Arc;

use adieu_core::{Readiness, Reason};

use super::Driver;
use crate::member::{Goal, Loss, Stage};
use crate::node::Node;
use crate::shared::{Failure, Progress};
use crate::time::{Duration, now};
use crate::waiting;

/// The interval at which a waiting node logs the condition that it waits for.
const LOG_WAIT: Duration = Duration::from_secs(5);

// === impl Driver ===

impl Driver {
    pub(super) fn is_ready(&self) -> bool {
        let Some(shutdown) = self.shared.shutdown.upgrade() else {
            // The shutdown was dropped without having run: there is no phase to leave in.
            self.shared.close.cancel();
            return false;
        };
        // Until this node is a member, the cluster itself makes the process `Starting`, which hides a
        // cordon.
        let may_serve = matches!(shutdown.readiness(), Readiness::Starting | Readiness::Ready);
        may_serve && !shutdown.is_cordoned()
    }

    /// Publishes the progress of this node to the tasks of the phases and to the shutdown.
    pub(super) fn publish(&mut self, node: &Node) {
        let shared = &self.shared;
        shared.progress.send_if_modified(|before| {
            let mut after = Progress::of(node, before);
            if after.waiting_for.as_deref() == Some(waiting::STORE) {
                after.waiting_for = Some(shared.troubles.explained(waiting::STORE));
            }
            let incompatible = node.member.incompatible().cloned().map(Failure::Incompatible);
            after.failure = after.failure.or(incompatible);
            let changes = *before != after;
            *before = after;
            changes
        });
        let now = now();
        for moved in self.handoffs.see(now, node.me().as_ref(), node.view()) {
            shared.counters.moved(moved, now);
        }
        if self.stage != node.stage() {
            let (before, after) = (self.stage, node.stage());
            self.stage = after;
            self.report(before, after, node.member.loss());
        }
        let is_running = self.begun.is_cancelled();
        if !is_running {
            self.report_wait();
        }
        if node.is_asked_to_leave() && node.member.goal() == Goal::Stay && !is_running {
            self.begins.get_or_insert(Reason::ClusterLeaving);
        }
    }

    /// Logs every 5 s the condition that a joining node waits for. During a shutdown, the shutdown logs it.
    fn report_wait(&mut self) {
        let what = self.shared.progress.borrow().waiting_for.clone();
        let Some(what) = what else {
            self.waits = None;
            return;
        };
        let since = match &mut self.waits {
            Some((before, since)) if *before == what => since,
            waits => return *waits = Some((what, now())),
        };
        if now() - *since >= LOG_WAIT {
            *since = now();
            let (cluster, node) = (Arc::clone(&self.shared.cluster), self.shared.id.clone());
            self.shared.log(move || {
                tracing::info!(%cluster, %node, waiting_for = what, "still waiting");
            });
        }
    }

    fn report(&mut self, before: Stage, after: Stage, loss: Option<Loss>) {
        let (cluster, node) = (Arc::clone(&self.shared.cluster), self.shared.id.clone());
        match loss {
            None => self.shared.log(move || {
                tracing::info!(%cluster, %node, from = %before, to = %after, "cluster state");
            }),
            Some(loss) => {
                self.shared.log(move || {
                    tracing::error!(%cluster, %node, %loss, "node lost its place in the cluster");
                });
                self.standing.lose();
                if self.begun.is_cancelled() && (Stage::Up..=Stage::Exiting).contains(&before) {
                    self.report_loss(loss);
                }
                let shutdown = self.shared.shutdown.upgrade();
                if shutdown.is_some_and(|shutdown| shutdown.runs_when_down()) {
                    self.begins.get_or_insert(Reason::ClusterDowning);
                }
            }
        }
    }

    /// Adds a loss to the report of the shutdown that runs: the tasks of its phases only see that there
    /// is nothing left to do.
    fn report_loss(&self, loss: Loss) {
        let lost = format!("lost its place while the shutdown ran: {loss}");
        let singletons = self.shared.progress.borrow().singletons.join(", ");
        self.shared.troubles.find(match singletons.as_str() {
            "" => lost,
            names => format!("{lost}; not handed over: {names}"),
        });
    }

    /// Reports whether this node is a member, as a condition of the readiness. Called outside the
    /// machine's lock.
    pub(super) fn report_readiness(&mut self) {
        if self.reported == self.stage {
            return;
        }
        self.reported = self.stage;
        match self.stage {
            Stage::Up => self.shared.check.mark_ready(),
            Stage::Down => {
                let loss = self.shared.progress.borrow().loss;
                let loss = loss.map_or_else(String::new, |loss| format!(": {loss}"));
                self.shared.check.mark_failed(format!("lost its place{loss}"));
            }
            // The shutdown makes the process unready while it leaves.
            Stage::Outside | Stage::Joining | Stage::Leaving | Stage::Exiting | Stage::Removed => {}
        }
    }
}
