//! The queues in front of the workers, and when no more messages can arrive.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use adieu_core::Deadline;
use adieu_core::adapter::{is_body_running, lock};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::countdown::Countdown;
use crate::delivery::{Outstanding, Receiver};
use crate::quiet::{Activity, Queues};
use crate::record::is_draining_code_running;
use crate::state::SystemState;

/// The inboxes of all workers.
pub(crate) struct Inboxes<M> {
    name: Arc<str>,
    inboxes: Vec<Inbox<M>>,
    /// Reference count of possible senders: one for each message that is not done, and one for each
    /// worker until its actors have been quiet once during the drain. During the drain, a message is
    /// done only when the actors of its worker are quiet. At zero, no code can send another message, so all
    /// inboxes can be closed.
    pending: AtomicUsize,
    /// Cancelled before the drain begins. From then on workers can send to members of the group whose
    /// drain has begun.
    announced: CancellationToken,
    /// Cancelled when the drain begins. From then on only workers and their actors can send.
    draining: CancellationToken,
    /// Cancelled when all messages are refused.
    closed: CancellationToken,
    /// Whether the group of the shutdown decides when all messages are refused.
    is_in_group: AtomicBool,
    /// How many messages were ever sent.
    sent: AtomicU64,
    /// The actor systems of the workers that have started.
    systems: Mutex<Vec<(usize, Arc<SystemState>)>>,
    /// Cancelled when the end of the workers begins; see `SystemState`.
    end: Arc<OnceLock<CancellationToken>>,
    /// When `closed` is cancelled at the latest: a worker that hangs must not delay the others.
    close_deadline: Countdown,
}

struct Inbox<M> {
    sender: mpsc::Sender<M>,
    /// Whether its worker hangs, or has ended without a report.
    is_abandoned: AtomicBool,
    /// Messages that the worker refused, or accepted and did not process to the end.
    dead: AtomicU64,
    /// Messages that its worker has received and that are not done.
    outstanding: Outstanding,
    /// The part of [`Inboxes::pending`] that its worker holds: one for the worker itself, and messages
    /// that are done. The worker releases it; see [`Worker::recv`](super::Worker::recv).
    held: AtomicUsize,
    /// Notified when a delivery ends.
    delivered: Notify,
}

/// Accounts for the deliveries of one worker.
pub(super) struct WorkerDeliveries<M> {
    pub(super) inboxes: Arc<Inboxes<M>>,
    pub(super) index: usize,
}

/// The error for a message that a worker refused. If the worker exists, the message is counted as a
/// dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {to} accepts no more messages")]
#[non_exhaustive]
pub struct SendError<M> {
    /// The index of the worker.
    pub to: usize,
    /// The message.
    pub message: M,
}

// === impl Inboxes ===

