//! Marks, for each thread, whether the running code is that of an entity, and why mail that it drops
//! has no reply.
//!
//! Both are properties of the thread while it polls or drops the future of an entity, because the code
//! inside does not pass them on.

use std::cell::Cell;

use crate::time::{Instant, now};

thread_local! {
    static IS_ENTITY: Cell<bool> = const { Cell::new(false) };
    static POLLED: Cell<Option<Instant>> = const { Cell::new(None) };
    static ENDS: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Marks the code that runs as that of an entity, until it is dropped.
pub(crate) struct AsEntity {
    before: bool,
}

/// Sets, when it is dropped, the reason why mail that is dropped from then on has no reply.
pub(super) struct SayWhy(pub(super) &'static str);

/// Clears, when it is dropped, the reason that [`SayWhy`] has set.
pub(super) struct ForgetWhy;

/// Returns whether an entity is running: its messages are admitted by a shard that drains.
pub(crate) fn is_nested() -> bool {
    IS_ENTITY.get()
}

/// Returns the time. The first call of a poll returns the instant at which the poll began, because
/// reading the clock twice is a good part of the cost of a mail.
pub(super) fn recent() -> Instant {
    POLLED.take().unwrap_or_else(now)
}

/// Returns why the mail that is being dropped has no reply, if its entity is being dropped.
pub(super) fn why_dropped() -> Option<&'static str> {
    match std::thread::panicking() {
        true => Some("the entity panicked"),
        false => ENDS.get(),
    }
}

// === impl AsEntity ===

impl AsEntity {
    /// Enters, at an instant that the caller has just read from the clock.
    pub(crate) fn enter(now: Instant) -> Self {
        POLLED.set(Some(now));
        Self { before: IS_ENTITY.replace(true) }
    }
}

impl Drop for AsEntity {
    fn drop(&mut self) {
        IS_ENTITY.set(self.before);
        POLLED.set(None);
    }
}

impl Drop for SayWhy {
    fn drop(&mut self) {
        ENDS.set(Some(self.0));
    }
}

impl Drop for ForgetWhy {
    fn drop(&mut self) {
        ENDS.set(None);
    }
}
