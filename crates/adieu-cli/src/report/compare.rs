//! Two reports side by side: rows that are new, gone, longer, shorter, or have another outcome.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use adieu::Report;

use super::axis::Axis;
use super::gantt::{Gantt, Row};
use crate::duration::{difference, short};

/// Two reports, row by row.
pub(super) struct Comparison<'a> {
    pub(super) before: Gantt<'a>,
    pub(super) after: Gantt<'a>,
    pub(super) pairs: Vec<Pair<'a>>,
}

/// A phase or task in both reports, or in one of them.
pub(super) struct Pair<'a> {
    pub(super) before: Option<Row<'a>>,
    pub(super) after: Option<Row<'a>>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(before: &'a Report, after: &'a Report) -> Self {
        let (before, after) = (Gantt::new(before), Gantt::new(after));
        // Phase by phase, so that no task is listed under another phase.
        let phases = merged(by_phase(&before.rows), by_phase(&after.rows));
        let rows = phases.into_iter().flat_map(|(old, new)| {
            let rows = |rows: Option<&[Row<'a>]>| {
                let rows = rows.unwrap_or_default();
                numbered(rows.iter().map(|row| (row.task, row.clone())))
            };
            merged(rows(old), rows(new))
        });
        let pairs = rows.map(|(before, after)| Pair { before, after }).collect();
        Self { before, after, pairs }
    }

    /// Returns an axis that has room for both.
    pub(super) fn axis(&self, ticks: u32) -> Axis {
        let (before, after) = (self.before.report, self.after.report);
        Axis::new(before.took.max(after.took), after.allowed, ticks)
    }

    /// `1.2s longer`.
    pub(super) fn verdict(&self) -> String {
        let (before, after) = (self.before.report.took, self.after.report.took);
        match difference(before, after).split_at(1) {
            ("+", apart) => format!("{apart} longer"),
            ("-", apart) => format!("{apart} shorter"),
            _ => "as long as before".into(),
        }
    }

    /// Returns the changes other than in duration (new, gone, another outcome), one line each.
    pub(super) fn changes(&self) -> Vec<String> {
        let mut changes = Vec::new();
        let (before, after) = (self.before.report, self.after.report);
        if before.outcome != after.outcome {
            changes.push(format!("ended {}, was {}", after.outcome, before.outcome));
        }
        if before.exit_code != after.exit_code {
            changes.push(format!("exit code {}, was {}", after.exit_code, before.exit_code));
        }
        if before.reason != after.reason {
            changes.push(format!("reason {}, was {}", after.reason, before.reason));
        }
        if before.allowed != after.allowed {
            let (now, was) = (short(after.allowed), short(before.allowed));
            changes.push(format!("deadline {now}, was {was}"));
        }
        let changed = self.pairs.iter().filter(|pair| !pair.change().is_empty());
        let by_task: HashSet<&str> = changed
            .clone()
            .filter_map(Pair::row)
            .filter(|row| row.task.is_some())
            .map(|row| row.phase)
            .collect();
        for pair in changed {
            let Some(row) = pair.row() else { continue };
            // The outcome of a phase follows from its tasks, whose lines are more specific.
            if row.task.is_some() || !by_task.contains(row.phase) {
                changes.push(format!("{}: {}", row.full_name(), pair.change()));
            }
        }
        changes
    }
}

impl<'a> Pair<'a> {
    /// Returns the row after, or the row before if it is gone.
    pub(super) fn row(&self) -> Option<&Row<'a>> {
        self.after.as_ref().or(self.before.as_ref())
    }

    /// Returns `new`, `gone`, the outcome if it differs, or nothing.
    pub(super) fn change(&self) -> String {
        match (&self.before, &self.after) {
            (None, None) => String::new(),
            (None, Some(after)) if after.outcome.is_clean() => "new".into(),
            (None, Some(after)) => format!("new, {}", after.ended()),
            (Some(_), None) => "gone".into(),
            (Some(before), Some(after)) if before.outcome.sign() != after.outcome.sign() => {
                format!("{}, was {}", after.ended(), before.outcome)
            }
            (Some(_), Some(_)) => String::new(),
        }
    }

    pub(super) fn times(&self) -> (Option<Duration>, Option<Duration>) {
        let took = |row: &Option<Row<'_>>| row.as_ref().and_then(Row::took);
        (took(&self.before), took(&self.after))
    }

    /// Returns `+1.2s`, if it ran both times.
    pub(super) fn difference(&self) -> String {
        match self.times() {
            (Some(before), Some(after)) => difference(before, after),
            _ => String::new(),
        }
    }
}

/// Returns the rows of each phase, including the phase itself.
fn by_phase<'r, 'a>(rows: &'r [Row<'a>]) -> Vec<((&'a str, usize), &'r [Row<'a>])> {
    let phases = rows.chunk_by(|_, next| next.task.is_some());
    numbered(phases.filter_map(|rows| Some((rows.first()?.phase, rows))))
}

/// Adds to each name how often it has occurred so far, because names may repeat.
fn numbered<K: Copy + Eq + Hash, V>(named: impl Iterator<Item = (K, V)>) -> Vec<((K, usize), V)> {
    let mut seen: HashMap<K, usize> = HashMap::new();
    let number = |(name, value)| {
        let count = seen.entry(name).or_default();
        *count += 1;
        ((name, *count), value)
    };
    named.map(number).collect()
}

/// Merges both lists into one order. A removed entry keeps its position: after the nearest entry
/// before it that still exists.
fn merged<K: Copy + Eq + Hash, V>(
    old: Vec<(K, V)>,
    new: Vec<(K, V)>,
) -> Vec<(Option<V>, Option<V>)> {
    let is_new: HashSet<K> = new.iter().map(|(key, _)| *key).collect();
    let mut kept = HashMap::new();
    let mut gone: HashMap<Option<K>, Vec<V>> = HashMap::new();
    let mut anchor = None;
    for (key, value) in old {
        if is_new.contains(&key) {
            anchor = Some(key);
            kept.insert(key, value);
        } else {
            gone.entry(anchor).or_default().push(value);
        }
    }
    let mut gone_after = |anchor| {
        let gone = gone.remove(&anchor).unwrap_or_default();
        gone.into_iter().map(|value| (Some(value), None))
    };
    let mut all: Vec<_> = gone_after(None).collect();
    for (key, value) in new {
        all.push((kept.remove(&key), Some(value)));
        all.extend(gone_after(Some(key)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_rows_keep_their_position() {
        let letters = |text: &'static str| numbered(text.chars().map(|c| (c, c)));
        let show = |(old, new): (Option<char>, Option<char>)| {
            format!("{}{}", old.unwrap_or('-'), new.unwrap_or('-'))
        };
        let merged = merged(letters("xabbcy"), letters("anbc"));
        let merged: Vec<_> = merged.into_iter().map(show).collect();
        assert_eq!(merged.join(" "), "x- aa -n bb b- cc y-");
    }
}
