#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "actors")]
mod actors;
pub mod adapter;
mod address;
mod allocate;
mod cluster;
mod commits;
mod config;
mod counters;
mod driver;
mod entity;
mod grant;
mod handoff;
mod handover;
mod in_process;
mod leader;
#[cfg(feature = "links")]
mod link;
#[doc(hidden)]
pub mod measure;
mod member;
mod message;
mod moving;
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
mod regions;
mod route;
#[cfg(feature = "http")]
pub mod routing;
mod rules;
mod settings;
mod shared;
mod singleton;
mod standing;
mod status;
pub mod store;
mod time;
mod transport;
mod troubles;
mod view;
mod waiting;
#[cfg(test)]
mod world;

#[cfg(feature = "actors")]
pub use actors::EntityCx;
pub use cluster::{Cluster, ClusterBuilder, ClusterError, JoinError, RegionBuilder, Singleton};
pub use counters::InstanceState;
pub use entity::{Entity, Mail, Replier};
pub use handoff::MoveReason;
pub use in_process::InProcess;
#[cfg(feature = "links")]
pub use link::{ListenError, Mtls, Security};
pub use member::{Incompatible, Loss, Stage};
pub use message::{AskError, Command, MailId, NotRun, Unknown};
pub use moving::MoveRefusal;
pub use operate::OperateError;
pub use phases::TASKS;
pub use records::{Departure, NameError, NodeId, NodeState};
pub use regions::{Ask, Asking, At, Elsewhere, Region, ShardPass, Tell, Telling};
pub use singleton::{Displaced, SingletonCx};
pub use status::{
    ClusterStatus, GoneStatus, LastMove, LinkStatus, MoveStatus, NodeStatus, RegionStatus,
    SingletonState, SingletonStatus, VanishedStatus, Waiting,
};
pub use view::UnreadableRecord;
