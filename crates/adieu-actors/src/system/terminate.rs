//! Terminates a system: drains its actors, alone or as part of a coordinated shutdown.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::{Deadline, Reason, TaskCx};
use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::ActorSystem;
use crate::countdown::Countdown;
use crate::drain::{DrainCx, Members};
use crate::gather::gather;
use crate::group::{Group, Member};
use crate::node::Node;
use crate::panics::caught;
use crate::path::NodePath;
use crate::quiet::{Activity, Found, until_quiet, until_sent};
use crate::record::Record;
use crate::report::DrainReport;
use crate::state::{SystemStage, SystemState};
use crate::timeouts::Timeouts;

/// Why the end of a system cannot be awaited here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TerminateError {
    /// The caller is an actor of the system, so it would wait for its own end. The system terminates
    /// when other code awaits that.
    #[error(
        "an actor cannot await the end of its own system: it would wait for itself; await it in \
         another task"
    )]
    InsideActor,
}

// === impl ActorSystem ===

impl ActorSystem {
    /// Terminates the system.
    ///
    /// If the system is part of a coordinated shutdown, and `run-by-actor-system-terminate` is on,
    /// this runs all phases of the shutdown. One of them drains the actors. Otherwise this drains
    /// the actors at once.
    ///
    /// `timeout` limits the drain of the actors, from when their phase begins. It does not shorten
    /// any other phase, and does not lengthen the actors' own.
    ///
    /// A task of that shutdown cannot wait for the shutdown. If such a task calls this, the actors
    /// are drained at once.
    ///
    /// The handler of a request, and an actor of another system of the same shutdown, must not await
    /// this: they would wait for themselves until their time is up. There, begin the shutdown, and do not
    /// await it: `drop(shutdown.run(Reason::ActorSystemTerminate))`.
    ///
    /// # Errors
    ///
    /// If an actor of this system calls it. The system terminates nevertheless.
    ///
    /// # Cancel safety
    ///
    /// No message is lost. Without a coordinated shutdown the drain makes progress only while it is
    /// awaited.
    pub async fn terminate(&self, timeout: Duration) -> Result<Arc<DrainReport>, TerminateError> {
        if let Some(shutdown) = self.state.shutdown_to_run() {
            self.state.limit_drain(timeout);
            let completion = shutdown.run(Reason::ActorSystemTerminate);
            self.check_caller()?;
            // An error means that the shutdown cannot be awaited here, or has ended already.
            let _ = completion.await;
        }
        self.shutdown(timeout).await
    }

    /// Drains all actors: first the actors below `/user`, then the actors below `/system`.
    ///
    /// Every call awaits the same drain. A call with a shorter timeout shortens it for all callers.
    ///
    /// This does not wait for a coordinated shutdown. If the system is part of one, and
    /// `run-by-actor-system-terminate` is on, the shutdown begins when the actors have ended.
    ///
    /// # Errors
    ///
    /// If an actor of this system calls it.
    ///
    /// # Cancel safety
    ///
    /// The drain makes progress only while it is awaited. It can be awaited again.
    pub async fn shutdown(&self, timeout: Duration) -> Result<Arc<DrainReport>, TerminateError> {
        let report = self.abort(timeout).await?;
        if let Some(shutdown) = self.state.shutdown_to_run() {
            drop(shutdown.run(Reason::ActorSystemTerminate));
        }
        Ok(report)
    }

    /// Drains all actors as [`shutdown`](Self::shutdown) does, without a coordinated shutdown.
    ///
    /// # Errors
    ///
    /// If an actor of this system calls it.
    pub async fn abort(&self, timeout: Duration) -> Result<Arc<DrainReport>, TerminateError> {
        self.state.countdown.shorten(Deadline::after(timeout));
        self.state.begin_drain();
        self.check_caller()?;
        Ok(self.state.drain().await)
    }

    /// Waits until the system has terminated. It does not begin that, but drives a drain that has
    /// begun.
    pub async fn terminated(&self) -> Arc<DrainReport> {
        let mut stages = self.state.stage.subscribe();
        // It cannot fail: the sender is part of the state that we hold.
        let _ = stages.wait_for(|stage| *stage > SystemStage::Running).await;
        self.state.drain().await
    }

    /// Terminates the system when this actor ends. If it has ended already, that happens at once.
    ///
    /// A system that is not part of a shutdown is then drained with
    /// [`Timeouts::EVENT_SOURCED`], unless a caller gives a shorter timeout. Until then its guardian
    /// owns it, so its handles can be dropped.
    pub fn set_guardian(&self, path: &NodePath) {
        let state = Arc::downgrade(&self.state);
        // A shutdown owns its systems. No other code may own this one, so the guardian does.
        let owned = self.state.shutdown().is_none().then(|| Arc::clone(&self.state));
        let on_end = Arc::new(move || {
            if let Some(state) = owned.clone().or_else(|| state.upgrade()) {
                state.guardian_ended();
            }
        });
        let is_present = self.state.tree().set_guardian(path.clone(), on_end);
        if !is_present {
            self.state.guardian_ended();
        }
    }

