//! The handle of a node: declares singletons, joins, shows the status, and acts on other nodes.

mod builder;
mod error;
mod region;

use std::fmt;
use std::sync::Arc;

use adieu_core::{Reason, TaskResult, adapter};

pub use builder::ClusterBuilder;
pub use error::{ClusterError, JoinError};
pub use region::{RegionBuilder, Singleton};

use crate::driver::drive;
use crate::entity::Entity;
use crate::member::Stage;
use crate::message::Command;
use crate::operate::OperateError;
use crate::records::{NodeId, ShardId, checked};
use crate::shared::{Failure, Progress, Shared};
use crate::singleton::{SingletonCx, work};
use crate::status::ClusterStatus;
use crate::store::Store;
use crate::time::{deadline, now, sleep_until};
use crate::waiting;

/// This process as a node of a cluster.
///
/// This is a handle: all clones refer to the same node. Create it with [`Cluster::new`], and connect
/// it to a shutdown with [`ClusterBuilder::on`].
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

// === impl Cluster ===

impl Cluster {
    /// Creates a node of the cluster `name`, whose table is in `store`.
    #[expect(clippy::new_ret_no_self, reason = "there is no node before `on` has a shutdown")]
    pub fn new(store: impl Store, name: impl Into<String>) -> ClusterBuilder {
        ClusterBuilder::new(Arc::new(store), name.into())
    }

