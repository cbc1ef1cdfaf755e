//! Assembles random services from parts, stops them at random instants under random load, and lets
//! the ledger of `adieu-testkit` judge them.
//!
//! Everything random follows from a seed. [`plan`] decides and is pure; [`service`] is the process
//! under test; [`run`] starts it, loads it ([`load`]), stops it and judges.

mod accounts;
pub mod load;
pub mod plan;
pub mod run;
pub mod service;
