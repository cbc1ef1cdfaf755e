//! The threads of a pool of workers, and how they are joined.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use adieu_core::adapter::lock;
use adieu_core::{Deadline, Reason, Shutdown, WeakShutdown, adapter};
use futures_util::future::{BoxFuture, FutureExt, Shared, join_all};
use tokio::sync::oneshot;

use super::inbox::Inboxes;
use super::report::{WorkerEnding, WorkerReport, WorkersReport};
use crate::countdown::Countdown;
use crate::group::{Group, Member, Unfinished};
use crate::quiet::{Activity, Found, until_quiet};
use crate::timeouts::Timeouts;

/// The worker threads and their queues. Dropping it stops the workers.
pub(super) struct Pool<M> {
    pub(super) inboxes: Arc<Inboxes<M>>,
    pub(super) countdown: Arc<Countdown>,
    /// The systems and worker threads of the same shutdown.
    membership: Arc<OnceLock<Membership>>,
    threads: Mutex<Vec<Thread>>,
    /// Whether the task in the phase `actor-system-terminate` has reported how the workers ended.
    is_reported: AtomicBool,
    /// How many dead letters were described after the report of the workers was completed.
    described_later: AtomicU64,
    /// The shutdown of all workers, which all callers await.
    ending: OnceLock<Shared<BoxFuture<'static, Arc<WorkersReport>>>>,
}

/// How the workers belong to the group of their shutdown.
struct Membership {
    shutdown: WeakShutdown,
    group: Arc<Group>,
    /// Dropped when all workers have ended.
    unfinished: Mutex<Option<Unfinished>>,
}

/// A worker thread that was started.
pub(super) struct Thread {
    pub(super) handle: JoinHandle<()>,
    pub(super) report: oneshot::Receiver<WorkerReport>,
}

// === impl Pool ===

