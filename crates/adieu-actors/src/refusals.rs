//! The errors that a send to an actor has because its system has drained. A body that returns one of
//! them late in start-up has not failed.

/// Returns their texts.
#[cfg(feature = "kameo")]
pub(crate) fn refusals() -> Vec<String> {
    use ::kameo::error::SendError;
    vec![
        SendError::<()>::ActorNotRunning(()).to_string(),
        SendError::<()>::ActorStopped.to_string(),
    ]
}

/// Returns their texts: none, because ractor's errors do not depend on the system.
#[cfg(not(feature = "kameo"))]
pub(crate) fn refusals() -> Vec<String> {
    Vec::new()
}
