//! An actor of ractor as a node of the tree.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use ::ractor::ActorCell;
use futures_util::future::BoxFuture;

use super::counters::Counters;
use crate::node::{Ended, Node};
use crate::path::NodePath;
use crate::quiet::poll_until_quiet;
use crate::record::{HasRecord, Record};

/// An actor as a node. Each of its letters also holds a reference to it.
//
// The order of the fields matters: those that are needed to stop the actor are next to each other. With
// very many actors, cache misses dominate the cost.
#[repr(C)]
pub(super) struct RactorNode {
    counters: Counters,
    cell: OnceLock<ActorCell>,
    /// Whether a letter was ever sent to the actor.
    has_letters: AtomicBool,
    was_killed: AtomicBool,
    /// Whether the actor has ended, and the messages that it left behind are being counted.
    has_ended: AtomicBool,
    record: Record,
    /// How many messages are dead letters because the actor had ended.
    left_behind: AtomicU64,
    /// How many unopened letters exist.
    sealed: AtomicUsize,
}

// === impl RactorNode ===

impl RactorNode {
    pub(super) fn new(record: Record) -> Self {
        Self {
            counters: Counters::default(),
            cell: OnceLock::new(),
            has_letters: AtomicBool::new(false),
            was_killed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            record,
            left_behind: AtomicU64::new(0),
            sealed: AtomicUsize::new(0),
        }
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    pub(super) fn was_killed(&self) -> bool {
        self.was_killed.load(Ordering::Acquire)
    }

    // --- counters ---

    /// Counts a message that is about to be sent.
    #[inline]
    pub(super) fn begin_send(&self) {
        self.counters.begin_send();
        self.record.note_work();
    }

    /// Counts a message that was refused as a dead letter.
    //
    // If the actor has ended, `count_left_behind` may have counted the message already, because it was
    // being sent at that time. Then the message stays counted as sent, so that it is counted once.
    pub(super) fn send_refused(&self, message: &'static str) {
        self.counters.cancel_send();
        if self.counts_left_behind() {
            self.counters.begin_send();
            self.add_left_behind(Some(message));
        } else {
            self.record.count_refused(message);
        }
    }

    /// Returns whether the node has to count the messages that the actor left behind: the actor has
    /// ended, and its messages are not letters, which count themselves.
    fn counts_left_behind(&self) -> bool {
        let has_letters = self.has_letters.load(Ordering::Relaxed);
        !has_letters && self.has_ended.load(Ordering::SeqCst)
    }

    /// Counts messages that were sent to an actor that has ended, and are not counted yet.
    fn add_left_behind(&self, message: Option<&'static str>) {
        let mut counted = self.left_behind.load(Ordering::SeqCst);
        loop {
            let lost = self.counters.left_behind(); // No further handler begins.
            if lost <= counted {
                return;
            }
            let exchange = self.left_behind.compare_exchange(
                counted,
                lost,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            match exchange {
                Ok(_) => return self.record.count_unprocessed(None, message, lost - counted),
                Err(other) => counted = other,
            }
        }
    }

    /// Counts a handler that begins. Only the actor calls it.
    #[inline]
    pub(super) fn handler_begins(&self) {
        if self.counters.handler_begins() {
            self.record.note_work(); // The message may have been sent through ractor's reference.
        }
    }

    /// Counts a handler that has returned. Only the actor calls it.
    #[inline]
    pub(super) fn handler_returned(&self) {
        self.counters.handler_returned();
    }

    #[inline]
    pub(super) fn letter_sealed(&self) {
        self.has_letters.store(true, Ordering::Relaxed);
        self.sealed.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn letter_unsealed(&self) {
        self.sealed.fetch_sub(1, Ordering::Relaxed);
    }

    // --- the actor, from when it starts ---

    /// Sets the actor when it starts. A kill or stop that was requested before takes effect now.
    pub(super) fn set_cell(&self, cell: ActorCell) {
        let cell = self.cell.get_or_init(|| cell);
        fence(Ordering::SeqCst); // See `cell`.
        if self.was_killed.load(Ordering::Relaxed) {
            cell.kill();
        } else if self.record.admission.is_closed() {
            self.stop();
        }
    }

    /// Returns the actor, or `None` if it has not started. In that case `set_cell` will observe
    /// everything that was stored before this call.
    pub(super) fn cell(&self) -> Option<&ActorCell> {
        self.cell.get().or_else(|| {
            fence(Ordering::SeqCst);
            self.cell.get()
        })
    }

    /// Stops the actor when it has processed the messages that it has accepted.
    fn stop(&self) {
        if let Some(cell) = self.cell() {
            let _ = cell.drain(); // An error means that it has stopped already.
        }
    }
}

impl HasRecord for RactorNode {
    fn record(&self) -> &Record {
        &self.record
    }

    /// An actor that stops itself leaves its mailbox behind, and ractor drops the messages.
    fn count_left_behind(&self) {
        // Senders count first and then check admission, so this finds every message that is admitted.
        if !self.record.admission.is_closed() {
            self.record.admission.close();
        }
        self.has_ended.store(true, Ordering::SeqCst);
        if self.counts_left_behind() {
            self.add_left_behind(None);
        }
    }
}

impl Node for RactorNode {
    fn path(&self) -> &NodePath {
        self.record.path()
    }

    fn begin_drain(&self) {
        self.record.admission.begin_drain();
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        // It is not stopped yet: ractor would then refuse messages from its children.
        Box::pin(async {
            tokio::select! {
                biased;
                _ = poll_until_quiet(self) => {}
                () = self.record.settling.reached() => {}
            }
        })
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        self.try_drain();
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {
        self.was_killed.store(true, Ordering::Release);
        self.record.close();
        if let Some(cell) = self.cell() {
            cell.kill();
        }
    }

    fn try_drain(&self) -> bool {
        self.record.close();
        self.stop();
        true
    }

    fn has_terminated(&self) -> Option<Ended> {
        self.record.ending.get()
    }

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(self.record.ending.wait())
    }

    fn queued(&self) -> Option<usize> {
        let has_letters = self.has_letters.load(Ordering::Relaxed);
        has_letters.then(|| self.sealed.load(Ordering::Relaxed))
    }

    fn has_work(&self) -> bool {
        // ractor drops the messages of an actor that has ended, and no sender waits.
        self.record.ending.get().is_none() && self.quiet().is_none()
    }

    fn handled(&self) -> Option<u64> {
        Some(self.counters.handled())
    }

    fn dead_letters(&self) -> Option<u64> {
        // An actor that stopped has processed all messages that ractor had accepted for it.
        let is_stopped = || matches!(self.record.ending.get(), Some(Ended::Stopped));
        let is_known = if self.has_letters.load(Ordering::Relaxed) {
            self.sealed.load(Ordering::Relaxed) == 0 // The other letters are still being dropped.
        } else {
            is_stopped()
        };
        is_known.then(|| self.record.dead.load(Ordering::Relaxed))
    }

    fn quiet(&self) -> Option<u64> {
        if self.record.settling.is_reached() {
            return Some(u64::MAX);
        }
        let begun = self.counters.idle()?;
        let is_busy = self.record.has_scopes() || self.sealed.load(Ordering::Relaxed) > 0;
        (!is_busy).then_some(begun)
    }

    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            // An actor that has ended no longer works.
            poll_until_quiet(self).await.unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ::ractor::{Actor, ActorProcessingErr, ActorRef};

    use super::*;
    use crate::state::SystemState;

    struct Idle;

    impl Actor for Idle {
        type Msg = ();
        type State = ();
        type Arguments = ();

        async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_or_kill_before_the_start_is_not_lost() {
        let system = Arc::new(SystemState::new("test".into(), None));
        let requests: [fn(&RactorNode); 2] = [|node| assert!(node.try_drain()), RactorNode::kill];
        for request in requests {
            let path = NodePath::user().child("idle").unwrap();
            let node = RactorNode::new(Record::new(path, &system));
            let (actor, _) = Actor::spawn(None, Idle, ()).await.unwrap();
            request(&node);
            node.set_cell(actor.get_cell());
            actor.wait(Some(Duration::from_secs(60))).await.expect("it ends");
        }
    }
}
