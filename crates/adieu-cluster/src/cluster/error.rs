//! Why a node was not set up, did not join, or did not change another.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::{AddTaskError, Short};

use crate::member::{Incompatible, Loss, Stage};
use crate::records::{NameError, NodeId};
use crate::store::StoreError;

/// Why a node was not connected to a shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The cluster, the node or a singleton has no valid name.
    #[error("failed to set up a cluster node")]
    Name(#[from] NameError),
    /// A time is out of bounds.
    #[error("failed to set up a cluster node: {what} is {}, but {rule}", Short(*value))]
    Time {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: Duration,
        /// The rule that the value breaks.
        rule: String,
    },
    /// Other nodes cannot connect to the address.
    #[error("failed to set up a cluster node: the address {problem}")]
    Address {
        /// The address.
        address: String,
        /// The problem, with the address, and what to do.
        problem: String,
    },
    /// The weight is zero.
    #[error(
        "failed to set up a cluster node: the weight is 0, but must be at least 1: cordon the process \
         to give it no shards"
    )]
    NoWeight,
    /// This process has the node already.
    #[error(
        "node {node} of cluster {cluster} is set up twice in this process: use another name, or clone \
         the `Cluster`"
    )]
    NodeTwice {
        /// The cluster.
        cluster: String,
        /// The node.
        node: NodeId,
    },
    /// The configuration is not valid.
    #[error("failed to set up a cluster node")]
    Config(#[from] adieu_core::ConfigError),
    /// The node cannot listen for other nodes.
    #[cfg(feature = "links")]
    #[error("failed to set up a cluster node")]
    Listen(#[from] crate::link::ListenError),
    /// The tasks of the cluster's phases could not be added.
    #[error("failed to set up a cluster node")]
    Tasks(#[from] AddTaskError),
    /// A singleton or a region was declared twice.
    #[error(
        "failed to declare singleton or region {name}: it is declared already; use another name"
    )]
    Twice {
        /// The singleton or region.
        name: Arc<str>,
    },
    /// A singleton or a region was declared after the node had begun to join.
    #[error(
        "failed to declare singleton or region {name}: the node has begun to join; declare it before \
         `join`"
    )]
    TooLate {
        /// The singleton or region.
        name: Arc<str>,
    },
    /// A number of a region or of this node is out of bounds.
    #[error("{name} cannot have {value} {what}: set a number from {least} to {most}")]
    Number {
        /// The unit of the number, such as `shards`.
        what: &'static str,
        /// The region, such as `region cart`, or `this node`.
        name: Arc<str>,
        /// The number.
        value: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
}

/// Why a node did not join.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The node was not up in time. The shutdown runs with
    /// [`Reason::ClusterJoinUnsuccessful`](adieu_core::Reason::ClusterJoinUnsuccessful).
    #[error("failed to join cluster {cluster} within {}: {}", Short(*within), unfinished(*stage, waiting_for))]
    TimedOut {
        /// The cluster.
        cluster: Arc<str>,
        /// The join deadline.
        within: Duration,
        /// The stage that the node had reached.
        stage: Stage,
        /// The condition that it waited for, if it is known.
        waiting_for: String,
    },
    /// The cluster has another configuration. The shutdown runs with
    /// [`Reason::IncompatibleConfiguration`](adieu_core::Reason::IncompatibleConfiguration).
    #[error("failed to join cluster {cluster}")]
    Incompatible {
        /// The cluster.
        cluster: Arc<str>,
        /// The setting.
        #[source]
        source: Incompatible,
    },
    /// The store refused a request. The shutdown runs with [`Reason::ClusterJoinUnsuccessful`](adieu_core::Reason::ClusterJoinUnsuccessful).
    #[error("failed to join cluster {cluster}")]
    Store {
        /// The cluster.
        cluster: Arc<str>,
        /// The error of the store.
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

fn unfinished(stage: Stage, waiting_for: &str) -> String {
    match waiting_for {
        "" => format!("the node is {stage}"),
        waiting_for => waiting_for.to_owned(),
    }
}
