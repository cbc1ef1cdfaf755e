//! The handle of a node's membership: declare, join, look, and act on other nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use adieu_core::{AddTaskError, Reason, Shutdown, TaskResult};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::commits::Commits;
use crate::driver::{PROTOCOL, drive};
use crate::member::{Incompatible, Loss, Stage, Wish};
use crate::phases;
use crate::records::{Drain, Keys, Mode, NameError, NodeId, NodeRecord, NodeState, checked};
use crate::settings::Settings;
use crate::shared::{Failure, Progress, Shared};
use crate::singleton::{SingletonCx, work};
use crate::status::ClusterStatus;
use crate::store::{Commit, Committed, Store, StoreError};
use crate::time::{now, sleep_until};
use crate::view::{UnreadableRecord, View};

/// This process as a node of a cluster.
///
/// A handle: clones stand for the same node. Made with [`Cluster::new`], connected to a shutdown
/// with [`ClusterBuilder::on`].
///
/// ```no_run
/// use adieu_cluster::{Cluster, SingletonCx, store::Files};
/// # async fn sweep_once(_: u64) {}
/// # async fn example(shutdown: adieu_core::Shutdown) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let cluster = Cluster::new(Files::open("/var/lib/shop/cluster")?, "shop").on(&shutdown)?;
/// cluster.singleton("sweeper", async |me: SingletonCx| {
///     while !me.is_stopped() {
///         sweep_once(me.fence().get()).await;
///     }
/// })?;
/// cluster.join().await?; // the sweeper runs on one node of the cluster
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

/// How a node takes part in a cluster. Made by [`Cluster::new`].
#[derive(Clone)]
#[must_use = "a node does nothing until it is connected to a shutdown and joins"]
pub struct ClusterBuilder {
    store: Arc<dyn Store>,
    cluster: String,
    node: Option<String>,
    build: String,
    zone: Option<String>,
    address: Option<String>,
    weight: u32,
    ttl: Duration,
    removal_margin: Option<Duration>,
    join_deadline: Duration,
}

/// Why a node was not connected to a shutdown.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The cluster, the node or a singleton has no valid name.
    #[error("failed to set up a cluster node")]
    Name(#[from] NameError),
    /// A time is out of bounds.
    #[error("failed to set up a cluster node: {what} is {value:?}, but {rule}")]
    Time {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: Duration,
        /// What it must be.
        rule: &'static str,
    },
    /// The tasks of the cluster's phases could not be added.
    #[error("failed to set up a cluster node")]
    Tasks(#[from] AddTaskError),
    /// A singleton was declared twice.
    #[error("singleton {name} is declared twice: use another name")]
    Twice {
        /// The singleton.
        name: Arc<str>,
    },
    /// A singleton was declared after the node had begun to join.
    #[error("singleton {name} is declared too late: declare it before `join`")]
    TooLate {
        /// The singleton.
        name: Arc<str>,
    },
}

/// Why a node did not join.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// It was not up in time. The shutdown runs with
    /// [`Reason::ClusterJoinUnsuccessful`].
    #[error("failed to join cluster {cluster} within {within:?}: the node is {stage}")]
    TimedOut {
        /// The cluster.
        cluster: Arc<str>,
        /// The join deadline.
        within: Duration,
        /// How far the node got.
        stage: Stage,
    },
    /// The cluster has another configuration. The shutdown runs with
    /// [`Reason::IncompatibleConfiguration`].
    #[error("failed to join cluster {cluster}")]
    Incompatible {
        /// The cluster.
        cluster: Arc<str>,
        /// The setting.
        #[source]
        source: Incompatible,
    },
    /// The store refuses. The shutdown runs with [`Reason::ClusterJoinUnsuccessful`].
    #[error("failed to join cluster {cluster}")]
    Store {
        /// The cluster.
        cluster: Arc<str>,
        /// What the store answered.
        #[source]
        source: StoreError,
    },
    /// The node lost its place before it was up.
    #[error("failed to join cluster {cluster}: {loss}")]
    Lost {
        /// The cluster.
        cluster: Arc<str>,
        /// Why.
        loss: Loss,
    },
    /// The shutdown has begun.
    #[error("failed to join cluster {cluster}: the shutdown has begun")]
    ShuttingDown {
        /// The cluster.
        cluster: Arc<str>,
    },
    /// The node has joined before. A process joins once.
    #[error("failed to join cluster {cluster}: this process has joined before")]
    Twice {
        /// The cluster.
        cluster: Arc<str>,
    },
}

