//! The promises of adieu-actors, checked on every framework.

#![expect(clippy::disallowed_methods, reason = "tests may spawn tasks")]
#![expect(clippy::unwrap_used, reason = "most calls are in functions that tests share")]

#[macro_use]
mod frameworks;

mod blocking;
mod branches;
mod conformance;
mod conservation;
mod conservation_fuzz;
mod coordinated;
mod cut_short;
mod dead_letters;
mod edge_cases;
mod ending;
mod guardian;
mod identity;
mod interrupted;
mod left_running;
mod observing;
mod resources;
mod stopping;
mod tasks;
mod threads;
mod together;
