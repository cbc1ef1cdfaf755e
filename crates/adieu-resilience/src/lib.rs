#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![expect(dead_code, reason = "policies, which are made of these parts, are being built")]

mod breaker;
mod bulkhead;
mod classify;
mod rate;
mod retry;
mod striped;
mod throttle;
mod time;
mod window;

pub use breaker::Breaker;
pub use bulkhead::{Bulkhead, Criticality};
pub use classify::{Class, Health};
pub use rate::Rate;
pub use retry::Retry;
pub use throttle::Throttle;