/// Why another node, or the cluster, was not changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperateError {
    /// There is no such node.
    #[error("no node {node} in cluster {cluster}; nodes: {}", known.join(", "))]
    NoSuchNode {
        /// The cluster.
        cluster: Arc<str>,
        /// The node.
        node: NodeId,
        /// The nodes that there are.
        known: Vec<String>,
    },
    /// The store failed.
    #[error("failed to change cluster {cluster}")]
    Store {
        /// The cluster.
        cluster: Arc<str>,
        /// What it answered.
        #[source]
        source: StoreError,
    },
    /// A record cannot be read.
    #[error("failed to change cluster {cluster}")]
    Unreadable {
        /// The cluster.
        cluster: Arc<str>,
        /// The record.
        #[source]
        source: UnreadableRecord,
    },
    /// The table changed each time before the commit arrived.
    #[error("failed to change cluster {cluster}: the table changes too fast; try again")]
    Busy {
        /// The cluster.
        cluster: Arc<str>,
    },
}

const TTL: Duration = Duration::from_secs(10);
const JOIN_DEADLINE: Duration = Duration::from_secs(30);

// === impl ClusterBuilder ===

impl ClusterBuilder {
    /// Names the node. Two processes of one name are not members at the same time: the second waits
    /// until the first is gone. Default: the host's name, the process's id and something random.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = Some(name.into());
        self
    }

    /// Names the build. While several builds are up, shards and singletons go to nodes of the build
    /// that started last.
    pub fn build(mut self, build: impl Into<String>) -> Self {
        self.build = build.into();
        self
    }

    /// Names the zone, such as an availability zone. Shards are spread over zones.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// Sets the address that status shows.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Sets how many shards this node takes in proportion to others. Default: 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets how long the node's session lasts without being kept. A node that cannot reach the store
    /// stops acting after four fifths of this. All nodes should have the same. Default: 10 seconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long the leader waits before it takes shards from a node that vanished. Default: a
    /// fifth of the time to live. Set it to the time to live for stores that can end sessions early,
    /// such as etcd before 3.4.29 and 3.5.10.
    pub fn removal_margin(mut self, margin: Duration) -> Self {
        self.removal_margin = Some(margin);
        self
    }

    /// Sets how long [`Cluster::join`] waits. Default: 30 seconds.
    pub fn join_deadline(mut self, within: Duration) -> Self {
        self.join_deadline = within;
        self
    }

    /// Connects the node to a shutdown: adds the tasks that leave the cluster to its phases.
    ///
    /// # Errors
    ///
    /// If a name is not valid, a time is out of bounds, or the shutdown has begun.
    pub fn on(self, shutdown: &Shutdown) -> Result<Cluster, ClusterError> {
        let Self { store, cluster, node, build, zone, address, weight, ttl, .. } = self;
        let keys = Keys::new(&cluster)?;
        let node = node.unwrap_or_else(|| adieu_fleet::Owner::this_process().as_str().to_owned());
        let id = NodeId::new(node)?;
        let shortest = store.shortest_ttl();
        if ttl < shortest || ttl < Duration::from_millis(100) {
            let rule = "must be at least 100 ms, and the least of the store";
            return Err(ClusterError::Time { what: "the time to live", value: ttl, rule });
        }
        if self.join_deadline.is_zero() {
            let rule = "must not be zero";
            let value = self.join_deadline;
            return Err(ClusterError::Time { what: "the join deadline", value, rule });
        }
        let mut settings = Settings::for_ttl(ttl);
        settings.removal_margin = self.removal_margin.unwrap_or(settings.removal_margin);
        let record = NodeRecord {
            state: NodeState::Joining,
            ready: true,
            drain: Drain::Nothing,
            address,
            build,
            zone,
            weight,
            hosts: Vec::new(),
            protocol: (PROTOCOL, PROTOCOL),
        };
        let shared = Arc::new(Shared {
            store,
            cluster: cluster.into(),
            commits: Commits::new(keys.clone()),
            keys,
            id,
            record,
            settings,
            join_deadline: self.join_deadline,
            shutdown: shutdown.downgrade(),
            singletons: Mutex::new(BTreeMap::new()),
            node: Mutex::new(None),
            standing: OnceLock::new(),
            progress: watch::Sender::new(Progress::default()),
            wish: watch::Sender::new(Wish::Stay),
            kill: CancellationToken::new(),
            close: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        phases::add(shutdown, &shared)?;
        Ok(Cluster { shared })
    }
}

impl fmt::Debug for ClusterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterBuilder")
            .field("cluster", &self.cluster)
            .field("node", &self.node)
            .field("store", &self.store.name())
            .finish_non_exhaustive()
    }
}

