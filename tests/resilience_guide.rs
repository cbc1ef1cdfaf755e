//! The program of docs/resilience.md, which is an example.

include!("../examples/17_resilience.rs");
