//! The work of the leader for the cluster, and how a node becomes the leader.

mod machine;

pub(crate) use machine::{Known, Leader};
