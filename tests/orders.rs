//! The shop's orders in gRPC. Written by hand, so that the build needs no protocol buffer compiler.

pub(crate) const PLACE: &str = "/shop.Orders/Place";
pub(crate) const FOLLOW: &str = "/shop.Orders/Follow";

/// An order, and how long the shop takes for it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Order {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) think_ms: u64,
}
