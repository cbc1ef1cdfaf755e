//! The two sums: whether there is time enough, and whether routers have moved away in time.
//!
//! ```text
//! preStop + lame duck + critical path + exit + margin + sidecars  <=  grace
//! preStop + lame duck  >=  routing lag
//! ```
//!
//! The lame duck is a task of `before-service-unbind`: its time is subtracted from that phase,
//! and not counted twice. The process itself keeps margin and exit; see
//! [`BudgetCheck`](adieu::BudgetCheck). Draining counts with its least time. It may take
//! longer, but only for the time that the process assumes to have left.

use std::time::Duration;

use adieu::{KillAfter, Phase, Times};

use super::needs::Needs;
use super::stop_signal::Handled;
use super::workload::{LEAST_STOP_TIMEOUT, Workload};

/// Endpoint-driven routers (kube-proxy, ingress controllers, meshes) have usually removed the
/// process by then; and `lame-duck = "auto"`, in a phase of five seconds, covers it.
const USUAL_LAG: Duration = Duration::from_secs(4);

/// Facts about the platform from the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// How long routers take to stop sending.
    pub(crate) routing_lag: Option<Duration>,
    /// How long one native sidecar takes to stop.
    pub(crate) sidecar: Duration,
    /// The signals that the process handles.
    pub(crate) handled: Handled,
}

/// Both sums for one workload, term by term.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub(crate) pre_stop: Duration,
    /// How long the lame duck can be.
    pub(crate) lame_duck: Duration,
    /// The part of it on the critical path.
    pub(crate) lame_duck_on_path: Duration,
    /// The phases on the critical path, without the lame duck.
    pub(crate) path: Vec<(Phase, Duration)>,
    pub(crate) exit: Duration,
    pub(crate) margin: Duration,
    pub(crate) sidecars: Duration,
    /// Without limit if `None`.
    pub(crate) grace: Option<Duration>,
    pub(crate) lag: Duration,
    /// The grace period that the process assumes from its signal on.
    pub(crate) believed: Option<Duration>,
    /// Whether it would cut its phases for that, though the platform would let it finish.
    pub(crate) cuts_itself: bool,
    /// How long admitted work has to finish, at least if `drain_is_open_ended`.
    pub(crate) drain: Option<Duration>,
    pub(crate) drain_is_open_ended: bool,
    /// Whether draining may use time that the platform does not give.
    pub(crate) overruns: bool,
    /// The least grace with which it fits, in whole seconds.
    pub(crate) enough: Duration,
}

// === impl Facts ===

impl Facts {
    pub(crate) fn lag_of(self, workload: &Workload) -> Duration {
        let routed = workload.routed && workload.supervisor.has_endpoints();
        self.routing_lag.unwrap_or(if routed { USUAL_LAG } else { Duration::ZERO })
    }
}

// === impl Sums ===

impl Sums {
    /// Returns the sums for the likeliest assumption of the process.
    pub(crate) fn of(needs: &Needs, workload: &Workload, facts: Facts) -> Self {
        let believed = beliefs(needs, workload).into_iter().next().flatten();
        Self::assuming(believed, needs, workload, facts)
    }

    /// Returns the sums for everything that the process may assume, the likeliest first.
    pub(crate) fn all(needs: &Needs, workload: &Workload, facts: Facts) -> Vec<Self> {
        let beliefs = beliefs(needs, workload).into_iter();
        beliefs.map(|believed| Self::assuming(believed, needs, workload, facts)).collect()
    }

