//! Fields in the order of a number, as in a sorted set of Redis.

use std::collections::{BTreeSet, HashMap};

/// Each field has one number. Fields with the same number are in the order of their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    numbers: HashMap<String, u64>,
    ordered: BTreeSet<(u64, String)>,
}

// === impl Index ===

impl Index {
    /// Adds a field, or changes its number.
    pub(super) fn set(&mut self, field: String, number: u64) {
        self.remove(&field);
        self.numbers.insert(field.clone(), number);
        self.ordered.insert((number, field));
    }

    pub(super) fn remove(&mut self, field: &str) {
        if let Some((field, number)) = self.numbers.remove_entry(field) {
            self.ordered.remove(&(number, field));
        }
    }

    /// Returns the first fields with numbers from `least` to `most`.
    pub(super) fn from(&self, least: u64, most: u64, limit: usize) -> Vec<(String, u64)> {
        let from = self.ordered.range((least, String::new())..);
        let inside = from.take_while(|(number, _)| *number <= most).take(limit);
        inside.map(|(number, field)| (field.clone(), *number)).collect()
    }
}
