//! The program of docs/cluster.md, which is an example.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

include!("../examples/16_cluster.rs");
