//! How a shutdown begins: by a call, by a signal, or again after it was aborted.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::error;

use super::driver;
use super::run::{Beginning, Cause, Run};
use super::shared::Shared;
use crate::budget::Limits;
use crate::journal::Line;
use crate::plan::{PhaseId, PlanError};
use crate::reason::Reason;
use crate::rung::Rung;
use crate::signals::Signal;
use crate::status::Stage;
use crate::time::{Instant, now};

/// Why an aborted shutdown could not be resumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// There is no such phase.
    #[error("failed to resume the shutdown")]
    UnknownPhase(#[source] PlanError),
    /// Only a shutdown that was aborted can be resumed.
    #[error("failed to resume the shutdown: it was not aborted")]
    NotAborted,
}

/// A run that has been created and is not driven yet.
struct Begun {
    /// The time until the deadline.
    left: Duration,
    exits_process: bool,
    home: Option<Handle>,
    line: Line,
}

// === impl Shared ===

impl Shared {
    /// Begins the shutdown, if it has not begun. With `from`, the phases before that one are skipped.
    /// Returns false if there was a run already.
    pub(super) fn begin(self: &Arc<Self>, reason: Reason, from: Option<PhaseId>) -> bool {
        self.warn_now();
        let cause = Cause::of(reason, self.config());
        let Some(begun) = self.create_run(now(), cause, from) else { return false };
        self.process.watchdog.arm(begun.left);
        self.journal().listen_here();
        self.journal().note(begun.line);
        if begun.exits_process {
            self.guard_exit();
        }
        self.progress.begin(self.keeps_ready());
        driver::start(self, begun.home, driver::Beginning::Fresh);
        true
    }

    /// Creates the run and fixes its deadline. Returns `None` if there is a run.
    fn create_run(&self, now: Instant, cause: Cause, from: Option<PhaseId>) -> Option<Begun> {
        let mut core = self.core.lock();
        if core.run.is_some() {
            return None;
        }
        let plan = core.declared.built_plan();
        let budget = core.allowance.budget_for(cause.has_signal, self.config());
        let check = core.declared.check_within(budget);
        let mut limits = budget.begin(now, &plan);
        let limit = core.allowance.limit;
        if let Some(deadline) = limit.and_then(|limit| now.checked_add(limit)) {
            limits.shorten(now, deadline);
        }
        let left = limits.deadline.saturating_duration_since(now);
        let has_full_time = budget.kill_after.is_some() && limit.is_none();
        let line = Line::Initiated {
            reason: cause.name.clone(),
            deadline: left,
            phases: check.critical_path.phases.len(),
            worst_case: check.critical_path.worst_case,
            drain_window: check.drain.filter(|_| check.drain_is_open_ended && has_full_time),
        };
        let exits_process = cause.policy.exit_process;
        let beginning =
            Beginning { cause, from, plan, budget, limits, log: self.journal().progress() };
        core.run = Some(Run::new(now, beginning));
        // Sets `core.home` before the lock is released. `Completion::wait` reads it to detect that
        // the waiting thread is the only one of that runtime.
        let home = core.adopt_runtime();
        Some(Begun { left, exits_process, home, line })
    }

    /// Starts the watchdog, which ends the process at the deadline. A failure is logged.
    fn guard_exit(self: &Arc<Self>) {
        if let Err(error) = self.start_watchdog() {
            self.journal().log(move || error!(%error, "failed to start the watchdog"));
        }
    }

    /// Returns whether the process stays ready when the shutdown begins, because `unready-after` is set and
    /// a router sends it work.
    fn keeps_ready(&self) -> bool {
        !self.config().unready_after.is_zero() && !self.drains.lock().requests().is_empty()
    }

    /// Continues an aborted shutdown from this phase.
    pub(super) fn resume(self: &Arc<Self>, phase: &str) -> Result<(), ResumeError> {
        let from = self.phase_id(phase).map_err(ResumeError::UnknownPhase)?;
        if !self.progress.resume() {
            return Err(ResumeError::NotAborted);
        }
        self.forget_remaining();
        // The deadline that was requested for the aborted run does not count for this one.
        self.engine.request(|requests| requests.deadline = None);
        let now = now();
        if let Some((limits, home)) = self.renew_run(now) {
            self.process.watchdog.disarm();
            self.process.watchdog.arm(limits.deadline.saturating_duration_since(now));
            driver::start(self, home, driver::Beginning::Resumed { from, limits });
        }
        Ok(())
    }

    fn renew_run(&self, now: Instant) -> Option<(Limits, Option<Handle>)> {
        let mut core = self.core.lock();
        let limits = core.run.as_mut()?.renew(now);
        Some((limits, core.home.clone()))
    }

