//! Who is in a system: by path, and in the order in which they joined.
//!
//! In that order they lie in memory. With very many actors it is the looking up in memory that
//! costs, so in that order they are told to stop.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::node::Node;
use crate::path::NodePath;

/// Who is in a system.
#[derive(Default)]
pub(crate) struct Roster {
    /// In the order in which they joined; none where one has left.
    entries: Vec<Option<Entry>>,
    left: usize,
    /// Where each of them is in that. Whoever has been taken out may still be here.
    places: BTreeMap<NodePath, usize>,
}

/// A node, and how deep it is in the tree: to look at very many paths costs, too.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) path: NodePath,
    pub(crate) node: Arc<dyn Node>,
    pub(crate) depth: usize,
}

// === impl Roster ===

impl Roster {
    pub(crate) fn get(&self, path: &NodePath) -> Option<&Entry> {
        self.entries.get(*self.places.get(path)?)?.as_ref()
    }

    /// Takes in a node. Whoever was at this path must have left.
    pub(crate) fn join(&mut self, path: NodePath, node: Arc<dyn Node>) {
        let depth = path.depth();
        self.places.insert(path.clone(), self.entries.len());
        self.entries.push(Some(Entry { path, node, depth }));
    }

    /// Takes a node out. It is returned because it must not be dropped under a lock: it holds what
    /// the user gave us.
    pub(crate) fn leave(&mut self, path: &NodePath) -> Option<Entry> {
        let place = self.places.remove(path)?;
        let entry = self.entries.get_mut(place)?.take()?;
        self.left += 1;
        if self.left > self.entries.len() / 2 {
            self.close_ranks();
        }
        Some(entry)
    }

    /// Where many have left, the others move up.
    fn close_ranks(&mut self) {
        self.entries.retain(Option::is_some);
        self.left = 0;
        for (place, entry) in self.entries.iter().flatten().enumerate() {
            if let Some(known) = self.places.get_mut(&entry.path) {
                *known = place;
            }
        }
    }

    /// All of them, by path.
    pub(crate) fn by_path(&self) -> impl Iterator<Item = &Entry> {
        self.places.values().filter_map(|place| self.entries.get(*place)?.as_ref())
    }

    /// All beneath a path, in the order in which they joined; none where one has left.
    pub(crate) fn beneath(&self, path: &NodePath) -> Vec<Option<Entry>> {
        let places = self.places_beneath(path);
        places.into_iter().map(|place| self.entries.get(place)?.clone()).collect()
    }

    /// Takes out all beneath a path, in the order in which they joined; none where one has left.
    pub(crate) fn take_out(&mut self, path: &NodePath) -> Vec<Option<Entry>> {
        if self.are_all_beneath(path) {
            self.left = 0;
            // As they stand. Where they were stays behind, and goes with the system: to forget very
            // many paths takes as long as to stop the actors.
            return std::mem::take(&mut self.entries);
        }
        let places = self.places_beneath(path);
        let entries = &mut self.entries;
        let taken: Vec<_> =
            places.into_iter().filter_map(|place| Some(entries.get_mut(place)?.take())).collect();
        self.left += taken.iter().flatten().count();
        taken
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

    fn paths<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<&'a str> {
        entries.into_iter().map(|entry| entry.path.as_str()).collect()
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
        assert_eq!(paths(beneath.iter().flatten()), ["/user/a/z", "/user/a/c"]);
        // Not all are beneath this path; those that are not stay.
        let taken = roster.take_out(&NodePath::user());
        let joined = ["/user/b", "/user/a", "/user/a/z", "/user/ab", "/user/a/c"];
        assert_eq!(paths(taken.iter().flatten()), joined);
        assert_eq!(paths(roster.by_path()), ["/system/log"]);
        assert!(roster.get(&path("/user/a")).is_none());
        assert!(roster.leave(&path("/user/a")).is_none());
        let taken = roster.take_out(&NodePath::system());
        assert_eq!(paths(taken.iter().flatten()), ["/system/log"]);
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
            assert!(roster.entries.len() <= 2 * model.len() + 1, "it does not grow for ever");
        }
        let taken = roster.take_out(&NodePath::user());
        let mut taken = paths(taken.iter().flatten()).join(" ");
        taken.push(' ');
        assert!(model.iter().all(|text| taken.contains(&format!("{text} "))));
    }
}
