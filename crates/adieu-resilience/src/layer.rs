//! Policies as tower layers, for servers and for clients (feature `http`).
//!
//! One layer is the whole policy.

mod client;
mod meaning;
mod options;
#[cfg(feature = "reqwest")]
mod reqwest;
mod server;

pub use client::{Client, ClientLayer, ClientRequest, ClientResponse};
pub use server::{PolicyLayer, PolicyService};

use http::header::HeaderName;

/// The header in which adieu names the code of a refusal. It shows clients that the request was not
/// processed.
const REFUSED: HeaderName = HeaderName::from_static("adieu-refused");
