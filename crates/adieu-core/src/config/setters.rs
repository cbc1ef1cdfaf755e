//! Sets options of a configuration in code.

use std::path::PathBuf;
use std::time::Duration;

use super::{AT_ONCE, Config, KillAfter, LameDuck};
use crate::phase::Phase;
use crate::plan::Order;
use crate::policy::PolicyChange;
use crate::reason::Reason;

// === impl Config ===

impl Config {
    /// Sets when the platform kills the process.
    pub fn kill_after(mut self, kill_after: KillAfter) -> Self {
        self.kill_after = kill_after;
        self
    }

    /// Sets the time that only the closing phases and the exit may spend. At most a quarter of the
    /// allowed time is used.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.reserve = reserve;
        self
    }

    /// Sets whether a worst case that does not fit is an error instead of a warning.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Sets whether phases that do not depend on each other run concurrently.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets whether [`Phase::ACTOR_SYSTEM_TERMINATE`] terminates the actor system.
    pub fn terminate_actor_system(mut self, terminate: bool) -> Self {
        self.policies.base.terminate_actor_system = terminate;
        self
    }

    /// Sets whether the process exits after the last phase, even if its `main` is still running.
    pub fn exit_process(mut self, exit: bool) -> Self {
        self.policies.base.exit_process = exit;
        self
    }

    /// Sets the exit code of a clean shutdown.
    pub fn exit_code(mut self, code: u8) -> Self {
        self.policies.base.exit_code = code;
        self
    }

    /// Sets the exit code of a shutdown with this reason, whether or not it is clean. Each signal is a
    /// reason of its own.
    pub fn exit_code_for(mut self, reason: &Reason, code: u8) -> Self {
        self.override_for(reason).exit_code = Some(code);
        self
    }

    /// Sets whether the process exits after the last phase of a shutdown with this reason.
    pub fn exit_process_for(mut self, reason: &Reason, exit: bool) -> Self {
        self.override_for(reason).exit_process = Some(exit);
        self
    }

    /// Sets whether [`Phase::ACTOR_SYSTEM_TERMINATE`] of a shutdown with this reason terminates the
    /// actor system.
    pub fn terminate_actor_system_for(mut self, reason: &Reason, terminate: bool) -> Self {
        self.override_for(reason).terminate_actor_system = Some(terminate);
        self
    }

    fn override_for(&mut self, reason: &Reason) -> &mut PolicyChange {
        self.policies.overrides.entry(reason.name().to_owned()).or_default()
    }

    /// Sets the timeout of phases that do not set one.
    pub fn default_phase_timeout(mut self, timeout: Duration) -> Self {
        self.default_phase_timeout = timeout;
        self
    }

    /// Sets the timeout of a phase.
    pub fn phase_timeout(mut self, phase: impl Into<Phase>, timeout: Duration) -> Self {
        self.phases.entry(phase.into()).or_default().timeout = Some(timeout);
        self
    }

    /// Sets whether the shutdown continues when a task of this phase fails.
    pub fn phase_recovers(mut self, phase: impl Into<Phase>, recover: bool) -> Self {
        self.phases.entry(phase.into()).or_default().recover = Some(recover);
        self
    }

    /// Sets whether this phase runs at all.
    pub fn phase_enabled(mut self, phase: impl Into<Phase>, enabled: bool) -> Self {
        self.phases.entry(phase.into()).or_default().enabled = Some(enabled);
        self
    }

    /// Sets whether terminating the actor system runs the shutdown.
    pub fn run_by_actor_system_terminate(mut self, run: bool) -> Self {
        self.triggers.actor_system_terminate = run;
        self
    }

    /// Sets whether [`main`](crate::main) installs signals and runs the shutdown when its body ends,
    /// and whether [`ExitGuard`](crate::ExitGuard) runs it.
    pub fn run_by_process_hook(mut self, run: bool) -> Self {
        self.triggers.process_hook = run;
        self
    }

    /// Sets whether removal from the cluster runs the shutdown.
    pub fn run_when_down(mut self, run: bool) -> Self {
        self.triggers.downed = run;
        self
    }

    /// Sets the longest time for which the process serves requests after it has become unready.
    pub fn lame_duck(mut self, most: Duration) -> Self {
        self.lame_duck = LameDuck::For(most);
        self
    }

    /// Sets the shortest time for which the process serves after it has become unready, even
    /// without requests. It is limited to [`Config::lame_duck`].
    ///
    /// The default is four seconds, which routers usually need to react. If a service gets few
    /// requests, a pause between them does not show that the routers have reacted.
    pub fn lame_duck_min(mut self, least: Duration) -> Self {
        self.lame_duck_min = least;
        self
    }

    /// Sets how long admitted work may take to finish after listeners and gates have closed: the
    /// timeout of [`Phase::SERVICE_REQUESTS_DONE`]. With zero, work is cancelled at once.
    ///
    /// By default it has the time that the deadline leaves beyond the reserve and the worst case of
    /// the later phases, or ten seconds if no deadline is known.
    pub fn drain_timeout(self, timeout: Duration) -> Self {
        self.phase_timeout(Phase::SERVICE_REQUESTS_DONE, timeout.max(AT_ONCE))
    }

    /// Sets how long the process stays ready after the shutdown has begun, at the latest until its
    /// listeners and gates close.
    ///
    /// For services with one replica, which routers would otherwise report as unavailable.
    pub fn unready_after(mut self, delay: Duration) -> Self {
        self.unready_after = delay;
        self
    }

    /// Sets the file to which [`main`](crate::main) writes the report as JSON.
    pub fn report_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.report_file = Some(path.into());
        self
    }
}
