//! The nodes of a system, and the rules by which they join and leave.

use std::sync::Arc;

use crate::node::Node;
use crate::path::NodePath;
use crate::roster::{Group, Roster};
use crate::spawn_error::SpawnError;

/// The nodes of a system. Kept under one lock.
///
/// Methods that remove nodes return them: a node must not be dropped under the lock, because it
/// holds values of the user, whose destructors may call back into the system.
#[derive(Default)]
pub(crate) struct Tree {
    roster: Roster,
    /// Nodes that were taken out of the roster, and are being drained with the system.
    draining: Arc<Vec<Arc<dyn Node>>>,
    /// The parts of the tree that are being stopped.
    stops: Vec<Stop>,
    /// Paths at and below which no node may join, because they are being stopped.
    sealed: Vec<NodePath>,
    guardian: Option<Guardian>,
}

/// A part of the tree that is being stopped: the nodes below a path, with or without the node there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) path: NodePath,
    pub(crate) includes_top: bool,
}

/// The actor whose end terminates the system.
struct Guardian {
    path: NodePath,
    on_end: OnGuardianEnd,
}

/// Called when the guardian has ended.
pub(crate) type OnGuardianEnd = Arc<dyn Fn() + Send + Sync>;

/// The result of removing a node that has ended.
pub(crate) struct Removed {
    /// The node, if it was still in the tree.
    pub(crate) node: Option<Arc<dyn Node>>,
    /// To be called if the node was the guardian.
    pub(crate) on_guardian_end: Option<OnGuardianEnd>,
}

// === impl Tree ===

impl Tree {
    pub(crate) fn get(&self, path: &NodePath) -> Option<&Arc<dyn Node>> {
        self.roster.get(path)
    }

    /// Returns whether the node that owns this path is in the tree. `path` must be the node's own
    /// value.
    pub(crate) fn is_present(&self, path: &NodePath) -> bool {
        self.roster.get(path).is_some_and(|node| std::ptr::eq(node.path(), path))
    }

    /// Returns whether another node than the owner of this path has it. `path` must be the node's
    /// own value.
    #[cfg(any(feature = "kameo", feature = "ractor"))]
    pub(crate) fn is_taken_by_other(&self, path: &NodePath) -> bool {
        self.roster.get(path).is_some_and(|node| !std::ptr::eq(node.path(), path))
    }

    /// Adds a node at its path.
    ///
    /// # Errors
    ///
    /// If its path or one above it is being stopped, or another node has this path.
    pub(crate) fn add(&mut self, path: NodePath, node: Arc<dyn Node>) -> Result<(), SpawnError> {
        let is_sealed = |above: &&NodePath| path == **above || path.is_below(above);
        if let Some(above) = self.sealed.iter().find(is_sealed).cloned() {
            return Err(SpawnError::ParentStopped { path, above });
        }
        if self.roster.get(&path).is_some() {
            return Err(SpawnError::NameTaken { path });
        }
        self.roster.insert(path, node);
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &NodePath) -> Option<Arc<dyn Node>> {
        self.roster.remove(path)
    }

    /// Removes the node that owns this path. `path` must be the node's own value: another node may
    /// have the same name by now, and that node stays.
    pub(crate) fn remove_ended(&mut self, path: &NodePath) -> Removed {
        let is_same_node = self.is_present(path);
        let is_name_free = self.roster.get(path).is_none();
        let is_guardian =
            |guardian: &mut Guardian| guardian.path == *path && (is_same_node || is_name_free);
        let on_guardian_end = self.guardian.take_if(is_guardian).map(|guardian| guardian.on_end);
        let node = if is_same_node { self.roster.remove(path) } else { None };
        Removed { node, on_guardian_end }
    }

    /// Sets the guardian. Returns whether a node is at its path.
    pub(crate) fn set_guardian(&mut self, path: NodePath, on_end: OnGuardianEnd) -> bool {
        let is_present = self.roster.get(&path).is_some();
        self.guardian = is_present.then_some(Guardian { path, on_end });
        is_present
    }

