//! The policies of one shutdown, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use crate::state::State;
use crate::striped::lock;

/// The policies of one shutdown. Policies that were dropped are not kept.
#[derive(Default)]
pub(crate) struct Names(Mutex<BTreeMap<Arc<str>, Weak<State>>>);

// === impl Names ===

impl Names {
    /// Adds a policy, unless there is another one of its name.
    pub(crate) fn add(&self, name: &Arc<str>, new: impl FnOnce() -> State) -> Option<Arc<State>> {
        let mut names = lock(&self.0);
        if names.get(name).is_some_and(|policy| policy.strong_count() > 0) {
            return None;
        }
        let state = Arc::new(new());
        names.insert(Arc::clone(name), Arc::downgrade(&state));
        Some(state)
    }

    /// Returns whether this policy is one of them.
    pub(crate) fn has(&self, policy: &Arc<State>) -> bool {
        let known = lock(&self.0).get(&policy.name).and_then(Weak::upgrade);
        known.is_some_and(|known| Arc::ptr_eq(&known, policy))
    }

    /// Returns the policies, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<State>> {
        lock(&self.0).values().filter_map(Weak::upgrade).collect()
    }
}