    fn check_caller(&self) -> Result<(), TerminateError> {
        match Record::current(|record| record.is_of(&self.state)) {
            Some(true) => Err(TerminateError::InsideActor),
            Some(false) | None => Ok(()),
        }
    }
}

// === impl SystemState ===

impl SystemState {
    fn guardian_ended(self: &Arc<Self>) {
        self.begin_drain();
        if let Some(shutdown) = self.shutdown_to_run() {
            drop(shutdown.run(Reason::ActorSystemTerminate));
            return;
        }
        // There may be no caller that awaits the drain, so a task drives it.
        self.countdown.shorten(Deadline::after(Timeouts::EVENT_SOURCED));
        if let Ok(runtime) = Handle::try_current() {
            let state = Arc::clone(self);
            #[expect(clippy::let_underscore_future, reason = "it ends with the system's drain")]
            let _ = runtime.spawn(async move { state.drain().await });
        }
    }

    /// Runs the task of this system in the phase `actor-system-terminate`.
    pub(super) async fn run_last_phase(
        self: &Arc<Self>,
        cx: &TaskCx,
        group: &Group,
    ) -> Result<(), String> {
        if !self.is_drained_for(cx.reason()) {
            self.leave_group();
            return Ok(());
        }
        group.begin_drain(cx.reason());
        // The grace of killed actors, and the time to report, are part of the time of this phase.
        let left = cx.remaining();
        let (timeout, end) = Timeouts::within(left, self.grace);
        let timeout = self.drain_timeout().map_or(timeout, |limit| limit.min(timeout));
        self.countdown.shorten(Deadline::after(timeout));
        self.countdown.shorten_grace(Deadline::after(end));
        self.begin_drain();
        let draining = self.drain();
        let report = tokio::select! {
            biased;
            report = draining.clone() => report,
            () = cx.cancelled() => {
                self.countdown.shorten(Deadline::after(Duration::ZERO));
                self.countdown.shorten_grace(Deadline::after(Timeouts::GRACE_AFTER_CUT));
                draining.await
            }
        };
        self.mark_reported();
        if !report.is_clean() {
            return Err(report.to_string());
        }
        group.take_unreported().map_or(Ok(()), Err)
    }