    /// Declares a singleton: the cluster runs one instance of it, on a node that has declared it.
    ///
    /// When its node leaves, [`SingletonCx::stopped`] fires, and the next instance starts on another
    /// node after this one has returned. When its node cannot reach the store, the instance is dropped
    /// before another node can start one. An instance can be dropped only at an `await`, so code that
    /// blocks must call [`SingletonCx::check`]. An instance that fails is started again after a pause.
    /// An instance that returns without an error is not.
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
        self.check_declared(&name)?;
        match self.shared.singletons().insert(Arc::clone(&name), work(f)) {
            Some(_) => Err(ClusterError::Twice { name }),
            None => Ok(()),
        }
    }

    /// Declares a singleton that receives messages. As with [`Cluster::singleton`], the cluster runs
    /// one instance of it, from when its node is up, whether it has mail or not. [`Entity::next`]
    /// returns `None` when the singleton is handed to another node.
    ///
    /// ```no_run
    /// use adieu_cluster::{Cluster, Command, Entity};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Sweep;
    /// impl Command for Sweep {
    ///     type Reply = u64;
    /// }
    ///
    /// # async fn example(cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
    /// let sweeper = cluster.singleton_entity("sweeper", async |mut me: Entity<Sweep>| {
    ///     while let Some(mail) = me.next().await {
    ///         mail.reply(me.fence().get());
    ///     }
    /// })?;
    /// cluster.join().await?;
    /// let swept_by = sweeper.ask(Sweep).await?; // from any node that has declared it
    /// # drop(swept_by); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the name is not valid or was declared before, or the node has begun to join.
    pub fn singleton_entity<C, F, Fut>(
        &self,
        name: impl Into<String>,
        f: F,
    ) -> Result<Singleton<C>, ClusterError>
    where
        C: Command,
        F: Fn(Entity<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        Singleton::declare(self, name.into(), f)
    }

    /// Declares a region: entities that are spread over the nodes of the cluster, each on one node at
    /// a time.
    ///
    /// ```no_run
    /// use adieu_cluster::{Cluster, Command, Entity};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Add(u32);
    /// impl Command for Add {
    ///     type Reply = u32;
    /// }
    ///
    /// # async fn example(cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
    /// let counters = cluster.region::<Add>("counter").shards(64).serve(async |mut me: Entity<Add>| {
    ///     let mut total = 0;
    ///     while let Some(mail) = me.next().await {
    ///         total += mail.command().0;
    ///         mail.reply(total);
    ///     }
    /// })?;
    /// cluster.join().await?;
    /// let total = counters.at("visits").ask(Add(1)).await?;
    /// # drop(total); Ok(()) }
    /// ```
    pub fn region<C: Command>(&self, name: impl Into<String>) -> RegionBuilder<C> {
        RegionBuilder::new(self, name.into())
    }

    /// Checks that a singleton or a region can be declared under this name.
    fn check_declared(&self, name: &Arc<str>) -> Result<(), ClusterError> {
        let shared = &self.shared;
        let name = Arc::clone(name);
        if !shared.tasks.is_empty() || shared.progress.borrow().stage.is_some() {
            return Err(ClusterError::TooLate { name });
        }
        if shared.singletons().contains_key(&name) || shared.regions.get(&name).is_some() {
            return Err(ClusterError::Twice { name });
        }
        Ok(())
    }

    /// Joins the cluster, and waits until this node is a member. Until then the process is not ready.
    ///
    /// # Errors
    ///
    /// If that does not succeed within the join deadline, or cannot succeed. The shutdown then runs.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the node continues to join.
    pub async fn join(&self) -> Result<(), JoinError> {
        let shared = &self.shared;
        let cluster = Arc::clone(&shared.cluster);
        let Some(shutdown) = shared.shutdown.upgrade() else {
            return Err(JoinError::ShuttingDown { cluster });
        };
        // The body of the program may return this error, and has not failed.
        let refused = |cluster| {
            let refusal = JoinError::ShuttingDown { cluster };
            adapter::note_refusal(&shutdown, &refusal);
            refusal
        };
        if shutdown.reason().is_some() {
            return Err(refused(cluster));
        }
        let mut is_first = false;
        shared.progress.send_if_modified(|progress| {
            is_first = progress.stage.is_none();
            if is_first {
                progress.stage = Some(Stage::Outside);
                progress.since = Some(now());
                progress.waiting_for = Some(waiting::STORE.to_owned());
            }
            is_first
        });
        if !is_first {
            return Err(JoinError::Twice { cluster });
        }
        let _ = shared.runtime.set(tokio::runtime::Handle::current());
        shared.here.begin();
        shared.tasks.spawn(drive(Arc::clone(shared)));
        let deadline = deadline(shared.join_deadline);
        let mut progress = shared.progress.subscribe();
        let settled = progress.wait_for(|it| {
            it.is_over || it.failure.is_some() || it.loss.is_some() || it.stage >= Some(Stage::Up)
        });
        let settled = tokio::select! {
            biased;
            // The sender belongs to `shared`, so the wait cannot fail.
            settled = settled => settled.map(|it| it.clone()).unwrap_or_default(),
            _ = shutdown.begun() => return Err(refused(cluster)),
            () = sleep_until(deadline) => {
                let Progress { stage, waiting_for, .. } = shared.progress.borrow().clone();
                drop(shutdown.run(Reason::ClusterJoinUnsuccessful));
                return Err(JoinError::TimedOut {
                    cluster,
                    within: shared.join_deadline,
                    stage: stage.unwrap_or(Stage::Outside),
                    waiting_for: waiting_for.unwrap_or_default(),
                });
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
            (None, None) => Err(refused(cluster)),
        }
    }

    /// Returns this node's name.
    #[must_use]
    pub fn id(&self) -> &NodeId {
        &self.shared.id
    }

    /// Returns the stage of this node.
    #[must_use]
    pub fn stage(&self) -> Stage {
        let node = self.shared.node();
        node.as_ref().map_or(Stage::Outside, |node| self.shared.stage_of(node).0)
    }

    /// Returns the status of the cluster, as this node sees it.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        ClusterStatus::of(&self.shared)
    }

    /// Requests that a node leave. Its shutdown runs with [`Reason::ClusterLeaving`]. If the node is
    /// already leaving, this has no effect.
    ///
    /// # Errors
    ///
    /// If there is no such node, or the store fails.
    pub async fn request_leave(&self, node: &NodeId) -> Result<(), OperateError> {
        self.shared.request_leave(node).await
    }

    /// Declares a node dead. The node stops acting when it sees that, and its shutdown runs with
    /// [`Reason::ClusterDowning`]. Its shards move after its session has ended. A node that cannot read
    /// the table does not stop earlier than without this call.
    ///
    /// # Errors
    ///
    /// If there is no such node, or the store fails.
    pub async fn declare_dead(&self, node: &NodeId) -> Result<(), OperateError> {
        self.shared.declare_dead(node).await
    }

    /// Requests that the owner of a shard hand it to another node, such as shard 17 of `cart` to
    /// `shop-2`. A singleton is shard 0 of its own name. This returns when the request is in the
    /// table; [`ClusterStatus`] shows when the hand-off is done. It has no effect if the shard is
    /// moving to that node already. If the node begins to leave before the hand-off, the owner
    /// chooses another one.
    ///
    /// For five minutes after the hand-off, the shard does not move for balance. After that it
    /// moves for balance as any other shard does.
    ///
    /// # Errors
    ///
    /// If there is no such node, the shard cannot be moved to it, or the store fails.
    pub async fn request_move(
        &self,
        region: impl AsRef<str>,
        shard: u32,
        node: &NodeId,
    ) -> Result<(), OperateError> {
        let shard = ShardId { region: region.as_ref().into(), number: shard };
        self.shared.request_move(&shard, node).await
    }

    /// Stops the whole cluster: every node runs its shutdown with [`Reason::ClusterLeaving`], and
    /// nothing is handed to another node. The first node that joins when all are gone starts it
    /// again.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn stop_all(&self) -> Result<(), OperateError> {
        self.shared.stop_all().await
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
