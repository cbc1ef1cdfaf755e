//! A table as a value, which [`Memory`](super::Memory) and [`Files`](super::Files) share. Pure: the
//! time comes in, as the time since the origin of the store's clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::commit::PutSession;
use super::{
    Change, Commit, Committed, Record, Revision, Session, SessionId, Snapshot, Standing, Update,
    Write,
};

/// Changes beyond this many are removed: a reader that is further behind loads the table.
const MOST_CHANGES: usize = 4_096;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    revision: Revision,
    records: BTreeMap<Arc<str>, Row>,
    sessions: BTreeMap<i64, SessionRow>,
    last_session: i64,
    history: VecDeque<Logged>,
    /// Changes up to this revision may have been removed.
    forgotten: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    value: Arc<str>,
    created: Revision,
    changed: Revision,
    session: Option<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SessionRow {
    ttl: Duration,
    ends: Duration,
}

/// A change in the history; without a row it was a deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Logged {
    revision: Revision,
    key: Arc<str>,
    row: Option<Row>,
}

// === impl Table ===

impl Table {
    /// Ends the sessions whose time is up. Returns whether there were any.
    pub(crate) fn expire(&mut self, now: Duration) -> bool {
        let over: Vec<i64> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.ends <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in &over {
            self.end(SessionId::new(*id));
        }
        !over.is_empty()
    }

    /// Returns when the next session ends, if none is kept.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        self.sessions.values().map(|session| session.ends).min()
    }

    /// Ends all sessions, because the clock that they were measured by has started again.
    pub(crate) fn end_all(&mut self) {
        let all: Vec<i64> = self.sessions.keys().copied().collect();
        all.into_iter().for_each(|id| self.end(SessionId::new(id)));
    }

    pub(crate) fn open(&mut self, ttl: Duration, now: Duration) -> Session {
        self.last_session += 1;
        self.sessions.insert(self.last_session, SessionRow { ttl, ends: now + ttl });
        Session { id: SessionId::new(self.last_session), ttl }
    }

    pub(crate) fn keep(&mut self, session: SessionId, now: Duration) -> Standing {
        match self.sessions.get_mut(&session.get()) {
            Some(row) => {
                row.ends = now + row.ttl;
                Standing::Kept
            }
            None => Standing::Ended,
        }
    }

    /// Ends a session, and deletes its records in one revision.
    pub(crate) fn end(&mut self, session: SessionId) {
        if self.sessions.remove(&session.get()).is_none() {
            return;
        }
        let of_session = |row: &Row| row.session == Some(session);
        let keys: Vec<Arc<str>> = self
            .records
            .iter()
            .filter(|(_, row)| of_session(row))
            .map(|(key, _)| Arc::clone(key))
            .collect();
        if keys.is_empty() {
            return;
        }
        self.revision = Revision::new(self.revision.get() + 1);
        for key in keys {
            self.delete(&key);
        }
    }

    pub(crate) fn load(&self, prefix: &str) -> Snapshot {
        let records = self
            .records
            .range(Arc::from(prefix)..)
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, row)| row.record(key))
            .collect();
        Snapshot { revision: self.revision, records }
    }

    /// Returns the changes after a revision; `None` if there are none.
    pub(crate) fn changes(&self, prefix: &str, after: Revision) -> Option<Update> {
        // A reader that is ahead has read from a table that was replaced, and must load this one.
        if after < self.forgotten || self.revision < after {
            return Some(Update::Compacted);
        }
        if after == self.revision {
            return None;
        }
        let first = self.history.partition_point(|logged| logged.revision <= after);
        let changes = self
            .history
            .range(first..)
            .filter(|logged| logged.key.starts_with(prefix))
            .map(Logged::change)
            .collect();
        Some(Update::Changed { revision: self.revision, changes })
    }

    /// Applies a commit. The error is the session of a new record, if that has ended.
    pub(crate) fn commit(&mut self, commit: &Commit) -> Result<Committed, SessionId> {
        let versions = |key| self.records.get(key).map(|row| (row.created, row.changed));
        if !commit.compares.iter().all(|compare| compare.holds(versions(compare.key()))) {
            return Ok(Committed::Conflict);
        }
        for write in &commit.writes {
            if let Write::Put { session: PutSession::Under(session), .. } = write
                && !self.sessions.contains_key(&session.get())
            {
                return Err(*session);
            }
        }
        if commit.writes.is_empty() {
            return Ok(Committed::Done(self.revision));
        }
        self.revision = Revision::new(self.revision.get() + 1);
        for write in &commit.writes {
            match write {
                Write::Put { key, value, session } => self.put(key, value, *session),
                Write::Delete { key } => self.delete(key),
            }
        }
        Ok(Committed::Done(self.revision))
    }

    /// Forgets the changes up to the present.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.forgotten = self.revision;
    }

    /// Forgets the oldest changes beyond this many.
    pub(crate) fn keep_changes(&mut self, most: usize) {
        while self.history.len() > most
            && let Some(oldest) = self.history.pop_front()
        {
            self.forgotten = oldest.revision;
        }
    }

    fn put(&mut self, key: &Arc<str>, value: &Arc<str>, session: PutSession) {
        let before = self.records.get(key);
        let row = Row {
            value: Arc::clone(value),
            created: before.map_or(self.revision, |row| row.created),
            changed: self.revision,
            session: match session {
                PutSession::None => None,
                PutSession::Keep => before.and_then(|row| row.session),
                PutSession::Under(session) => Some(session),
            },
        };
        self.records.insert(Arc::clone(key), row.clone());
        self.log(key, Some(row));
    }

    fn delete(&mut self, key: &Arc<str>) {
        if self.records.remove(key).is_some() {
            self.log(key, None);
        }
    }

    fn log(&mut self, key: &Arc<str>, row: Option<Row>) {
        self.history.push_back(Logged { revision: self.revision, key: Arc::clone(key), row });
        self.keep_changes(MOST_CHANGES);
    }
}

