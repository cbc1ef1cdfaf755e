//! Divides the time that the platform allows among the phases.
//!
//! ```text
//! signal                                                       SIGKILL
//!   |-------------------------- kill_after ----------------------|
//!   |------------------ budget -------------------|--- margin ---|   never planned with
//!   |---------- early phases ----------|- reserve -|                 early phases cannot spend it
//!                                      |~~|~~|~~|~~|
//!                               closing actors last exit
//! ```
//!
//! The phase in which admitted work drains gets the time that the others leave; see
//! [`Limits::window`]. Each of the four parts of the reserve has a quarter of it, and the time that
//! the parts before it have not used.

use std::fmt;
use std::time::Duration;

use crate::phase::Phase;
use crate::plan::{CriticalPath, PhaseId, Plan, PlannedPhase, Rank};
use crate::time::{Instant, Short};

/// How long a cancelled task has before it is aborted, and an aborted task before it is abandoned.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

/// The default time for the closing phases and the exit.
pub(crate) const RESERVE: Duration = Duration::from_secs(3);

/// How long a shutdown may take, and which part of that only the closing phases may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// When the platform kills the process. `None` if it does not: then the timeouts of the plan are
    /// the only limit.
    pub(crate) kill_after: Option<Duration>,
    pub(crate) reserve: Duration,
}

/// The budget of a running shutdown, with instants instead of durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) deadline: Instant,
    pub(crate) reserve: Duration,
    pub(crate) grace: Duration,
    /// How long an open-ended phase may take if the deadline is only the sum of the plan's timeouts.
    pub(crate) window: Option<Duration>,
}

/// Compares the worst case of a plan with the time that the platform allows.
///
/// [`Display`](fmt::Display) writes one line. If the worst case does not fit, the line contains what
/// to change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetCheck {
    /// The longest chain of phases that have tasks.
    pub critical_path: CriticalPath,
    /// The time that only the closing phases and the exit may spend.
    pub reserve: Duration,
    /// The time that may be planned with; `None` if no platform is known to kill the process.
    pub allowed: Option<Duration>,
    /// When the platform kills the process.
    pub kill_after: Option<Duration>,
    /// How long admitted work has to finish if every earlier phase takes its worst case. If the drain
    /// is [open-ended](Self::drain_is_open_ended), the work also gets the time that earlier phases do
    /// not use. `None` if nothing drains.
    pub drain: Option<Duration>,
    /// Whether no timeout has been set for the phase in which admitted work finishes.
    pub drain_is_open_ended: bool,
    budget: Budget,
}

// === impl Budget ===

impl Budget {
    /// Returns the part of `kill_after` that may be planned with. The rest is a margin for delays of
    /// the platform.
    pub(crate) fn allowed(self) -> Option<Duration> {
        self.kill_after.map(|kill| kill - margin(kill))
    }

    /// Returns the reserve: the configured one, or a quarter of the allowed time if that is less.
    fn reserve_of(self, allowed: Duration) -> Duration {
        self.reserve.min(allowed / 4)
    }

    /// Fixes the deadline of a shutdown that begins now.
    ///
    /// The grace is a fifteenth of the reserve at most, so that the quarter of each rank has room for
    /// some work and two graces.
    pub(crate) fn begin(self, now: Instant, plan: &Plan) -> Limits {
        match self.allowed() {
            Some(allowed) => Limits {
                deadline: now + allowed,
                reserve: self.reserve_of(allowed),
                grace: grace_of(self.reserve_of(allowed)),
                window: None,
            },
            // No platform kills the process, so the deadline only has to be later than the phases can
            // possibly end: all of them in a row, each with two graces for tasks that do not end.
            None => {
                let takes = |phase: &PlannedPhase| phase.timeout_without_deadline() + 2 * GRACE;
                let deadline = now + plan.order().map(takes).sum::<Duration>() + 2 * self.reserve;
                let drain = plan.order().find(|phase| phase.is_open_ended());
                Limits {
                    deadline,
                    reserve: self.reserve,
                    grace: grace_of(self.reserve),
                    window: drain.map(PlannedPhase::timeout_without_deadline),
                }
            }
        }
    }

    /// Returns how long a phase may certainly take. An open-ended phase may take longer if the
    /// deadline leaves time for it.
    pub(crate) fn timeout_of(self, phase: &PlannedPhase) -> Duration {
        match self.kill_after {
            Some(_) => phase.timeout(),
            None => phase.timeout_without_deadline(),
        }
    }

