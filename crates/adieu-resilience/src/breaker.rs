//! A circuit breaker: refuses calls for a while after too many have failed.
//!
//! While the breaker is closed, a call reads one word and counts in a window of its thread. Every
//! other state is kept by [`machine`], under a lock.

mod ended;
mod fleet;
mod machine;
mod probe;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub(crate) use ended::Ended;
pub(crate) use fleet::{Fleet, Standing, Terms, Ticket};
use machine::{Answer, Figures, Machine};
pub(crate) use machine::{Change, Prober};
pub(crate) use probe::Admission;
use probe::Held;

use crate::status::BreakerState;
use crate::striped::lock;
use crate::time::{COARSE, Instant, LONGEST, now};
use crate::window::{Pair, Window};

/// How long a probe may take if the policy has no timeout.
const LEASE: Duration = Duration::from_secs(30);
/// How much longer than the policy's timeout a probe may take.
const BEYOND_TIMEOUT: Duration = Duration::from_secs(1);

/// Refuses calls for a while after too many have failed.
///
/// The breaker opens when at least [`Breaker::of`] calls have ended within [`Breaker::over`] and the
/// given ratio of them has failed. It then refuses every call for [`Breaker::opens_for`]. After that it
/// lets single calls through as probes: the first that succeeds closes it, one that fails reopens it
/// for twice as long.
///
/// ```
/// use adieu_resilience::Breaker;
/// use std::time::Duration;
///
/// let breaker = Breaker::at(0.5).of(20).over(Duration::from_secs(10));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a breaker does nothing until a policy has it"]
pub struct Breaker {
    ratio: f64,
    calls: u32,
    over: Duration,
    opens_for: Duration,
    at_most: Option<Duration>,
    probes: u32,
    closes_after: u32,
    slow: Option<Duration>,
    witnesses: u32,
}

/// The breaker of one key of a policy.
pub(crate) struct Circuit {
    ratio: f64,
    calls: i64,
    slow: Option<Duration>,
    /// Generation and whether it is closed; written with the lock of `machine`. See [`word_of`].
    word: AtomicU64,
    /// Calls, and how many of them failed; the epoch is the generation.
    window: Window,
    machine: Mutex<Machine>,
    on_change: Box<dyn Fn(Change) + Send + Sync>,
    terms: Terms,
    /// Set if the breaker is shared.
    fleet: OnceLock<Arc<dyn Fleet>>,
    /// Whether a call has failed since the last snapshot.
    has_failed: AtomicBool,
}

/// Why a breaker did not admit a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// Try again after this time.
    Refused(Duration),
    /// The call must request the probe from the store.
    AskFleet,
}

/// The counts of a breaker's window, for the other replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowCount {
    pub(crate) calls: u64,
    pub(crate) failures: u64,
    /// Whether this process has opened its breaker itself, and the fleet has not.
    pub(crate) is_open: bool,
    /// The generation of the fleet's breaker that this process has received.
    pub(crate) generation: u64,
}

// === impl WindowCount ===

impl WindowCount {
    /// Returns whether it is of use to the other replicas.
    pub(crate) fn shows_anything(self) -> bool {
        self.calls > 0 || self.is_open
    }
}

// === impl Breaker ===

impl Breaker {
    /// Creates a breaker that opens when at least this ratio of the calls in its window has failed. By
    /// default the window is 10 s long, and must have at least 20 calls.
    pub fn at(ratio: f64) -> Self {
        Self {
            ratio,
            calls: 20,
            over: Duration::from_secs(10),
            opens_for: Duration::from_secs(5),
            at_most: None,
            probes: 1,
            closes_after: 1,
            slow: None,
            witnesses: 2,
        }
    }

    /// Sets how many calls must have ended before their ratio counts.
    pub fn of(mut self, calls: u32) -> Self {
        self.calls = calls;
        self
    }

    /// Sets the length of the window in which calls count. Calls leave it in steps of a tenth.
    pub fn over(mut self, over: Duration) -> Self {
        self.over = over;
        self
    }

