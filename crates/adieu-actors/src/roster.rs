//! The nodes of a system: by path, and in the order in which they joined.
//!
//! Nodes that joined one after the other are often next to each other in memory. With very many
//! actors cache misses dominate the cost, so nodes are stopped in the order in which they joined.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::node::Node;
use crate::path::NodePath;

/// The nodes of a system.
#[derive(Default)]
pub(crate) struct Roster {
    /// In the order in which they joined; `None` where a node was removed. Nodes and addresses are
    /// separate lists, so that a drain can take each list without copying it.
    nodes: Vec<Option<Arc<dyn Node>>>,
    addresses: Vec<Option<Address>>,
    removed: usize,
    /// The index of each path in those lists. Paths of nodes that a drain took may still be here.
    places: BTreeMap<NodePath, usize>,
}

/// The path of a node and its depth, which is stored because computing it for very many nodes is slow.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) path: NodePath,
    pub(crate) depth: usize,
}

/// Nodes in the order in which they joined, and their addresses.
pub(crate) struct Group {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) addresses: Vec<Address>,
}

// === impl Roster ===

impl Roster {
    pub(crate) fn get(&self, path: &NodePath) -> Option<&Arc<dyn Node>> {
        self.nodes.get(*self.places.get(path)?)?.as_ref()
    }

    /// Adds a node. No other node may be at this path.
    pub(crate) fn insert(&mut self, path: NodePath, node: Arc<dyn Node>) {
        let depth = path.depth();
        self.places.insert(path.clone(), self.nodes.len());
        self.nodes.push(Some(node));
        self.addresses.push(Some(Address { path, depth }));
    }

    /// Removes a node. It is returned because it must not be dropped under a lock: it holds values
    /// of the user.
    pub(crate) fn remove(&mut self, path: &NodePath) -> Option<Arc<dyn Node>> {
        let place = self.places.remove(path)?;
        let (node, _) = self.take_at(place)?;
        if self.removed > self.nodes.len() / 2 {
            self.compact();
        }
        Some(node)
    }

    fn take_at(&mut self, place: usize) -> Option<(Arc<dyn Node>, Address)> {
        let taken = self.nodes.get_mut(place)?.take().zip(self.addresses.get_mut(place)?.take())?;
        self.removed += 1;
        Some(taken)
    }

    /// Removes the gaps.
    fn compact(&mut self) {
        // Forget paths whose node was taken: another node will have that index.
        self.places.retain(|_, place| self.nodes.get(*place).is_some_and(Option::is_some));
        self.nodes.retain(Option::is_some);
        self.addresses.retain(Option::is_some);
        self.removed = 0;
        for (place, address) in self.addresses.iter().flatten().enumerate() {
            if let Some(known) = self.places.get_mut(&address.path) {
                *known = place;
            }
        }
    }

    /// Returns the nodes, sorted by path.
    pub(crate) fn by_path(&self) -> impl Iterator<Item = &Arc<dyn Node>> {
        self.places.values().filter_map(|place| self.nodes.get(*place)?.as_ref())
    }

    /// Returns the nodes in the order in which they joined.
    pub(crate) fn in_join_order(&self) -> Vec<Arc<dyn Node>> {
        self.nodes.iter().flatten().cloned().collect()
    }

    /// Returns the nodes below a path.
    pub(crate) fn below(&self, path: &NodePath) -> Group {
        let places = self.places_below(path).into_iter();
        let found = places.filter_map(|place| {
            Some((self.nodes.get(place)?.clone()?, self.addresses.get(place)?.clone()?))
        });
        let (nodes, addresses) = found.unzip();
        Group { nodes, addresses }
    }

    /// Removes and returns the nodes below a path.
    pub(crate) fn take_below(&mut self, path: &NodePath) -> Group {
        if self.are_all_below(path) {
            self.removed = 0;
            // The entries in `places` stay until the system is dropped: removing very many paths
            // takes as long as stopping the actors.
            let (nodes, addresses) =
                (std::mem::take(&mut self.nodes), std::mem::take(&mut self.addresses));
            return Group { nodes: present(nodes), addresses: present(addresses) };
        }
        let places = self.places_below(path);
        let (nodes, addresses) = places.into_iter().filter_map(|place| self.take_at(place)).unzip();
        Group { nodes, addresses }
    }

    fn are_all_below(&self, path: &NodePath) -> bool {
        let (from, to) = path.bounds_below();
        let ends = [self.places.first_key_value(), self.places.last_key_value()];
        ends.into_iter().flatten().all(|(path, _)| path.as_str() > &*from && path.as_str() < &*to)
    }

