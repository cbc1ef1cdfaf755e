//! Who is in a system: by path, and in the order in which they joined.
//!
//! In that order they lie in memory. With very many actors it is the looking up in memory that
//! costs, so in that order they are told to stop.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::node::Node;
use crate::path::NodePath;

/// Who is in a system.
#[derive(Default)]
pub(crate) struct Roster {
    /// In the order in which they joined; none where one has left. Nodes and addresses in lists of
    /// their own, which are handed on as they stand.
    nodes: Vec<Option<Arc<dyn Node>>>,
    addresses: Vec<Option<Address>>,
    left: usize,
    /// Where each of them is in those. Whoever has been taken out may still be here.
    places: BTreeMap<NodePath, usize>,
}

/// Where a node is in the tree, and how deep: to look at very many paths costs, too.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) path: NodePath,
    pub(crate) depth: usize,
}

/// Some nodes, in the order in which they joined, and their addresses.
pub(crate) struct Group {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) addresses: Vec<Address>,
}

// === impl Roster ===

impl Roster {
    pub(crate) fn get(&self, path: &NodePath) -> Option<&Arc<dyn Node>> {
        self.nodes.get(*self.places.get(path)?)?.as_ref()
    }

    /// Takes in a node. Whoever was at this path must have left.
    pub(crate) fn join(&mut self, path: NodePath, node: Arc<dyn Node>) {
        let depth = path.depth();
        self.places.insert(path.clone(), self.nodes.len());
        self.nodes.push(Some(node));
        self.addresses.push(Some(Address { path, depth }));
    }

    /// Takes a node out. It is returned because it must not be dropped under a lock: it holds what
    /// the user gave us.
    pub(crate) fn leave(&mut self, path: &NodePath) -> Option<Arc<dyn Node>> {
        let place = self.places.remove(path)?;
        let (node, _) = self.vacate(place)?;
        if self.left > self.nodes.len() / 2 {
            self.close_ranks();
        }
        Some(node)
    }

    fn vacate(&mut self, place: usize) -> Option<(Arc<dyn Node>, Address)> {
        let left = self.nodes.get_mut(place)?.take().zip(self.addresses.get_mut(place)?.take())?;
        self.left += 1;
        Some(left)
    }

    /// Where many have left, the others move up.
    fn close_ranks(&mut self) {
        // Not who has been taken out: another one will be where it was.
        self.places.retain(|_, place| self.nodes.get(*place).is_some_and(Option::is_some));
        self.nodes.retain(Option::is_some);
        self.addresses.retain(Option::is_some);
        self.left = 0;
        for (place, address) in self.addresses.iter().flatten().enumerate() {
            if let Some(known) = self.places.get_mut(&address.path) {
                *known = place;
            }
        }
    }

    /// All of them, by path.
    pub(crate) fn by_path(&self) -> impl Iterator<Item = &Arc<dyn Node>> {
        self.places.values().filter_map(|place| self.nodes.get(*place)?.as_ref())
    }