    /// Compares the worst case of the plan with this budget. `takes` returns the maximum time of a
    /// phase with its tasks.
    pub(crate) fn check(
        self,
        plan: &Plan,
        takes: impl Fn(PhaseId) -> Option<Duration>,
    ) -> BudgetCheck {
        let mut check = self.check_path(plan.critical_path_of(&takes));
        if let Some(id) = plan.id(Phase::SERVICE_REQUESTS_DONE.as_str())
            && plan.get(id).is_enabled()
            && let Some(least) = takes(id)
        {
            let open_ended = plan.get(id).is_open_ended();
            check.drain_is_open_ended = open_ended;
            check.drain = Some(match check.allowed {
                Some(allowed) => {
                    let graces = 2 * grace_of(check.reserve);
                    let (before, after) = plan.around(id, |id| Some(takes(id)? + graces));
                    // The same calculation as in the machine, if all earlier phases take their worst
                    // case.
                    let most = allowed.saturating_sub(check.reserve + before + graces);
                    let open = most.saturating_sub(after);
                    if open_ended { least.max(open).min(most) } else { least.min(most) }
                }
                None => least,
            });
        }
        check
    }

    fn check_path(self, critical_path: CriticalPath) -> BudgetCheck {
        let allowed = self.allowed();
        BudgetCheck {
            critical_path,
            reserve: allowed.map_or(self.reserve, |allowed| self.reserve_of(allowed)),
            allowed,
            kill_after: self.kill_after,
            drain: None,
            drain_is_open_ended: false,
            budget: self,
        }
    }
}

fn grace_of(reserve: Duration) -> Duration {
    GRACE.min(reserve / 15)
}

/// Returns the time that is not planned with, because platforms count whole seconds and signals
/// arrive late: two seconds or a tenth, and at most a quarter.
fn margin(kill_after: Duration) -> Duration {
    Duration::from_secs(2).max(kill_after / 10).min(kill_after / 4)
}

// === impl Limits ===

impl Limits {
    /// Shortens the deadline. The reserve shrinks to three quarters of the remaining time if it is
    /// longer, so that early phases get at least a quarter.
    pub(crate) fn shorten(&mut self, now: Instant, deadline: Instant) {
        self.deadline = self.deadline.min(deadline);
        let left = self.deadline.saturating_duration_since(now);
        self.reserve = self.reserve.min(left / 4 * 3);
        self.grace = self.grace.min(self.reserve / 15);
    }

    /// Returns when a phase of this rank must have ended: its tasks have finished, or were cancelled,
    /// aborted and abandoned.
    pub(crate) fn end_of(self, rank: Rank) -> Instant {
        let kept = match rank {
            Rank::Early => self.reserve,
            Rank::Closing => self.reserve / 4 * 3,
            Rank::Actors => self.reserve / 2,
            // The rest is for the process to exit in.
            Rank::Last => self.reserve / 4,
        };
        before(self.deadline, kept)
    }

    /// Returns when a phase of this rank is cancelled at the latest: two graces before its end.
    pub(crate) fn cut_of(self, rank: Rank) -> Instant {
        before(self.end_of(rank), 2 * self.grace)
    }

    /// Returns when an open-ended phase that started at `since` is cancelled.
    ///
    /// That is as late as possible: the reserve and `rest`, the worst case of all later phases, must
    /// fit after it. The phase gets at least the time `least`.
    pub(crate) fn window(self, since: Instant, least: Duration, rest: Duration) -> Instant {
        let least = since + least;
        let kept = rest.saturating_add(self.reserve + 2 * self.grace);
        let open = self.deadline.checked_sub(kept).unwrap_or(least);
        self.window.map_or(open, |window| open.min(since + window)).max(least)
    }
}

fn before(instant: Instant, span: Duration) -> Instant {
    instant.checked_sub(span).unwrap_or(instant)
}

// === impl BudgetCheck ===

impl BudgetCheck {
    /// Compares a plan with a platform that kills the process `kill_after` after its signal, or
    /// never if that is `None`. `takes` returns the maximum time of a phase, or `None` if the phase
    /// does not count.
    ///
    /// For tools that have the numbers and run no shutdown. A process uses
    /// [`Shutdown::check_budget`](crate::Shutdown::check_budget).
    #[must_use]
    pub fn of(
        plan: &Plan,
        takes: impl Fn(&PlannedPhase) -> Option<Duration>,
        reserve: Duration,
        kill_after: Option<Duration>,
    ) -> Self {
        Budget { kill_after, reserve }.check(plan, |id| takes(plan.get(id)))
    }