    /// Sets the first break, 5 s by default. Each break varies at random by up to a tenth.
    pub fn opens_for(mut self, first: Duration) -> Self {
        self.opens_for = first;
        self
    }

    /// Sets the longest break. The default is 1 min, or the first break if that is longer. A break
    /// doubles with each consecutive reopening.
    pub fn at_most(mut self, longest: Duration) -> Self {
        self.at_most = Some(longest);
        self
    }

    /// Sets how many calls can probe at a time; one by default.
    pub fn probes(mut self, probes: u32) -> Self {
        self.probes = probes;
        self
    }

    /// Sets how many probes in a row must succeed before the breaker closes; one by default.
    pub fn closes_after(mut self, probes: u32) -> Self {
        self.closes_after = probes;
        self
    }

    /// Counts calls that take longer than `after` as failed.
    pub fn slow(mut self, after: Duration) -> Self {
        self.slow = Some(after);
        self
    }

    /// Sets how many replicas of a fleet must see the ratio themselves before the fleet opens the
    /// breaker; two by default. If fewer replicas had calls, all of these must see it. The fleet also
    /// opens if so many replicas have opened their own breakers. Only for shared breakers; see [`Policies::shared`](crate::Policies::shared).
    pub fn witnesses(mut self, replicas: u32) -> Self {
        self.witnesses = replicas;
        self
    }

    /// Returns the time after which a call counts as slow.
    pub(crate) fn slow_after(&self) -> Option<Duration> {
        self.slow
    }

    /// Returns whether it measures calls, or has a window in which [`COARSE`] is not little.
    pub(crate) fn needs_exact_time(&self) -> bool {
        self.slow.is_some() || self.over < 100 * COARSE
    }

    fn longest_break(&self) -> Duration {
        self.at_most.unwrap_or(Duration::from_secs(60).max(self.opens_for))
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { ratio, calls, over, opens_for, probes, closes_after, slow, .. } = self;
        let longest = self.longest_break();
        if !(*ratio > 0.0 && *ratio <= 1.0) {
            return Err(format!("breaker: ratio is {ratio}; it must be above 0 and at most 1"));
        }
        if [*calls, *probes, *closes_after, self.witnesses].contains(&0) {
            return Err(
                "breaker: calls, probes, closes-after and witnesses must each be at least 1".into(),
            );
        }
        if !(Duration::from_millis(10)..=LONGEST).contains(over) {
            return Err(format!("breaker: a window of {over:?} is not from 10ms to a year"));
        }
        if opens_for.is_zero() || longest > LONGEST {
            return Err(format!(
                "breaker: breaks of {opens_for:?} to {longest:?} are not from 1ns to a year"
            ));
        }
        if *opens_for > longest {
            return Err(format!(
                "breaker: the first break of {opens_for:?} is longer than the longest of {longest:?}"
            ));
        }
        if slow.is_some_and(|slow| slow.is_zero()) {
            return Err(
                "breaker: slow is zero, so every call would count as failed; set a longer time"
                    .into(),
            );
        }
        Ok(())
    }

    /// `timeout` is that of an attempt. `on_change` is called after each transition, without a lock.
    pub(crate) fn build(
        &self,
        origin: Instant,
        timeout: Option<Duration>,
        on_change: impl Fn(Change) + Send + Sync + 'static,
    ) -> Circuit {
        let figures = Figures {
            opens_for: self.opens_for,
            at_most: self.longest_break(),
            probes: self.probes,
            closes_after: self.closes_after,
            lease: timeout.map_or(LEASE, |timeout| timeout.saturating_add(BEYOND_TIMEOUT)),
        };
        let terms = Terms {
            calls: self.calls,
            ratio: self.ratio,
            witnesses: self.witnesses,
            opens_for: figures.opens_for,
            at_most: figures.at_most,
            probes: figures.probes,
            closes_after: figures.closes_after,
            lease: figures.lease,
        };
        let machine = Machine::new(figures);
        Circuit {
            ratio: self.ratio,
            calls: self.calls.into(),
            slow: self.slow,
            word: AtomicU64::new(word_of(&machine)),
            window: Window::new(origin, self.over),
            machine: Mutex::new(machine),
            on_change: Box::new(on_change),
            terms,
            fleet: OnceLock::new(),
            has_failed: AtomicBool::new(false),
        }
    }
}

