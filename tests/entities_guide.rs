//! The program of docs/cluster.md whose carts are entities, which is an example.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

include!("../examples/18_entities.rs");
