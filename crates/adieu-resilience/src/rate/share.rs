//! The slices of a shared limit, and the calls that wait for the next one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::gcra::{Gcra, LocalState, Taken, Wait};
use super::slice::{Permit, Question, Slice};
use crate::striped::lock;
use crate::time::Instant;

/// The part of a shared limit that this process holds.
pub(crate) struct Share {
    /// The key of the limit in the store.
    pub(crate) key: String,
    pub(crate) limit: Gcra,
    slice: Mutex<Slice>,
    /// The permits that this process has taken, as it counts them while it decides without the store.
    taken: Arc<LocalState>,
    /// Notified after each answer.
    answered: Notify,
}

// === impl Share ===

impl Share {
    pub(super) fn new(key: String, limit: Gcra, taken: Arc<LocalState>) -> Self {
        let slice = Slice::new(Duration::from_nanos(limit.interval()));
        Self { key, limit, slice: Mutex::new(slice), taken, answered: Notify::new() }
    }

    /// Takes a permit for a call. Also returns a request to the store if one is due.
    pub(crate) fn take(&self, now: Instant) -> (Permit, Option<Question>) {
        lock(&self.slice).take(now)
    }

    /// As [`Share::take`], for a call that has waited for an answer.
    pub(crate) fn take_again(&self, now: Instant) -> (Permit, Option<Question>) {
        lock(&self.slice).take_again(now)
    }

    /// Waits for the answer to the question in flight. Returns at once if there is none.
    pub(crate) async fn answered(&self) {
        let answered = self.answered.notified();
        tokio::pin!(answered);
        // Listen first: an answer between the two steps is not missed.
        answered.as_mut().enable();
        if lock(&self.slice).is_asking() {
            answered.await;
        }
    }

    /// Records the answer of the store, or its absence. Counts all permits of the answer at once
    /// against the replica's share, because single calls would contend for the counter.
    pub(crate) fn on_answer(
        &self,
        now: Instant,
        question: Question,
        answer: Option<Taken>,
        sharers: u32,
    ) {
        if let Some(Taken { granted, .. }) = answer {
            let share = self.limit.share_of(sharers);
            // It cannot fail: a count refuses nothing.
            let _ = self.taken.update(now, |state, now| Ok(share.count(state, now, granted)));
        }
        {
            let mut slice = lock(&self.slice);
            match answer {
                Some(Taken { granted, wait: Wait(wait), .. }) => {
                    slice.answered(question, granted, Duration::from_nanos(wait));
                }
                None => slice.lost(question),
            }
        }
        self.answered.notify_waiters();
    }
}
