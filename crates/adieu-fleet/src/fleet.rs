//! The locks of one service, by name, on a backend that is connected or connects at start-up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::{StartCx, Started, Step};

use crate::backend::AtStartUp;
use crate::journal;
use crate::lock::Lock;
use crate::lock_backend::{BoxError, LockBackend};
use crate::names::{Owner, as_key};
use crate::once::OnceCx;
use crate::singleton::OtherReplicas;
use crate::spec::{LockSpec, SpecError};
use crate::step::refuse_on_error;

/// The locks of one service, by name.
///
/// A step refers to its lock by name and needs no connection. The backend can connect when the
/// process starts, as a step of its own, so a lifecycle can be built before anything is connected:
///
/// ```
/// use adieu_core::{DeploymentProfile, Lifecycle, Step};
/// use adieu_fleet::{BackendError, Fleet, Memory, OnceCx};
/// # async fn connect() -> Result<Memory, BackendError> { Ok(Memory::new()) }
/// # async fn migrate(_: OnceCx) -> Result<(), std::io::Error> { Ok(()) }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // connect() is `Redis::connect(url)`, `Postgres::connect(config)` or `Etcd::connect(urls)`.
/// let (locks, fleet) = Fleet::connecting("shop", async |_| connect().await);
///
/// let indexes = Step::new("indexes").start(async |_| { /* create them */ });
/// let lifecycle = Lifecycle::builder()
///     .profile(DeploymentProfile::Fleet)
///     .step(locks)
///     .step(fleet.singleton(indexes)) // the lock shop/indexes
///     .step(fleet.once_per_fleet(Step::new("migration"), "2026-11", migrate))
///     .build()?;
/// assert_eq!(lifecycle.waves().next().unwrap(), ["locks of shop"]);
/// # Ok(())
/// # }
/// ```
///
/// Every key begins with the name of the fleet, so that services that share a store do not share
/// locks by accident. Each step has a lock of its own, whose key follows from the id of the step.
/// Use [`Fleet::lock`] and [`Lock::singleton_step`] for another key, time to live or patience.
///
/// Clones refer to the same fleet and owner.
#[derive(Clone)]
pub struct Fleet {
    name: Arc<str>,
    locks: Arc<dyn LockBackend>,
    owner: Owner,
    /// Provided by the step that connects the backend.
    capability: Option<Arc<str>>,
}

/// How long a replica waits for the one that runs a step.
const PATIENCE: Duration = Duration::from_secs(60);

// === impl Fleet ===

impl Fleet {
    /// Creates the locks of the service with this name, on a connected backend.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, locks: impl LockBackend) -> Self {
        let (locks, owner) = (Arc::new(locks), Owner::this_process());
        Self { name: name.into(), locks, owner, capability: None }
    }

    /// Creates the locks of the service with this name, on a backend that `connect` connects to when
    /// the process starts. Returns the step that connects, and the fleet.
    ///
    /// Steps with a lock of this fleet require that step. Without it, building the lifecycle fails.
    /// A request for a lock before the step has started fails, and can be repeated.
    ///
    /// The step fails if `connect` fails, or if the backend has no fences. Its timeout is 30 s, as of
    /// every step; see [`Step::start_timeout`].
    pub fn connecting<F, Fut, L, E>(name: impl Into<Arc<str>>, connect: F) -> (Step, Self)
    where
        F: FnOnce(StartCx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<L, E>> + Send + 'static,
        L: LockBackend,
        E: Into<BoxError> + Send + 'static,
    {
        let (name, at_start_up): (Arc<str>, _) = (name.into(), Arc::<AtStartUp>::default());
        let capability: Arc<str> = format!("locks of {name}").into();
        let fleet = Self {
            name,
            locks: Arc::clone(&at_start_up) as Arc<dyn LockBackend>,
            owner: Owner::this_process(),
            capability: Some(Arc::clone(&capability)),
        };
        let step = Step::new(Arc::clone(&capability)).provides(capability).start(
            async move |cx: StartCx| {
                let locks = connect(cx).await.map_err(Into::<BoxError>::into)?;
                if !locks.has_fences() {
                    let name = locks.name();
                    let problem = format!("backend {name} has no fences; use another backend");
                    return Err(BoxError::from(problem));
                }
                if let Some(reason) = locks.is_local() {
                    journal::locks_not_shared(reason);
                }
                at_start_up.connect(Arc::new(locks));
                Ok(Started::from(()))
            },
        );
        (step, fleet)
    }

    /// Sets the name of this replica in messages and for other replicas. The default is
    /// [`Owner::this_process`].
    #[must_use]
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    /// Creates a lock. Its key is the name of the fleet, a slash, and the key of the spec.
    ///
    /// # Errors
    ///
    /// See [`Lock::new`].
    pub fn lock(&self, spec: impl Into<LockSpec>) -> Result<Lock, SpecError> {
        let spec = spec.into();
        let key = format!("{}/{}", self.name, spec.key);
        let (locks, capability) = (Arc::clone(&self.locks), self.capability.clone());
        Lock::assemble(locks, LockSpec { key, ..spec }, &self.owner, capability)
    }

    /// Wraps a step of start-up so that one replica at a time runs it, while the others wait for up to
    /// a minute. See [`Lock::singleton_step`].
    ///
    /// The key of the lock is the name of the fleet, a slash, and the id of the step. Characters that
    /// a key cannot contain, such as spaces, are escaped.
    pub fn singleton(&self, step: Step) -> Step {
        match self.lock_of(&step) {
            Ok(lock) => lock.singleton_step(step, OtherReplicas::Wait, PATIENCE),
            Err(error) => refuse_on_error(step, Err(error)),
        }
    }

    /// Makes a step of start-up that runs once for the whole fleet and version, such as a migration.
    /// Other replicas wait for up to a minute. See [`Lock::once_per_fleet_step`], also for how durable
    /// "once" is.
    ///
    /// The key of the lock is formed as in [`Fleet::singleton`].
    pub fn once_per_fleet<F, Fut, E>(
        &self,
        step: Step,
        version: impl Into<String>,
        start: F,
    ) -> Step
    where
        F: FnOnce(OnceCx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        match self.lock_of(&step) {
            Ok(lock) => lock.once_per_fleet_step(step, version, PATIENCE, start),
            Err(error) => refuse_on_error(step, Err(error)),
        }
    }

    fn lock_of(&self, step: &Step) -> Result<Lock, SpecError> {
        self.lock(as_key(step.id()))
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("name", &self.name)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
