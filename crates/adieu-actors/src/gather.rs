//! The nodes of a drain, and which is the parent of which.

use std::collections::HashMap;
use std::iter::successors;
use std::sync::Arc;

use crate::machine::{Id, Machine};
use crate::node::Node;
use crate::panics::caught;
use crate::path::NodePath;
use crate::roster::{Address, Group};

/// The nodes of a drain. The index of a node in the group is its id in the machine.
pub(crate) struct Gathered {
    pub(crate) group: Group,
    pub(crate) machine: Machine,
}

/// Gathers the nodes below a path and, if it is given, the node at the path.
pub(crate) fn gather(path: &NodePath, top: Option<Arc<dyn Node>>, below: Group) -> Gathered {
    let mut group = below;
    let mut machine = Machine::with_capacity(group.nodes.len() + 1);
    let depth = path.depth();
    // Whether all have the same parent, which is the usual case.
    let are_siblings = group.addresses.iter().all(|address| address.depth == depth + 1);
    let top = top.map(|top| {
        group.nodes.insert(0, top);
        group.addresses.insert(0, Address { path: path.clone(), depth });
        machine.add(None)
    });
    let known = usize::from(top.is_some());
    if are_siblings && top.is_none() {
        machine.add_many(group.nodes.len());
    } else if are_siblings {
        for _ in &group.nodes[known..] {
            machine.add(top);
        }
    } else {
        group = sorted(group);
        let mut ids: HashMap<NodePath, Id> = HashMap::new();
        for Address { path, .. } in &group.addresses[known..] {
            // The nearest ancestor that is present: the parent may have ended.
            let mut ancestors = successors(path.parent(), |path| Some(path.rsplit_once('/')?.0));
            let parent = ancestors.find_map(|ancestor| ids.get(ancestor)).copied();
            ids.insert(path.clone(), machine.add(parent.or(top)));
        }
    }
    let mut gathered = Gathered { group, machine };
    for id in 0..gathered.group.nodes.len() {
        gathered.add_hidden(id);
    }
    gathered
}

/// Sorts parents before their children. A parent may have joined after its children, if its name
/// was reused.
fn sorted(Group { nodes, addresses }: Group) -> Group {
    let mut both: Vec<_> = nodes.into_iter().zip(addresses).collect();
    both.sort_by_key(|(_, address)| address.depth);
    let (nodes, addresses) = both.into_iter().unzip();
    Group { nodes, addresses }
}

// === impl Gathered ===

impl Gathered {
    /// Adds the children that were neither registered with the system nor spawned through it.
    fn add_hidden(&mut self, parent: usize) {
        let node = &self.group.nodes[parent];
        // A node that panics is drained without its hidden children.
        let children = caught(|| node.children()).unwrap_or_default();
        for child in children {
            let path = child.path().clone();
            let depth = path.depth();
            self.machine.add(Id::try_from(parent).ok());
            self.group.nodes.push(child);
            self.group.addresses.push(Address { path, depth });
            self.add_hidden(self.group.nodes.len() - 1);
        }
    }
}
