//! A loop that runs a function periodically.

use std::sync::Arc;

use super::LoopSpec;
use super::context::LoopCx;
use super::keeper::Work;
use crate::plan::LONGEST;
use crate::task::{BoxError, Ended, TaskResult, catch, end_of};
use crate::time::{Duration, Instant, now};

/// The name and the period of a periodic loop.
///
/// Ticks never overlap, and missed ticks are not repeated. The first tick comes at a random point
/// within the period, so that replicas that start together do not tick together.
#[derive(Clone, Debug)]
#[must_use = "a periodic loop does nothing until it is added to a shutdown"]
pub struct Periodic {
    pub(crate) spec: LoopSpec,
    pub(crate) every: Duration,
    splay: Duration,
    jitter: f64,
}

/// A periodic loop as the keeper runs it.
pub(crate) struct Ticking<F> {
    periodic: Periodic,
    random: fastrand::Rng,
    tick: F,
}

// === impl Periodic ===

impl Periodic {
    /// Describes a loop with this period and a jitter of a tenth.
    pub fn new(name: impl Into<Arc<str>>, every: Duration) -> Self {
        Self { spec: LoopSpec::new(name), every, splay: every.min(LONGEST), jitter: 0.1 }
    }

    /// Sets how much the time between two ticks may differ from the period, as a part of it, from zero
    /// to one.
    pub fn jitter(mut self, part: f64) -> Self {
        // NaN counts as zero.
        self.jitter = if part > 0.0 { part.min(1.0) } else { 0.0 };
        self
    }

    /// Makes the first tick come at a random point within this time, instead of the period. With zero
    /// it comes at once.
    pub fn splay(mut self, within: Duration) -> Self {
        self.splay = within.min(LONGEST);
        self
    }

    /// Sets the seed of the random times, for repeatable tests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.spec = self.spec.seed(seed);
        self
    }

    /// Returns the time from one tick to the next. `random` is from zero to one.
    fn gap(&self, random: f64) -> Duration {
        self.every.mul_f64(1.0 + self.jitter * (2.0 * random - 1.0))
    }
}

/// Returns when the next tick is due. The gap counts from the beginning of the last tick, or from its
/// end if the tick took longer than the gap.
fn next(began: Instant, ended: Instant, gap: Duration) -> Instant {
    let due = began + gap;
    if due > ended { due } else { ended + gap }
}

// === impl Ticking ===

impl<F> Ticking<F> {
    pub(crate) fn new(periodic: Periodic, tick: F) -> Self {
        let random = periodic.spec.random();
        Self { periodic, random, tick }
    }
}

impl<F, Fut> Work for Ticking<F>
where
    F: FnMut(LoopCx) -> Fut + Send + 'static,
    Fut: Future<Output: TaskResult> + Send + 'static,
{
    async fn run(&mut self, cx: &LoopCx) -> Result<(), BoxError> {
        let mut due = now() + self.periodic.splay.mul_f64(self.random.f64());
        loop {
            tokio::select! {
                biased;
                () = cx.takes_no_more() => return Ok(()),
                () = tokio::time::sleep_until(due.into()) => {}
            }
            let began = now();
            let gap = self.periodic.gap(self.random.f64());
            // While the loop is paused, ticks are missed.
            let ended = match cx.enter() {
                Ok(pass) => {
                    let tick = async { end_of((self.tick)(cx.clone()).await) };
                    catch(pass.labelled("tick").scope(tick)).await
                }
                Err(_) => Ended::Finished,
            };
            due = next(began, now(), gap);
            let error = match ended {
                Ended::Failed(error) => error,
                Ended::Panicked(message) => format!("panicked: {message}").into(),
                Ended::Finished | Ended::Aborted | Ended::LeftBehind => continue,
            };
            if cx.gate.is_closed() {
                // No further tick comes, so the end of the loop reports the failure.
                return Err(format!("tick failed: {error}").into());
            }
            cx.log_failure("tick", &error, Some(due.saturating_duration_since(now())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nan_is_no_jitter() {
        assert!(Periodic::new("p", Duration::from_secs(1)).jitter(f64::NAN).jitter == 0.0);
    }

    #[test]
    fn missed_ticks_are_not_repeated() {
        let began = now();
        let at = |secs| began + Duration::from_secs(secs);
        let gap = Duration::from_secs(10);
        assert_eq!(next(began, at(0), gap), at(10));
        assert_eq!(next(began, at(9), gap), at(10));
        assert_eq!(next(began, at(10), gap), at(20));
        assert_eq!(next(began, at(35), gap), at(45));
    }

    proptest! {
        #[test]
        fn a_gap_differs_from_the_period_by_the_jitter_at_most(
            every in 1u64..1 << 40,
            jitter in -1.0..2.0,
            random in 0.0..=1.0,
        ) {
            let every = Duration::from_micros(every);
            let gap = Periodic::new("p", every).jitter(jitter).gap(random);
            let part = jitter.clamp(0.0, 1.0);
            let slack = Duration::from_micros(1) + every / 1_000_000;
            prop_assert!(gap + slack >= every.mul_f64(1.0 - part));
            prop_assert!(gap <= every.mul_f64(1.0 + part) + slack);
        }
    }
}