impl<M> Pool<M> {
    pub(super) fn new(inboxes: Inboxes<M>) -> Self {
        Self {
            inboxes: Arc::new(inboxes),
            countdown: Arc::new(Countdown::new()),
            membership: Arc::default(),
            threads: Mutex::default(),
            is_reported: AtomicBool::new(false),
            described_later: AtomicU64::new(0),
            ending: OnceLock::new(),
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Thread>> {
        lock(&self.threads)
    }

    pub(super) fn add(&self, thread: Thread) {
        self.threads().push(thread);
    }

    /// Begins the drain of all workers.
    pub(super) fn drain(&self, timeout: Duration) {
        self.countdown.shorten(Deadline::after(timeout));
        // At the latest then, workers that only wait for messages from others end.
        self.inboxes.drain(Deadline::after(timeout * 3 / 4));
    }
}

/// How long after its deadline a worker that has not ended is given up: its actors have had their grace.
const HUNG_AFTER: Duration = Duration::from_millis(1_500);

impl<M: Send + 'static> Pool<M> {
    /// Drains and joins all workers. All calls share one result.
    pub(super) async fn shutdown(&self, timeout: Duration) -> Arc<WorkersReport> {
        self.drain(timeout);
        let ending = self.ending.get_or_init(|| {
            let threads = std::mem::take(&mut *self.threads());
            let (inboxes, countdown) = (&self.inboxes, &self.countdown);
            let ending = join(
                threads,
                Arc::clone(inboxes),
                Arc::clone(countdown),
                Arc::clone(&self.membership),
            );
            ending.map(Arc::new).boxed().shared()
        });
        ending.clone().await
    }

    /// Makes the workers members of the group of this shutdown.
    pub(super) fn join(self: &Arc<Self>, shutdown: &Shutdown) {
        let _ = self.inboxes.end().set(shutdown.token());
        let group = adapter::extension::<Group>(shutdown);
        let member: Weak<Self> = Arc::downgrade(self);
        let unfinished = Mutex::new(Some(group.join(member)));
        let shutdown = shutdown.downgrade();
        let _ = self.membership.set(Membership { shutdown, group, unfinished });
    }

    /// Takes the workers out of the group, because their shutdown does not drain them.
    pub(super) fn leave_group(self: &Arc<Self>) {
        if let Some(Membership { group, unfinished, .. }) = self.membership.get() {
            let member: Weak<Self> = Arc::downgrade(self);
            group.remove(&(member as _));
            drop(lock(unfinished).take());
        }
    }

    /// Drains all workers with the other members of the group, and joins them.
    pub(super) async fn shutdown_in_group(
        &self,
        reason: &Reason,
        timeout: Duration,
    ) -> Arc<WorkersReport> {
        let Some(Membership { group, .. }) = self.membership.get() else {
            return self.shutdown(timeout).await;
        };
        group.begin_drain(reason);
        let close = async {
            let mut found = Found::new();
            tokio::select! {
                () = until_quiet(|| group.activity(), &mut found) => {}
                () = self.inboxes.closed() => {}
            }
            self.inboxes.close();
        };
        tokio::join!(self.shutdown(timeout), close).0
    }

    pub(super) fn mark_reported(&self) {
        self.is_reported.store(true, Ordering::SeqCst);
    }

    /// Takes the messages that the workers have lost, if no task of the shutdown has reported them.
    pub(super) fn take_lost(&self) -> Option<String> {
        let report = self.ending.get().and_then(Shared::peek)?;
        let is_missing = !self.is_reported.swap(true, Ordering::SeqCst) && !report.is_clean();
        let own = is_missing.then(|| self.describe(report));
        let texts: Vec<String> = own.into_iter().chain(Member::take_unreported(self)).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Returns the accepted work that is not finished, and the messages that were lost, until the end
    /// of the workers reports them.
    pub(super) fn remaining(&self) -> Option<String> {
        if self.ending.get().and_then(Shared::peek).is_some() {
            return None;
        }
        // Read first; see `SystemState::remaining`.
        let lost = self.inboxes.all_dead_letters();
        let lost = (lost > 0).then(|| format!("at least {lost} dead letters"));
        let texts: Vec<String> = self.undrained_work().into_iter().chain(lost).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Returns the accepted work of workers that nothing has ended.
    pub(super) fn undrained_work(&self) -> Option<String> {
        if self.ending.get().and_then(Shared::peek).is_some() {
            return None;
        }
        self.inboxes.unfinished_work().map(|work| format!("left running, {work}"))
    }

    /// Describes how the workers ended, and the work of workers that still run.
    pub(super) fn describe(&self, report: &WorkersReport) -> String {
        let is_hung = |worker: &WorkerReport| worker.ending == WorkerEnding::Hung;
        let hung = report.workers.iter().any(is_hung);
        let work = hung.then(|| self.inboxes.unfinished_work()).flatten();
        work.map_or_else(|| report.to_string(), |work| format!("{report}; left running, {work}"))
    }

    /// Describes messages that members of the group lost after their reports were completed.
    pub(super) fn take_unreported_of_group(&self) -> Option<String> {
        self.membership.get().and_then(|membership| membership.group.take_unreported())
    }
}

impl<M: Send> Member for Pool<M> {
    fn is_drained_for(&self, _: &Reason) -> bool {
        true
    }

    fn announce_drain(&self) {
        // From here on a send may fail only because the shutdown drains the workers.
        let membership = self.membership.get();
        if let Some(shutdown) = membership.and_then(|of| of.shutdown.upgrade()) {
            self.inboxes.refusals().for_each(|refusal| adapter::note_refusal(&shutdown, &refusal));
        }
        self.inboxes.announce_drain();
    }

    fn begin_drain(&self) {
        self.inboxes.begin_drain_in_group();
    }

    fn add_to(&self, activity: &mut Activity) {
        self.inboxes.add_to(activity);
    }

    fn has_worked(&self) -> bool {
        true // A worker may have work that no message has caused.
    }

    fn take_unreported(&self) -> Option<String> {
        let reported = self.ending.get()?.peek()?;
        let later = self.inboxes.all_dead_letters() - reported.dead_letters();
        let count = later - self.described_later.swap(later, Ordering::SeqCst).min(later);
        let name = self.inboxes.name();
        (count > 0)
            .then(|| format!("worker threads {name}: {count} dead letters after their report"))
    }
}

impl<M> Drop for Pool<M> {
    fn drop(&mut self) {
        self.drain(Timeouts::WORKER_THREADS);
    }
}

/// Awaits the report of each worker, and joins it.
async fn join<M: Send + 'static>(
    threads: Vec<Thread>,
    inboxes: Arc<Inboxes<M>>,
    countdown: Arc<Countdown>,
    membership: Arc<OnceLock<Membership>>,
) -> WorkersReport {
    let began = tokio::time::Instant::now();
    let joined = threads.into_iter().enumerate().map(|(index, Thread { handle, report })| {
        let (inboxes, countdown) = (&inboxes, &countdown);
        async move {
            let joining = async {
                let report = report.await;
                // This does not block for long: the report is the last act of the thread.
                let joined = tokio::task::spawn_blocking(|| handle.join()).await;
                report.ok().filter(|_| matches!(joined, Ok(Ok(()))))
            };
            tokio::select! {
                biased;
                // A worker that ends without a report has panicked outside its body.
                report = joining => report.unwrap_or_else(|| {
                    WorkerReport::missing(index, WorkerEnding::Panicked, inboxes.abandon(index))
                }),
                // By now its body was dropped, and its actors have had their grace.
                () = countdown.grace_passed(HUNG_AFTER, 4) => {
                    WorkerReport::missing(index, WorkerEnding::Hung, inboxes.abandon(index))
                }
            }
        }
    });
    let mut workers = join_all(joined).await;
    if let Some(Membership { group, unfinished, .. }) = membership.get() {
        drop(lock(unfinished).take());
        // Actors of other members may still send messages, which the workers refuse.
        tokio::select! {
            () = group.all_ended() => {}
            () = countdown.grace_passed(HUNG_AFTER, 4) => {}
        }
    }
    // Other workers may have sent messages to a worker or its actors after its report.
    for worker in &mut workers {
        worker.dead_letters = inboxes.dead_letters(worker.index);
    }
    for (of, system) in inboxes.take_systems() {
        if let Some(worker) = workers.iter_mut().find(|worker| worker.index == of) {
            system.dead_letters.complete(&mut worker.actors);
        }
    }
    WorkersReport { name: Arc::clone(inboxes.name()), took: began.elapsed(), workers }
}
