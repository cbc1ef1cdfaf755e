//! Who is to be drained, and who is above whom.

use std::collections::HashMap;
use std::iter::successors;
use std::sync::Arc;

use crate::machine::{Id, Machine};
use crate::node::{Node, caught};
use crate::path::NodePath;
use crate::roster::{Address, Group};

/// Those to be drained. Where each is in the group, is its number in the machine.
pub(crate) struct Gathered {
    pub(crate) group: Group,
    pub(crate) machine: Machine,
}

/// Gathers the node at this path, if it is to be drained, too, and those beneath it.
pub(crate) fn gather(path: &NodePath, top: Option<Arc<dyn Node>>, beneath: Group) -> Gathered {
    let mut group = beneath;
    let mut machine = Machine::with_capacity(group.nodes.len() + 1);
    let depth = path.depth();
    // Whether some may be above others: mostly not.
    let are_level = group.addresses.iter().all(|address| address.depth == depth + 1);
    let top = top.map(|top| {
        group.nodes.insert(0, top);
        group.addresses.insert(0, Address { path: path.clone(), depth });
        machine.add(None)
    });
    let known = usize::from(top.is_some());
    if are_level && top.is_none() {
        machine.add_many(group.nodes.len());
    } else if are_level {
        for _ in &group.nodes[known..] {
            machine.add(top);
        }
    } else {
        group = sorted(group);
        let mut ids: HashMap<NodePath, Id> = HashMap::new();
        for Address { path, .. } in &group.addresses[known..] {
            // The nearest that is there: the one between may have ended.
            let mut parents = successors(path.parent(), |path| Some(path.rsplit_once('/')?.0));
            let above = parents.find_map(|above| ids.get(above)).copied();
            ids.insert(path.clone(), machine.add(above.or(top)));
        }
    }
    let mut gathered = Gathered { group, machine };
    for id in 0..gathered.group.nodes.len() {
        gathered.add_hidden(id);
    }
    gathered
}

/// Who is above comes first; it may have joined anew after those beneath it.
fn sorted(Group { nodes, addresses }: Group) -> Group {
    let mut both: Vec<_> = nodes.into_iter().zip(addresses).collect();
    both.sort_by_key(|(_, address)| address.depth);
    let (nodes, addresses) = both.into_iter().unzip();
    Group { nodes, addresses }
}

// === impl Gathered ===

impl Gathered {
    /// Adds those beneath a node that only it knows of.
    fn add_hidden(&mut self, above: usize) {
        let node = &self.group.nodes[above];
        // One that panics has none that could be found.
        let children = caught(|| node.children()).unwrap_or_default();
        for child in children {
            let path = child.path().clone();
            let depth = path.depth();
            self.machine.add(Id::try_from(above).ok());
            self.group.nodes.push(child);
            self.group.addresses.push(Address { path, depth });
            self.add_hidden(self.group.nodes.len() - 1);
        }
    }
}