    fn assuming(
        believed: Option<Duration>,
        needs: &Needs,
        workload: &Workload,
        facts: Facts,
    ) -> Self {
        // A process that assumes no deadline drains for as long as one that has none.
        let without_deadline;
        let needs = match (believed, needs.config.times().kill_after) {
            (None, KillAfter::Detect) => {
                without_deadline = needs.with_kill_after(KillAfter::Never);
                &without_deadline
            }
            _ => needs,
        };
        let pre_stop = workload.pre_stop;
        let sidecars = facts.sidecar.saturating_mul(workload.sidecars);
        let sidecars = sidecars.saturating_add(workload.sidecar_hooks);
        let around = pre_stop.saturating_add(sidecars);
        let grace = workload.allowed();
        let left = grace.map(|grace| grace.saturating_sub(around));
        let check = needs.check(left);
        // If the time is too short, exit and margin are shortened. The output shows them as they would
        // be if the time were enough.
        let enough = around.saturating_add(check.enough());
        let at = if check.fits() { left } else { Some(check.enough()) };
        let shown = needs.check(at);

        let own = needs.check(believed);
        let longest = own.allowed.map_or(Duration::ZERO, |allowed| allowed.saturating_add(around));
        let lame_duck = needs.lame_duck(own.allowed);
        let mut phases: Vec<_> = check
            .critical_path
            .phases
            .iter()
            .cloned()
            .filter_map(|name| {
                let takes = needs.takes(needs.plan.phase(&name)?)?;
                Some((name, takes))
            })
            .collect();
        let mut lame_duck_on_path = Duration::ZERO;
        for (name, takes) in &mut phases {
            if *name == Phase::BEFORE_SERVICE_UNBIND {
                lame_duck_on_path = lame_duck.min(*takes);
                *takes -= lame_duck_on_path;
            }
        }
        Self {
            pre_stop,
            lame_duck,
            lame_duck_on_path,
            path: phases,
            exit: shown.reserve,
            margin: at.zip(shown.allowed).map_or(Duration::ZERO, |(at, allowed)| at - allowed),
            sidecars,
            grace,
            lag: facts.lag_of(workload),
            believed,
            cuts_itself: check.fits() && !own.fits(),
            drain: own.drain.map(whole_millis),
            drain_is_open_ended: own.drain_is_open_ended,
            overruns: own.drain_is_open_ended && grace.is_some_and(|grace| longest > grace),
            enough: whole_seconds(enough),
        }
    }

    pub(crate) fn critical_path(&self) -> Duration {
        self.path.iter().fold(Duration::ZERO, |sum, (_, takes)| sum.saturating_add(*takes))
    }

    pub(crate) fn needed(&self) -> Duration {
        let terms = [self.lame_duck_on_path, self.exit, self.margin, self.sidecars];
        let path = self.pre_stop.saturating_add(self.critical_path());
        terms.iter().fold(path, |sum, term| sum.saturating_add(*term))
    }

    /// Returns how long routers have to move away.
    pub(crate) fn covered(&self) -> Duration {
        self.pre_stop.saturating_add(self.lame_duck)
    }

    pub(crate) fn has_time(&self) -> bool {
        self.grace.is_none_or(|grace| self.needed() <= grace)
    }

    /// Returns whether the shutdown may take longer than the least default timeout of a unit.
    ///
    /// A process that queries systemd for its timeout drains no longer than that. A process that
    /// learns its grace period in another way may use all of it.
    pub(crate) fn exceeds_least_stop_timeout(&self, workload: &Workload, times: &Times) -> bool {
        let asks = workload.asks_systemd() && times.kill_after == KillAfter::Detect;
        let may_use = self.believed.filter(|_| self.drain_is_open_ended && !asks);
        self.needed().max(may_use.unwrap_or_default()) > LEAST_STOP_TIMEOUT
    }

    pub(crate) fn has_routed(&self) -> bool {
        self.covered() >= self.lag
    }
}

/// Returns the grace periods that the process may assume from its signal on, the likeliest first.
fn beliefs(needs: &Needs, workload: &Workload) -> Vec<Option<Duration>> {
    match needs.config.times().kill_after {
        KillAfter::After(after) => vec![Some(after)],
        KillAfter::Never => vec![None],
        KillAfter::Detect | _ => workload.assumptions(),
    }
}

/// Rounds down, so that the time is not overstated.
fn whole_millis(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// Rounded up.
pub(crate) fn whole_seconds(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0)))
}
