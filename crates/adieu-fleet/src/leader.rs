//! Leadership: one replica at a time leads, until it is signalled to stop or loses its lease.

mod campaign;

use std::fmt;
use std::sync::{Arc, Mutex};

use adieu_core::adapter::lock;
use adieu_core::{
    AddLoopError, AddTaskError, Deadline, LoopCx, Phase, Shutdown, TaskCx, TaskResult,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::campaign::Campaign;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::lock_backend::Fence;
use crate::names::Key;

/// Whether this replica leads. Clones share the state.
#[derive(Clone)]
pub struct Leadership {
    shared: Arc<Shared>,
}

/// One term of a leader. The leader's work receives it.
#[derive(Clone, Debug)]
pub struct Term {
    lease: Lease,
    stop: CancellationToken,
}

/// Why a replica does not campaign.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeadError {
    /// The process would be ready only while it leads.
    #[error(
        "failed to campaign for {key}: readiness depends on {check}. In a rolling restart the new \
         replica would wait for the leader to go, and the leader for the new replica to be ready. \
         Let every replica be ready, and check leadership where it matters"
    )]
    ReadinessNeedsLeadership {
        /// The lock in question.
        key: Key,
        /// The promise or check in question.
        check: Arc<str>,
    },
    /// The shutdown refused the loop that campaigns.
    #[error("failed to campaign for {key}")]
    Loop {
        /// The lock in question.
        key: Key,
        /// Why.
        #[source]
        source: AddLoopError,
    },
    /// The shutdown refused the task that waits for the release of the lock.
    #[error("failed to campaign for {key}")]
    Task {
        /// The lock in question.
        key: Key,
        /// Why.
        #[source]
        source: AddTaskError,
    },
}

struct Shared {
    key: Key,
    leading: watch::Sender<Option<Fence>>,
    /// The current term and the token that ends it. Set before `leading`, so that a subscriber that
    /// sees this replica lead can make it resign.
    term: Mutex<Option<(Fence, CancellationToken)>>,
}

// === impl Lock ===

impl Lock {
    /// Campaigns for leadership as a loop of the shutdown, and runs `work` whenever this replica
    /// leads.
    ///
    /// When the lease is lost, `work` is dropped and the replica campaigns again, as it does when
    /// `work` returns. When `work` fails or panics, the replica resigns and campaigns after a pause;
    /// see [`Backoff`](adieu_core::Backoff). The same pause follows a permanent error of the backend,
    /// such as a wrong password.
    ///
    /// When the shutdown closes gates, [`Term::stopped`] fires. `work` has until
    /// [`Phase::SERVICE_STOP`] to end, and is then dropped. The lock is released after `work` has
    /// ended or been dropped, never before, so the next leader starts after that. After a hard stop
    /// the lock is released within the closing phases.
    ///
    /// Readiness must not depend on leadership: if a promise or check has the name of the lock, this
    /// fails.
    ///
    /// # Errors
    ///
    /// If readiness depends on leadership, or the shutdown refuses the loop; see
    /// [`Shutdown::add_loop`].
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
        // After a hard stop, the dropped lease is released in the background.
        let settled = {
            let lock = self.clone();
            async move |cx: TaskCx| {
                let left = cx.remaining();
                if lock.settled(Deadline::after(left)).await {
                    return Ok(());
                }
                let key = lock.key();
                Err(format!(
                    "lock {key} was not released in time; it expires after its time to live"
                ))
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
    /// Returns the fence of the current term; `None` if this replica does not lead.
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
            // Cannot happen: `self` keeps the sender alive.
            _ => std::future::pending().await,
        }
    }

    /// Resigns: signals the work of the current term to stop, and pauses before the next campaign so
    /// that another replica can lead. Waits until the lock is released; returns immediately if this
    /// replica does not lead.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call itself signals the end of the term. Dropping the returned future, polled
    /// or not, changes nothing.
    pub fn resign(&self) -> impl Future<Output = ()> + Send + use<> {
        let term = self.shared.term();
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
    /// Returns the lease of this term. Tasks that work for the term elsewhere should hold a clone.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the fence of this term.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.lease.fence()
    }

    /// Waits until this term must end: because of the shutdown, because of
    /// [`Leadership::resign`], or because the lease is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Returns a token that is cancelled when this term must end.
    #[must_use]
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }
}

// === impl Shared ===

impl Shared {
    fn term(&self) -> Option<(Fence, CancellationToken)> {
        lock(&self.term).clone()
    }

    fn set_term(&self, term: Option<(Fence, CancellationToken)>) {
        let fence = term.as_ref().map(|(fence, _)| *fence);
        *lock(&self.term) = term;
        self.leading.send_replace(fence);
    }
}
