//! A call through a policy: passes the parts in their order, makes attempts, and reports the outcome
//! of each attempt to the parts.
//!
//! ```text
//! deadline > forced open > retry > rate > bulkhead > breaker or throttle > timeout > the call
//! ```
//!
//! Retries are outside of the other parts. So each attempt counts against the rate, a call that
//! pauses before a retry holds no slot, and a breaker that opens ends the retries.

mod attempt;
mod held;

use std::panic::resume_unwind;
use std::time::Duration;

use adieu_core::Deadline;

pub use attempt::Attempt;

use attempt::{Attempting, Ended};
use held::{AttemptResult, Held};

use crate::breaker::{Admission, NotAdmitted, Prober};
use crate::bulkhead::{Criticality, NoSlot};
use crate::classify::{Class, Classify, Health, Repeat};
use crate::drain::{self, Retries};
use crate::link::{NoPermit, Patience, Probing};
use crate::refused::{CallError, Code, Refused};
use crate::retry::delay;
use crate::state::{Parts, State};
use crate::time::{Instant, now, roughly_now};

/// The time after which to retry, for refusals without a more exact one.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A call that is about to be made.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) state: &'a State,
    pub(crate) key: Option<&'a str>,
    pub(crate) by: Option<Deadline>,
    pub(crate) criticality: Criticality,
    pub(crate) repeats: Repeats,
}

/// After which failures a call may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeats {
    /// After any failure: the call is idempotent.
    IfIdempotent,
    /// Only if the backend has not processed it.
    IfUnprocessed,
    /// Never: for example, because its body cannot be sent again.
    Never,
}

/// A call that has begun.
struct Running<'a> {
    call: Call<'a>,
    parts: &'a Parts,
    /// The end of `within`.
    within: Option<Instant>,
}

/// Until when an attempt may run.
#[derive(Clone, Copy)]
struct Limit {
    at: Option<Instant>,
    /// Whether an attempt that reaches the limit is a failure of the backend.
    is_backends: bool,
}

/// An attempt that was made.
struct Made<T, E> {
    outcome: Result<T, CallError<E>>,
    class: Class,
}

// === impl Call ===

impl Call<'_> {
    /// Makes the call.
    pub(crate) async fn run<T, E, F, Fut, C>(self, classify: C, mut f: F) -> Result<T, CallError<E>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Classify<T, E>,
    {
        let start = self.now();
        if let Some(left) = self.state.forced(start) {
            return Err(self.refused(Code::ForcedOpen, left).into());
        }
        let parts = self.state.parts(self.key);
        let within = self.state.spec.within.map(|within| start + within);
        let running = Running { call: self, parts: &parts, within };

        let mut last = None;
        let mut has_drained = false;
        let mut patience = Patience::new();
        // Reading the clock is most of what a call costs that does not wait.
        let mut began = start;
        for number in 1.. {
            let attempt = running.attempt(number, began, &classify, &mut f, &mut patience);
            let made = match attempt.await {
                Ok(made) => made,
                // The last error of the backend is more useful to the caller than our refusal.
                Err(refused) => return last.unwrap_or(Err(refused.into())),
            };
            let Some(pause) = running.pause(number, &made.class, &mut has_drained) else {
                return made.outcome;
            };
            tokio::select! {
                biased;
                () = drain::no_retries(&self.state.shutdown) => return made.outcome,
                () = tokio::time::sleep(pause) => {
                    began = self.now();
                    last = Some(made.outcome);
                }
            }
        }
        unreachable!("a call has fewer than 2^32 attempts")
    }

    /// Reads the clock, as exactly as the call needs.
    fn now(&self) -> Instant {
        if self.by.is_some() || self.state.needs_exact_time { now() } else { roughly_now() }
    }

    fn refused(&self, code: Code, retry_after: Duration) -> Refused {
        self.state.counters.count_refusal(code);
        Refused::new(&self.state.name, code, retry_after)
    }
}

// === impl Running ===