// === impl Cluster ===

impl Cluster {
    /// Returns a node of the cluster `name`, whose table is in `store`.
    #[expect(clippy::new_ret_no_self, reason = "there is no node before `on` has a shutdown")]
    pub fn new(store: impl Store, name: impl Into<String>) -> ClusterBuilder {
        ClusterBuilder {
            store: Arc::new(store),
            cluster: name.into(),
            node: None,
            build: String::new(),
            zone: None,
            address: None,
            weight: 1,
            ttl: TTL,
            removal_margin: None,
            join_deadline: JOIN_DEADLINE,
        }
    }

    /// Declares a singleton: the cluster runs one instance of it, on a node that has declared it.
    ///
    /// When its node leaves, [`SingletonCx::stopped`] fires, and the next instance starts elsewhere
    /// after this one has returned. When its node dies or cannot reach the store, the instance is
    /// dropped before another node can start one; that needs the clock and an await, so code that
    /// blocks must call [`SingletonCx::check`]. An instance that fails is started again, after a
    /// pause. An instance that returns is not.
    ///
    /// # Errors
    ///
    /// If the name is not valid or was declared before, or the node has begun to join.
    pub fn singleton<F, Fut>(&self, name: impl AsRef<str>, f: F) -> Result<(), ClusterError>
    where
        F: Fn(SingletonCx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        let name = checked("a singleton", name.as_ref())?;
        if !self.shared.tasks.is_empty() || self.shared.progress.borrow().stage.is_some() {
            return Err(ClusterError::TooLate { name });
        }
        match self.shared.singletons().insert(Arc::clone(&name), work(f)) {
            Some(_) => Err(ClusterError::Twice { name }),
            None => Ok(()),
        }
    }

    /// Joins the cluster, and waits until this node is a member.
    ///
    /// # Errors
    ///
    /// If that does not succeed within the join deadline, or cannot succeed. The shutdown then runs.
    ///
    /// # Cancel safety
    ///
    /// Dropping the wait changes nothing: the node goes on to join.
    pub async fn join(&self) -> Result<(), JoinError> {
        let shared = &self.shared;
        let cluster = Arc::clone(&shared.cluster);
        let Some(shutdown) = shared.shutdown.upgrade() else {
            return Err(JoinError::ShuttingDown { cluster });
        };
        if shutdown.reason().is_some() {
            return Err(JoinError::ShuttingDown { cluster });
        }
        let mut is_first = false;
        shared.progress.send_if_modified(|progress| {
            is_first = progress.stage.is_none();
            progress.stage.get_or_insert(Stage::Outside);
            is_first
        });
        if !is_first {
            return Err(JoinError::Twice { cluster });
        }
        shared.tasks.spawn(drive(Arc::clone(shared)));
        let deadline = now() + shared.join_deadline;
        let mut progress = shared.progress.subscribe();
        let settled = progress.wait_for(|it| {
            it.is_over || it.failure.is_some() || it.loss.is_some() || it.stage >= Some(Stage::Up)
        });
        let settled = tokio::select! {
            biased;
            // The sender belongs to `shared`, so the wait cannot fail.
            settled = settled => settled.map(|it| it.clone()).unwrap_or_default(),
            _ = shutdown.begun() => return Err(JoinError::ShuttingDown { cluster }),
            () = sleep_until(deadline) => {
                let stage = shared.progress.borrow().stage.unwrap_or(Stage::Outside);
                drop(shutdown.run(Reason::ClusterJoinUnsuccessful));
                return Err(JoinError::TimedOut { cluster, within: shared.join_deadline, stage });
            }
        };
        match (settled.failure, settled.loss) {
            (Some(Failure::Incompatible(source)), _) => {
                drop(shutdown.run(Reason::IncompatibleConfiguration));
                Err(JoinError::Incompatible { cluster, source })
            }
            (Some(Failure::Store(source)), _) => {
                drop(shutdown.run(Reason::ClusterJoinUnsuccessful));
                Err(JoinError::Store { cluster, source })
            }
            (None, Some(loss)) => Err(JoinError::Lost { cluster, loss }),
            (None, None) if settled.stage == Some(Stage::Up) => Ok(()),
            (None, None) => Err(JoinError::ShuttingDown { cluster }),
        }
    }

