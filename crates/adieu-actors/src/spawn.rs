//! Where actors are spawned, and why one was not.

use std::sync::Arc;

use crate::path::{NameError, NodePath};
use crate::system::ActorSystem;

/// Where an actor can be spawned: in a system, below another actor.
#[derive(Clone, Debug)]
pub struct Place {
    pub(crate) system: ActorSystem,
    pub(crate) path: NodePath,
    #[cfg(feature = "ractor")]
    pub(crate) link: Option<ractor::ActorCell>,
}

/// Something that can be spawned: an actor that has not started yet.
pub trait Spawn: Send {
    /// The reference through which it is sent messages.
    type Ref;

    /// Registers the actor at this path, starts it, and resolves when it has started.
    fn spawn_at(
        self,
        place: Place,
        path: NodePath,
    ) -> impl Future<Output = Result<Self::Ref, SpawnError>> + Send;
}

/// Why an actor was not spawned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The system is terminating.
    #[error("{path} was not spawned: actor system {system} is terminating")]
    Terminating {
        /// Which actor.
        path: NodePath,
        /// Which system.
        system: Arc<str>,
    },
    /// The actor below which it was to be has ended, or is being stopped.
    #[error("{path} was not spawned: {above} has ended or is being stopped")]
    ParentStopped {
        /// Which actor.
        path: NodePath,
        /// The actor that has ended or is being stopped.
        above: NodePath,
    },
    /// There is one of that name already.
    #[error(
        "{path} was not spawned: an actor of that name exists; choose another name, or stop it first"
    )]
    NameTaken {
        /// Which actor.
        path: NodePath,
    },
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The system of the actor below which it was to be is gone.
    #[error("nothing was spawned below {path}: its actor system is gone")]
    Gone {
        /// Below which actor.
        path: NodePath,
    },
    /// Its start failed or panicked.
    #[error("{path} did not start: {error}")]
    Start {
        /// Which actor.
        path: NodePath,
        /// The error, as text.
        error: Arc<str>,
    },
    /// It was killed before it had started.
    #[error("{path} was killed before it had started")]
    Killed {
        /// Which actor.
        path: NodePath,
    },
}

// === impl Place ===

impl Place {
    /// Returns the system in which the actor will be.
    #[must_use]
    pub fn system(&self) -> &ActorSystem {
        &self.system
    }

    /// Returns the path below which the actor will be.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        &self.path
    }

    /// Spawns an actor here, and resolves when it has started.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`].
    pub async fn spawn<S: Spawn>(self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        let path = self.path.child(name)?;
        actor.spawn_at(self, path).await
    }
}
