//! Spawning actors: in a system, or below another actor.

use std::fmt;
use std::sync::Arc;

use super::ActorSystem;
use crate::around::Around;
use crate::node::Node;
use crate::path::NodePath;
use crate::record::{HasRecord, Record, is_draining_code_running};
use crate::spawn_error::SpawnError;
use crate::state::Parent;

/// A place in the tree where an actor can be spawned: in a system, below a path.
#[derive(Clone)]
pub struct Place {
    pub(crate) system: ActorSystem,
    pub(crate) path: NodePath,
    /// The actor at this path. `None` at the top.
    parent: Option<Arc<dyn HasRecord>>,
    /// The hook around each poll of the actor to be spawned.
    pub(crate) around: Option<Arc<dyn Around>>,
    /// The actor of ractor to which a child is linked.
    #[cfg(feature = "ractor")]
    pub(crate) link: Option<ractor::ActorCell>,
}

/// An actor that can be spawned: it has not started yet.
pub trait Spawn: Send {
    /// The reference through which messages are sent to the actor.
    type Ref;

    /// Adds the actor to the tree at this path, starts it, and resolves when it has started.
    fn spawn_at(
        self,
        place: Place,
        path: NodePath,
    ) -> impl Future<Output = Result<Self::Ref, SpawnError>> + Send;
}

// === impl Place ===

impl Place {
    /// Returns the place below an actor, for a child of this name.
    ///
    /// # Errors
    ///
    /// If the name is not valid, the actor has ended or been sent a stop message, or its system no
    /// longer exists.
    pub(crate) fn below(parent: Arc<dyn HasRecord>, name: &str) -> Result<Self, SpawnError> {
        let record = parent.record();
        let path = record.path().child(name)?;
        if !record.may_have_children() {
            let error = SpawnError::ParentStopped { path, above: record.path().clone() };
            return Err(match record.system() {
                Some(system) => system.noted(error),
                None => error,
            });
        }
        let gone = || SpawnError::Gone { path: record.path().clone() };
        let system = ActorSystem::of(record).ok_or_else(gone)?;
        let place = system.place(record.path().clone());
        let around = record.around().cloned();
        Ok(Self { parent: Some(Arc::clone(&parent)), around, ..place })
    }

    /// Adds an actor to the tree here. During a drain that is permitted only to actors that are being
    /// drained, and only below another actor: accepted work may need a new child.
    pub(crate) fn add(&self, node: Arc<dyn Node>) -> Result<(), SpawnError> {
        let parent = self.parent.as_ref().map(|parent| parent.record());
        self.system.add(node, parent)
    }

    /// Returns the system of the actor to be spawned.
    #[must_use]
    pub fn system(&self) -> &ActorSystem {
        &self.system
    }

    /// Returns the path below which the actor is spawned.
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

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Place");
        debug.field("system", &self.system).field("path", &self.path).finish_non_exhaustive()
    }
}

// === impl ActorSystem ===

impl ActorSystem {
    /// Spawns an actor below `/user`, and resolves when it has started.
    ///
    /// # Errors
    ///
    /// If the system is terminating, the name is taken or not valid, or the start fails.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, an actor of kameo continues to start; an actor of ractor is dropped.
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        self.place(NodePath::user()).spawn(name, actor).await
    }

    /// Spawns an actor below `/system`. Actors there are stopped after all actors below `/user`.
    ///
    /// For services that the application's actors depend on, such as a log or a store.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`].
    pub async fn spawn_system_actor<S: Spawn>(
        &self,
        name: &str,
        actor: S,
    ) -> Result<S::Ref, SpawnError> {
        self.place(NodePath::system()).spawn(name, actor).await
    }

    /// Spawns an actor below `/user`, as [`ActorSystem::spawn`], and lets `around` run
    /// around each poll of its code, and of that of its children.
    ///
    /// For adapters that decide whether an actor may run now, such as a cluster whose node may have
    /// lost its place.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`].
    pub async fn spawn_around<S: Spawn>(
        &self,
        name: &str,
        actor: S,
        around: Arc<dyn Around>,
    ) -> Result<S::Ref, SpawnError> {
        let place = Place { around: Some(around), ..self.place(NodePath::user()) };
        place.spawn(name, actor).await
    }

    /// Adds a node of your own to the tree, at the path that it returns.
    ///
    /// # Errors
    ///
    /// If the system is terminating, or another node has this path.
    pub fn register(&self, node: Arc<dyn Node>) -> Result<(), SpawnError> {
        self.state.admission.note_work(); // The node may have work that the system cannot see.
        self.add(node, None)
    }

    fn add(&self, node: Arc<dyn Node>, parent: Option<&Record>) -> Result<(), SpawnError> {
        let is_top = node.path().depth() <= NodePath::user().depth() + 1;
        let parent = parent.map(|parent| parent as &dyn Parent);
        self.state.add(node, parent, !is_top && is_draining_code_running())
    }

    fn place(&self, path: NodePath) -> Place {
        Place {
            system: self.clone(),
            path,
            parent: None,
            around: None,
            #[cfg(feature = "ractor")]
            link: None,
        }
    }
}
