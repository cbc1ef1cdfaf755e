//! An actor of kameo as a node.
//!
//! Tracked messages were sent through [`Ref`](super::Ref), untracked ones through kameo's own
//! references. A probe is a callback of ours in the mailbox: when kameo calls it, all messages before
//! it have been processed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::kameo::Actor;
use ::kameo::actor::{ActorRef, WeakActorRef};
use ::kameo::mailbox::Signal;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use crate::backoff::pause_after;
use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::record::{HasRecord, Record};

/// An actor as a node.
pub(super) struct KameoNode<A: Actor> {
    record: Record,
    actor: WeakActorRef<A>,
    /// To abort an actor that kameo cannot kill: one that is starting, or is stuck in a stop hook.
    task: Mutex<Option<AbortHandle>>,
    was_killed: AtomicBool,
    has_started: AtomicBool,
    /// Whether it received an untracked message. This is inferred: the actor was polled, and neither
    /// a tracked message nor a probe was the cause.
    has_untracked: AtomicBool,
    /// Whether a tracked message is being handled.
    is_handling: AtomicBool,
    /// Tracked messages that are being sent, are in the mailbox, or are being handled.
    pending: AtomicU64,
    /// Tracked messages whose handler has returned.
    handled: AtomicU64,
    /// How often the actor was polled.
    polls: AtomicU64,
    /// How many probes were sent.
    probes: AtomicU64,
    /// Tracked messages whose handler has begun.
    begun: AtomicU64,
    /// Signals in the mailbox that are not messages: pending probes, and the stop message.
    signals: AtomicU64,
}

/// Marks that a tracked message is being handled, until it is dropped.
pub(super) struct Handling<'a, A: Actor> {
    node: &'a KameoNode<A>,
    from: Option<NodePath>,
    message: &'static str,
    is_done: bool,
}

// === impl KameoNode ===

