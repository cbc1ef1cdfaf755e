#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod allocate;
mod commits;
mod leader;
mod member;
mod node;
mod observed;
mod proposal;
#[cfg(test)]
mod purity;
mod records;
mod region;
mod settings;
pub mod store;
mod view;
#[cfg(test)]
mod world;

pub use member::{Incompatible, Loss, Stage};
pub use records::{Departure, NameError, NodeId, NodeState};
pub use view::UnreadableRecord;