    /// Returns this node's name.
    #[must_use]
    pub fn id(&self) -> &NodeId {
        &self.shared.id
    }

    /// Returns how far this node is.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.shared.node().as_ref().map_or(Stage::Outside, |node| node.stage())
    }

    /// Returns what this node knows of the cluster.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        let (cluster, id) = (Arc::clone(&self.shared.cluster), self.shared.id.clone());
        match &*self.shared.node() {
            Some(node) => ClusterStatus::of(cluster, id, node),
            None => ClusterStatus::outside(cluster, id),
        }
    }

    /// Requests that a node leaves. Its shutdown runs with [`Reason::ClusterLeaving`]. Does nothing
    /// if it leaves already.
    ///
    /// # Errors
    ///
    /// If there is no such node, or the store fails.
    pub async fn request_leave(&self, node: &NodeId) -> Result<(), OperateError> {
        self.operate(Some(node), |commits, view| {
            let record = view.nodes.get(node)?;
            (record.value.state <= NodeState::Up).then(|| commits.request_leave(node, record))
        })
        .await
    }

    /// Declares a node dead. The node stops acting when it sees that, and its shutdown runs with
    /// [`Reason::ClusterDowning`]. What it owned moves when its session has ended; a node that cannot
    /// see the table is not stopped any sooner.
    ///
    /// # Errors
    ///
    /// If there is no such node, or the store fails.
    pub async fn declare_dead(&self, node: &NodeId) -> Result<(), OperateError> {
        self.operate(Some(node), |commits, view| {
            let record = view.nodes.get(node)?;
            (record.value.state != NodeState::Down).then(|| commits.out(node, record))
        })
        .await
    }

    /// Stops the whole cluster: every node runs its shutdown with [`Reason::ClusterLeaving`], and
    /// nothing is handed to another node. The first node that joins when all are gone starts it
    /// again.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn stop_all(&self) -> Result<(), OperateError> {
        self.operate(None, |commits, view| {
            (view.mode() == Mode::Running)
                .then(|| commits.set_mode(view.mode.as_ref(), Mode::Stopping))
        })
        .await
    }

    /// Commits a change that is decided from the newest table; `None` if there is nothing to change.
    async fn operate(
        &self,
        node: Option<&NodeId>,
        decide: impl Fn(&Commits, &View) -> Option<Commit>,
    ) -> Result<(), OperateError> {
        let Shared { store, keys, commits, cluster, .. } = &*self.shared;
        let failed = |source| OperateError::Store { cluster: Arc::clone(cluster), source };
        for _ in 0..10 {
            let snapshot = store.load(keys.prefix()).await.map_err(failed)?;
            let view = View::load(keys, &snapshot).map_err(|source| OperateError::Unreadable {
                cluster: Arc::clone(cluster),
                source,
            })?;
            if let Some(node) = node.filter(|node| !view.nodes.contains_key(*node)) {
                return Err(OperateError::NoSuchNode {
                    cluster: Arc::clone(cluster),
                    node: node.clone(),
                    known: view.nodes.keys().map(ToString::to_string).collect(),
                });
            }
            let Some(commit) = decide(commits, &view) else { return Ok(()) };
            match store.commit(&commit).await.map_err(failed)? {
                Committed::Done(_) => return Ok(()),
                Committed::Conflict => {}
            }
        }
        Err(OperateError::Busy { cluster: Arc::clone(cluster) })
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("cluster", &self.shared.cluster)
            .field("node", &self.shared.id)
            .field("stage", &self.stage())
            .finish_non_exhaustive()
    }
}