    /// Returns the sum of the worst case and the reserve.
    #[must_use]
    pub fn needed(&self) -> Duration {
        self.critical_path.worst_case.saturating_add(self.reserve)
    }

    /// Returns whether the needed time fits into the allowed time. It does if no limit is known.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.allowed.is_none_or(|allowed| self.needed() <= allowed)
    }

    /// Returns the shortest grace period of the platform that would fit, in whole seconds.
    ///
    /// It exceeds the current one by more than the shortfall, because the margin and the reserve grow
    /// with it.
    #[must_use]
    pub fn enough(&self) -> Duration {
        let fits = |seconds: u64| {
            let kill_after = Duration::from_secs(seconds);
            let allowed = kill_after - margin(kill_after);
            self.critical_path.worst_case.saturating_add(self.budget.reserve_of(allowed)) <= allowed
        };
        // If a period fits, every longer one does, so a binary search finds the shortest. Twice the
        // needed time always fits, because the margin is a quarter at most.
        let whole = self.critical_path.worst_case.saturating_add(self.budget.reserve).as_secs();
        let (mut short, mut long) = (0, whole.saturating_add(1).saturating_mul(2));
        while long - short > 1 {
            let middle = short + (long - short) / 2;
            if fits(middle) { long = middle } else { short = middle }
        }
        Duration::from_secs(long)
    }
}