impl<A: Actor> KameoNode<A> {
    pub(super) fn new(record: Record, actor: WeakActorRef<A>) -> Self {
        Self {
            record,
            actor,
            task: Mutex::new(None),
            was_killed: AtomicBool::new(false),
            has_started: AtomicBool::new(false),
            has_untracked: AtomicBool::new(false),
            is_handling: AtomicBool::new(false),
            pending: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            probes: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            signals: AtomicU64::new(0),
        }
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_task(&self, task: AbortHandle) {
        *self.task() = Some(task).filter(|task| !task.is_finished());
        if self.was_killed.load(Ordering::SeqCst) {
            self.kill(); // It was killed before the task was set.
        }
    }

    pub(super) fn mark_started(&self) {
        self.has_started.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_current(&self) -> bool {
        Record::current(|record| std::ptr::eq(record, &raw const self.record)).unwrap_or(false)
    }

    // --- tracked messages; see `Parcel` ---

    /// Counts a message that is about to be sent.
    pub(super) fn begin_send(&self) {
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.record.note_work();
    }

    /// Uncounts a message that was handled or refused, or never will be handled.
    pub(super) fn finish(&self) {
        self.pending.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn admits(&self, actor: &ActorRef<A>) -> bool {
        self.record.admits() && actor.is_alive()
    }

    // --- probes and untracked messages ---

    /// Waits until all messages that are in the mailbox now have been processed, or until the actor
    /// waits for its children.
    async fn probe(&self) {
        // An actor without references is stopping.
        let Some(actor) = self.actor.upgrade() else { return };
        self.probes.fetch_add(1, Ordering::Relaxed);
        let (reached, called) = oneshot::channel::<()>();
        let signal = Signal::Callback {
            actor_ref: actor.clone(),
            callback: Box::new(move |_, _| {
                drop(reached);
                Box::pin(std::future::ready(()))
            }),
        };
        let _signal = InMailbox::new(&self.signals);
        let probed = async {
            let sent = actor.mailbox_sender().send(signal).await;
            drop(actor);
            if sent.is_ok() {
                let _ = called.await; // Nothing is sent: the callback drops the sender.
            }
        };
        tokio::select! {
            biased;
            () = probed => {}
            () = self.record.settling.reached() => {}
        }
    }

    /// Returns how many messages are in the mailbox, or `None` if it is unbounded.
    fn in_mailbox(&self) -> Option<u64> {
        let Some(mailbox) = self.actor.mailbox_sender().upgrade() else { return Some(0) };
        let signals = (mailbox.max_capacity()? - mailbox.capacity()?) as u64;
        Some(signals.saturating_sub(self.signals.load(Ordering::Relaxed)))
    }

    fn has_untracked(&self) -> bool {
        self.has_untracked.load(Ordering::Relaxed)
    }

    /// Runs `poll`, which polls the actor, and counts it. Only the actor's task calls it.
    #[inline]
    pub(super) fn count_poll<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.polls.store(self.polls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let marks = || (self.begun.load(Ordering::Relaxed), self.probes.load(Ordering::Relaxed));
        let (was_handling, before) = (self.is_handling.load(Ordering::Relaxed), marks());
        let polled = poll();
        self.note_poll(
            was_handling || before != marks() || self.signals.load(Ordering::Relaxed) > 0,
        );
        polled
    }

    /// Sets how the actor ended, and releases its task.
    pub(super) fn set_ending(&self, ended: Ended) {
        self.task().take(); // The handle would keep the memory of the task while the node is held.
        self.record.ending.set(ended);
    }

    pub(super) fn actor(&self) -> &WeakActorRef<A> {
        &self.actor
    }

    /// Notes an untracked message, if the actor was polled without another known cause.
    #[inline]
    fn note_poll(&self, has_known_cause: bool) {
        // A killed actor handles no further message: it is polled for its stop hook.
        let has_known_cause = has_known_cause || self.was_killed.load(Ordering::Relaxed);
        if !has_known_cause && self.has_started.load(Ordering::Relaxed) && !self.has_untracked() {
            self.has_untracked.store(true, Ordering::Relaxed);
            self.record.note_work();
        }
    }
}

impl<A: Actor> HasRecord for KameoNode<A> {
    fn record(&self) -> &Record {
        &self.record
    }
}

impl<A: Actor> Node for KameoNode<A> {
    fn path(&self) -> &NodePath {
        self.record.path()
    }

    fn begin_drain(&self) {
        self.record.admission.begin_drain();
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.probe())
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        self.record.close();
        Box::pin(async {
            if let Some(actor) = self.actor.upgrade() {
                let signal = InMailbox::new(&self.signals);
                if actor.stop_gracefully().await.is_ok() {
                    signal.keep();
                }
            }
        })
    }

    fn try_drain(&self) -> bool {
        self.record.close();
        let Some(actor) = self.actor.upgrade() else { return true };
        let signal = InMailbox::new(&self.signals);
        let stop = unconstrained(actor.stop_gracefully()).now_or_never();
        if let Some(Ok(())) = stop {
            signal.keep();
        }
        stop.is_some()
    }

    fn has_terminated(&self) -> Option<Ended> {
        self.record.ending.get()
    }

    fn kill(&self) {
        let is_second = self.was_killed.swap(true, Ordering::SeqCst);
        self.record.close();
        self.actor.kill();
        // An actor that is starting, or in its stop hook, does not react to the first kill.
        if let Some(task) = self.task().as_ref()
            && is_second
        {
            task.abort();
        }
    }

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(self.record.ending.wait())
    }

    fn queued(&self) -> Option<usize> {
        let handling = u64::from(self.is_handling.load(Ordering::Relaxed));
        let tracked = self.pending.load(Ordering::SeqCst).saturating_sub(handling);
        // A killed actor may never reach a probe whose drain was dropped. The mailbox counts the probe.
        let is_killed = self.was_killed.load(Ordering::Relaxed);
        let queued = match self.in_mailbox() {
            Some(_) if is_killed && !self.has_untracked() => tracked,
            Some(in_mailbox) => tracked.max(in_mailbox),
            None if self.has_untracked() => return None,
            None => tracked,
        };
        usize::try_from(queued).ok()
    }

    fn has_work(&self) -> bool {
        let is_queued = || self.in_mailbox().is_some_and(|in_mailbox| in_mailbox > 0);
        self.pending.load(Ordering::SeqCst) > 0
            || (self.record.ending.get().is_none() && is_queued())
    }

    fn handled(&self) -> Option<u64> {
        (!self.has_untracked()).then(|| self.handled.load(Ordering::Relaxed))
    }

    fn dead_letters(&self) -> Option<u64> {
        let is_stopped = || matches!(self.record.ending.get(), Some(Ended::Stopped));
        let is_known =
            !self.has_untracked() || self.record.is_undelivered_counted() || is_stopped();
        is_known.then(|| self.record.dead.load(Ordering::Relaxed))
    }

    fn quiet(&self) -> Option<u64> {
        if self.record.settling.is_reached() {
            return Some(u64::MAX);
        }
        let is_busy = self.pending.load(Ordering::SeqCst) > 0
            || self.has_untracked()
            || self.record.has_scopes()
            || self.in_mailbox().is_some_and(|in_mailbox| in_mailbox > 0);
        // Not `handled`: a handler that panics may have sent messages, too.
        (!is_busy).then(|| self.begun.load(Ordering::SeqCst))
    }

    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            self.probe().await;
            // A sender may have counted its message, and not sent it yet.
            let began = Instant::now();
            let is_busy = || self.pending.load(Ordering::SeqCst) > 0 || self.record.has_scopes();
            while is_busy() && !self.record.settling.is_reached() {
                tokio::time::sleep(pause_after(began)).await;
            }
            // An idle actor is polled only for probes.
            let probes = self.probes.load(Ordering::Relaxed);
            self.polls.load(Ordering::Relaxed).wrapping_sub(probes)
        })
    }
}