    /// All of them, in the order in which they joined.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Node>> {
        self.nodes.iter().flatten().cloned().collect()
    }

    /// All beneath a path.
    pub(crate) fn beneath(&self, path: &NodePath) -> Group {
        let places = self.places_beneath(path).into_iter();
        let found = places.filter_map(|place| {
            Some((self.nodes.get(place)?.clone()?, self.addresses.get(place)?.clone()?))
        });
        let (nodes, addresses) = found.unzip();
        Group { nodes, addresses }
    }

    /// Takes out all beneath a path.
    pub(crate) fn take_out(&mut self, path: &NodePath) -> Group {
        if self.are_all_beneath(path) {
            self.left = 0;
            // Where they were stays behind, and goes with the system: to forget very many paths
            // takes as long as to stop the actors.
            let (nodes, addresses) =
                (std::mem::take(&mut self.nodes), std::mem::take(&mut self.addresses));
            return Group { nodes: present(nodes), addresses: present(addresses) };
        }
        let places = self.places_beneath(path);
        let (nodes, addresses) = places.into_iter().filter_map(|place| self.vacate(place)).unzip();
        Group { nodes, addresses }
    }

    fn are_all_beneath(&self, path: &NodePath) -> bool {
        let (from, to) = path.beneath();
        let ends = [self.places.first_key_value(), self.places.last_key_value()];
        ends.into_iter().flatten().all(|(path, _)| path.as_str() > &*from && path.as_str() < &*to)
    }

    fn places_beneath(&self, path: &NodePath) -> Vec<usize> {
        let (from, to) = path.beneath();
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

/// Those that are there, where they stand.
#[expect(clippy::filter_map_identity, reason = "unlike `flatten`, it takes no memory of its own")]
fn present<T>(them: Vec<Option<T>>) -> Vec<T> {
    them.into_iter().filter_map(|one| one).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::node::Ended;

    struct Quiet(NodePath);

    impl Node for Quiet {
        fn path(&self) -> &NodePath {
            &self.0
        }

        fn drain(&self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }

        fn kill(&self) {}

        fn terminated(&self) -> BoxFuture<'_, Ended> {
            Box::pin(std::future::ready(Ended::Stopped))
        }

        fn queued(&self) -> Option<usize> {
            None
        }
    }

    fn path(text: &str) -> NodePath {
        let mut path =
            if text.starts_with("/user") { NodePath::user() } else { NodePath::system() };
        for name in text.split('/').skip(2) {
            path = path.child(name).expect("a name");
        }
        path
    }

    fn join(roster: &mut Roster, text: &str) {
        roster.join(path(text), Arc::new(Quiet(path(text))));
    }

    fn paths<'a>(nodes: impl IntoIterator<Item = &'a Arc<dyn Node>>) -> Vec<&'a str> {
        nodes.into_iter().map(|node| node.path().as_str()).collect()
    }

    /// The paths of a group, of which each node is where its address says.
    fn all(Group { nodes, addresses }: &Group) -> Vec<&str> {
        let said: Vec<_> = addresses.iter().map(|address| address.path.as_str()).collect();
        assert_eq!(paths(nodes), said);
        said
    }

    #[test]
    fn those_beneath_are_found_in_the_order_in_which_they_joined() {
        let mut roster = Roster::default();
        for text in ["/user/b", "/user/a", "/user/a/z", "/user/ab", "/user/a/c", "/system/log"] {
            join(&mut roster, text);
        }
        let by_path = ["/system/log", "/user/a", "/user/a/c", "/user/a/z", "/user/ab", "/user/b"];
        assert_eq!(paths(roster.by_path()), by_path);
        let beneath = roster.beneath(&path("/user/a"));
        assert_eq!(all(&beneath), ["/user/a/z", "/user/a/c"]);
        // Not all are beneath this path; those that are not stay.
        let taken = roster.take_out(&NodePath::user());
        let joined = ["/user/b", "/user/a", "/user/a/z", "/user/ab", "/user/a/c"];
        assert_eq!(all(&taken), joined);
        assert_eq!(paths(roster.by_path()), ["/system/log"]);
        assert!(roster.get(&path("/user/a")).is_none());
        assert!(roster.leave(&path("/user/a")).is_none());
        // Nor are they found when others have moved to where they were.
        join(&mut roster, "/system/metrics");
        assert!(roster.leave(&path("/system/log")).is_some());
        assert_eq!(paths(roster.by_path()), ["/system/metrics"]);
        assert!(roster.leave(&path("/user/b")).is_none());
        join(&mut roster, "/system/log");
        assert!(roster.leave(&path("/system/metrics")).is_some());
        let taken = roster.take_out(&NodePath::system());
        assert_eq!(all(&taken), ["/system/log"]);
        assert!(roster.get(&path("/system/log")).is_none());
    }

    #[test]
    fn it_knows_who_is_there_whoever_comes_and_goes() {
        let mut roster = Roster::default();
        let mut model: BTreeSet<String> = BTreeSet::new();
        let mut random = 7_u64;
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let text = format!("/user/{}", (random >> 33) % 40);
            let is_there = roster.get(&path(&text)).is_some();
            assert_eq!(is_there, model.contains(&text));
            if (random >> 60) < 7 && !is_there {
                join(&mut roster, &text);
                model.insert(text);
            } else {
                let left = roster.leave(&path(&text));
                assert_eq!(left.is_some(), model.remove(&text));
            }
            assert_eq!(paths(roster.by_path()), model.iter().collect::<Vec<_>>());
            assert!(roster.nodes.len() <= 2 * model.len() + 1, "it does not grow for ever");
        }
        let taken = roster.take_out(&NodePath::user());
        let mut taken = all(&taken).join(" ");
        taken.push(' ');
        assert!(model.iter().all(|text| taken.contains(&format!("{text} "))));
    }
}
