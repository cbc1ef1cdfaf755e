//! The remaining permits of a slice of a shared rate limit, and when to request the next slice.
//!
//! A replica does not send a request to the store for each call. It takes a slice of permits that is
//! valid for [`VALID`], and requests the next one when half of it is used. While permits of a slice
//! remain, no call waits for the store.
//!
//! A replica with few calls requests a permit for each call. A slice would expire before it is used,
//! and its permits would be lost to the fleet.
//!
//! # Invariants
//!
//! 1. A permit is spent at most once, and only within [`VALID`] after its request was sent. So in any
//!    time T the fleet admits no more than the limit grants in T + [`VALID`].
//! 2. At most one request is in flight. Its answer counts from when the request was sent. An answer to
//!    an earlier request changes nothing.
//! 3. If the store refuses, no request is sent until the time that the refusal named.
//! 4. A call for which an answer had no permit, because the store had none, causes no further request.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a slice can be used.
const VALID: Duration = Duration::from_millis(100);
/// A request that was not answered for this long is lost: twice the time that a store has to answer. The
/// driver that had sent it has panicked.
const LOST_AFTER: Duration = Duration::from_millis(50);
/// A slice is for the expected demand of this time.
const AHEAD: Duration = Duration::from_millis(50);
/// The weight of [`AHEAD`] in the moving average of the demand.
const SMOOTHING: f64 = 0.3;
/// With fewer calls than this in [`AHEAD`], each call requests its own permit.
const FEW: f64 = 3.0;

/// A replica's share of a limit.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    /// The time between two permits of the fleet.
    interval: Duration,
    /// The remaining permits of each grant, and until when they are valid. The oldest grant is first.
    grants: VecDeque<(u32, Instant)>,
    /// The sum of these permits.
    left: u32,
    /// How many permits were left after the last grant.
    size: u32,
    /// The request in flight: its number, when it was sent, and the number of permits requested.
    asked: Option<Question>,
    last_question: u64,
    /// No permit is free before then.
    refused_until: Option<Instant>,
    /// Whether the last answer granted fewer permits than were wanted.
    is_short: bool,
    /// How many calls found no permit since the last question was sent.
    without_permit: u32,
    demand: Demand,
}

/// A question to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    number: u64,
    sent: Instant,
    pub(crate) wanted: u32,
}

/// The decision about a call that wants a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    Granted,
    /// No permit is free for this long.
    Refused(Duration),
    /// The answer to the question in flight decides.
    Ask,
}

/// The number of permits requested in a time, smoothed.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    since: Option<Instant>,
    calls: u32,
    /// The average of calls in [`AHEAD`].
    average: f64,
    /// The calls in [`AHEAD`] for which a slice is made.
    expected: f64,
}

// === impl Slice ===

