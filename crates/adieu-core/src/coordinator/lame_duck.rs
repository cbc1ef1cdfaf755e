//! The lame duck: the process is not ready but still serves, so that routers can move away.

use std::sync::Arc;
use std::time::Duration;

use super::Shutdown;
use super::shared::Shared;
use super::task_handle::TaskHandle;
use crate::config::{Config, LameDuck};
use crate::gate::Gate;
use crate::phase::Phase;
use crate::plan::{Plan, PlannedPhase};
use crate::platform::Platform;
use crate::reason::Reason;
use crate::task::{AddTaskError, TaskCx, TaskSpec};
use crate::time::now;

/// The longest lame duck, unless one is configured.
const DEFAULT_LENGTH: Duration = Duration::from_secs(5);
/// The lame duck takes at most this part (one fifth) of the time until the deadline.
const PART_OF_DEADLINE: u32 = 5;

/// If no work has arrived for this long, routers have moved away.
const QUIET: Duration = Duration::from_secs(1);

/// How often the arrival of work is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Config {
    /// Returns how long the lame duck can be after a signal, if the platform allows this much time
    /// (`None` for any): the configured or usual length, but not longer than its phase in this plan.
    #[must_use]
    pub fn lame_duck_within(&self, plan: &Plan, allowed: Option<Duration>) -> Duration {
        let room = plan.phase(Phase::BEFORE_SERVICE_UNBIND).filter(|phase| phase.is_enabled());
        let most = match self.lame_duck {
            LameDuck::For(most) => most,
            LameDuck::Auto => usual(allowed.unwrap_or(Duration::MAX)),
        };
        most.min(share_of_phase(room.map_or(Duration::ZERO, PlannedPhase::timeout)))
    }
}

impl Shutdown {
    /// Adds the lame duck with the first gate: before that, no router sends work.
    pub(super) fn add_lame_duck(&self) -> Result<Option<TaskHandle>, AddTaskError> {
        if !self.shared().drains.lock().requests().is_empty() {
            return Ok(None);
        }
        let shared = Arc::downgrade(self.shared());
        let task =
            TaskSpec::new("lame duck").only_waits().describe(|| "routers to move away".into());
        let added =
            self.add_task(Phase::BEFORE_SERVICE_UNBIND, task, async move |cx: TaskCx| {
                // The driver holds the shutdown for as long as this runs.
                if let Some(shared) = shared.upgrade() {
                    serve_unready(&shared, &cx).await;
                }
            })?;
        Ok(Some(added))
    }
}

impl Shared {
    /// Waits for as long as routers may take to notice that the process is cordoned, or until the
    /// shutdown begins.
    pub(super) async fn routers_move_away(&self) {
        let config = self.config();
        let at_once = self.drains.lock().at_once;
        let most = match config.lame_duck {
            LameDuck::For(most) => most,
            LameDuck::Auto if at_once || Platform::detect() == Platform::Terminal => Duration::ZERO,
            LameDuck::Auto => DEFAULT_LENGTH,
        };
        if most.is_zero() {
            return;
        }
        let gates = self.drains.lock().requests().to_vec();
        tokio::select! {
            () = no_work_arrives(&gates, config.lame_duck_min) => {}
            () = tokio::time::sleep(most) => {}
            () = self.progress.begun().cancelled() => {}
        }
    }
}

/// Continues to serve until the time is up, a second signal is received, or no more work arrives.
async fn serve_unready(shared: &Shared, cx: &TaskCx) {
    let config = shared.config();
    let allowed = cx.shutdown_deadline().remaining();
    let at_once = shared.drains.lock().at_once;
    let most = match config.lame_duck {
        LameDuck::Auto if at_once => Duration::ZERO,
        LameDuck::Auto | LameDuck::For(_) => {
            duration(config, cx.reason(), allowed, Platform::detect)
        }
    };
    let most = most.min(share_of_phase(cx.remaining()));
    let become_unready = async {
        tokio::time::sleep(config.unready_after).await;
        shared.progress.change_facts(|facts| facts.keeps_ready = false);
        std::future::pending().await
    };
    let serve = async {
        let gates = shared.drains.lock().requests().to_vec();
        no_work_arrives(&gates, config.lame_duck_min).await;
    };
    tokio::select! {
        () = become_unready => {}
        () = serve => {}
        () = tokio::time::sleep(most) => {}
        () = cx.hurried() => {}
        () = cx.cancelled() => {}
    }
}

