//! A plain task with a mailbox, as a node of the tree.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::delivery::{Outstanding, Receiver};
use crate::node::{BoxFuture, Ended, Node};
use crate::path::NodePath;
use crate::quiet::poll_until_quiet;
use crate::record::{HasRecord, Record};

/// A plain task as a node: its tokens, and counters of its messages.
pub(super) struct TaskNode {
    record: Record,
    /// Cancelled when the task should return after it has processed its messages.
    stop: CancellationToken,
    killed: CancellationToken,
    /// Messages that are being sent, are in the mailbox, or are being processed.
    pending: AtomicU64,
    /// Messages that were received and are not done.
    outstanding: Outstanding,
    /// Notified when a delivery ends.
    delivered: Notify,
    /// Messages that were received.
    received: AtomicU64,
    /// Messages that are done.
    handled: AtomicU64,
    /// The type of the messages.
    message: &'static str,
}

// === impl TaskNode ===

impl TaskNode {
    pub(super) fn new(record: Record, message: &'static str) -> Self {
        Self {
            record,
            stop: CancellationToken::new(),
            killed: CancellationToken::new(),
            pending: AtomicU64::new(0),
            outstanding: Outstanding::default(),
            delivered: Notify::new(),
            received: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            message,
        }
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    pub(super) fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    pub(super) fn kill_token(&self) -> &CancellationToken {
        &self.killed
    }

    /// Counts a message that is about to be sent.
    pub(super) fn begin_send(&self) {
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.record.note_work();
    }

    /// Subtracts messages that were processed or refused, or that will never be processed.
    pub(super) fn finish(&self, messages: u64) {
        self.pending.fetch_sub(messages, Ordering::SeqCst);
    }

    /// Counts a message that is being received.
    pub(super) fn begin_delivery(&self) {
        self.received.fetch_add(1, Ordering::SeqCst);
        self.outstanding.begin();
    }

    /// Waits until every delivery has ended.
    pub(super) async fn all_delivered(&self) {
        while self.outstanding.count() > 0 {
            self.delivered.notified().await;
        }
    }

    /// Counts the deliveries that have not ended as dead letters. Returns their number.
    pub(super) fn interrupt_deliveries(&self) -> u64 {
        let interrupted = self.outstanding.close();
        for _ in 0..interrupted {
            self.record.count_interrupted(None, self.message);
        }
        self.finish(interrupted);
        interrupted
    }
}

impl Receiver for TaskNode {
    fn delivery_ended(&self, is_done: bool) {
        if !self.outstanding.end() {
            return;
        }
        if is_done {
            self.handled.fetch_add(1, Ordering::SeqCst);
        } else {
            self.record.count_interrupted(None, self.message);
        }
        self.finish(1);
        self.delivered.notify_one();
    }
}

impl HasRecord for TaskNode {
    fn record(&self) -> &Record {
        &self.record
    }
}

impl Node for TaskNode {
    fn path(&self) -> &NodePath {
        self.record.path()
    }

    fn begin_drain(&self) {
        self.record.admission.begin_drain();
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            tokio::select! {
                biased;
                _ = poll_until_quiet(self) => {}
                () = self.record.settling.reached() => {}
            }
        })
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        self.record.close();
        self.stop.cancel();
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {
        self.record.close();
        self.killed.cancel();
    }

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(self.record.ending.wait())
    }

    fn has_terminated(&self) -> Option<Ended> {
        self.record.ending.get()
    }

    fn queued(&self) -> Option<usize> {
        let pending = self.pending.load(Ordering::SeqCst);
        usize::try_from(pending.saturating_sub(self.outstanding.count())).ok()
    }

    fn has_work(&self) -> bool {
        self.pending.load(Ordering::SeqCst) > 0
    }

    fn handled(&self) -> Option<u64> {
        Some(self.handled.load(Ordering::SeqCst))
    }

    fn dead_letters(&self) -> Option<u64> {
        Some(self.record.dead.load(Ordering::Relaxed))
    }

    fn quiet(&self) -> Option<u64> {
        if self.record.settling.is_reached() {
            return Some(u64::MAX);
        }
        // `received`, not `handled`: a delivery that is dropped may have caused messages, too. Loaded
        // twice: if a message was received in between, it may have come from a node that was found
        // idle before, and may cause one to a node that will be.
        let received = self.received.load(Ordering::SeqCst);
        let is_busy = self.pending.load(Ordering::SeqCst) > 0 || self.record.has_scopes();
        (!is_busy && self.received.load(Ordering::SeqCst) == received).then_some(received)
    }

    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            // A task that has ended no longer works.
            poll_until_quiet(self).await.unwrap_or_default()
        })
    }
}
