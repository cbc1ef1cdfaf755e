//! An actor of kameo as a node.
//!
//! Tracked messages were sent through [`Ref`](super::Ref), untracked ones through kameo's own
//! references. A probe is a callback of ours in the mailbox: when kameo calls it, all messages before
//! it have been processed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use ::kameo::Actor;
use ::kameo::actor::{ActorRef, WeakActorRef};
use ::kameo::mailbox::Signal;
use adieu_core::adapter::lock;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::children::Children;
use crate::backoff::pause_after;
use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::record::{HasRecord, Record};

/// An actor as a node.
//
// The order of the fields matters: those that are used when an idle actor is polled, stopped and
// reported are next to each other, and the record begins with such fields, too. With very many actors,
// cache misses dominate the cost.
#[repr(C)]
pub(super) struct KameoNode<A: Actor> {
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
    /// Whether the actor handles no further message. It may still be polled, for its children.
    is_ending: AtomicBool,
    /// Signals in the mailbox that are not messages: pending probes, and the stop message.
    signals: AtomicU64,
    /// How often the actor was polled.
    polls: AtomicU64,
    /// How many probes were sent.
    probes: AtomicU64,
    /// Tracked messages whose handler has begun.
    begun: AtomicU64,
    /// Tracked messages whose handler has returned.
    handled: AtomicU64,
    record: Record,
    // The following fields are not used when an idle actor is stopped.
    /// Tracked messages that are being sent, are in the mailbox, or are being handled.
    pending: AtomicU64,
    /// How many handlers have panicked. `on_panic` runs after each of them.
    failed: AtomicU32,
    /// The value of `failed` when the last probe was sent that the actor has processed.
    recovered: AtomicU32,
    /// Allocated on first use: most actors have no children.
    children: OnceLock<Box<Children<A>>>,
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
            actor,
            task: Mutex::new(None),
            was_killed: AtomicBool::new(false),
            has_started: AtomicBool::new(false),
            has_untracked: AtomicBool::new(false),
            is_handling: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            signals: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            probes: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            record,
            pending: AtomicU64::new(0),
            failed: AtomicU32::new(0),
            recovered: AtomicU32::new(0),
            children: OnceLock::new(),
        }
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        lock(&self.task)
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

    // --- failures and the end ---

    /// Notes that a handler has panicked. Only the actor calls it, before it finishes the message.
    pub(super) fn note_failure(&self) {
        self.failed.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether `on_panic` may be running. Unlike a handler, it cannot be observed, so the
    /// actor has recovered when it has processed a probe that was sent after the panic.
    fn is_recovering(&self) -> bool {
        self.failed.load(Ordering::SeqCst) != self.recovered.load(Ordering::SeqCst)
    }

    /// Notes that the actor handles no further message.
    pub(super) fn mark_ending(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Returns the state with which the actor stops its children at its end.
    pub(super) fn children(&self) -> &Children<A> {
        self.children.get_or_init(Box::default)
    }

    // --- probes and untracked messages ---

    /// Waits until all messages that are in the mailbox now have been processed. Returns false if the
    /// actor does not process the probe, because it ends.
    pub(super) async fn probe(&self) -> bool {
        // An actor without references is stopping.
        let Some(actor) = self.actor.upgrade() else { return false };
        let _signal = InMailbox::new(&self.signals);
        // Release, and after the signal was counted; see `count_poll`.
        self.probes.fetch_add(1, Ordering::Release);
        let failed = self.failed.load(Ordering::SeqCst);
        let (called, is_called) = oneshot::channel::<()>();
        let signal = Signal::Callback {
            actor_ref: actor.clone(),
            callback: Box::new(move |_, _| {
                let _ = called.send(());
                Box::pin(std::future::ready(()))
            }),
        };
        let probed = async {
            let sent = actor.mailbox_sender().send(signal).await;
            drop(actor);
            sent.is_ok() && is_called.await.is_ok()
        };
        let is_processed = tokio::select! {
            biased;
            is_processed = probed => is_processed,
            () = self.record.settling.reached() => false,
        };
        if is_processed {
            self.recovered.fetch_max(failed, Ordering::SeqCst);
        }
        is_processed
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
        // A probe that this poll processes was sent during the poll, or its signal is counted now: the
        // signal may be uncounted on another thread before the poll returns.
        let marks = || (self.probes.load(Ordering::Acquire), self.begun.load(Ordering::Relaxed));
        let has_signals = || self.signals.load(Ordering::Relaxed) > 0;
        let before = marks();
        let has_cause = self.is_handling.load(Ordering::Relaxed) || has_signals();
        let polled = poll();
        self.note_poll(has_cause || before != marks() || has_signals());
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
        let has_known_cause = has_known_cause
            || self.was_killed.load(Ordering::Relaxed)
            || self.is_ending.load(Ordering::Relaxed);
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
        Box::pin(async {
            self.probe().await;
        })
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
        // Not `handled`: a handler that panics may have sent messages, too. Before the other counters
        // and once more after them: if a handler began in between, its message may have come from a
        // node that was found idle before, and may go to one that will be.
        let begun = self.begun.load(Ordering::Acquire);
        let is_busy = self.pending.load(Ordering::SeqCst) > 0
            || self.has_untracked()
            || self.record.has_scopes()
            || self.is_recovering()
            || self.in_mailbox().is_some_and(|in_mailbox| in_mailbox > 0);
        (!is_busy && self.begun.load(Ordering::Acquire) == begun).then_some(begun)
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
        node.begun.store(node.begun.load(Ordering::Relaxed) + 1, Ordering::Release);
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
    use std::mem::{offset_of, size_of};
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

    #[test]
    fn the_fields_that_a_stop_uses_are_next_to_each_other() {
        type Node = KameoNode<Idle>;
        // From the end of kameo's reference to the first fields of the record: one cache line.
        let first = offset_of!(Node, task);
        assert!(
            first - offset_of!(Node, actor) - size_of::<WeakActorRef<Idle>>() < align_of::<u64>()
        );
        assert!(offset_of!(Node, record) - first <= 64, "{}", offset_of!(Node, record) - first);
        for used in [
            offset_of!(Node, was_killed),
            offset_of!(Node, has_started),
            offset_of!(Node, has_untracked),
            offset_of!(Node, is_handling),
            offset_of!(Node, is_ending),
            offset_of!(Node, signals),
            offset_of!(Node, polls),
            offset_of!(Node, probes),
            offset_of!(Node, begun),
            offset_of!(Node, handled),
        ] {
            assert!((first..offset_of!(Node, record)).contains(&used), "{used}");
        }
        for rare in [
            offset_of!(Node, pending),
            offset_of!(Node, failed),
            offset_of!(Node, recovered),
            offset_of!(Node, children),
        ] {
            assert!(rare >= offset_of!(Node, record) + size_of::<Record>(), "{rare}");
        }
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
