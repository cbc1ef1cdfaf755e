//! What workers have been sent, and when nobody will send any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use adieu_core::Deadline;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::SendError;
use crate::countdown::Countdown;

/// The inboxes of all workers.
#[derive(Debug)]
pub(crate) struct Inboxes<M> {
    name: Arc<str>,
    inboxes: Vec<Inbox<M>>,
    /// Messages that have been sent and are not processed, with all that their processing causes in
    /// the actors of a worker; and one for each worker until its actors were quiet for the first
    /// time while draining. When this is zero while draining, nothing is left that could send.
    pending: AtomicUsize,
    /// Told to drain: nothing is taken from outside any more.
    draining: CancellationToken,
    /// Nothing is taken from anybody any more.
    closed: CancellationToken,
    /// When that is so at the latest: one that hangs with a message must not keep the others.
    last_call: Countdown,
}

#[derive(Debug)]
struct Inbox<M> {
    sender: mpsc::Sender<M>,
    /// Its worker is not there any more.
    is_abandoned: AtomicBool,
    /// Messages that it refused, left behind, or was interrupted at.
    dead: AtomicU64,
    /// Whether its worker has a message in hand.
    is_handling: AtomicBool,
}

impl<M> Inboxes<M> {
    pub(super) fn new(name: Arc<str>, count: usize, room: usize) -> (Self, Vec<mpsc::Receiver<M>>) {
        let (inboxes, receivers) = (0..count)
            .map(|_| {
                let (sender, receiver) = mpsc::channel(room);
                let (is_abandoned, is_handling) = (AtomicBool::new(false), AtomicBool::new(false));
                (Inbox { sender, is_abandoned, dead: AtomicU64::new(0), is_handling }, receiver)
            })
            .unzip();
        let (draining, closed) = (CancellationToken::new(), CancellationToken::new());
        let pending = AtomicUsize::new(count);
        let last_call = Countdown::new();
        (Self { name, inboxes, pending, draining, closed, last_call }, receivers)
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn count(&self) -> usize {
        self.inboxes.len()
    }

    pub(super) fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Resolves when nothing is taken from anybody any more.
    pub(super) async fn closed(&self) {
        tokio::select! {
            () = self.closed.cancelled() => {}
            () = self.last_call.passed(Duration::ZERO) => self.closed.cancel(),
        }
    }

    /// Sends a message from outside, which is over as soon as they are told to drain.
    pub(super) async fn send_from_outside(
        &self,
        to: usize,
        message: M,
    ) -> Result<(), SendError<M>> {
        self.send_until(&self.draining, to, message).await
    }

    /// Sends a message from one worker to another.
    pub(super) async fn send(&self, to: usize, message: M) -> Result<(), SendError<M>> {
        self.send_until(&self.closed, to, message).await
    }

    async fn send_until(
        &self,
        over: &CancellationToken,
        to: usize,
        message: M,
    ) -> Result<(), SendError<M>> {
        let Some(inbox) = self.inboxes.get(to) else { return Err(SendError { to, message }) };
        // Counted before it is sent: else it could be worked off before it has been counted.
        self.pending.fetch_add(1, Ordering::SeqCst);
        let pending = Pending(self); // Also if nobody awaits this to its end.
        let place = tokio::select! {
            biased;
            () = over.cancelled() => None,
            place = inbox.sender.reserve() => place.ok().filter(|_| !over.is_cancelled()),
        };
        match place {
            Some(place) => {
                place.send(message);
                std::mem::forget(pending); // It is, until it has been worked off.
                Ok(())
            }
            None => Err(self.refuse(to, message)),
        }
    }

    fn refuse(&self, to: usize, message: M) -> SendError<M> {
        self.dead(to, 1);
        SendError { to, message }
    }

    pub(super) fn dead(&self, of: usize, count: u64) {
        if let Some(inbox) = self.inboxes.get(of) {
            inbox.dead.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(super) fn dead_letters(&self, of: usize) -> u64 {
        self.inboxes.get(of).map_or(0, |inbox| inbox.dead.load(Ordering::Relaxed))
    }

    /// That many messages have been processed, or never will be.
    pub(super) fn done(&self, count: usize) {
        let before = self.pending.fetch_sub(count, Ordering::SeqCst);
        if before == count && self.draining.is_cancelled() {
            self.closed.cancel();
        }
    }

    /// Takes no more from outside, and none at all when all have been worked off.
    pub(super) fn drain(&self, last_call: Deadline) {
        self.last_call.shorten(last_call);
        self.draining.cancel();
        // Whoever is done after this sees that we drain; whoever was before is not counted here.
        if self.pending.load(Ordering::SeqCst) == 0 {
            self.closed.cancel();
        }
    }

    /// Notes whether a worker has a message in hand.
    pub(super) fn handles(&self, of: usize, is_handling: bool) {
        if let Some(inbox) = self.inboxes.get(of) {
            inbox.is_handling.store(is_handling, Ordering::SeqCst);
        }
    }

    /// The worker has ended without finishing the message that it had in hand, if it had one.
    pub(super) fn interrupted(&self, of: usize) {
        if let Some(inbox) = self.inboxes.get(of) {
            self.dead(of, u64::from(inbox.is_handling.swap(false, Ordering::SeqCst)));
        }
    }

    /// Its worker hangs, or has gone without a report: whatever it was sent is a dead letter.
    pub(super) fn abandon(&self, of: usize) -> u64 {
        if let Some(inbox) = self.inboxes.get(of)
            && !inbox.is_abandoned.swap(true, Ordering::SeqCst)
        {
            let queued = inbox.sender.max_capacity() - inbox.sender.capacity();
            self.dead(of, queued as u64);
            self.interrupted(of);
        }
        self.dead_letters(of)
    }

    /// What the one on call wants to know.
    pub(super) fn waits_for(&self) -> String {
        let queued = self.inboxes.iter().map(|Inbox { sender, .. }| {
            let is_gone = sender.is_closed();
            if is_gone { 0 } else { sender.max_capacity() - sender.capacity() }
        });
        let busy: Vec<String> = (0usize..)
            .zip(queued)
            .filter(|(_, queued)| *queued > 0)
            .map(|(index, queued)| format!("worker {index} ({queued} queued)"))
            .collect();
        busy.join(", ")
    }
}

/// A message that is counted, until this is dropped.
struct Pending<'a, M>(&'a Inboxes<M>);

impl<M> Drop for Pending<'_, M> {
    fn drop(&mut self) {
        self.0.done(1);
    }
}
