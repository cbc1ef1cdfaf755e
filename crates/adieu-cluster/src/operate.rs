//! Changes another node, or the whole cluster, on behalf of an operator.

use std::sync::Arc;

use crate::commits::{Commits, Target};
use crate::moving::{self, MoveRefusal};
use crate::records::{Mode, NodeId, NodeState, ShardId};
use crate::shared::Shared;
use crate::store::{Commit, Committed, StoreError};
use crate::view::{UnreadableRecord, View};

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
        /// The nodes of the cluster.
        known: Vec<String>,
    },
    /// The shard cannot be moved to that node.
    #[error("failed to move {shard} of cluster {cluster} to {node}")]
    MoveRefused {
        /// The cluster.
        cluster: Arc<str>,
        /// The shard, such as `cart/17`.
        shard: String,
        /// The node.
        node: NodeId,
        /// The reason.
        #[source]
        source: MoveRefusal,
    },
    /// The store failed.
    #[error("failed to change cluster {cluster}")]
    Store {
        /// The cluster.
        cluster: Arc<str>,
        /// The error of the store.
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
    /// Other commits changed the table before each attempt to commit.
    #[error("failed to change cluster {cluster}: the table changes too fast; try again")]
    Busy {
        /// The cluster.
        cluster: Arc<str>,
    },
}

impl Shared {
    /// Requests that a node leave.
    pub(crate) async fn request_leave(&self, node: &NodeId) -> Result<(), OperateError> {
        self.operate(|commits, view| {
            let Target { record, .. } = self.node_of(view, node)?;
            let is_new = record.value.state <= NodeState::Up;
            Ok(is_new.then(|| commits.request_leave(node, record)))
        })
        .await
    }

    /// Declares a node dead.
    pub(crate) async fn declare_dead(&self, node: &NodeId) -> Result<(), OperateError> {
        self.operate(|commits, view| {
            let Target { record, .. } = self.node_of(view, node)?;
            Ok((record.value.state != NodeState::Down).then(|| commits.out(node, record)))
        })
        .await
    }

    /// Stops the whole cluster.
    pub(crate) async fn stop_all(&self) -> Result<(), OperateError> {
        self.operate(|commits, view| {
            let stop = || commits.set_mode(view.mode.as_ref(), Mode::Stopping);
            Ok((view.mode() == Mode::Running).then(stop))
        })
        .await
    }

    /// Requests that the owner of a shard hand it to a node.
    pub(crate) async fn request_move(
        &self,
        shard: &ShardId,
        to: &NodeId,
    ) -> Result<(), OperateError> {
        self.operate(|commits, view| {
            let target = self.node_of(view, to)?;
            moving::request(commits, view, shard, target).map_err(|source| {
                let (cluster, shard) = (Arc::clone(&self.cluster), shard.to_string());
                OperateError::MoveRefused { cluster, shard, node: to.clone(), source }
            })
        })
        .await
    }

    fn node_of<'v>(&self, view: &'v View, node: &NodeId) -> Result<Target<'v>, OperateError> {
        let found = view.nodes.get_key_value(node).map(|(id, record)| Target { id, record });
        found.ok_or_else(|| OperateError::NoSuchNode {
            cluster: Arc::clone(&self.cluster),
            node: node.clone(),
            known: view.nodes.keys().map(ToString::to_string).collect(),
        })
    }

    /// Commits the change that `decide` derives from the newest table, or nothing if it returns `None`.
    async fn operate(
        &self,
        decide: impl Fn(&Commits, &View) -> Result<Option<Commit>, OperateError>,
    ) -> Result<(), OperateError> {
        let Self { store, keys, commits, cluster, .. } = self;
        let failed = |source| OperateError::Store { cluster: Arc::clone(cluster), source };
        for _ in 0..10 {
            let snapshot = store.load(keys.prefix()).await.map_err(failed)?;
            let view = View::load(keys, &snapshot).map_err(|source| OperateError::Unreadable {
                cluster: Arc::clone(cluster),
                source,
            })?;
            let Some(commit) = decide(commits, &view)? else { return Ok(()) };
            match store.commit(&commit).await.map_err(failed)? {
                Committed::Done(_) => return Ok(()),
                Committed::Conflict => {}
            }
        }
        Err(OperateError::Busy { cluster: Arc::clone(cluster) })
    }
}