/// Returns how long the lame duck may be for this reason.
fn duration(
    config: &Config,
    reason: &Reason,
    allowed: Duration,
    platform: impl FnOnce() -> Platform,
) -> Duration {
    match config.lame_duck {
        LameDuck::For(duration) => duration,
        // At a terminal, there are no routers.
        LameDuck::Auto if surprises_routers(reason) && platform() != Platform::Terminal => {
            usual(allowed)
        }
        LameDuck::Auto => Duration::ZERO,
    }
}

/// Returns whether routers learn from the shutdown itself that this process stops: a signal, a
/// command to leave or the loss of a place in a cluster comes while the process serves. A process
/// that could not join was never ready. The author of an application that stops itself knows
/// whether routers send to it, and sets `lame-duck`, or the signal of its own reason.
fn surprises_routers(reason: &Reason) -> bool {
    match reason {
        Reason::ProcessTerminate(_) | Reason::ClusterLeaving | Reason::ClusterDowning => true,
        Reason::Custom(reason) => reason.signal().is_some(),
        Reason::ProcessExit
        | Reason::ActorSystemTerminate
        | Reason::ClusterJoinUnsuccessful
        | Reason::IncompatibleConfiguration
        | Reason::Unknown => false,
    }
}

fn usual(allowed: Duration) -> Duration {
    DEFAULT_LENGTH.min(allowed / PART_OF_DEADLINE)
}

/// Less than the whole phase, because a task that ends with its phase would be reported as cut.
fn share_of_phase(phase: Duration) -> Duration {
    phase / 10 * 9
}

/// Waits until no work has arrived for a while, but at least for `least`. Work inside the gates does not
/// count, because later phases wait for it.
async fn no_work_arrives(gates: &[Gate], least: Duration) {
    let began = now();
    let mut seen = None;
    let mut since = began;
    loop {
        let entered: usize = gates.iter().map(Gate::entered).sum();
        if seen != Some(entered) {
            (seen, since) = (Some(entered), now());
        } else if now().saturating_duration_since(since) >= QUIET
            && now().saturating_duration_since(began) >= least
        {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Signal;

    #[test]
    fn s1402_a_terminal_gets_no_lame_duck() {
        let seconds = Duration::from_secs;
        let term = Reason::ProcessTerminate(Signal::TERM);
        let auto = Config::new();
        let of = |config: &Config, reason: &Reason, allowed, platform| {
            duration(config, reason, seconds(allowed), || platform)
        };
        assert_eq!(of(&auto, &term, 27, Platform::Kubernetes), seconds(5));
        assert_eq!(of(&auto, &term, 8, Platform::Docker), Duration::from_millis(1_600));
        assert_eq!(of(&auto, &term, 27, Platform::Terminal), Duration::ZERO);
        assert_eq!(of(&auto, &Reason::ProcessExit, 27, Platform::Kubernetes), Duration::ZERO);
        let fixed = Config::new().lame_duck(seconds(9));
        assert_eq!(of(&fixed, &Reason::Unknown, 27, Platform::Terminal), seconds(9));
    }

    #[test]
    fn s1260_a_node_that_the_cluster_stops_gets_the_lame_duck_of_a_signal() {
        let seconds = Duration::from_secs;
        let of = |reason, platform| duration(&Config::new(), &reason, seconds(27), || platform);
        for reason in [Reason::ClusterLeaving, Reason::ClusterDowning] {
            assert_eq!(of(reason.clone(), Platform::Kubernetes), seconds(5), "{reason}");
            assert_eq!(of(reason.clone(), Platform::Terminal), Duration::ZERO, "{reason}");
        }
        // The process was never ready, or it has stopped on its own.
        for reason in [
            Reason::ClusterJoinUnsuccessful,
            Reason::IncompatibleConfiguration,
            Reason::ProcessExit,
            Reason::Unknown,
        ] {
            assert_eq!(of(reason.clone(), Platform::Kubernetes), Duration::ZERO, "{reason}");
        }
    }

    #[test]
    fn the_lame_duck_is_no_longer_than_its_phase_allows() {
        let within = |config: &Config, allowed_ms: u64| {
            let allowed = Duration::from_millis(allowed_ms);
            config.lame_duck_within(&config.plan().unwrap(), Some(allowed)).as_millis()
        };
        let auto = Config::new();
        assert_eq!(within(&auto, 27_000), 4_500);
        assert_eq!(within(&auto, 8_000), 1_600);
        assert_eq!(within(&Config::new().lame_duck(Duration::from_secs(9)), 27_000), 9_000);
        let by_hand = auto.phase_timeout(Phase::BEFORE_SERVICE_UNBIND, Duration::from_secs(10));
        assert_eq!(within(&by_hand, 27_000), 5_000);
        let off = by_hand.phase_enabled(Phase::BEFORE_SERVICE_UNBIND, false);
        assert_eq!(within(&off, 27_000), 0);
    }
}