impl std::fmt::Display for Breaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ratio, calls, over, .. } = self;
        write!(f, "{ratio} of {calls} calls in {}", adieu_core::Short(*over))
    }
}

// === impl Circuit ===

impl Circuit {
    /// Admits a call. `prober` is called if the call would probe.
    #[inline]
    pub(crate) fn admit(
        &self,
        now: Instant,
        prober: impl FnOnce() -> Prober,
    ) -> Result<Admission<'_>, NotAdmitted> {
        let word = self.word.load(Ordering::Acquire);
        match closed_generation(word) {
            Some(generation) => Ok(Admission::new(self, generation, None)),
            None => self.admit_unless_open(now, prober()),
        }
    }

    #[cold]
    fn admit_unless_open(
        &self,
        now: Instant,
        prober: Prober,
    ) -> Result<Admission<'_>, NotAdmitted> {
        let mut generation = 0;
        let answer = self.with_machine(|machine| {
            let (answer, change) = machine.ask(now, prober);
            generation = machine.generation();
            (answer, change)
        });
        match answer {
            Answer::Admitted => Ok(Admission::new(self, generation, None)),
            Answer::Probe(probe) => Ok(Admission::new(self, generation, Some(Held::Own(probe)))),
            Answer::AskFleet => Err(NotAdmitted::AskFleet),
            Answer::Refused { retry_after } => Err(NotAdmitted::Refused(retry_after)),
        }
    }

    /// Admits a call as a probe that the store has granted.
    pub(crate) fn admit_fleet_probe(&self, ticket: Ticket) -> Admission<'_> {
        Admission::new(self, 0, Some(Held::Fleet(Box::new(ticket))))
    }

    /// Shares the breaker: it reports to `fleet`.
    pub(crate) fn share(&self, fleet: Arc<dyn Fleet>) {
        // A breaker is shared once, when its policy is.
        let _ = self.fleet.set(fleet);
    }

    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Returns whether a call has failed since this was last called.
    pub(crate) fn take_has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed) && self.has_failed.swap(false, Ordering::Relaxed)
    }

    /// Returns the counts of the window. If the breaker is not closed, these are the counts of the last
    /// generation in which it was closed.
    pub(crate) fn sight(&self, now: Instant) -> WindowCount {
        let (epoch, is_open, generation) = {
            let machine = lock(&self.machine);
            (machine.last_closed(), machine.is_open_by_itself(), machine.fleet_generation())
        };
        let Pair { all, some } = self.window.sum(now, epoch);
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        WindowCount { calls: count(all), failures: count(some), is_open, generation }
    }

    /// Returns whether the fleet has opened the breaker. What this process sees then means nothing.
    pub(crate) fn is_open_in_fleet(&self) -> bool {
        !self.is_closed() && lock(&self.machine).is_open_in_fleet()
    }

    /// Applies the state of the fleet's breaker, from a response to a request that was sent at `sent`.
    pub(crate) fn adopt(&self, sent: Instant, standing: Option<Standing>) {
        self.with_machine(|machine| ((), machine.adopt(now(), sent, standing)));
    }

    /// Records that the store has granted a probe.
    pub(crate) fn fleet_granted(&self, now: Instant) {
        lock(&self.machine).fleet_granted(now);
    }

    /// Records that other probes of the fleet run, for at most this long.
    pub(crate) fn fleet_busy(&self, now: Instant, wait: Duration) {
        lock(&self.machine).fleet_busy(now, wait);
    }

    /// Records that no probe of the fleet is known to run.
    pub(crate) fn fleet_idle(&self, now: Instant) {
        lock(&self.machine).fleet_idle(now);
    }

    /// See [`Machine::closed_alone`].
    pub(crate) fn closed_alone(&self) -> Option<u64> {
        lock(&self.machine).closed_alone()
    }

    /// See [`Machine::recovery_reported`].
    pub(crate) fn recovery_reported(&self, fleet_generation: u64) {
        lock(&self.machine).recovery_reported(fleet_generation);
    }

    /// Settles a probe that the store had granted, while the store cannot be reached.
    pub(crate) fn settle_alone(&self, now: Instant, fleet_generation: u64, ended: Ended) {
        self.with_machine(|machine| {
            ((), machine.settle_alone(now, fleet_generation, ended, fastrand::f64()))
        });
    }

    /// Returns whether a call that took this long counts as failed.
    fn is_slow(&self, took: Duration) -> bool {
        self.slow.is_some_and(|slow| took > slow)
    }

    /// Returns whether the breaker is closed and has no failure in its window.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        let word = self.word.load(Ordering::Acquire);
        closed_generation(word).is_some_and(|generation| self.window.sum(now, generation).some == 0)
    }

    pub(crate) fn state(&self, now: Instant) -> BreakerState {
        let machine = lock(&self.machine);
        match machine.break_left(now) {
            Some(left) => BreakerState::Open { left },
            None if machine.is_closed() => BreakerState::Closed,
            None => BreakerState::HalfOpen,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        closed_generation(self.word.load(Ordering::Acquire)).is_some()
    }

    /// Records the outcome of an admitted call.
    fn settle(&self, now: Instant, generation: u32, probe: Option<Held>, ended: Ended) {
        match (probe, self.fleet.get()) {
            (None, _) => self.count(now, generation, ended),
            (Some(Held::Own(probe)), _) => self.with_machine(|machine| {
                ((), machine.settle(now, generation, probe, ended, fastrand::f64()))
            }),
            (Some(Held::Fleet(ticket)), Some(fleet)) => fleet.settle(*ticket, ended),
            (Some(Held::Fleet(ticket)), None) => self.settle_alone(now, ticket.generation, ended),
        }
    }

    #[inline]
    fn count(&self, now: Instant, generation: u32, ended: Ended) {
        let current = closed_generation(self.word.load(Ordering::Acquire));
        // A call from before the last transition shows nothing about the current state of the backend.
        if current != Some(generation) {
            return;
        }
        match ended {
            Ended::Neutral => {}
            Ended::Succeeded => self.window.add(now, generation, 1, 0),
            Ended::Failed => {
                self.window.add(now, generation, 1, 1);
                self.judge(now, generation);
            }
        }
    }

    #[cold]
    fn judge(&self, now: Instant, generation: u32) {
        let Pair { all: calls, some: failures } = self.window.sum(now, generation);
        let exceeds = |ratio: f64| failures as f64 >= ratio * calls as f64;
        if calls >= self.calls && exceeds(self.ratio) {
            self.with_machine(|machine| ((), machine.trip(now, generation, fastrand::f64())));
        }
        if let Some(fleet) = self.fleet.get() {
            self.has_failed.store(true, Ordering::Relaxed);
            if exceeds(self.ratio / 2.0) {
                fleet.nudge();
            }
        }
    }

    fn with_machine<T>(&self, act: impl FnOnce(&mut Machine) -> (T, Option<Change>)) -> T {
        let mut machine = lock(&self.machine);
        let (result, change) = act(&mut machine);
        if change.is_some() {
            self.word.store(word_of(&machine), Ordering::Release);
        }
        drop(machine);
        if let Some(change) = change {
            (self.on_change)(change);
        }
        result
    }
}

/// Returns the generation, and in the lowest bit whether it is not closed.
fn word_of(machine: &Machine) -> u64 {
    u64::from(machine.generation()) << 1 | u64::from(!machine.is_closed())
}

fn closed_generation(word: u64) -> Option<u32> {
    // The word holds 33 bits.
    (word & 1 == 0).then_some((word >> 1) as u32)
}

#[cfg(test)]
mod tests;
