#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod commits;
mod records;
pub mod store;
mod view;
