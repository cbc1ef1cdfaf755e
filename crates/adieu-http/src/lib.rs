#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod admission;
mod app;
mod clock;
mod connection;
mod full_body;
#[cfg(feature = "tonic")]
mod health;
mod layer;
mod listener;
mod pieces;
mod probes;
mod refusal;
mod request;
mod serve;
mod socket;
mod spare_fd;
mod stage;
#[cfg(unix)]
mod unix_connection;

pub use admin::{Admin, AdminError, AdminHandle, AdminStop};
pub use admission::Cut;
pub use app::{App, BoxError};
#[cfg(feature = "tonic")]
pub use health::health;
pub use layer::{GateBody, GateFuture, GateLayer, GateService};
pub use listener::Listener;
pub use probes::Probes;
pub use refusal::Refusal;
pub use serve::{Serve, ServeError, Serving, serve};
#[cfg(unix)]
pub use unix_connection::UnixConnection;

#[cfg(feature = "tls")]
#[doc(no_inline)]
pub use tokio_rustls::rustls;
