//! The deployment profile: a single process, a replica of a fleet, or serverless.

use std::sync::Arc;

use super::error::AssembleError;
use super::step::Step;

/// The environment of the process. The profile decides which steps are allowed.
///
/// It is declared, not detected: the markers of a step declare what the step does, and the profile
/// decides whether that is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeploymentProfile {
    /// A single process. Every step is allowed.
    #[default]
    SingleProcess,
    /// One of several replicas. A step that changes shared state must be guarded. A step with a lock
    /// or store that is local to the process causes a warning.
    Fleet,
    /// A process that may be frozen or killed between requests. Steps that need a long-running
    /// process are not allowed. Draining and the lame duck take no time, unless one is set for
    /// [`Phase::SERVICE_REQUESTS_DONE`](crate::Phase::SERVICE_REQUESTS_DONE) or as `lame-duck`.
    Serverless,
}

impl DeploymentProfile {
    /// Checks the steps, and returns warnings.
    pub(super) fn check(self, steps: &[Step]) -> Result<Vec<String>, AssembleError> {
        match self {
            Self::SingleProcess => Ok(Vec::new()),
            Self::Fleet => {
                let unguarded = named(steps, |step| {
                    step.markers.mutates_shared_state && !step.markers.singleton_guarded
                });
                if unguarded.is_empty() {
                    Ok(steps.iter().flat_map(warnings).collect())
                } else {
                    Err(AssembleError::Unguarded { steps: unguarded })
                }
            }
            Self::Serverless => {
                let long = named(steps, |step| step.markers.requires_long_running);
                if long.is_empty() {
                    Ok(Vec::new())
                } else {
                    Err(AssembleError::LongRunning { steps: long })
                }
            }
        }
    }
}

fn warnings(step: &Step) -> impl Iterator<Item = String> {
    step.markers.process_local.iter().map(|what| {
        format!(
            "step {}: {what} is local to this process, but the profile is a fleet: use a shared one",
            step.id
        )
    })
}

fn named(steps: &[Step], is: impl Fn(&Step) -> bool) -> Vec<Arc<str>> {
    let mut ids: Vec<_> =
        steps.iter().filter(|step| is(step)).map(|step| Arc::clone(&step.id)).collect();
    ids.sort_unstable();
    ids
}
