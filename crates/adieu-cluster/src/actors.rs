//! Actors of kameo and ractor as entities: each mail goes to an actor, which its system drains and kills.
//!
//! An entity is a task that starts its actor, gives it one mail at a time, and waits until it has ended.
//! So mailboxes, idle ends, limits and the hand-off are those of every entity.

mod cx;
#[cfg_attr(
    not(any(feature = "kameo", feature = "ractor")),
    expect(dead_code, reason = "a framework uses it")
)]
mod entity;
#[cfg(feature = "kameo")]
mod kameo;
#[cfg(feature = "ractor")]
mod ractor;

pub use cx::EntityCx;
