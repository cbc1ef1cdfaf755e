//! The warning, at start-up, that a configuration prevents accepted work from being finished.

use tracing::warn;

use super::drains::Warned;
use super::shared::Shared;
use crate::phase::Phase;
use crate::policy::Policies;

const REQUESTS: &str = "no phase waits for work in flight: requests and jobs are cut off, new \
     connections are reset, and resources may be closed while work uses them";

const ACTORS: &str = "actors are not drained: queued messages are lost, and resources are closed while \
     actors use them";

// === impl Shared ===

impl Shared {
    /// Warns if no phase waits for the work of gates. Called when a gate is added.
    pub(super) fn warn_of_undrained_requests(&self) {
        if let Some(setting) = self.disables(&Phase::SERVICE_REQUESTS_DONE) {
            self.warn_once(|warned| &mut warned.of_requests, vec![setting], REQUESTS);
        }
    }

    /// Warns if actors are not drained, for some or all reasons. Called when a source of actors is added.
    pub(crate) fn warn_of_undrained_actors(&self) {
        let disabled = self.disables(&Phase::ACTOR_SYSTEM_TERMINATE).into_iter();
        let settings: Vec<_> = disabled.chain(keeps_actors(&self.config().policies)).collect();
        if !settings.is_empty() {
            self.warn_once(|warned| &mut warned.of_actors, settings, ACTORS);
        }
    }

    /// Returns the setting that disables this phase; `None` if it is enabled.
    fn disables(&self, phase: &Phase) -> Option<String> {
        let plan = self.core.lock().declared.built_plan();
        let is_enabled = plan.phase(phase).is_none_or(|phase| phase.is_enabled());
        (!is_enabled).then(|| format!("phases.{phase}.enabled = false"))
    }

    fn warn_once(
        &self,
        warning: impl FnOnce(&mut Warned) -> &mut bool,
        settings: Vec<String>,
        consequence: &'static str,
    ) {
        let is_logged = std::mem::replace(warning(&mut self.drains.lock().warned), true);
        if !is_logged {
            let settings = settings.join(", ");
            self.journal()
                .log(move || warn!(settings, consequence, "accepted work is not drained"));
        }
    }
}

/// Returns the settings that keep actors running.
fn keeps_actors(policies: &Policies) -> Vec<String> {
    let key = "terminate-actor-system = off";
    let base = (!policies.base.terminate_actor_system).then(|| key.to_owned());
    let keeping = policies
        .overrides
        .iter()
        .filter(|(_, change)| change.terminate_actor_system == Some(false));
    let own = keeping.map(|(reason, _)| format!("reason-overrides.{reason}.{key}"));
    base.into_iter().chain(own).collect()
}
