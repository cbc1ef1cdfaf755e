//! An actor of kameo as a node, and its life as a task.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use ::kameo::Actor;
use ::kameo::actor::{ActorRef, WeakActorRef};
use ::kameo::error::{ActorStopReason, HookError, PanicError};
use ::kameo::mailbox::Signal;
use futures_util::future::{BoxFuture, FutureExt};
use pin_project_lite::pin_project;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;

use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::record::{Last, Record, Recorded, within};

/// An actor as a node.
pub(super) struct KameoNode<A: Actor> {
    record: Record,
    actor: WeakActorRef<A>,
    /// To end what kameo cannot: an actor that is just starting, or that is stuck in a stop hook.
    task: Mutex<Option<AbortHandle>>,
    was_killed: AtomicBool,
    has_started: AtomicBool,
    /// Whether it was sent something through kameo's own references, as far as that can be seen: it
    /// ran, and neither a message of ours nor a look was the cause.
    has_foreign: AtomicBool,
    /// Whether a message of ours is being handled.
    is_handling: AtomicBool,
    /// Messages of ours that are being sent, are in the mailbox, or are being handled.
    pending: AtomicU64,
    handled: AtomicU64,
    /// How often it ran; and how often that was only our own look, or a message of ours began.
    polls: AtomicU64,
    looks: AtomicU64,
    begun: AtomicU64,
    /// Signals in the mailbox that are no messages: looks that are not over, and the stop signal.
    signals: AtomicU64,
}

/// While this is alive a message of ours is being handled.
pub(super) struct Handling<'a, A: Actor> {
    node: &'a KameoNode<A>,
    from: Option<NodePath>,
    message: &'static str,
    is_done: bool,
}

/// Runs an actor as a task, until its node says that it has terminated.
pub(super) fn run<A, F>(node: &Arc<KameoNode<A>>, run: F)
where
    A: Actor,
    F: Future<Output = Result<(A, ActorStopReason), PanicError>> + Send + 'static,
{
    let life = Life { run, last: Last::new(Arc::clone(node)) };
    #[expect(clippy::disallowed_methods, reason = "an actor is a task; its system joins it")]
    let task = tokio::spawn(life);
    node.has_task(task.abort_handle());
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
            has_foreign: AtomicBool::new(false),
            is_handling: AtomicBool::new(false),
            pending: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            looks: AtomicU64::new(0),
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

    fn has_task(&self, task: AbortHandle) {
        *self.task() = Some(task).filter(|task| !task.is_finished());
        if self.was_killed.load(Ordering::SeqCst) {
            self.kill(); // It came when there was no task to be ended yet.
        }
    }

    pub(super) fn mark_started(&self) {
        self.has_started.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_current(&self) -> bool {
        Record::current(|record| std::ptr::eq(record, &raw const self.record)).unwrap_or(false)
    }

    // --- messages of ours; see `Parcel` ---

    /// A message is about to be sent.
    pub(super) fn sending(&self) {
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.record.note_work();
    }

    /// A message was handled, or refused, or left behind.
    pub(super) fn sent(&self) {
        self.pending.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn admits(&self, actor: &ActorRef<A>) -> bool {
        self.record.admits() && actor.is_alive()
    }

    pub(super) fn came_too_late(&self, message: &'static str) {
        self.record.came_too_late(message);
    }

    pub(super) fn left_behind(&self, from: Option<NodePath>, message: &'static str) {
        self.record.left_behind(from, Some(message), 1);
    }

    // --- looks ---

    /// Resolves when all that was in the mailbox has been processed, or the actor waits for its
    /// children to end.
    async fn look(&self) {
        // One that cannot be reached any more is stopping.
        let Some(actor) = self.actor.upgrade() else { return };
        self.looks.fetch_add(1, Ordering::Relaxed);
        let (reached, look) = oneshot::channel::<()>();
        let signal = Signal::Callback {
            actor_ref: actor.clone(),
            callback: Box::new(move |_, _| {
                drop(reached);
                Box::pin(std::future::ready(()))
            }),
        };
        let _signal = InMailbox::new(&self.signals);
        let looked = async {
            let sent = actor.mailbox_sender().send(signal).await;
            drop(actor);
            if sent.is_ok() {
                let _ = look.await; // Nothing is ever sent: it is dropped when its turn comes.
            }
        };
        tokio::select! {
            biased;
            () = looked => {}
            () = self.record.settling.reached() => {}
        }
    }

    /// Returns how many messages are in the mailbox, or `None` if it is unbounded.
    fn in_mailbox(&self) -> Option<u64> {
        let Some(mailbox) = self.actor.mailbox_sender().upgrade() else { return Some(0) };
        let signals = (mailbox.max_capacity()? - mailbox.capacity()?) as u64;
        Some(signals.saturating_sub(self.signals.load(Ordering::Relaxed)))
    }

    fn has_foreign(&self) -> bool {
        self.has_foreign.load(Ordering::Relaxed)
    }

    /// Notes whether it ran because of something that is not ours.
    #[inline]
    fn note_foreign(&self, was_ours: bool) {
        if !was_ours && self.has_started.load(Ordering::Relaxed) && !self.has_foreign() {
            self.has_foreign.store(true, Ordering::Relaxed);
            self.record.note_work();
        }
    }
}

impl<A: Actor> Recorded for KameoNode<A> {
    fn record(&self) -> &Record {
        &self.record
    }
}

impl<A: Actor> Node for KameoNode<A> {
    fn path(&self) -> &NodePath {
        self.record.path()
    }

    fn begin_drain(&self) {
        self.record.door.begin_drain();
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.look())
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        self.record.close_door();
        Box::pin(async {
            if let Some(actor) = self.actor.upgrade() {
                let signal = InMailbox::new(&self.signals);
                if actor.stop_gracefully().await.is_ok() {
                    signal.stays();
                }
            }
        })
    }

    fn try_drain(&self) -> bool {
        self.record.close_door();
        let Some(actor) = self.actor.upgrade() else { return true };
        let signal = InMailbox::new(&self.signals);
        let stop = unconstrained(actor.stop_gracefully()).now_or_never();
        if let Some(Ok(())) = stop {
            signal.stays();
        }
        stop.is_some()
    }

    fn has_terminated(&self) -> Option<Ended> {
        self.record.ending.get()
    }

    fn kill(&self) {
        let is_second = self.was_killed.swap(true, Ordering::SeqCst);
        self.record.close_door();
        self.actor.kill();
        // One that is still starting, or in its stop hook, does not notice that.
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
        let ours = self.pending.load(Ordering::SeqCst).saturating_sub(handling);
        let queued = match self.in_mailbox() {
            Some(in_mailbox) => ours.max(in_mailbox),
            None if self.has_foreign() => return None,
            None => ours,
        };
        usize::try_from(queued).ok()
    }

    fn handled(&self) -> Option<u64> {
        (!self.has_foreign()).then(|| self.handled.load(Ordering::Relaxed))
    }

    fn dead_letters(&self) -> Option<u64> {
        let is_stopped = || matches!(self.record.ending.get(), Some(Ended::Stopped));
        let is_known = !self.has_foreign() || self.record.is_undelivered_counted() || is_stopped();
        is_known.then(|| self.record.dead.load(Ordering::Relaxed))
    }

    fn quiet(&self) -> Option<u64> {
        if self.record.settling.is_reached() {
            return Some(u64::MAX);
        }
        let is_busy = self.pending.load(Ordering::SeqCst) > 0
            || self.has_foreign()
            || self.in_mailbox().is_some_and(|in_mailbox| in_mailbox > 0);
        (!is_busy).then(|| self.handled.load(Ordering::SeqCst))
    }

    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            self.look().await;
            // An actor that has nothing to do runs for our looks alone.
            let looks = self.looks.load(Ordering::Relaxed);
            self.polls.load(Ordering::Relaxed).wrapping_sub(looks)
        })
    }
}

