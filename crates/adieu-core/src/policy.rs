//! What a shutdown does at its end, by reason.

use std::collections::BTreeMap;

use crate::outcome::Ending;
use crate::reason::Reason;

/// What the process tells its supervisor. Part of the stable interface.
///
/// A code other than 0 that was configured for the reason is used instead of `CLEAN`, `UNCLEAN`
/// and `ABORTED`.
#[derive(Debug)]
pub enum ExitCode {}

/// What happens when the last phase is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Whether `actor-system-terminate` terminates the actor system.
    pub terminate_actor_system: bool,
    /// Whether the process ends, even if its main function goes on.
    pub exit_process: bool,
    /// The exit code of a clean shutdown.
    pub exit_code: u8,
}

/// What a reason changes of the [`Policy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyChange {
    pub(crate) terminate_actor_system: Option<bool>,
    pub(crate) exit_process: Option<bool>,
    pub(crate) exit_code: Option<u8>,
}

/// What `reason-overrides` calls the reasons of all signals together.
pub(crate) const ANY_SIGNAL: &str = "process-terminate";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policies {
    pub(crate) base: Policy,
    /// By the reason's name.
    pub(crate) overrides: BTreeMap<String, PolicyChange>,
}

// === impl ExitCode ===

impl ExitCode {
    /// Everything that had to be done was done.
    pub const CLEAN: u8 = 0;
    /// The program's body failed or panicked, or it could not be started.
    pub const FAILED: u8 = 1;
    /// Stopped, but something failed, was cut short or was given up.
    pub const UNCLEAN: u8 = 70;
    /// A phase that does not recover went wrong; the phases after it did not run.
    pub const ABORTED: u8 = 71;
    /// The deadline passed with the process still there; the watchdog ended it.
    pub const WATCHDOG: u8 = 72;

    /// A signal forced the process to end: 128 and its number.
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

    /// The exit code of a shutdown that ended like this.
    pub(crate) fn exit_code_of(self, ending: &Ending) -> u8 {
        match ending {
            // The reason itself is bad news: how tidily we left does not change that.
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
        // An override for one signal holds against one for all of them.
        let family = reason.signal().and_then(|_| self.overrides.get(ANY_SIGNAL));
        let own = self.overrides.get(reason.name());
        family.into_iter().chain(own).fold(self.base, |policy, change| policy.changed(change))
    }
}

impl Default for Policies {
    fn default() -> Self {
        // A node that was put out, or never got in, must not look like a success.
        let bad_news = PolicyChange { exit_code: Some(u8::MAX), ..PolicyChange::default() };
        let overrides = [Reason::ClusterDowning, Reason::ClusterJoinUnsuccessful]
            .map(|reason| (reason.name().to_owned(), bad_news));
        Self { base: Policy::default(), overrides: overrides.into() }
    }
}