impl Slice {
    /// A replica's share of a limit with this interval between two permits.
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval: interval.max(Duration::from_nanos(1)),
            grants: VecDeque::new(),
            left: 0,
            size: 0,
            asked: None,
            last_question: 0,
            refused_until: None,
            is_short: false,
            without_permit: 0,
            demand: Demand::default(),
        }
    }

    /// Takes a permit for a call. Also returns a request to the store if one is due.
    pub(crate) fn take(&mut self, now: Instant) -> (Permit, Option<Question>) {
        self.demand.count(now);
        let permit = self.permit(now).unwrap_or(Permit::Ask);
        self.decide(now, permit)
    }

    /// As [`Slice::take`], for a call that has waited for an answer and was counted before.
    pub(crate) fn take_again(&mut self, now: Instant) -> (Permit, Option<Question>) {
        // The answer that the call has waited for had no permit for it.
        let is_refused = self.is_short && self.asked.is_none();
        let without = if is_refused { Permit::Refused(self.interval) } else { Permit::Ask };
        let permit = self.permit(now).unwrap_or(without);
        self.decide(now, permit)
    }

    /// Returns the answer to a call that needs no question to the store.
    fn permit(&mut self, now: Instant) -> Option<Permit> {
        while let Some((left, until)) = self.grants.front_mut() {
            if *left > 0 && *until > now {
                *left -= 1;
                self.left = self.left.saturating_sub(1);
                return Some(Permit::Granted);
            }
            self.left = self.left.saturating_sub(*left);
            self.grants.pop_front();
        }
        let refused_until = self.refused_until.filter(|until| now < *until)?;
        Some(Permit::Refused(refused_until - now))
    }

    /// Adds a question to the decision about a call, if it is time for one.
    fn decide(&mut self, now: Instant, permit: Permit) -> (Permit, Option<Question>) {
        let is_needed = match permit {
            Permit::Granted => self.demand.is_steady() && self.left <= self.size / 2,
            Permit::Refused(_) => false,
            Permit::Ask => {
                self.without_permit = self.without_permit.saturating_add(1);
                true
            }
        };
        if !is_needed {
            return (permit, None);
        }
        let is_lost = |asked: Question| now.saturating_duration_since(asked.sent) >= LOST_AFTER;
        let is_asking = self.asked.is_some_and(|asked| !is_lost(asked));
        let may_ask = !is_asking && self.refused_until.is_none_or(|until| until <= now);
        let question = may_ask.then(|| self.ask(now));
        (permit, question)
    }

    /// Records the answer of the store: the permits that it granted, and `wait`, after which another one is
    /// free.
    pub(crate) fn answered(&mut self, question: Question, granted: u32, wait: Duration) {
        if self.asked.map(|asked| asked.number) != Some(question.number) {
            return;
        }
        self.asked = None;
        let Question { sent, wanted, .. } = question;
        if granted > 0 {
            self.grants.push_back((granted, sent + VALID));
            self.left = self.left.saturating_add(granted);
            self.size = self.left;
        }
        self.is_short = granted < wanted;
        if self.is_short {
            // Requesting single permits would cost one request each.
            let half = (wanted / 2).max(1) - 1;
            self.refused_until = Some(sent + wait + self.interval.saturating_mul(half));
        }
    }

    /// Records that the request was not answered. The permits that it may have been granted are lost.
    pub(crate) fn lost(&mut self, question: Question) {
        if self.asked.map(|asked| asked.number) == Some(question.number) {
            self.asked = None;
        }
    }

    /// Returns whether a question is in flight.
    pub(crate) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    fn ask(&mut self, now: Instant) -> Question {
        self.last_question += 1;
        let question = Question { number: self.last_question, sent: now, wanted: self.wanted() };
        self.asked = Some(question);
        self.without_permit = 0;
        question
    }

    /// As many as are expected in [`AHEAD`], or as there are calls without a permit, and never more than
    /// half of what the fleet has in [`VALID`].
    fn wanted(&self) -> u32 {
        let fleet = VALID.as_nanos() / self.interval.as_nanos() / 2;
        let most = u32::try_from(fleet).unwrap_or(u32::MAX).max(1);
        // Rounded down: a permit that is not used is lost to the fleet.
        let expected = if self.demand.is_steady() { self.demand.expected as u32 } else { 0 };
        expected.max(self.without_permit).clamp(1, most)
    }
}

// === impl Demand ===

impl Demand {
    fn count(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed >= AHEAD {
            let current = f64::from(self.calls) * AHEAD.as_secs_f64() / passed.as_secs_f64();
            // In the average, a measurement over a longer time has the weight of several.
            let spans = passed.as_secs_f64() / AHEAD.as_secs_f64();
            self.average += (current - self.average) * (1.0 - (1.0 - SMOOTHING).powf(spans));
            self.expected += (current - self.expected) * SMOOTHING;
            (self.since, self.calls) = (Some(now), 0);
        }
        self.calls += 1;
        // If demand rises suddenly, the expectation rises with it at once; only a fall is smoothed.
        self.expected = self.expected.max(f64::from(self.calls));
    }

    /// Returns whether the demand is high enough to use a slice before it expires.
    fn is_steady(&self) -> bool {
        self.average >= FEW
    }
}

#[cfg(test)]
mod tests;