/// Counts a signal of ours while it is in the mailbox.
struct InMailbox<'a>(&'a AtomicU64);

impl<'a> InMailbox<'a> {
    fn new(signals: &'a AtomicU64) -> Self {
        signals.fetch_add(1, Ordering::Relaxed);
        Self(signals)
    }

    /// It is there until the actor has stopped.
    fn stays(self) {
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
        // The actor alone writes to these.
        node.is_handling.store(true, Ordering::Relaxed);
        node.begun.store(node.begun.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Self { node, from, message, is_done: false }
    }

    /// The handler has come to its end.
    pub(super) fn done(&mut self) {
        self.is_done = true;
        let handled = &self.node.handled;
        handled.store(handled.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
    }
}

impl<A: Actor> Drop for Handling<'_, A> {
    fn drop(&mut self) {
        if !self.is_done {
            self.node.record.interrupted(self.from.take(), self.message);
        }
        self.node.is_handling.store(false, Ordering::Relaxed);
        self.node.sent();
    }
}

// === impl Life ===

pin_project! {
    /// The life of an actor, from its start to after its stop hook.
    struct Life<A: Actor, F> {
        #[pin]
        run: F,
        // Last: it says that all else is gone.
        last: Last<KameoNode<A>>,
    }
}

impl<A, F> Future for Life<A, F>
where
    A: Actor,
    F: Future<Output = Result<(A, ActorStopReason), PanicError>>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let node = this.last.node();
        // Nobody else writes to these.
        let polls = &node.polls;
        polls.store(polls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let marks = || (node.begun.load(Ordering::Relaxed), node.looks.load(Ordering::Relaxed));
        let (was_handling, before) = (node.is_handling.load(Ordering::Relaxed), marks());
        let ended = within(node, || this.run.poll(cx));
        node.note_foreign(
            was_handling || before != marks() || node.signals.load(Ordering::Relaxed) > 0,
        );
        let ended = ready!(ended);
        let ended = ended_of(&node.actor, ended.map(|(_, reason)| reason));
        node.task().take(); // It would keep the task's memory for as long as the node is held.
        node.record.ending.say(ended);
        Poll::Ready(())
    }
}

fn ended_of<A: Actor>(
    actor: &WeakActorRef<A>,
    ended: Result<ActorStopReason, PanicError>,
) -> Ended {
    match ended {
        Err(error) => Ended::Failed { error: error.to_string().into() },
        Ok(ActorStopReason::Killed) => Ended::Killed,
        Ok(ActorStopReason::Panicked(error)) => Ended::Failed { error: error.to_string().into() },
        Ok(ActorStopReason::Normal | ActorStopReason::SupervisorRestart) => {
            let hook = actor.with_shutdown_result(|ended| ended.map(drop).map_err(text));
            match hook {
                Some(Err(error)) => Ended::HookFailed { error },
                Some(Ok(())) | None => Ended::Stopped,
            }
        }
        // A linked actor ended; and there are reasons that exist only with kameo's feature `remote`.
        Ok(other) => Ended::Failed { error: other.to_string().into() },
    }
}

pub(super) fn text<E: fmt::Debug>(error: HookError<&E>) -> Arc<str> {
    match error {
        HookError::Panicked(panic) => panic.to_string().into(),
        HookError::Error(error) => format!("{error:?}").into(),
    }
}
