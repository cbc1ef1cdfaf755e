//! Tests shutdowns without waiting for them.
//!
//! - [`timeline`]: what happened when, as text, on tokio's paused clock.
//! - [`scenario`]: a small language in which a whole shutdown is one line, played as a timeline.
//! - [`faults`]: tasks that hang, fail, panic, block and do not listen.
//! - [`process`]: a real process, with real signals, its exit code, its output and its report.
//! - [`ledger`]: what a service accepted and what became of it, seen from outside; and a judge.
//! - [`servers`] and [`proxy`]: real Redis, Postgres, PgBouncer and etcd, clocks of theirs that can be
//!   set, and a cable to them that can be pulled.
//!
//! Fake signals need no double: [`Shutdown::receive`](adieu_core::Shutdown::receive) does what a
//! signal would do.
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