impl fmt::Display for BudgetCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worst, reserve) = (Short(self.critical_path.worst_case), Short(self.reserve));
        let path = crate::names::joined(&self.critical_path.phases, " -> ");
        let needed = self.needed();
        write!(f, "worst case {worst} ({path}) + reserve {reserve} = {}", Short(needed))?;
        let (Some(allowed), Some(kill_after)) = (self.allowed, self.kill_after) else {
            return f.write_str("; no kill-after is set, so there is no limit");
        };
        let (allowed_s, kill_s) = (Short(allowed), Short(kill_after));
        if self.fits() {
            write!(f, " fits in {allowed_s} (kill-after {kill_s} less its margin)")?;
            return match self.drain.filter(|_| self.drain_is_open_ended) {
                Some(drain) => write!(f, "; admitted work has {} or more to finish", Short(drain)),
                None => Ok(()),
            };
        }
        write!(
            f,
            " exceeds the {allowed_s} allowed (kill-after {kill_s} less its margin): shorten \
             these phases by {} or let the platform wait {}s before it kills",
            Short(needed - allowed),
            self.enough().as_secs(),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn budget(kill_after: u64) -> Budget {
        Budget { kill_after: Some(Duration::from_secs(kill_after)), reserve: RESERVE }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn s202_the_window_leaves_time_for_later_phases(
            allowed in 0..600_000u64,
            later in 0..60_000u64,
            reserve in 100..30_000u64,
            since in 0..60_000u64,
            least in 1..60_000u64,
            (rest, more) in (0..60_000u64, 0..60_000u64),
        ) {
            let (now, millis) = (crate::time::real_now(), Duration::from_millis);
            let (since, least) = (now + millis(since), millis(least));
            let limits = |allowed: u64| {
                let kill_after = Some(millis(allowed));
                Budget { kill_after, reserve: millis(reserve) }.begin(now, &Plan::default())
            };
            let (soon, late) = (limits(allowed), limits(allowed + later));
            let window = soon.window(since, least, millis(rest));
            prop_assert!(window >= since + least, "shorter than the minimum");
            if window > since + least {
                let over = window + 2 * soon.grace + millis(rest) + soon.reserve;
                prop_assert!(over <= soon.deadline, "no time for the rest and the reserve");
            }
            let less = soon.window(since, least, millis(rest + more));
            prop_assert!(less <= window, "longer although the later phases need more");
            let shortened = {
                let mut limits = late;
                limits.shorten(now, soon.deadline);
                limits.window(since, least, millis(rest))
            };
            prop_assert!(shortened <= late.window(since, least, millis(rest)));
        }
    }

    /// With the same reserve, more time never makes the window shorter.
    #[test]
    fn s202_the_window_grows_with_the_deadline() {
        let (now, second) = (crate::time::real_now(), Duration::from_secs(1));
        let mut before = now;
        for kill_after in 1..300 {
            let limits = budget(kill_after).begin(now, &Plan::default());
            let window = limits.window(now + 5 * second, 5 * second, 7 * second);
            assert!(window >= before, "{kill_after}");
            before = window;
        }
        assert_eq!(
            before,
            now + (299 - 30) * second + Duration::from_millis(100) - (3 + 7) * second - 2 * GRACE
        );
    }

    #[test]
    fn s202_the_check_shows_the_minimum_drain_window() {
        let plan = Plan::default();
        let takes = |phase: &PlannedPhase| {
            [Phase::SERVICE_UNBIND, Phase::SERVICE_REQUESTS_DONE, Phase::CLOSE_RESOURCES]
                .contains(phase.name())
                .then(|| phase.timeout())
        };
        let drain = |kill_after: Option<u64>| {
            let kill_after = kill_after.map(Duration::from_secs);
            let check = BudgetCheck::of(&plan, takes, RESERVE, kill_after);
            assert!(check.drain_is_open_ended);
            check.drain.map(|drain| drain.as_millis())
        };
        // 27 s, less 5 s before it and 5 s after it, the reserve, and three times two graces.
        assert_eq!(drain(Some(30)), Some(12_800));
        assert_eq!(drain(Some(19)), Some(5_000), "the minimum");
        assert_eq!(drain(Some(10)), Some(466), "less than the minimum: no more time");
        let none = BudgetCheck::of(&plan, |_| None, RESERVE, None);
        assert_eq!(none.drain, None);
        let check = BudgetCheck::of(&plan, takes, RESERVE, Some(Duration::from_secs(30)));
        assert!(
            check.to_string().ends_with("; admitted work has 12.8s or more to finish"),
            "{check}"
        );
    }

    #[test]
    fn the_margin_is_two_seconds_or_a_tenth_and_never_over_a_quarter() {
        for (kill, allowed_ms) in [(30, 27_000), (10, 8_000), (2, 1_500), (100, 90_000)] {
            assert_eq!(budget(kill).allowed(), Some(Duration::from_millis(allowed_ms)));
        }
    }

    #[test]
    fn the_grace_is_a_small_part_of_the_reserve() {
        let now = crate::time::real_now();
        for (kill_after, reserve_ms, grace_ms) in
            [(None, 3_000, 200), (None, 300, 20), (Some(30), 3_000, 200), (Some(2), 3_000, 25)]
        {
            let budget = Budget {
                kill_after: kill_after.map(Duration::from_secs),
                reserve: Duration::from_millis(reserve_ms),
            };
            let grace = budget.begin(now, &Plan::default()).grace;
            assert_eq!(grace, Duration::from_millis(grace_ms), "{kill_after:?} {reserve_ms}");
        }
    }

    #[test]
    fn an_exceeded_budget_shows_the_shortfall_and_a_period_that_fits() {
        let plan = Plan::default();
        let takes = |id: PhaseId| {
            [Phase::SERVICE_UNBIND, Phase::CLUSTER_EXITING, Phase::ACTOR_SYSTEM_TERMINATE]
                .contains(plan.get(id).name())
                .then(|| plan.get(id).timeout())
        };
        let check = budget(30).check(&plan, takes);
        assert_eq!(
            check.to_string(),
            "worst case 25s (service-unbind -> cluster-exiting -> actor-system-terminate) + \
             reserve 3s = 28s exceeds the 27s allowed (kill-after 30s less its margin): shorten \
             these phases by 1s or let the platform wait 32s before it kills",
        );
        assert!(!check.fits());
        assert!(budget(32).check(&plan, takes).fits());
        assert!(!budget(31).check(&plan, takes).fits());
        // A short period also shortens the reserve. The suggested one must fit the full reserve.
        let short = budget(2).check(&plan, takes).to_string();
        assert!(short.ends_with("wait 32s before it kills"), "{short}");
    }

    #[test]
    fn enough_is_the_shortest_period_that_fits() {
        for millis in [0, 1, 400, 1_000, 5_500, 19_000, 27_001, 600_000, 31_536_000_000] {
            let worst_case = Duration::from_millis(millis);
            let path = CriticalPath { phases: Vec::new(), worst_case };
            let check = |kill_after| {
                Budget { kill_after: Some(kill_after), reserve: RESERVE }.check_path(path.clone())
            };
            let enough = check(Duration::from_secs(1)).enough();
            assert!(check(enough).fits(), "{millis}");
            let less = enough - Duration::from_secs(1);
            assert!(less.is_zero() || !check(less).fits(), "{millis}");
        }
    }
}
