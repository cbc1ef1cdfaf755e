//! One replica that leads: it campaigns, leads until it is told to stop or loses its lease, and
//! resigns.

use std::any::Any;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adieu_core::{
    AddLoopError, AddTaskError, Deadline, LoopCx, Phase, Shutdown, TaskCx, TaskResult,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::lease::{Lease, Lost};
use crate::lock::Lock;
use crate::locks::{BoxError, Fence};
use crate::names::Key;
use crate::turn::caught;

/// Whether this replica leads. Clones stand for the same.
#[derive(Clone)]
pub struct Leadership {
    shared: Arc<Shared>,
}

/// One term of a leader: what its work is given.
#[derive(Clone, Debug)]
pub struct Term {
    lease: Lease,
    stop: CancellationToken,
}

/// Why nobody campaigns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeadError {
    /// The process would be ready only while it leads.
    #[error(
        "failed to campaign for {key}: readiness depends on {check}. A replica that is not ready \
         until it leads waits for the one that leads to go, which in a rolling restart waits for \
         it to be ready. Let every replica be ready, and ask for leadership where it matters"
    )]
    ReadinessNeedsLeadership {
        /// The lock in question.
        key: Key,
        /// The promise or check in question.
        check: Arc<str>,
    },
    /// The shutdown could not take it on.
    #[error("failed to campaign for {key}")]
    Loop {
        /// The lock in question.
        key: Key,
        /// Why not.
        #[source]
        source: AddLoopError,
    },
    /// The shutdown could not take it on.
    #[error("failed to campaign for {key}")]
    Task {
        /// The lock in question.
        key: Key,
        /// Why not.
        #[source]
        source: AddTaskError,
    },
}

struct Shared {
    key: Key,
    leading: watch::Sender<Option<Fence>>,
    /// The current term, and what ends it. Known before anybody is told that we lead.
    term: Mutex<Option<(Fence, CancellationToken)>>,
}

/// What everybody knows who campaigns.
struct Campaign<W> {
    lock: Lock,
    work: W,
    shared: Arc<Shared>,
}

/// How a term ended.
enum End {
    /// Of itself, or because it was told to.
    Resigned,
    Lost,
    Failed(BoxError),
}

/// That we lead, for all to see, until it is dropped.
struct Reign<'a> {
    shared: &'a Shared,
    fence: Fence,
    /// Fires when it is to end.
    stop: CancellationToken,
}

/// How long one look for the lock lasts. It is followed by the next.
const CAMPAIGN: Duration = Duration::from_secs(60 * 60);

// === impl Lock ===

impl Lock {
    /// Campaigns for leadership, from now on, as a loop of the shutdown; and runs `work` whenever
    /// this replica leads.
    ///
    /// `work` is dropped when the lease is lost; and then we campaign again, as we do when it
    /// returns. When it fails or panics, we resign, and campaign after a pause; see
    /// [`Backoff`](adieu_core::Backoff). The same pause follows an error of the backend that does
    /// not go away, such as a wrong password.
    ///
    /// When the shutdown closes doors, [`Term::stopped`] fires; `work` has until
    /// [`Phase::SERVICE_STOP`] to end, and is dropped. The lock is released after that and never
    /// before, so that the next leader finds nobody at it; also after a hard stop, within the
    /// closing phases.
    ///
    /// Being ready must not depend on leading: a promise or check of the lock's name is refused.
    ///
    /// # Errors
    ///
    /// If readiness depends on it; or as [`Shutdown::add_loop`].
    pub fn lead<W, Fut>(&self, shutdown: &Shutdown, work: W) -> Result<Leadership, LeadError>
    where
        W: Fn(Term) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        let key = self.key().clone();
        let name = format!("lead {key}");
        let checks = shutdown.checks();
        let own = |check: &str| check == key.as_str() || check == name;
        if let Some(check) = checks.into_iter().find(|check| own(&check.name)) {
            return Err(LeadError::ReadinessNeedsLeadership { key, check: check.name });
        }
        let (leading, _) = watch::channel(None);
        let shared = Arc::new(Shared { key: key.clone(), leading, term: Mutex::default() });
        // After a hard stop: what was dropped is released in the background.
        let settled = {
            let lock = self.clone();
            async move |cx: TaskCx| {
                let left = cx.remaining();
                if lock.settled(Deadline::after(left)).await {
                    return Ok(());
                }
                Err(format!("lock {} was not released in time; it ends by itself", lock.key()))
            }
        };
        let release = format!("release {key}");
        let task = shutdown
            .add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, release, settled)
            .map_err(|source| LeadError::Task { key: key.clone(), source })?;
        let campaign = Arc::new(Campaign { lock: self.clone(), work, shared: Arc::clone(&shared) });
        let added = shutdown.add_loop(name, move |cx: LoopCx| {
            let campaign = Arc::clone(&campaign);
            async move { campaign.run(&cx).await }
        });
        if let Err(source) = added {
            task.cancel();
            return Err(LeadError::Loop { key, source });
        }
        Ok(Leadership { shared })
    }
}

// === impl Leadership ===

impl Leadership {
    /// The fence of the current term; `None` if this replica does not lead.
    #[must_use]
    pub fn leading(&self) -> Option<Fence> {
        *self.shared.leading.borrow()
    }

