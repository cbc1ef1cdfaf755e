//! The two sums: whether there is time enough, and whether routers have moved away in time.
//!
//! ```text
//! preStop + lame duck + critical path + exit + margin + sidecars  <=  grace
//! preStop + lame duck  >=  routing lag
//! ```
//!
//! The lame duck is a task of `before-service-unbind`: what it takes is taken from that phase, not
//! counted twice. Margin and exit are what the process itself keeps; see
//! [`BudgetCheck`](adieu::BudgetCheck). Draining counts with the least that it has: it may take
//! longer, but only what the process takes itself to have left.

use std::time::Duration;

use adieu::{KillAfter, Phase};

use super::judge::judge;
use super::needs::Needs;
use super::place::{Finding, Level};
use super::suggest::Suggestion;
use super::workload::{Supervisor, Workload};

/// Endpoint-driven routers (kube-proxy, ingress controllers, meshes) have usually heard of it by
/// then; and `lame-duck = "auto"`, in a phase of five seconds, covers it.
const USUAL_LAG: Duration = Duration::from_secs(4);

/// What the command line says about the platform, if it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// How long routers take to stop sending.
    pub(crate) routing_lag: Option<Duration>,
    /// How long one native sidecar takes to stop.
    pub(crate) sidecar: Duration,
}

/// Both sums for one workload, term by term.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub(crate) pre_stop: Duration,
    /// How long the lame duck can be.
    pub(crate) lame_duck: Duration,
    /// What of it is on the critical path.
    pub(crate) lame_duck_on_path: Duration,
    /// The phases on the critical path, without the lame duck.
    pub(crate) path: Vec<(Phase, Duration)>,
    pub(crate) exit: Duration,
    pub(crate) margin: Duration,
    pub(crate) sidecars: Duration,
    /// Without limit if `None`.
    pub(crate) grace: Option<Duration>,
    pub(crate) lag: Duration,
    /// What the process takes itself to have from its signal on.
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

/// A workload judged.
pub(crate) struct Verdict {
    pub(crate) sums: Sums,
    pub(crate) findings: Vec<Finding>,
    pub(crate) suggestion: Suggestion,
}

// === impl Facts ===

impl Facts {
    pub(crate) fn lag_of(self, workload: &Workload) -> Duration {
        let routed = workload.routed
            && matches!(workload.supervisor, Supervisor::Kubernetes | Supervisor::Unknown);
        self.routing_lag.unwrap_or(if routed { USUAL_LAG } else { Duration::ZERO })
    }
}

// === impl Sums ===

impl Sums {
    pub(crate) fn of(needs: &Needs, workload: &Workload, facts: Facts) -> Self {
        let times = needs.config.times();
        let pre_stop = workload.pre_stop;
        let sidecars = facts.sidecar.saturating_mul(workload.sidecars);
        let around = pre_stop.saturating_add(sidecars);
        let left = workload.grace.span.map(|grace| grace.saturating_sub(around));
        let check = needs.check(left);
        // Of too short a time, exit and margin are cut to size: what does not fit is shown with what
        // they would be if it did.
        let enough = around.saturating_add(check.enough());
        let at = if check.fits() { left } else { Some(check.enough()) };
        let shown = needs.check(at);

        let believed = match times.kill_after {
            KillAfter::After(after) => Some(after),
            KillAfter::Never => None,
            KillAfter::Detect | _ => {
                Some(workload.told.kill_after().unwrap_or_else(|| workload.supervisor.habit()))
            }
        };
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
            grace: workload.grace.span,
            lag: facts.lag_of(workload),
            believed,
            cuts_itself: check.fits() && !own.fits(),
            drain: own.drain.map(whole_millis),
            drain_is_open_ended: own.drain_is_open_ended,
            overruns: own.drain_is_open_ended
                && workload.grace.span.is_some_and(|grace| longest > grace),
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

    /// How long routers have to move away.
    pub(crate) fn covered(&self) -> Duration {
        self.pre_stop.saturating_add(self.lame_duck)
    }

    pub(crate) fn has_time(&self) -> bool {
        self.grace.is_none_or(|grace| self.needed() <= grace)
    }

    /// Whether all that is counted is enough; what is wrong then is something else.
    pub(crate) fn is_enough(&self) -> bool {
        self.has_time() && self.has_routed() && !self.cuts_itself && !self.overruns
    }

    pub(crate) fn has_routed(&self) -> bool {
        self.covered() >= self.lag
    }
}

// === impl Verdict ===

impl Verdict {
    pub(crate) fn of(needs: &Needs, workload: &Workload, facts: Facts) -> Self {
        let sums = Sums::of(needs, workload, facts);
        let mut findings = judge(&needs.config.times(), workload, &sums);
        findings.extend(workload.findings.iter().cloned());
        findings.sort_by_key(|finding| finding.level);
        let fits = findings.iter().all(|finding| finding.level != Level::Error);
        let suggestion =
            if fits { Suggestion::default() } else { Suggestion::of(needs, workload, facts) };
        Self { sums, findings, suggestion }
    }

    pub(crate) fn fits(&self) -> bool {
        self.findings.iter().all(|finding| finding.level != Level::Error)
    }
}

/// Rounded down: it is what there is at least.
fn whole_millis(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// Rounded up.
pub(crate) fn whole_seconds(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0)))
}
