//! The errors that a send to an actor or a worker has because the shutdown drains it. A body that returns
//! one of them late in start-up has not failed.

/// The error of a message that a plain task refused.
pub(crate) const REFUSED_BY_TASK: &str = "the task has stopped, or is about to stop";

/// Returns the texts of refused messages to actors, of all frameworks.
///
/// A program may use actors of several frameworks, and none of these texts depends on the message.
pub(crate) fn refusals() -> Vec<String> {
    vec![
        REFUSED_BY_TASK.to_owned(),
        #[cfg(feature = "kameo")]
        ::kameo::error::SendError::<()>::ActorNotRunning(()).to_string(),
        #[cfg(feature = "kameo")]
        ::kameo::error::SendError::<()>::ActorStopped.to_string(),
        #[cfg(feature = "ractor")]
        ::ractor::MessagingErr::SendErr(()).to_string(),
    ]
}
