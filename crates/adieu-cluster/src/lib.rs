#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod allocate;
mod cluster;
mod commits;
mod config;
mod counters;
mod driver;
mod leader;
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
mod view;
mod waiting;
#[cfg(test)]
mod world;

pub use cluster::{Cluster, ClusterBuilder, ClusterError, JoinError};
#[doc(hidden)]
pub use config::validate as validate_config;
pub use counters::InstanceState;
pub use member::{Incompatible, Loss, Stage};
pub use operate::OperateError;
pub use phases::TASKS;
pub use records::{Departure, NameError, NodeId, NodeState};
pub use singleton::{Displaced, SingletonCx};
pub use status::{
    ClusterStatus, GoneStatus, NodeStatus, SingletonState, SingletonStatus, VanishedStatus, Waiting,
};
pub use view::UnreadableRecord;
