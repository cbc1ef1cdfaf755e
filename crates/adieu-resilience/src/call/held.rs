//! The slot, the admission and the request that an attempt holds. Dropping them returns them to their
//! parts, without an outcome.

use std::time::Duration;

use crate::breaker::{Admission, Ended};
use crate::bulkhead::{Sample, Slot};
use crate::classify::{Class, Health};
use crate::throttle::{Request, RequestEnd};
use crate::time::Instant;

/// The permits that an attempt holds. They are released in the order of the fields.
#[derive(Default)]
pub(super) struct Held<'a> {
    pub(super) request: Option<Request<'a>>,
    pub(super) admission: Option<Admission<'a>>,
    pub(super) slot: Option<Slot<'a>>,
}

/// The result of an attempt, for the parts of the policy.
pub(super) struct AttemptResult {
    pub(super) class: Class,
    /// Whether it ran out of the time that the policy grants.
    pub(super) is_timeout: bool,
}

// === impl Held ===

impl Held<'_> {
    /// Records that the attempt has ended, after this time.
    pub(super) fn settle(mut self, now: Instant, took: Duration, result: &AttemptResult) {
        let AttemptResult { class, is_timeout } = result;
        if let Some(request) = self.request.take() {
            request.settle(
                now,
                match class.health() {
                    Health::Well => RequestEnd::Accepted,
                    Health::Sick => RequestEnd::NotAccepted,
                    Health::Neutral if class.is_refusal() => RequestEnd::NotAccepted,
                    Health::Neutral => RequestEnd::Unknown,
                },
            );
        }
        if let Some(admission) = self.admission.take() {
            let is_slow = admission.is_slow(took);
            admission.settle(
                now,
                match class.health() {
                    Health::Well if is_slow => Ended::Failed,
                    Health::Well => Ended::Succeeded,
                    Health::Sick => Ended::Failed,
                    Health::Neutral => Ended::Neutral,
                },
            );
        }
        if let Some(slot) = &mut self.slot {
            // The latency of an error shows little about the load: an error may come early or late.
            let sample = if *is_timeout || class.is_refusal() {
                Some(Sample::Dropped)
            } else if class.health() == Health::Well {
                Some(Sample::Answered(took))
            } else {
                None
            };
            slot.end(now, sample);
        }
    }
}