impl<M> Inboxes<M> {
    pub(super) fn new(name: Arc<str>, count: usize, room: usize) -> (Self, Vec<mpsc::Receiver<M>>) {
        let (inboxes, receivers) = (0..count)
            .map(|_| {
                let (sender, receiver) = mpsc::channel(room);
                let inbox = Inbox {
                    sender,
                    is_abandoned: AtomicBool::new(false),
                    dead: AtomicU64::new(0),
                    outstanding: Outstanding::default(),
                    held: AtomicUsize::new(1),
                    delivered: Notify::new(),
                };
                (inbox, receiver)
            })
            .unzip();
        let token = CancellationToken::new;
        let (announced, draining, closed) = (token(), token(), token());
        let pending = AtomicUsize::new(count);
        let inboxes = Self {
            name,
            inboxes,
            pending,
            announced,
            draining,
            closed,
            is_in_group: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            systems: Mutex::default(),
            end: Arc::default(),
            close_deadline: Countdown::new(),
        };
        (inboxes, receivers)
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn count(&self) -> usize {
        self.inboxes.len()
    }

    pub(super) fn announced(&self) -> &CancellationToken {
        &self.announced
    }

    pub(super) fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Waits until all messages are refused.
    pub(super) async fn closed(&self) {
        tokio::select! {
            () = self.closed.cancelled() => {}
            () = self.close_deadline.passed() => self.closed.cancel(),
        }
    }

    /// Sends a message from outside the workers. From when the drain begins, it is refused unless the
    /// sender is being drained, too.
    pub(super) async fn send_from_outside(
        &self,
        to: usize,
        message: M,
    ) -> Result<(), SendError<M>> {
        // Evaluated by the sender, and not before the drain begins: a sender that waits for room may
        // be drained together with the workers.
        let is_outside = || !is_draining_code_running();
        let over = async {
            self.draining.cancelled().await;
            if !is_outside() {
                self.closed.cancelled().await;
            }
        };
        let is_over =
            || self.closed.is_cancelled() || (self.draining.is_cancelled() && is_outside());
        self.send_until(over, is_over, to, message).await
    }

    /// Sends a message from one worker to another.
    pub(super) async fn send(&self, to: usize, message: M) -> Result<(), SendError<M>> {
        let is_over = || self.closed.is_cancelled();
        self.send_until(self.closed.cancelled(), is_over, to, message).await
    }

    /// Sends a message. Refuses it when `over` resolves, or if `is_over` returns true when there is
    /// room.
    async fn send_until(
        &self,
        over: impl Future<Output = ()>,
        is_over: impl Fn() -> bool,
        to: usize,
        message: M,
    ) -> Result<(), SendError<M>> {
        let Some(inbox) = self.inboxes.get(to) else { return Err(SendError { to, message }) };
        // Counted before it is sent: otherwise it could be processed before it was counted.
        self.pending.fetch_add(1, Ordering::SeqCst);
        let pending = Pending(self); // Uncounts it if this future is dropped.
        let place = tokio::select! {
            biased;
            () = over => None,
            place = inbox.sender.reserve() => place.ok().filter(|_| !is_over()),
        };
        match place {
            Some(place) => {
                self.sent.fetch_add(1, Ordering::SeqCst);
                place.send(message);
                std::mem::forget(pending); // It is counted until it has been processed.
                Ok(())
            }
            None => Err(self.refuse(to, message)),
        }
    }

    fn refuse(&self, to: usize, message: M) -> SendError<M> {
        // See `Record::count_refused`.
        if !is_body_running() {
            self.count_dead(to, 1);
        }
        SendError { to, message }
    }

    /// Returns the errors of messages that the workers refuse.
    pub(super) fn refusals(&self) -> impl Iterator<Item = SendError<()>> {
        (0..self.inboxes.len()).map(|to| SendError { to, message: () })
    }

    /// Counts dead letters.
    pub(super) fn count_dead(&self, of: usize, count: u64) {
        if let Some(inbox) = self.inboxes.get(of) {
            inbox.dead.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(super) fn dead_letters(&self, of: usize) -> u64 {
        self.inboxes.get(of).map_or(0, |inbox| inbox.dead.load(Ordering::Relaxed))
    }

    pub(super) fn all_dead_letters(&self) -> u64 {
        self.inboxes.iter().map(|inbox| inbox.dead.load(Ordering::Relaxed)).sum()
    }

    /// Uncounts messages that have been processed, or never will be.
    pub(super) fn done(&self, count: usize) {
        let before = self.pending.fetch_sub(count, Ordering::SeqCst);
        if before == count && self.draining.is_cancelled() && !self.is_in_group() {
            self.close();
        }
    }

    /// Refuses messages from outside, and all messages when none is pending.
    pub(super) fn drain(&self, close_deadline: Deadline) {
        self.close_deadline.shorten(close_deadline);
        self.begin_drain();
        // Either `done` observes the cancelled token, or the count here excludes its messages.
        if self.pending.load(Ordering::SeqCst) == 0 && !self.is_in_group() {
            self.close();
        }
    }

    /// Refuses messages from outside.
    fn begin_drain(&self) {
        let _ = self.end.set(self.draining.clone());
        self.announced.cancel();
        self.draining.cancel();
    }

    // --- the group of the shutdown ---

    /// Lets the workers send to members of the group whose drain has begun.
    pub(super) fn announce_drain(&self) {
        self.announced.cancel();
    }

    /// Refuses messages from outside, and lets the group decide when all messages are refused.
    pub(super) fn begin_drain_in_group(&self) {
        self.is_in_group.store(true, Ordering::SeqCst);
        self.begin_drain();
    }

    fn is_in_group(&self) -> bool {
        self.is_in_group.load(Ordering::SeqCst)
    }

    /// Refuses all messages.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    pub(super) fn end(&self) -> &Arc<OnceLock<CancellationToken>> {
        &self.end
    }

    fn systems(&self) -> MutexGuard<'_, Vec<(usize, Arc<SystemState>)>> {
        lock(&self.systems)
    }

    pub(super) fn add_system(&self, of: usize, system: Arc<SystemState>) {
        self.systems().push((of, system));
    }

    /// Removes and returns the systems, with the indices of their workers.
    pub(super) fn take_systems(&self) -> Vec<(usize, Arc<SystemState>)> {
        std::mem::take(&mut *self.systems())
    }

    /// Adds the actors and the queues.
    pub(super) fn add_to(&self, activity: &mut Activity) {
        for (_, system) in &*self.systems() {
            activity.nodes.append(&mut system.nodes());
        }
        let sent = self.sent.load(Ordering::SeqCst);
        let is_busy = self.pending.load(Ordering::SeqCst) > 0;
        let queues = &mut activity.queues;
        *queues = Queues { sent: queues.sent + sent, is_busy: queues.is_busy || is_busy };
    }

    // --- deliveries ---

    /// Counts a message that a worker is receiving.
    pub(super) fn begin_delivery(&self, of: usize) {
        if let Some(inbox) = self.inboxes.get(of) {
            inbox.outstanding.begin();
        }
    }

    /// Waits until a delivery of a worker ends.
    pub(super) async fn delivered(&self, of: usize) {
        if let Some(inbox) = self.inboxes.get(of) {
            inbox.delivered.notified().await;
        }
    }

    /// Waits until every delivery of a worker has ended.
    pub(super) async fn all_delivered(&self, of: usize) {
        while self.inboxes.get(of).is_some_and(|inbox| inbox.outstanding.count() > 0) {
            self.delivered(of).await;
        }
    }

    /// Counts the deliveries of a worker that have not ended as dead letters.
    pub(super) fn interrupt_deliveries(&self, of: usize) {
        if let Some(inbox) = self.inboxes.get(of) {
            let interrupted = inbox.outstanding.close();
            self.count_dead(of, interrupted);
            let interrupted = usize::try_from(interrupted).unwrap_or(usize::MAX);
            inbox.held.fetch_add(interrupted, Ordering::SeqCst);
        }
    }

    /// Returns how many pending messages a worker holds.
    pub(super) fn held(&self, of: usize) -> usize {
        self.inboxes.get(of).map_or(0, |inbox| inbox.held.load(Ordering::SeqCst))
    }

    /// Uncounts pending messages that a worker holds. Only the thread of the worker calls it.
    pub(super) fn release(&self, of: usize, count: usize) {
        if let Some(inbox) = self.inboxes.get(of)
            && count > 0
        {
            inbox.held.fetch_sub(count, Ordering::SeqCst);
            self.done(count);
        }
    }

    /// Counts the messages that a worker has not processed as dead letters. Waits for senders that
    /// have reserved room: their messages have been accepted, and are still to come.
    pub(super) async fn count_unprocessed(&self, of: usize, mut inbox: mpsc::Receiver<M>) {
        inbox.close();
        while let Some(message) = inbox.recv().await {
            drop(message);
            self.count_dead(of, 1);
            self.done(1);
        }
    }

    /// Counts all messages to a worker that hangs, or has ended without a report, as dead letters.
    /// Returns its number of dead letters.
    pub(super) fn abandon(&self, of: usize) -> u64 {
        if let Some(inbox) = self.inboxes.get(of)
            && !inbox.is_abandoned.swap(true, Ordering::SeqCst)
        {
            let queued = inbox.sender.max_capacity() - inbox.sender.capacity();
            self.count_dead(of, queued as u64);
            self.interrupt_deliveries(of);
        }
        self.dead_letters(of)
    }

    /// Describes the messages that workers and their actors have not processed.
    pub(super) fn unfinished_work(&self) -> Option<String> {
        let queued: usize = self.inboxes.iter().map(Inbox::queued).sum();
        // Not the sum of `outstanding`: a worker may have received a message, and not counted it yet.
        let held: usize = (0..self.inboxes.len()).map(|index| self.held(index)).sum();
        let handling = self.pending.load(Ordering::SeqCst).saturating_sub(held + queued);
        let work = (handling > 0 || queued > 0)
            .then(|| format!("{queued} messages queued, {handling} being processed"));
        let systems = self.systems();
        let actors = systems.iter().filter_map(|(index, system)| {
            Some(format!("actors of worker {index}: {}", system.unfinished_work()?))
        });
        let texts: Vec<String> = work.into_iter().chain(actors).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Returns the workers with queued messages, to be shown to an on-call engineer.
    pub(super) fn pending_workers(&self) -> String {
        let queued = self.inboxes.iter().map(Inbox::queued);
        let busy: Vec<String> = (0usize..)
            .zip(queued)
            .filter(|(_, queued)| *queued > 0)
            .map(|(index, queued)| format!("worker {index} ({queued} queued)"))
            .collect();
        busy.join(", ")
    }
}

// === impl WorkerDeliveries ===

impl<M: Send> Receiver for WorkerDeliveries<M> {
    fn delivery_ended(&self, is_done: bool) {
        let Some(inbox) = self.inboxes.inboxes.get(self.index) else { return };
        if !inbox.outstanding.end() {
            return;
        }
        if !is_done {
            self.inboxes.count_dead(self.index, 1);
        }
        inbox.held.fetch_add(1, Ordering::SeqCst);
        inbox.delivered.notify_one();
    }
}

// === impl Inbox ===

impl<M> Inbox<M> {
    /// Returns how many messages are queued. If the worker has ended, they were counted.
    fn queued(&self) -> usize {
        let has_ended = self.sender.is_closed();
        if has_ended { 0 } else { self.sender.max_capacity() - self.sender.capacity() }
    }
}

// === impl Pending ===

/// Uncounts a message when it is dropped.
struct Pending<'a, M>(&'a Inboxes<M>);

impl<M> Drop for Pending<'_, M> {
    fn drop(&mut self) {
        self.0.done(1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    // A sender on another thread may be preempted between reserving room and sending.
    #[tokio::test]
    async fn s180_a_message_whose_room_was_reserved_when_its_worker_ended_is_counted() {
        let (inboxes, mut receivers) = Inboxes::<u32>::new("test".into(), 1, 2);
        inboxes.send(0, 1).await.unwrap();
        inboxes.pending.fetch_add(1, Ordering::SeqCst);
        let room = inboxes.inboxes[0].sender.reserve().await.unwrap();
        let mut counting = pin!(inboxes.count_unprocessed(0, receivers.remove(0)));
        assert!(counting.as_mut().now_or_never().is_none(), "a message is still to come");
        assert!(inboxes.send(0, 2).await.is_err(), "no other is accepted");
        room.send(3);
        counting.await;
        assert_eq!(inboxes.dead_letters(0), 3);
        assert_eq!(inboxes.pending.load(Ordering::SeqCst), 1, "the worker itself");
    }
}
