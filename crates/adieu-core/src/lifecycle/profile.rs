//! Where the process runs: alone, as one of many, or for a moment.

use std::sync::Arc;

use super::error::AssembleError;
use super::step::Step;

/// Where the process runs, and so which mistakes a lifecycle can make.
///
/// It is declared, not detected: steps say what they do, and this says what they may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeploymentProfile {
    /// One process. Every step will do.
    #[default]
    SingleProcess,
    /// One of several replicas. A step that changes what the others see must be guarded; locks and
    /// stores that only this process knows of are warned of.
    Fleet,
    /// A process that is frozen or killed between requests. Nothing may need it to live on, and it
    /// takes no time to drain, unless a time is set: in code or configuration, for
    /// [`Phase::SERVICE_REQUESTS_DONE`](crate::Phase::SERVICE_REQUESTS_DONE) and as `lame-duck`.
    Serverless,
}

impl DeploymentProfile {
    /// Judges the steps, and says what to warn of.
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
            "step {}: {what} is known to this process alone, and this is one of a fleet: share it",
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
