//! Tests shutdowns: on a paused clock, and in real processes.
//!
//! - [`timeline`]: events and their times as text, on tokio's paused clock.
//! - [`scenario`]: a small language that describes a whole shutdown in one line, played as a timeline.
//! - [`faults`]: tasks that hang, fail, panic, block or ignore cancellation.
//! - [`process`]: a real process, with real signals, its exit code, its output and its report.
//! - [`ledger`]: the work that a service accepted and how each piece ended, observed from outside; and
//!   a judge that compares it with the report.
//! - [`servers`] and [`proxy`]: real Redis, Postgres, PgBouncer and etcd servers, whose clocks can be
//!   set, and a proxy to them that can be cut.
//!
//! Signals need no test double: [`Shutdown::receive`](adieu_core::Shutdown::receive) has the effect of
//! a signal.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let timeline = adieu_testkit::scenario::play("drain 2s; stores 1s after drain").await;
//! assert_eq!(timeline, "\
//! 0s drain started
//! 2s drain over
//! 2s stores started
//! 3s stores over
//! 3s shutdown over: clean
//! ");
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod faults;
pub mod ledger;
pub mod process;
pub mod proxy;
pub mod scenario;
#[cfg(unix)]
pub mod servers;
pub mod timeline;