// === impl Row ===

impl Row {
    fn record(&self, key: &Arc<str>) -> Record {
        let Self { value, created, changed, session } = self;
        Record {
            key: Arc::clone(key),
            value: Arc::clone(value),
            created: *created,
            changed: *changed,
            session: *session,
        }
    }
}

// === impl Logged ===

impl Logged {
    fn change(&self) -> Change {
        let Self { revision, key, row } = self;
        match row {
            Some(row) => Change::Put(row.record(key)),
            None => Change::Deleted { key: Arc::clone(key), revision: *revision },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_too_far_behind_must_load_the_table() {
        let mut table = Table::default();
        let commit = |table: &mut Table, commit: Commit| match table.commit(&commit) {
            Ok(Committed::Done(revision)) => revision,
            other => panic!("{other:?}"),
        };
        let first = commit(&mut table, Commit::new().create("a", "0"));
        let mut changed = first;
        for round in 0..MOST_CHANGES {
            changed = commit(&mut table, Commit::new().replace("a", changed, round.to_string()));
        }
        assert_eq!(table.changes("", Revision::default()), Some(Update::Compacted));
        assert!(
            matches!(table.changes("", first), Some(Update::Changed { changes, .. }) if changes.len() == MOST_CHANGES)
        );
        table.compact();
        assert_eq!(table.changes("", first), Some(Update::Compacted));
        assert_eq!(table.changes("", changed), None);
    }

    #[test]
    fn s1275_a_reader_that_is_ahead_must_load_the_table() {
        let mut table = Table::default();
        let read = Revision::new(2);
        assert_eq!(table.changes("", read), Some(Update::Compacted));
        for key in ["a", "b"] {
            assert!(matches!(
                table.commit(&Commit::new().create(key, "0")),
                Ok(Committed::Done(_))
            ));
        }
        assert_eq!(table.changes("", read), None);
    }
}