impl Running<'_> {
    /// Makes one attempt, if every part admits it.
    async fn attempt<T, E, F, Fut, C>(
        &self,
        number: u32,
        began: Instant,
        classify: &C,
        f: &mut F,
        patience: &mut Patience,
    ) -> Result<Made<T, E>, Refused>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Classify<T, E>,
    {
        let (held, began, end) = self.admit(began, patience).await?;
        let limit = self.limit(began, end, number);
        if limit.at.is_some_and(|at| at <= began) {
            return Err(self.call.refused(Code::Deadline, TRY_AGAIN));
        }
        if number > 1 {
            self.call.state.counters.count_retry();
        }
        // A call that is refused is no load for the backend, so it earns no retry.
        if let (1, Some(budget)) = (number, &self.parts.budget) {
            budget.count_call(began);
        }
        let attempt = Attempt { number, deadline: limit.at.map(Deadline::at) };
        // In a future of its own, so that a panic of `f` itself is caught, too.
        let call = async { f(attempt).await };
        let ended = Attempting::new(call, limit.at).await;

        let ended_at = self.call.now();
        let took = ended_at.saturating_duration_since(began);
        let timed_out = || Err(CallError::TimedOut { after: took });
        let (outcome, class) = match ended {
            Ended::Returned(result) => {
                let class = classify.classify(&result);
                (result.map_err(CallError::Failed), class)
            }
            Ended::TimedOut if limit.is_backends => (timed_out(), Class::sick()),
            Ended::TimedOut | Ended::Cut => (timed_out(), Class::neutral()),
            Ended::Panicked(panic) => {
                held.settle(ended_at, took, &self.lesson(Class::sick(), false));
                resume_unwind(panic)
            }
        };
        let is_timeout = matches!(outcome, Err(CallError::TimedOut { .. }));
        held.settle(ended_at, took, &self.lesson(class, is_timeout));
        Ok(Made { outcome, class })
    }

    /// Returns the result of an attempt, as the parts receive it.
    fn lesson(&self, class: Class, is_timeout: bool) -> AttemptResult {
        let is_sick = class.health() == Health::Sick;
        // A failure during the shutdown may be caused by the process itself.
        if is_sick && drain::has_begun(&self.call.state.shutdown) {
            return AttemptResult { class: Class::neutral(), is_timeout: false };
        }
        AttemptResult { class, is_timeout: is_timeout && is_sick }
    }

    /// Takes what an attempt needs of each part. Returns when it begins, and when the call must have
    /// ended.
    async fn admit(
        &self,
        mut began: Instant,
        patience: &mut Patience,
    ) -> Result<(Held<'_>, Instant, Option<Instant>), Refused> {
        let (call, parts) = (&self.call, self.parts);
        // Computed again after each wait, because a drain may have begun.
        let mut end = self.end(began);
        if end.is_some_and(|end| end <= began) {
            return Err(call.refused(Code::Deadline, TRY_AGAIN));
        }
        match (&parts.rate, call.state.link()) {
            (Some(rate), None) => {
                rate.take(began).map_err(|wait| call.refused(Code::RateLimited, wait))?;
            }
            (Some(rate), Some(link)) => {
                let key = || format!("adieu:{{{}/rate/{}}}:r1", link.service, parts.id);
                let taken = match link.take(rate, key, began) {
                    Some(decided) => decided,
                    None => {
                        patience.until(began, end);
                        let taken = link.take_after_answer(rate, key, patience).await;
                        taken.map(|at| {
                            began = at;
                            end = self.end(at);
                        })
                    }
                };
                taken.map_err(|no_permit| match no_permit {
                    NoPermit::Limited(wait) => call.refused(Code::RateLimited, wait),
                    NoPermit::StoreAway => call.refused(Code::StoreAway, TRY_AGAIN),
                })?;
            }
            (None, _) => {}
        }
        let mut held = Held::default();
        if let Some(bulkhead) = &parts.bulkhead {
            let entered = bulkhead.enter(call.criticality, end).await;
            let slot = entered.map_err(|no_slot| {
                let code = match no_slot {
                    NoSlot::Full => Code::Full,
                    NoSlot::Shed => Code::Shed,
                    NoSlot::Deadline => Code::Deadline,
                };
                call.refused(code, TRY_AGAIN)
            })?;
            if slot.has_waited() {
                began = now();
                end = self.end(began);
            }
            held.slot = Some(slot);
        }
        if let Some(breaker) = &parts.breaker {
            let admitted = match breaker.admit(began, || self.prober()) {
                Err(NotAdmitted::AskFleet) => {
                    let admitted = self.fleet_probe(patience).await;
                    began = now();
                    end = self.end(began);
                    admitted
                }
                Err(NotAdmitted::Refused(left)) => Err(left),
                Ok(admission) => Ok(admission),
            };
            held.admission = Some(admitted.map_err(|left| call.refused(Code::Open, left))?);
        }
        if let Some(throttle) = &parts.throttle {
            let admitted = throttle.admit(began, fastrand::f64());
            held.request = Some(admitted.ok_or_else(|| call.refused(Code::Throttled, TRY_AGAIN))?);
        }
        Ok((held, began, end))
    }

    /// Returns the party that may let the call through as a probe.
    fn prober(&self) -> Prober {
        let state = self.call.state;
        match state.link() {
            _ if drain::has_begun(&state.shutdown) => Prober::None,
            Some(link) if !link.is_away() => Prober::Fleet,
            Some(_) | None => Prober::Process,
        }
    }

    /// Requests the probe of a breaker that the fleet has opened. Returns when to try again if the
    /// fleet does not grant it.
    async fn fleet_probe(&self, patience: &mut Patience) -> Result<Admission<'_>, Duration> {
        let (Some(link), Some(breaker)) = (self.call.state.link(), &self.parts.breaker) else {
            return Err(TRY_AGAIN);
        };
        let began = now();
        patience.until(began, self.end(began));
        match link.probe(breaker, &self.parts.id, patience).await {
            Probing::Granted(grant) => {
                let ticket = grant.take().ok_or(TRY_AGAIN)?;
                return Ok(breaker.admit_fleet_probe(ticket));
            }
            Probing::Busy(wait) => return Err(wait),
            Probing::Again => {}
        }
        breaker.admit(now(), || self.prober()).map_err(|not_admitted| match not_admitted {
            NotAdmitted::Refused(left) => left,
            // This call has already waited for the store once, so it does not request the probe again. A
            // later call may.
            NotAdmitted::AskFleet => TRY_AGAIN,
        })
    }

    /// When the whole call must have ended.
    fn end(&self, now: Instant) -> Option<Instant> {
        let by = self.call.by.map(|by| by.instant().into_std());
        let drain = drain::deadline(&self.call.state.shutdown);
        // Clamped to `now`, so that subtracting cannot underflow.
        [self.within, by, drain].into_iter().flatten().min().map(|end| end.max(now))
    }

    fn limit(&self, began: Instant, end: Option<Instant>, number: u32) -> Limit {
        let timeout = self.call.state.spec.timeout.map(|timeout| began + timeout);
        // Without a timeout, `within` is the time that the first attempt has.
        let own = timeout.or(self.within.filter(|_| number == 1));
        match (own, end) {
            (Some(own), Some(end)) if end < own => Limit { at: Some(end), is_backends: false },
            (Some(own), _) => Limit { at: Some(own), is_backends: true },
            (None, end) => Limit { at: end, is_backends: false },
        }
    }

    /// Returns how long to pause before the next attempt, or `None` if there is no further attempt.
    fn pause(&self, number: u32, class: &Class, has_drained: &mut bool) -> Option<Duration> {
        let retry = self.call.state.spec.retry.as_ref()?;
        let is_repeatable = match (self.call.repeats, class.repeat()) {
            (Repeats::Never, _) | (_, Repeat::Never) => false,
            (Repeats::IfIdempotent, Repeat::IfIdempotent) => true,
            (Repeats::IfUnprocessed, Repeat::IfIdempotent) => false,
            (Repeats::IfIdempotent | Repeats::IfUnprocessed, Repeat::Always) => true,
        };
        if number > retry.most() || !is_repeatable {
            return None;
        }
        let now = now();
        let left = self.end(now).map(|end| end - now);
        let mut pause = delay::before(number, class, fastrand::f64())?;
        match drain::retries(&self.call.state.shutdown) {
            Retries::AsDeclared => {}
            Retries::OnceMore if !*has_drained => {
                *has_drained = true;
                pause = left.map_or(pause, |left| pause.min(left / 4));
            }
            Retries::OnceMore | Retries::None => return None,
        }
        if left.is_some_and(|left| pause >= left) {
            return None;
        }
        let budget = self.parts.budget.as_ref()?;
        budget.spend(now).then_some(pause)
    }
}