    /// Waits until this replica leads, and returns its fence.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the state is level-triggered, so a dropped wait loses nothing.
    pub async fn until_leading(&self) -> Fence {
        let mut leading = self.shared.leading.subscribe();
        let seen = leading.wait_for(Option::is_some).await.map(|leading| *leading);
        match seen {
            Ok(Some(fence)) => fence,
            // The sender lives in what we borrow from.
            _ => std::future::pending().await,
        }
    }

    /// Steps down: tells the work of the current term to stop, and lets others go first. Waits until
    /// the lock is released, or nobody leads anyway.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the term is told to end when this is called, and dropping the wait, polled or
    /// not, changes nothing.
    pub fn resign(&self) -> impl Future<Output = ()> + Send + use<> {
        let term = lock(&self.shared.term).clone();
        if let Some((_, stop)) = &term {
            stop.cancel();
        }
        let mut leading = self.shared.leading.subscribe();
        async move {
            let Some((fence, _)) = term else { return };
            let _ = leading.wait_for(|leading| *leading != Some(fence)).await;
        }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("key", &self.shared.key)
            .field("leading", &self.leading())
            .finish()
    }
}

// === impl Term ===

impl Term {
    /// The lease under which it leads. Whoever works for this term elsewhere should hold a clone.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The fence of this term.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.lease.fence()
    }

    /// Waits until this term is to end: because of the shutdown, because somebody wants us to
    /// resign, or because the lease is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Fires when this term is to end.
    #[must_use]
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }
}

// === impl Campaign ===

impl<W, Fut> Campaign<W>
where
    W: Fn(Term) -> Fut + Send + Sync,
    Fut: Future<Output: TaskResult> + Send,
{
    async fn run(&self, cx: &LoopCx) -> Result<(), BoxError> {
        while cx.may_take().await {
            // What is granted when nobody looks for it any more is given back.
            let acquiring = self.lock.acquire(Deadline::after(CAMPAIGN));
            let lease = match cx.take(acquiring).await {
                Some(Ok(lease)) => lease,
                // The loop is started again after a pause that doubles.
                Some(Err(error)) if error.is_permanent() => return Err(error.into()),
                Some(Err(_)) | None => continue,
            };
            let Ok(pass) = cx.enter() else {
                self.lock.give_back(lease).await;
                continue;
            };
            let reign = Reign::begin(&self.shared, lease.fence());
            // Bound anew, so that it is dropped before `reign`, whatever happens.
            let lease = lease;
            match pass.scope(self.lead(cx, &lease, reign.stop.clone())).await {
                End::Resigned => {
                    self.lock.give_back(lease).await;
                    drop(reign);
                    // Others first.
                    cx.take(tokio::time::sleep(self.lock.ttl() / 2)).await;
                }
                End::Failed(error) => {
                    self.lock.give_back(lease).await;
                    return Err(error);
                }
                End::Lost => {
                    drop(reign);
                    self.lock.give_back(lease).await;
                }
            }
        }
        Ok(())
    }

    /// One term, until nothing of its work is left.
    async fn lead(&self, cx: &LoopCx, lease: &Lease, stop: CancellationToken) -> End {
        let term = Term { lease: lease.clone(), stop: stop.clone() };
        let work = async { (self.work)(term).await.into_result() };
        let mut running = pin!(caught(lease.guard(work)));
        let lost = lease.lost();
        tokio::select! {
            ended = &mut running => return End::of(ended),
            () = cx.takes_no_more() => {}
            () = stop.cancelled() => {}
            () = lost.cancelled() => {}
        }
        stop.cancel();
        tokio::select! {
            ended = running => End::of(ended),
            () = cx.stops_now() => End::Resigned,
            // When only we resign, nobody else says when it is enough.
            () = tokio::time::sleep(self.lock.ttl()), if !cx.gate().is_closed() => End::Resigned,
        }
    }
}

// === impl End ===

impl End {
    fn of(ended: Result<Result<Result<(), BoxError>, Lost>, Box<dyn Any + Send>>) -> Self {
        match ended {
            Ok(Ok(Ok(()))) => Self::Resigned,
            Ok(Ok(Err(error))) => Self::Failed(error),
            Ok(Err(_)) => Self::Lost,
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_else(|| "a panic without a message".to_owned());
                Self::Failed(format!("panicked: {text}").into())
            }
        }
    }
}

// === impl Reign ===

impl<'a> Reign<'a> {
    fn begin(shared: &'a Shared, fence: Fence) -> Self {
        adieu_core::adapter::log_aside(tracing::Level::INFO, || {
            let key = shared.key.clone();
            move || tracing::info!(%key, %fence, "leading")
        });
        let stop = CancellationToken::new();
        *lock(&shared.term) = Some((fence, stop.clone()));
        shared.leading.send_replace(Some(fence));
        Self { shared, fence, stop }
    }
}

impl Drop for Reign<'_> {
    fn drop(&mut self) {
        adieu_core::adapter::log_aside(tracing::Level::INFO, || {
            let (key, fence) = (self.shared.key.clone(), self.fence);
            move || tracing::info!(%key, %fence, "no longer leading")
        });
        *lock(&self.shared.term) = None;
        self.shared.leading.send_replace(None);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