    /// Has the effect of the signal. Returns the rung that is reached.
    pub(super) fn receive(
        self: &Arc<Self>,
        signal: Signal,
        via: Option<&'static str>,
    ) -> Option<Rung> {
        let rung = self.process.ladder.lock().climb(now(), signal)?;
        if self.progress.stage() == Stage::Over && !self.process.owns_exit_code() {
            // No phase is left to wait for, and no runner ends the process.
            return Some(Rung::Exit);
        }
        if rung == Rung::Exit {
            return Some(rung);
        }
        if via.is_none() {
            self.process.mark_signalled();
        }
        // Queued only: a subscriber may hang, and the next signal must be received.
        self.journal().note(Line::Signal { signal, via, rung });
        // Another thread may be beginning the shutdown for a reason that is no signal: it has created the
        // run, and the stage is still `Up`.
        let is_up = self.progress.stage() == Stage::Up;
        let has_begun = is_up && self.begin(Reason::ProcessTerminate(signal), None);
        if rung == Rung::Graceful && !has_begun {
            self.adopt_signal_deadline();
        }
        if rung == Rung::HardStop && self.progress.stage() != Stage::Over {
            self.arm_hard_stop();
        }
        self.engine.request(|requests| requests.rung = requests.rung.max(rung));
        Some(rung)
    }

    /// Shortens a shutdown that began for another reason: the platform counts from its signal.
    fn adopt_signal_deadline(&self) {
        let allowed = self.core.lock().allowance.budget.allowed();
        if let Some(allowed) = allowed {
            self.shorten(allowed);
        }
    }

    /// Gives the process only the reserve. The driver does the same, if its runtime polls it.
    fn arm_hard_stop(&self) {
        let reserve = self.with_run(|run, _| run.machine.limits().reserve);
        self.process.watchdog.arm(reserve.unwrap_or_default());
    }

    /// Brings the deadline nearer. Before the shutdown has begun, `left` counts from when it begins.
    pub(super) fn shorten(&self, left: Duration) {
        let Some(deadline) = now().checked_add(left) else { return };
        let mut core = self.core.lock();
        if core.run.is_none() {
            core.allowance.limit_to(left);
            return;
        }
        drop(core);
        if self.progress.stage() != Stage::Over {
            self.process.watchdog.arm(left);
        }
        self.engine.request(|requests| requests.shorten_to(deadline));
    }
}

#[cfg(all(test, not(adieu_loom)))]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::coordinator::Shutdown;
    use crate::phase::Phase;

    const ALLOWED: Duration = Duration::from_secs(4);

    /// Returns when `is_so` returns true. Panics after 20 s.
    fn until(is_so: impl Fn() -> bool) {
        let end = now() + Duration::from_secs(20);
        while !is_so() {
            assert!(now() < end, "the state should be reached");
            std::thread::yield_now();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn s1710_a_signal_that_races_another_beginning_still_sets_the_platforms_deadline() {
        // With `unready-after`, `begin` takes the lock of the drains after it has created the run.
        let config = Config::new().unready_after(Duration::from_secs(1));
        let shutdown = Shutdown::configured(config).unwrap();
        let release = Arc::new(tokio::sync::Notify::new());
        let waits = Arc::clone(&release);
        let wait = async move |_| waits.notified().await;
        shutdown.add_task(Phase::SERVICE_STOP, "wait", wait).unwrap();
        let shared = shutdown.shared();
        // As detected when signals were installed.
        shared.core.lock().allowance.budget.kill_after = Some(ALLOWED);

        let drains = shared.drains.lock();
        let beginning = std::thread::spawn({
            let shared = Arc::clone(shared);
            move || shared.begin(Reason::Unknown, None)
        });
        // Not through `with_run`, whose lock comes later in the order; another thread looks.
        let looking = std::thread::spawn({
            let shared = Arc::clone(shared);
            move || {
                until(|| shared.core.lock().run.is_some());
                assert_eq!(shared.progress.stage(), Stage::Up, "the test should hold it back");
                shared.receive(Signal::TERM, None)
            }
        });
        assert_eq!(looking.join().unwrap(), Some(Rung::Graceful));
        drop(drains);
        assert!(beginning.join().unwrap(), "the other beginning was first");

        let is_watched = || shared.process.watchdog.left().is_some_and(|left| left <= ALLOWED);
        assert!(is_watched(), "the watchdog has {:?}", shared.process.watchdog.left());
        let has_deadline =
            || shutdown.deadline().is_some_and(|deadline| deadline.remaining() <= ALLOWED);
        until(has_deadline);
        release.notify_one();
        shutdown.completed().await.unwrap();
    }
}
