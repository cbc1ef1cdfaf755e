#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod allocate;
mod cluster;
mod commits;
mod config;
mod counters;
mod driver;
mod leader;
#[cfg(feature = "links")]
mod link;
#[doc(hidden)]
pub mod measure;
mod member;
mod node;
mod observed;
mod operate;
mod page;
mod phases;
mod proposal;
#[cfg(test)]
mod purity;
mod records;
mod region;
mod settings;
mod shared;
mod singleton;
mod standing;
mod status;
pub mod store;
mod time;
#[cfg_attr(
    not(all(test, feature = "links")),
    expect(dead_code, reason = "links and regions build on it")
)]
mod transport;
mod view;
mod waiting;
#[cfg(test)]
mod world;

pub use cluster::{Cluster, ClusterBuilder, ClusterError, JoinError};
pub use counters::InstanceState;
#[cfg(feature = "links")]
pub use link::{ListenError, Mtls, Security};
pub use member::{Incompatible, Loss, Stage};
pub use operate::OperateError;
pub use phases::TASKS;
pub use records::{Departure, NameError, NodeId, NodeState};
pub use singleton::{Displaced, SingletonCx};
pub use status::{
    ClusterStatus, GoneStatus, NodeStatus, SingletonState, SingletonStatus, VanishedStatus, Waiting,
};
pub use view::UnreadableRecord;
