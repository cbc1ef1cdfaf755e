//! Two reports side by side: what is new, gone, longer, shorter, or ended otherwise.

use std::collections::{HashMap, HashSet};
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

/// Names may repeat: the phase, the task, and the how manieth of that name.
type Key<'a> = (&'a str, Option<&'a str>, usize);

impl<'a> Comparison<'a> {
    pub(super) fn new(before: &'a Report, after: &'a Report) -> Self {
        let (before, after) = (Gantt::new(before), Gantt::new(after));
        let (old, new) = (keyed(&before.rows), keyed(&after.rows));
        let is_new: HashSet<Key<'_>> = new.iter().map(|(key, _)| *key).collect();
        // What is gone stands where it stood: after what was before it and is still there.
        let mut gone: HashMap<Option<Key<'_>>, Vec<Pair<'_>>> = HashMap::new();
        let mut anchor = None;
        for (key, row) in &old {
            if is_new.contains(key) {
                anchor = Some(*key);
            } else {
                let pair = Pair { before: Some((*row).clone()), after: None };
                gone.entry(anchor).or_default().push(pair);
            }
        }
        let old: HashMap<Key<'_>, &Row<'_>> = old.into_iter().collect();
        let mut pairs = gone.remove(&None).unwrap_or_default();
        for (key, row) in new {
            let before = old.get(&key).map(|row| (*row).clone());
            pairs.push(Pair { before, after: Some(row.clone()) });
            pairs.extend(gone.remove(&Some(key)).unwrap_or_default());
        }
        Self { before, after, pairs }
    }

    /// An axis that has room for both.
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

    /// What is not only a matter of time: new, gone, ended otherwise. One line each.
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
            // A phase ends as its tasks do, and these say more.
            if row.task.is_some() || !by_task.contains(row.phase) {
                changes.push(format!("{}: {}", row.full_name(), pair.change()));
            }
        }
        changes
    }
}

impl<'a> Pair<'a> {
    /// What it is now, or was.
    pub(super) fn row(&self) -> Option<&Row<'a>> {
        self.after.as_ref().or(self.before.as_ref())
    }

    /// `new`, `gone`, how it ends now if it ended otherwise, or nothing.
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

    /// `+1.2s`, if it ran both times.
    pub(super) fn difference(&self) -> String {
        match self.times() {
            (Some(before), Some(after)) => difference(before, after),
            _ => String::new(),
        }
    }
}

fn keyed<'r, 'a>(rows: &'r [Row<'a>]) -> Vec<(Key<'a>, &'r Row<'a>)> {
    let mut seen: HashMap<(&str, Option<&str>), usize> = HashMap::new();
    let key = |row: &'r Row<'a>| {
        let count = seen.entry((row.phase, row.task)).or_default();
        *count += 1;
        ((row.phase, row.task, *count), row)
    };
    rows.iter().map(key).collect()
}