    /// Returns the drain of the whole system, which all callers share.
    fn drain(self: &Arc<Self>) -> Shared<BoxFuture<'static, Arc<DrainReport>>> {
        let drain = self.drain.get_or_init(|| {
            let state = Arc::downgrade(self);
            async move {
                match state.upgrade() {
                    Some(state) => Arc::new(state.drain_all().await),
                    None => Arc::new(DrainReport::empty()),
                }
            }
            .boxed()
            .shared()
        });
        drain.clone()
    }

    async fn drain_all(&self) -> DrainReport {
        self.begin_drain();
        let cx = self.drain_cx(&self.countdown);
        if !self.has_work_to_finish() {
            // Actors with untracked messages run now, and then `has_worked` is true.
            tokio::task::yield_now().await;
        }
        let mut found = Found::new();
        self.finish_work(&cx, || self.activity(), &mut found).await;
        let user = self.take_below(&NodePath::user()).found(&found);
        let user_nodes = user.nodes();
        let user = user.drain(&cx).await;
        let system = self.take_below(&NodePath::system()).found(&found);
        let system_nodes = system.nodes();
        let system = system.drain(&cx).await;
        self.stops.close();
        tokio::select! {
            () = self.stops.wait() => {}
            () = self.countdown.grace_passed(self.grace, 4) => {}
        }
        self.leave_group();
        if let Some(group) = self.group() {
            // Actors of other members may still send messages, which this system refuses.
            tokio::select! {
                () = group.all_ended() => {}
                () = self.countdown.grace_passed(self.grace, 4) => {}
            }
        }
        if self.admission.has_worked() {
            until_sent(user_nodes.iter().chain(&*system_nodes)).await;
        }
        let took = cx.began.elapsed();
        let mut report = DrainReport { took, ..DrainReport::merged([user, system]) };
        self.dead_letters.complete(&mut report);
        adieu_core::adapter::log_aside(tracing::Level::DEBUG, || {
            let (system, report) = (self.name.to_string(), report.to_string());
            move || tracing::debug!(system, report, "actor system terminated")
        });
        let guardian = self.tree().take_guardian();
        drop(guardian); // After the lock was released. It may own the system.
        self.stage.send_replace(SystemStage::Terminated);
        report
    }

    /// Returns whether a message was ever sent to an actor that this drain waits for.
    fn has_work_to_finish(&self) -> bool {
        let group = self.group().filter(|group| group.is_draining());
        group.map_or_else(|| self.admission.has_worked(), |group| group.has_worked())
    }

    /// Returns the nodes and queues that must be quiet before this system stops its actors.
    fn activity(&self) -> Activity {
        let group = self.group().filter(|group| group.is_draining());
        group.map_or_else(|| self.nodes().into(), |group| group.activity())
    }

    pub(super) fn drain_cx<'a>(&'a self, countdown: &'a Countdown) -> DrainCx<'a> {
        let (letters, letters_before) = (&self.dead_letters, self.dead_letters.count());
        DrainCx { countdown, grace: self.grace, began: Instant::now(), letters, letters_before }
    }

    /// Waits until none of these nodes has work, or three quarters of the time have passed.
    ///
    /// If no message was ever sent, there is nothing to wait for.
    pub(super) async fn finish_work(
        &self,
        cx: &DrainCx<'_>,
        activity: impl Fn() -> Activity,
        found: &mut Found,
    ) {
        if self.has_work_to_finish() {
            tokio::select! {
                biased;
                () = until_quiet(activity, found) => {}
                () = cx.countdown.three_quarters_passed(cx.began) => {}
            }
        }
    }

    /// Takes all nodes below this path out of the tree, to be drained with the system. From now on
    /// no node can join.
    fn take_below(&self, path: &NodePath) -> Members {
        let taken = {
            let mut tree = self.tree();
            self.admission.state.close();
            tree.take_below(path)
        };
        let members = Members::from(gather(path, None, taken));
        let before = self.tree().set_draining(members.nodes());
        drop(before); // After the lock was released.
        members
    }

    /// Takes the messages that a drain has lost, if no task of the shutdown has reported them.
    pub(super) fn take_lost(&self) -> Option<String> {
        let report = self.drain.get().and_then(Shared::peek)?;
        let is_missing = !report.is_clean() && !self.is_reported();
        let own = is_missing.then(|| report.to_string());
        self.mark_reported();
        joined(own.into_iter().chain(Member::take_unreported(self)))
    }

    /// Returns the accepted work that is not finished, and the messages that were lost since the
    /// shutdown began, until a drain reports them.
    pub(super) fn remaining(&self) -> Option<String> {
        if self.drain.get().and_then(Shared::peek).is_some() {
            return None;
        }
        // If the task of the phase was aborted, killed actors may still count their messages. These
        // numbers are read first, so a message that is counted meanwhile is missing here instead of
        // being counted twice.
        let least = if self.drain.get().is_some() { "at least " } else { "" };
        let lost = match self.dead_letters.unreported() {
            0 => None,
            lost => Some(format!("{least}{lost} dead letters since the shutdown began")),
        };
        joined(self.undrained_work().into_iter().chain(lost))
    }

    /// Returns the accepted work of actors that no drain has ended.
    pub(super) fn undrained_work(&self) -> Option<String> {
        if self.drain.get().and_then(Shared::peek).is_some() {
            return None;
        }
        self.unfinished_work().map(|work| format!("left running, {work}"))
    }

    /// Describes the actors that have work, and the messages in their mailboxes.
    pub(crate) fn unfinished_work(&self) -> Option<String> {
        const NAMED: usize = 3;
        let mut nodes = self.living();
        nodes.retain(|node| caught(|| node.has_work()).unwrap_or(false));
        let queued = |node: &Arc<dyn Node>| caught(|| node.queued()).flatten();
        let total: usize = nodes.iter().filter_map(queued).sum();
        let is_exact = nodes.iter().all(|node| queued(node).is_some());
        let named = nodes.iter().take(NAMED).map(|node| node.path().to_string());
        let named: Vec<String> = named.collect();
        let more = if nodes.len() > NAMED { ", …" } else { "" };
        let least = if is_exact { "" } else { "at least " };
        let (count, named) = (nodes.len(), named.join(", "));
        (count > 0).then(|| {
            format!("{least}{total} messages queued, {count} actors with work: {named}{more}")
        })
    }

    /// Returns the actors that the drain waits for, to be shown to an on-call engineer.
    pub(super) fn pending_actors(&self) -> String {
        const NAMED: usize = 3;
        let nodes = self.living();
        let named = nodes.iter().take(NAMED).map(|node| match node.queued() {
            Some(queued) if queued > 0 => format!("{} ({queued} queued)", node.path()),
            Some(_) | None => node.path().to_string(),
        });
        let named: Vec<String> = named.collect();
        let more = nodes.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        if nodes.is_empty() { String::new() } else { format!("{}{more}", named.join(", ")) }
    }
}

fn joined(texts: impl Iterator<Item = String>) -> Option<String> {
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}
