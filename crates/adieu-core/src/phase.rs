//! The built-in phases of a shutdown, and the description of further ones.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::time::Duration;

/// The name of a phase.
///
/// The built-in phases are constants; any other phase is named by its string. Functions that take a
/// phase accept both.
///
/// ```
/// use adieu_core::Phase;
///
/// assert_eq!(Phase::SERVICE_UNBIND, Phase::new("service-unbind"));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase(Cow<'static, str>);

/// Describes a phase to be added to a plan.
///
/// ```
/// use adieu_core::{Phase, PhaseSpec};
/// use std::time::Duration;
///
/// let spec = PhaseSpec::new("flush-metrics")
///     .after(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE)
///     .timeout(Duration::from_secs(3));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a phase does nothing until it is added to a plan or a shutdown"]
pub struct PhaseSpec {
    pub(crate) name: Phase,
    pub(crate) after: Vec<Phase>,
    pub(crate) before: Vec<Phase>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) recover: bool,
    pub(crate) enabled: bool,
}

// === impl Phase ===

impl Phase {
    /// The process becomes unready, and the lame duck begins. The first phase, open to applications.
    pub const BEFORE_SERVICE_UNBIND: Phase = Phase::known("before-service-unbind");
    /// Listeners, gates and consumers stop accepting work.
    pub const SERVICE_UNBIND: Phase = Phase::known("service-unbind");
    /// Admitted work finishes.
    pub const SERVICE_REQUESTS_DONE: Phase = Phase::known("service-requests-done");
    /// Remaining work is cut off.
    pub const SERVICE_STOP: Phase = Phase::known("service-stop");
    /// After the service, before the cluster. Open to applications.
    pub const BEFORE_CLUSTER_SHUTDOWN: Phase = Phase::known("before-cluster-shutdown");
    /// Shards are handed over.
    pub const CLUSTER_SHARDING_SHUTDOWN_REGION: Phase =
        Phase::known("cluster-sharding-shutdown-region");
    /// The node announces that it leaves the cluster.
    pub const CLUSTER_LEAVE: Phase = Phase::known("cluster-leave");
    /// Singletons are handed over.
    pub const CLUSTER_EXITING: Phase = Phase::known("cluster-exiting");
    /// The cluster has confirmed that the node has left.
    pub const CLUSTER_EXITING_DONE: Phase = Phase::known("cluster-exiting-done");
    /// Cluster transports close.
    pub const CLUSTER_SHUTDOWN: Phase = Phase::known("cluster-shutdown");
    /// For tasks that need running actors, such as flushing. Open to applications; may spend the
    /// reserve.
    ///
    /// Do not close a resource here that actors use: they are drained after this phase. See
    /// [`Phase::CLOSE_RESOURCES`].
    pub const BEFORE_ACTOR_SYSTEM_TERMINATE: Phase = Phase::known("before-actor-system-terminate");
    /// Actors are drained. This phase waits for every phase that is not declared to come after it,
    /// even without a declared dependency.
    pub const ACTOR_SYSTEM_TERMINATE: Phase = Phase::known("actor-system-terminate");
    /// Pools, stores, brokers and clients are closed. Open to applications; may spend the reserve.
    ///
    /// Close a resource that actors use in a task of this phase, or in a [`Step`](crate::Step).
    /// Requests, jobs and actors have ended by then. Steps are stopped after this phase, so its tasks
    /// can still use the resources of steps.
    pub const CLOSE_RESOURCES: Phase = Phase::known("close-resources");

    /// The built-in phases in the order in which they run: the twelve of Akka, and
    /// [`Phase::CLOSE_RESOURCES`].
    pub const BUILT_IN: &'static [Phase; 13] = &[
        Phase::BEFORE_SERVICE_UNBIND,
        Phase::SERVICE_UNBIND,
        Phase::SERVICE_REQUESTS_DONE,
        Phase::SERVICE_STOP,
        Phase::BEFORE_CLUSTER_SHUTDOWN,
        Phase::CLUSTER_SHARDING_SHUTDOWN_REGION,
        Phase::CLUSTER_LEAVE,
        Phase::CLUSTER_EXITING,
        Phase::CLUSTER_EXITING_DONE,
        Phase::CLUSTER_SHUTDOWN,
        Phase::BEFORE_ACTOR_SYSTEM_TERMINATE,
        Phase::ACTOR_SYSTEM_TERMINATE,
        Phase::CLOSE_RESOURCES,
    ];

    /// Creates the name of a phase. Functions that use the name check whether the phase exists.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(Cow::Owned(name.into()))
    }

    pub(crate) const fn known(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl AsRef<str> for Phase {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Phase {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Phase {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for Phase {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

// === impl PhaseSpec ===

impl PhaseSpec {
    /// Describes an enabled phase that has no dependencies, has the default timeout, and recovers
    /// from failed tasks.
    pub fn new(name: impl Into<Phase>) -> Self {
        Self {
            name: name.into(),
            after: Vec::new(),
            before: Vec::new(),
            timeout: None,
            recover: true,
            enabled: true,
        }
    }

    /// Makes this phase wait for `phase`. Can be called several times.
    pub fn after(mut self, phase: impl Into<Phase>) -> Self {
        self.after.push(phase.into());
        self
    }

    /// Makes `phase` wait for this phase, in addition to its own dependencies.
    pub fn before(mut self, phase: impl Into<Phase>) -> Self {
        self.before.push(phase.into());
        self
    }

    /// Sets how long the phase may take. The default is the plan's default timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets whether the shutdown continues when a task of this phase fails or times out.
    pub fn recover(mut self, recover: bool) -> Self {
        self.recover = recover;
        self
    }

    /// Sets whether the phase runs at all.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }
}
