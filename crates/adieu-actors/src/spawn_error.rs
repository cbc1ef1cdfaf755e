//! Why an actor was not spawned.

use std::sync::Arc;

use crate::path::{NameError, NodePath};

/// Why an actor was not spawned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The system is terminating.
    #[error("{path} was not spawned: actor system {system} is terminating")]
    Terminating {
        /// The path of the actor.
        path: NodePath,
        /// The name of the system.
        system: Arc<str>,
    },
    /// The parent has ended, or is being stopped.
    #[error("{path} was not spawned: {above} has ended or is being stopped")]
    ParentStopped {
        /// The path of the actor.
        path: NodePath,
        /// The path that has ended or is being stopped.
        above: NodePath,
    },
    /// Another actor has this path.
    #[error(
        "{path} was not spawned: an actor of that name exists; choose another name, or stop it first"
    )]
    NameTaken {
        /// The path of the actor.
        path: NodePath,
    },
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The system of the parent no longer exists.
    #[error("no actor was spawned below {path}: its actor system no longer exists")]
    Gone {
        /// The path of the parent.
        path: NodePath,
    },
    /// The start of the actor failed or panicked.
    #[error("{path} did not start: {error}")]
    Start {
        /// The path of the actor.
        path: NodePath,
        /// The error, as text.
        error: Arc<str>,
    },
    /// The actor was killed before it had started.
    #[error("{path} was killed before it had started")]
    Killed {
        /// The path of the actor.
        path: NodePath,
    },
}