    /// Returns whether the end of the node at this path terminates the system.
    pub(crate) fn is_guardian(&self, path: &NodePath) -> bool {
        self.guardian.as_ref().is_some_and(|guardian| guardian.path == *path)
    }

    /// Removes and returns the guardian's callback, which may own the system.
    pub(crate) fn take_guardian(&mut self) -> Option<OnGuardianEnd> {
        self.guardian.take().map(|guardian| guardian.on_end)
    }

    /// Returns the nodes in the order in which they joined.
    pub(crate) fn in_join_order(&self) -> Vec<Arc<dyn Node>> {
        self.roster.in_join_order()
    }

    /// Returns the nodes by path, and after them the nodes that are being drained with the system.
    pub(crate) fn with_draining(&self) -> Vec<Arc<dyn Node>> {
        self.roster.by_path().chain(&*self.draining).map(Arc::clone).collect()
    }

    /// Returns the nodes below a path.
    pub(crate) fn below(&self, path: &NodePath) -> Group {
        self.roster.below(path)
    }

    /// Takes the nodes below a path out of the tree.
    pub(crate) fn take_below(&mut self, path: &NodePath) -> Group {
        self.roster.take_below(path)
    }

    /// Sets the nodes that are being drained with the system. Returns the previous ones.
    pub(crate) fn set_draining(
        &mut self,
        nodes: Arc<Vec<Arc<dyn Node>>>,
    ) -> Arc<Vec<Arc<dyn Node>>> {
        std::mem::replace(&mut self.draining, nodes)
    }

    /// Notes that a part of the tree is being stopped, until [`Tree::end_stop`].
    pub(crate) fn begin_stop(&mut self, stop: Stop) {
        self.stops.push(stop);
    }

    pub(crate) fn end_stop(&mut self, stop: &Stop) {
        if let Some(at) = self.stops.iter().position(|other| other == stop) {
            self.stops.swap_remove(at);
        }
    }

    /// Returns whether the node at this path is being stopped, alone or with others.
    pub(crate) fn is_being_stopped(&self, path: &NodePath) -> bool {
        let contains =
            |stop: &Stop| path.is_below(&stop.path) || (stop.includes_top && *path == stop.path);
        self.stops.iter().any(contains)
    }

    /// Refuses nodes at and below this path, until [`Tree::unseal`].
    pub(crate) fn seal(&mut self, path: NodePath) {
        self.sealed.push(path);
    }

    pub(crate) fn unseal(&mut self, path: &NodePath) {
        if let Some(at) = self.sealed.iter().position(|sealed| sealed == path) {
            self.sealed.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::TestNode;

    fn add(tree: &mut Tree, path: &NodePath) -> Result<(), SpawnError> {
        tree.add(path.clone(), Arc::new(TestNode(path.clone())))
    }

    #[test]
    fn s244_no_node_joins_below_one_that_is_being_stopped() {
        let mut tree = Tree::default();
        let parent = NodePath::user().child("parent").unwrap();
        let (child, other) = (parent.child("child").unwrap(), NodePath::user().child("p").unwrap());
        add(&mut tree, &parent).unwrap();
        tree.seal(parent.clone());
        let refused = add(&mut tree, &child);
        assert_eq!(
            refused,
            Err(SpawnError::ParentStopped { path: child.clone(), above: parent.clone() })
        );
        add(&mut tree, &other).unwrap();
        tree.unseal(&parent);
        add(&mut tree, &child).unwrap();
    }

    #[test]
    fn a_node_that_has_ended_does_not_remove_another_of_its_name() {
        let mut tree = Tree::default();
        let path = NodePath::user().child("orders").unwrap();
        let old = TestNode(path.clone());
        add(&mut tree, &path).unwrap();
        assert!(tree.remove_ended(&old.0).node.is_none());
        let present = Arc::clone(tree.get(&path).unwrap());
        assert!(tree.remove_ended(present.path()).node.is_some());
        assert!(tree.get(&path).is_none());
    }
}