/// Counts a signal that is not a message while it is in the mailbox.
struct InMailbox<'a>(&'a AtomicU64);

impl<'a> InMailbox<'a> {
    fn new(signals: &'a AtomicU64) -> Self {
        signals.fetch_add(1, Ordering::Relaxed);
        Self(signals)
    }

    /// Counts the signal until the actor has stopped.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for InMailbox<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Handling ===

impl<'a, A: Actor> Handling<'a, A> {
    pub(super) fn begin(
        node: &'a KameoNode<A>,
        from: Option<NodePath>,
        message: &'static str,
    ) -> Self {
        // Only the actor writes to these.
        node.is_handling.store(true, Ordering::Relaxed);
        node.begun.store(node.begun.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Self { node, from, message, is_done: false }
    }

    /// Notes that the handler has returned.
    pub(super) fn done(&mut self) {
        self.is_done = true;
        let handled = &self.node.handled;
        handled.store(handled.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
    }
}

impl<A: Actor> Drop for Handling<'_, A> {
    fn drop(&mut self) {
        if !self.is_done {
            self.node.record.count_interrupted(self.from.take(), self.message);
        }
        self.node.is_handling.store(false, Ordering::Relaxed);
        self.node.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::kameo::error::Infallible;
    use ::kameo::message::{Context, Message};

    use super::*;
    use crate::kameo::actor;
    use crate::system::ActorSystem;

    struct Idle;

    struct Ping;

    impl Actor for Idle {
        type Args = ();
        type Error = Infallible;

        async fn on_start((): (), _: ActorRef<Self>) -> Result<Self, Infallible> {
            Ok(Self)
        }
    }

    impl Message<Ping> for Idle {
        type Reply = ();

        async fn handle(&mut self, _: Ping, _: &mut Context<Self, ()>) {}
    }

    // The sender of a tracked message may be preempted between counting it and sending it.
    #[tokio::test(start_paused = true)]
    async fn s249_an_actor_with_untracked_messages_is_not_idle_while_a_message_is_being_sent() {
        let system = ActorSystem::new("test");
        let idle = system.spawn("idle", actor::<Idle>(())).await.unwrap();
        idle.actor_ref().ask(Ping).await.unwrap();
        tokio::task::yield_now().await;
        assert!(idle.node.has_untracked());
        idle.node.begin_send();
        let is_idle = || tokio::time::timeout(Duration::from_secs(1), idle.node.idle());
        assert!(is_idle().await.is_err());
        idle.node.finish();
        assert!(is_idle().await.is_ok());
    }
}
