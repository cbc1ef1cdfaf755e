//! The actions at the end of a shutdown, and its exit code, by reason.

use std::collections::BTreeMap;

use crate::outcome::Ending;
use crate::reason::Reason;

/// The exit codes of the process. They are part of the stable interface.
///
/// If a code other than 0 is configured for the reason, it replaces `CLEAN`, `UNCLEAN` and
/// `ABORTED`.
#[derive(Debug)]
pub enum ExitCode {}

/// The actions at the end of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Whether `actor-system-terminate` terminates the actor system.
    pub terminate_actor_system: bool,
    /// Whether the process exits after the last phase, even if its `main` is still running.
    pub exit_process: bool,
    /// The exit code of a clean shutdown.
    pub exit_code: u8,
}

/// The changes that one reason makes to the [`Policy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyChange {
    pub(crate) terminate_actor_system: Option<bool>,
    pub(crate) exit_process: Option<bool>,
    pub(crate) exit_code: Option<u8>,
}

/// The name in `reason-overrides` that stands for the reasons of all signals.
pub(crate) const ANY_SIGNAL: &str = "process-terminate";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policies {
    pub(crate) base: Policy,
    /// By the name of the reason.
    pub(crate) overrides: BTreeMap<String, PolicyChange>,
}

// === impl ExitCode ===

impl ExitCode {
    /// The shutdown was clean.
    pub const CLEAN: u8 = 0;
    /// The body of the program failed or panicked, or could not be started.
    pub const FAILED: u8 = 1;
    /// All phases are over, but a task failed, was cut short or was abandoned.
    pub const UNCLEAN: u8 = 70;
    /// A phase that does not recover failed, and the phases after it did not run.
    pub const ABORTED: u8 = 71;
    /// The watchdog ended the process at the deadline.
    pub const WATCHDOG: u8 = 72;

    /// Returns the exit code of a process that a signal has forced to exit: 128 plus its number.
    #[must_use]
    pub fn forced(signal: crate::signals::Signal) -> u8 {
        signal.exit_code()
    }
}

// === impl Policy ===

impl Policy {
    fn changed(self, change: &PolicyChange) -> Self {
        let PolicyChange { terminate_actor_system, exit_process, exit_code } = *change;
        Self {
            terminate_actor_system: terminate_actor_system.unwrap_or(self.terminate_actor_system),
            exit_process: exit_process.unwrap_or(self.exit_process),
            exit_code: exit_code.unwrap_or(self.exit_code),
        }
    }

    /// Returns the exit code for this ending.
    pub(crate) fn exit_code_of(self, ending: &Ending) -> u8 {
        match ending {
            // The reason itself is a failure, however cleanly the shutdown ended.
            _ if self.exit_code != ExitCode::CLEAN => self.exit_code,
            Ending::Clean => ExitCode::CLEAN,
            Ending::Unclean => ExitCode::UNCLEAN,
            Ending::Aborted { .. } => ExitCode::ABORTED,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { terminate_actor_system: true, exit_process: false, exit_code: ExitCode::CLEAN }
    }
}

// === impl Policies ===

impl Policies {
    pub(crate) fn of(&self, reason: &Reason) -> Policy {
        // The override for one signal has priority over the one for all signals.
        let family = reason.signal().and_then(|_| self.overrides.get(ANY_SIGNAL));
        let own = self.overrides.get(reason.name());
        family.into_iter().chain(own).fold(self.base, |policy, change| policy.changed(change))
    }
}

impl Default for Policies {
    fn default() -> Self {
        // A node that was removed from the cluster, or could not join it, must not exit with 0.
        let failure = PolicyChange { exit_code: Some(u8::MAX), ..PolicyChange::default() };
        let overrides = [Reason::ClusterDowning, Reason::ClusterJoinUnsuccessful]
            .map(|reason| (reason.name().to_owned(), failure));
        Self { base: Policy::default(), overrides: overrides.into() }
    }
}
