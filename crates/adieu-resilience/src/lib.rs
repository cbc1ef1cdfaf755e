#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adapter;
mod breaker;
mod bulkhead;
mod call;
mod classify;
mod counters;
mod drain;
mod journal;
#[cfg(feature = "http")]
mod layer;
mod link;
#[doc(hidden)]
pub mod measure;
mod names;
mod page;
pub mod policies;
mod policy;
mod rate;
mod refused;
mod retry;
mod spec;
mod state;
mod status;
mod store;
mod striped;
mod sync;
mod throttle;
mod time;
mod window;

pub use breaker::Breaker;
pub use bulkhead::{Bulkhead, Criticality};
pub use call::Attempt;
pub use classify::{ByResult, Class, Classify, Health};
#[cfg(feature = "http")]
pub use layer::{Client, ClientLayer, ClientRequest, ClientResponse, PolicyLayer, PolicyService};
pub use policies::{ForceError, Policies, PoliciesError, ShareError, UnknownPolicy};
pub use policy::{Caller, Policy, PolicyBuilder, PolicyError};
pub use rate::{Rate, WithoutStore};
pub use refused::{CallError, Code, Refused};
pub use retry::Retry;
pub use status::{BreakerState, BulkheadLoad, PolicyStatus, StoreStatus};
#[cfg(feature = "redis")]
pub use store::Redis;
pub use store::{Memory, SharedStore, StoreError};
pub use throttle::Throttle;
