//! A commit: writes that each name the version they replace, and comparisons of other records.
//!
//! There is no write without a comparison of its own record, except that of a record which only
//! one session ever writes. So a commit that is repeated by mistake conflicts with itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Revision, SessionId, StoreError};

/// Changes of several records that are applied together, if all comparisons hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a commit does nothing until a store applies it"]
pub struct Commit {
    pub(crate) compares: Vec<Compare>,
    pub(crate) writes: Vec<Write>,
}

/// A condition on one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// There is no such record.
    Absent(Arc<str>),
    /// It is there, and this revision created it.
    CreatedAt(Arc<str>, Revision),
    /// It is not there, or another revision created it.
    NotCreatedAt(Arc<str>, Revision),
    /// It is there, and this revision was the last to write it.
    Unchanged(Arc<str>, Revision),
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Creates a record or replaces it. A record that is replaced keeps its session, so
    /// `session` is for records that are created; see [`Commit::create_under`] and
    /// [`Commit::set_under`].
    Put { key: Arc<str>, value: Arc<str>, session: PutSession },
    /// Deletes a record, if it is there.
    Delete { key: Arc<str> },
}

/// The session of a record after the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutSession {
    /// The record is new, and belongs to none.
    None,
    /// The record is there, and keeps the session that it has.
    Keep,
    /// The record belongs to this session.
    Under(SessionId),
}

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a commit may not have been applied"]
pub enum Committed {
    /// It was applied, as this revision.
    Done(Revision),
    /// A comparison did not hold, and nothing was changed.
    Conflict,
}

// === impl Commit ===

impl Commit {
    /// Returns a commit that does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that there is no record `key`.
    pub fn absent(mut self, key: impl Into<Arc<str>>) -> Self {
        self.compares.push(Compare::Absent(key.into()));
        self
    }

    /// Requires that there is a record `key`, and that `created` created it.
    pub fn created_at(mut self, key: impl Into<Arc<str>>, created: Revision) -> Self {
        self.compares.push(Compare::CreatedAt(key.into(), created));
        self
    }

    /// Requires that there is no record `key` that `created` created. Holds also if there is none.
    pub fn not_created_at(mut self, key: impl Into<Arc<str>>, created: Revision) -> Self {
        self.compares.push(Compare::NotCreatedAt(key.into(), created));
        self
    }

    /// Requires that the record `key` has not been written since `changed`.
    pub fn unchanged(mut self, key: impl Into<Arc<str>>, changed: Revision) -> Self {
        self.compares.push(Compare::Unchanged(key.into(), changed));
        self
    }

    /// Creates a record that belongs to no session. Requires that it is absent.
    pub fn create(self, key: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        let key = key.into();
        self.absent(Arc::clone(&key)).put(key, value.into(), PutSession::None)
    }

    /// Creates a record that is deleted when `session` ends. Requires that it is absent.
    pub fn create_under(
        self,
        key: impl Into<Arc<str>>,
        value: impl Into<Arc<str>>,
        session: SessionId,
    ) -> Self {
        let key = key.into();
        self.absent(Arc::clone(&key)).put(key, value.into(), PutSession::Under(session))
    }

    /// Replaces a record, which keeps its session. Requires that it is unchanged since `changed`.
    pub fn replace(
        self,
        key: impl Into<Arc<str>>,
        changed: Revision,
        value: impl Into<Arc<str>>,
    ) -> Self {
        let key = key.into();
        self.unchanged(Arc::clone(&key), changed).put(key, value.into(), PutSession::Keep)
    }

    /// Writes a record without comparing it. For records that only the owner of `session` writes.
    pub fn set_under(
        self,
        key: impl Into<Arc<str>>,
        value: impl Into<Arc<str>>,
        session: SessionId,
    ) -> Self {
        self.put(key.into(), value.into(), PutSession::Under(session))
    }

    /// Deletes a record. Requires that it is unchanged since `changed`.
    pub fn delete(self, key: impl Into<Arc<str>>, changed: Revision) -> Self {
        let key = key.into();
        let mut commit = self.unchanged(Arc::clone(&key), changed);
        commit.writes.push(Write::Delete { key });
        commit
    }

    /// Deletes a record, however often it was written. Requires that `created` created it.
    pub fn delete_created_at(self, key: impl Into<Arc<str>>, created: Revision) -> Self {
        let key = key.into();
        let mut commit = self.created_at(Arc::clone(&key), created);
        commit.writes.push(Write::Delete { key });
        commit
    }

    /// How many comparisons, and how many writes, one commit may have in every store. It is what
    /// etcd accepts without being configured.
    pub const MOST: usize = 128;

    /// Checks what every store requires, so that a commit which one store accepts is not refused by
    /// another.
    pub(super) fn check(&self, store: &'static str) -> Result<(), StoreError> {
        let refused = |problem: String| Err(StoreError::refused(store, "commit", problem));
        let (compares, writes) = (self.compares.len(), self.writes.len());
        if compares.max(writes) > Self::MOST {
            let most = Self::MOST;
            return refused(format!(
                "{compares} comparisons and {writes} writes: at most {most} of each, split the commit"
            ));
        }
        let mut written = BTreeSet::new();
        match self.writes.iter().find(|write| !written.insert(write.key())) {
            Some(twice) => refused(format!("record {:?} is written twice", twice.key())),
            None => Ok(()),
        }
    }

    /// Adds the comparisons and writes of another commit.
    pub fn and(mut self, other: Self) -> Self {
        for compare in other.compares {
            if !self.compares.contains(&compare) {
                self.compares.push(compare);
            }
        }
        self.writes.extend(other.writes);
        self
    }

    /// Returns whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    fn put(mut self, key: Arc<str>, value: Arc<str>, session: PutSession) -> Self {
        self.writes.push(Write::Put { key, value, session });
        self
    }
}

// === impl Write ===

impl Write {
    pub(super) fn key(&self) -> &Arc<str> {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

// === impl Compare ===

impl Compare {
    pub(crate) fn key(&self) -> &Arc<str> {
        match self {
            Self::Absent(key)
            | Self::CreatedAt(key, _)
            | Self::NotCreatedAt(key, _)
            | Self::Unchanged(key, _) => key,
        }
    }

    /// Returns whether it holds for a record that was created and last written by these revisions;
    /// `None` if there is no record.
    pub(crate) fn holds(&self, record: Option<(Revision, Revision)>) -> bool {
        match (self, record) {
            (Self::Absent(_), record) => record.is_none(),
            (Self::CreatedAt(_, at), record) => record.is_some_and(|(created, _)| created == *at),
            (Self::NotCreatedAt(_, at), record) => record.is_none_or(|(created, _)| created != *at),
            (Self::Unchanged(_, at), record) => record.is_some_and(|(_, changed)| changed == *at),
        }
    }
}
