#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod connection;
#[cfg(feature = "tonic")]
mod health;
mod layer;
mod listener;
mod probes;
mod serve;
mod socket;
mod spare;

pub use admin::{Admin, AdminError, AdminHandle, AdminStop};
#[cfg(feature = "tonic")]
pub use health::health;
pub use layer::{Cut, GateBody, GateFuture, GateLayer, GateService, Refusal};
pub use listener::Listener;
pub use probes::Probes;
pub use serve::{App, BoxError, Serve, ServeError, Serving, serve};

#[cfg(feature = "tls")]
#[doc(no_inline)]
pub use tokio_rustls::rustls;
