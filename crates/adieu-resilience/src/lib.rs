#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod breaker;
mod bulkhead;
mod call;
mod classify;
mod drain;
mod journal;
#[cfg(feature = "http")]
mod layer;
pub mod policies;
mod policy;
mod rate;
mod refused;
mod retry;
mod spec;
mod state;
mod status;
#[cfg_attr(not(test), expect(dead_code, reason = "policies, which will use stores, do not yet"))]
mod store;
mod striped;
mod throttle;
mod time;
mod window;

pub use breaker::Breaker;
pub use bulkhead::{Bulkhead, Criticality};
pub use call::Attempt;
pub use classify::{ByResult, Class, Classify, Health};
#[cfg(feature = "http")]
pub use layer::{Client, ClientLayer, ClientRequest, ClientResponse, PolicyLayer, PolicyService};
pub use policies::{Policies, PoliciesError, UnknownPolicy};
pub use policy::{Caller, Policy, PolicyBuilder, PolicyError};
pub use rate::Rate;
pub use refused::{CallError, Code, Refused};
pub use retry::Retry;
pub use status::{BreakerState, BulkheadLoad, PolicyStatus};
pub use throttle::Throttle;
