//! Changes another node, or the whole cluster, on behalf of an operator.

use std::sync::Arc;

use crate::commits::Commits;
use crate::records::{Mode, NodeId, NodeState};
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
        self.operate(Some(node), |commits, view| {
            let record = view.nodes.get(node)?;
            (record.value.state <= NodeState::Up).then(|| commits.request_leave(node, record))
        })
        .await
    }

    /// Declares a node dead.
    pub(crate) async fn declare_dead(&self, node: &NodeId) -> Result<(), OperateError> {
        self.operate(Some(node), |commits, view| {
            let record = view.nodes.get(node)?;
            (record.value.state != NodeState::Down).then(|| commits.out(node, record))
        })
        .await
    }

    /// Stops the whole cluster.
    pub(crate) async fn stop_all(&self) -> Result<(), OperateError> {
        self.operate(None, |commits, view| {
            (view.mode() == Mode::Running)
                .then(|| commits.set_mode(view.mode.as_ref(), Mode::Stopping))
        })
        .await
    }

    /// Commits the change that `decide` derives from the newest table, or nothing if it returns `None`.
    async fn operate(
        &self,
        node: Option<&NodeId>,
        decide: impl Fn(&Commits, &View) -> Option<Commit>,
    ) -> Result<(), OperateError> {
        let Self { store, keys, commits, cluster, .. } = self;
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
