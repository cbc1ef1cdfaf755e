//! Links: how envelopes travel between nodes over the network.
//!
//! A node dials each peer to which it sends, and that link carries only its envelopes and the
//! answers to them. So two nodes that send to each other have two links, and need no rule for
//! which of them dials first.
//!
//! ```text
//!  send ──► lane: queued ──► outbound: frames ══ HTTP/2 ══► accepted: reads ──► Receiver
//!  on_event ◄── dialler: delivers ◄═══════ answers ════════ accepted: answers ◄── Answer
//! ```

mod accepted;
mod core;
mod dialler;
mod failing;
mod frame;
mod hello;
mod inbox;
mod lane;
mod limits;
mod links;
mod listener;
mod machine;
mod reader;
mod rejections;
mod security;
mod tls;
mod together;
mod turn;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use hello::Identity;
pub(crate) use limits::Limits;
pub(crate) use links::Links;
pub use security::{ListenError, Mtls, Security};