    fn places_below(&self, path: &NodePath) -> Vec<usize> {
        let (from, to) = path.bounds_below();
        let bounds: (Bound<&str>, Bound<&str>) = (Bound::Excluded(&from), Bound::Excluded(&to));
        let mut places: Vec<_> =
            self.places.range::<str, _>(bounds).map(|(_, place)| *place).collect();
        places.sort_unstable();
        places
    }
}

// === impl Group ===

impl Group {
    /// Adds the nodes of another group that are not in this one.
    pub(crate) fn add_missing(&mut self, others: Self) {
        let known: HashSet<_> = self.nodes.iter().map(Arc::as_ptr).map(<*const _>::addr).collect();
        for (node, address) in others.nodes.into_iter().zip(others.addresses) {
            if !known.contains(&Arc::as_ptr(&node).addr()) {
                self.nodes.push(node);
                self.addresses.push(address);
            }
        }
    }
}

/// Removes the gaps in place.
#[expect(clippy::filter_map_identity, reason = "unlike `flatten`, it takes no memory of its own")]
fn present<T>(items: Vec<Option<T>>) -> Vec<T> {
    items.into_iter().filter_map(|item| item).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::node::TestNode;

    fn path(text: &str) -> NodePath {
        let mut path =
            if text.starts_with("/user") { NodePath::user() } else { NodePath::system() };
        for name in text.split('/').skip(2) {
            path = path.child(name).expect("a name");
        }
        path
    }

    fn insert(roster: &mut Roster, text: &str) {
        roster.insert(path(text), Arc::new(TestNode(path(text))));
    }

    fn paths<'a>(nodes: impl IntoIterator<Item = &'a Arc<dyn Node>>) -> Vec<&'a str> {
        nodes.into_iter().map(|node| node.path().as_str()).collect()
    }

    /// Returns the paths of a group, and checks that nodes and addresses agree.
    fn all(Group { nodes, addresses }: &Group) -> Vec<&str> {
        let expected: Vec<_> = addresses.iter().map(|address| address.path.as_str()).collect();
        assert_eq!(paths(nodes), expected);
        expected
    }

    #[test]
    fn nodes_below_a_path_are_in_join_order() {
        let mut roster = Roster::default();
        for text in ["/user/b", "/user/a", "/user/a/z", "/user/ab", "/user/a/c", "/system/log"] {
            insert(&mut roster, text);
        }
        let by_path = ["/system/log", "/user/a", "/user/a/c", "/user/a/z", "/user/ab", "/user/b"];
        assert_eq!(paths(roster.by_path()), by_path);
        let below = roster.below(&path("/user/a"));
        assert_eq!(all(&below), ["/user/a/z", "/user/a/c"]);
        // Nodes that are not below this path stay.
        let taken = roster.take_below(&NodePath::user());
        let joined = ["/user/b", "/user/a", "/user/a/z", "/user/ab", "/user/a/c"];
        assert_eq!(all(&taken), joined);
        assert_eq!(paths(roster.by_path()), ["/system/log"]);
        assert!(roster.get(&path("/user/a")).is_none());
        assert!(roster.remove(&path("/user/a")).is_none());
        // Taken nodes are not found after others have moved to their index.
        insert(&mut roster, "/system/metrics");
        assert!(roster.remove(&path("/system/log")).is_some());
        assert_eq!(paths(roster.by_path()), ["/system/metrics"]);
        assert!(roster.remove(&path("/user/b")).is_none());
        insert(&mut roster, "/system/log");
        assert!(roster.remove(&path("/system/metrics")).is_some());
        let taken = roster.take_below(&NodePath::system());
        assert_eq!(all(&taken), ["/system/log"]);
        assert!(roster.get(&path("/system/log")).is_none());
    }

    #[test]
    fn insert_and_remove_agree_with_a_set() {
        let mut roster = Roster::default();
        let mut model: BTreeSet<String> = BTreeSet::new();
        let mut random = 7_u64;
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let text = format!("/user/{}", (random >> 33) % 40);
            let is_there = roster.get(&path(&text)).is_some();
            assert_eq!(is_there, model.contains(&text));
            if (random >> 60) < 7 && !is_there {
                insert(&mut roster, &text);
                model.insert(text);
            } else {
                let removed = roster.remove(&path(&text));
                assert_eq!(removed.is_some(), model.remove(&text));
            }
            assert_eq!(paths(roster.by_path()), model.iter().collect::<Vec<_>>());
            assert!(
                roster.nodes.len() <= 2 * model.len() + 1,
                "the lists do not grow without bound"
            );
        }
        let taken = roster.take_below(&NodePath::user());
        let mut taken = all(&taken).join(" ");
        taken.push(' ');
        assert!(model.iter().all(|text| taken.contains(&format!("{text} "))));
    }
}
