//! A plain task as a node.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use crate::node::{BoxFuture, Ended, Node};
use crate::path::NodePath;
use crate::quiet::poll_until_quiet;
use crate::record::{HasRecord, Record};

/// A task as a node.
pub(super) struct TaskNode {
    record: Record,
    /// Cancelled when the task should return after it has processed its messages.
    stop: CancellationToken,
    killed: CancellationToken,
    /// Messages that are being sent, are in the mailbox, or are being processed.
    pending: AtomicU64,
    is_handling: AtomicBool,
    handled: AtomicU64,
}

// === impl TaskNode ===

impl TaskNode {
    pub(super) fn new(record: Record) -> Self {
        Self {
            record,
            stop: CancellationToken::new(),
            killed: CancellationToken::new(),
            pending: AtomicU64::new(0),
            is_handling: AtomicBool::new(false),
            handled: AtomicU64::new(0),
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

    /// Uncounts messages that were processed or refused, or never will be processed.
    pub(super) fn finish(&self, messages: u64) {
        self.pending.fetch_sub(messages, Ordering::SeqCst);
    }

    pub(super) fn set_handling(&self, is_handling: bool) {
        self.is_handling.store(is_handling, Ordering::SeqCst);
    }

    /// Counts the message that was being processed, if there is one, as processed.
    pub(super) fn handler_returned(&self) {
        if self.is_handling.swap(false, Ordering::SeqCst) {
            self.handled.fetch_add(1, Ordering::SeqCst);
            self.finish(1);
        }
    }

    /// Counts the message that was being processed, if there is one, as a dead letter.
    pub(super) fn handler_interrupted(&self, message: &'static str) {
        if self.is_handling.swap(false, Ordering::SeqCst) {
            self.record.count_interrupted(None, message);
            self.finish(1);
        }
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
                () = poll_until_quiet(self) => {}
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
        let handling = u64::from(self.is_handling.load(Ordering::SeqCst));
        usize::try_from(self.pending.load(Ordering::SeqCst).saturating_sub(handling)).ok()
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
        let is_busy = self.pending.load(Ordering::SeqCst) > 0 || self.record.has_scopes();
        (!is_busy).then(|| self.handled.load(Ordering::SeqCst))
    }

    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            poll_until_quiet(self).await;
            self.handled.load(Ordering::SeqCst)
        })
    }
}
