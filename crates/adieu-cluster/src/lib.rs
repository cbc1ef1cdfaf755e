#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[expect(dead_code, reason = "membership, which commits these, is being built")]
mod commits;
#[expect(dead_code, reason = "as above")]
mod records;
pub mod store;
#[expect(dead_code, reason = "as above")]
mod view;

pub use records::{Departure, NameError, NodeId, NodeState};
pub use view::UnreadableRecord;
