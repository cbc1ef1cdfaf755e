//! The table of a cluster: records with revisions, sessions, and commits with comparisons.
//!
//! A backend implements [`Store`], whose documentation states what every backend promises.
//!
//! | store | feature | for | properties |
//! |---|---|---|---|
//! | [`Memory`] | | one process, and tests | on tokio's clock; faults on request |
//! | [`Files`] | | several processes on one machine | nothing to install; survives crashes and reboots |
//! | `Etcd` | `etcd` | clusters of several machines | a majority decides; `protoc` to build |
//! | `Postgres` | `postgres` | clusters that have a database and no etcd | the primary decides; not behind a pooler |
//!
//! # Why not Redis or Kubernetes objects
//!
//! A store must never lose a commit that it has answered, and must compare several records in one
//! commit.
//!
//! - Redis replicates asynchronously. A replica that takes over may not have the last commits, so
//!   two nodes could own one shard, and revisions, which are fences, could be used twice. `WAIT`
//!   makes that less likely, and does not exclude it.
//! - The Kubernetes API compares one object at a time. To hand a shard over, its record must change
//!   only if the record of the receiving node has not, which no single object can express; one
//!   object for the whole table would be written by all nodes, and is limited to 1 MiB.

pub(crate) mod commit;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod files;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
pub(crate) mod table;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use commit::Write;
pub use commit::{Commit, Committed};
pub use error::StoreError;
#[cfg(feature = "etcd")]
pub use etcd::Etcd;
/// The client whose options [`Etcd`] accepts, in the version that it uses.
#[cfg(feature = "etcd")]
pub use etcd_client;
pub use files::Files;
pub use memory::{Faults, Memory};
#[cfg(feature = "postgres")]
pub use postgres::Postgres;
/// The client whose configuration [`Postgres`] accepts, in the version that it uses.
#[cfg(feature = "postgres")]
pub use tokio_postgres;

/// The future of a store's answer.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A table of records that several processes share.
///
/// # What a store promises
///
/// 1. Commits are applied one after another. Each has a higher [`Revision`] than all before, also
///    after restarts of the store.
/// 2. A commit is applied as a whole or not at all, and only if all its comparisons hold at that
///    instant. A commit that was answered with [`Committed::Done`] is never lost.
/// 3. A record that was created under a session is deleted when the session ends, with all other
///    records of the session in one revision. Replacing a record does not change its session.
/// 4. A session that is not kept ends `ttl` after it was opened or last kept, by the store's clock,
///    never sooner.
/// 5. [`Store::load`] returns all records of one revision, however many there are.
/// 6. [`Store::changes`] reports every change after a revision once, in order, or reports that some
///    are no longer known.
///
/// 7. A commit of up to [`Commit::MOST`] comparisons and as many writes, each of another record, is
///    accepted. More is refused.
///
/// Each method makes one attempt: a store does not retry. A commit that fails with
/// [`StoreError::Unknown`], or whose future is dropped, may have been applied: its caller must read
/// the records before it tries again. A commit that fails with another error has changed nothing.
///
/// Changes may stop without an error, for example if a server stops reporting them. A server that
/// cannot be reached is detected within ten seconds. To detect other failures, write a record
/// regularly, and check that its changes arrive.
pub trait Store: Send + Sync + 'static {
    /// Returns the name that messages use, such as `etcd`.
    fn name(&self) -> &'static str;

    /// Returns the shortest time to live that a session can have.
    fn shortest_ttl(&self) -> Duration;

    /// Opens a session.
    fn open(&self, ttl: Duration) -> Reply<'_, Session>;

    /// Makes a session last for its whole time to live from now, if it has not ended.
    fn keep<'a>(&'a self, session: &'a Session) -> Reply<'a, Standing>;

    /// Ends a session and deletes its records. Does nothing if it has ended.
    fn close<'a>(&'a self, session: &'a Session) -> Reply<'a, ()>;

    /// Returns all records whose keys begin with `prefix`.
    fn load<'a>(&'a self, prefix: &'a str) -> Reply<'a, Snapshot>;

    /// Returns the changes after a revision, of records whose keys begin with `prefix`.
    fn changes<'a>(&'a self, prefix: &'a str, after: Revision) -> Reply<'a, Box<dyn Changes>>;

    /// Applies a commit, if its comparisons hold.
    fn commit<'a>(&'a self, commit: &'a Commit) -> Reply<'a, Committed>;
}

/// The changes of a table, as they happen.
pub trait Changes: Send {
    /// Waits for the next changes.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    fn next(&mut self) -> Reply<'_, Update>;
}

/// An update from the changes of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// All changes of one revision or more, in order.
    Changed {
        /// The newest revision that is complete with these changes.
        revision: Revision,
        /// The changes, in order.
        changes: Vec<Change>,
    },
    /// The store has deleted some of the changes. Load the table again.
    Compacted,
}

/// One change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A record was created or replaced.
    Put(Record),
    /// A record was deleted.
    Deleted {
        /// Its key.
        key: Arc<str>,
        /// The revision that deleted it.
        revision: Revision,
    },
}

/// A position in the history of a table. It rises with each commit.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Revision(u64);

/// One record of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub key: Arc<str>,
    /// Its value.
    pub value: Arc<str>,
    /// The revision that created it.
    pub created: Revision,
    /// The revision that last replaced it.
    pub changed: Revision,
    /// The session that it belongs to.
    pub session: Option<SessionId>,
}

/// Records as they were at one revision, by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision.
    pub revision: Revision,
    /// The records, in the order of their keys.
    pub records: Vec<Record>,
}

/// Names a session. A number of the store's own.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct SessionId(i64);

/// A session that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// How long it lasts without being kept. A store may grant more than was requested.
    pub ttl: Duration,
}

/// Whether a session still lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a session that has ended protects nothing"]
pub enum Standing {
    /// It lasts, for its whole time to live from when the request was sent.
    Kept,
    /// It has ended, and its records are deleted.
    Ended,
}

// === impl Revision ===

impl Revision {
    /// Returns the revision of this number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

// === impl SessionId ===

impl SessionId {
    /// Returns the session id of this number.
    #[must_use]
    pub fn new(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> i64 {
        self.0
    }
}

// === impl Change ===

impl Change {
    /// Returns the key of the record.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put(record) => &record.key,
            Self::Deleted { key, .. } => key,
        }
    }

    /// Returns the revision of the change.
    #[must_use]
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put(record) => record.changed,
            Self::Deleted { revision, .. } => *revision,
        }
    }
}

// === impl Store ===

impl<S: Store + ?Sized> Store for Arc<S> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn shortest_ttl(&self) -> Duration {
        (**self).shortest_ttl()
    }

    fn open(&self, ttl: Duration) -> Reply<'_, Session> {
        (**self).open(ttl)
    }

    fn keep<'a>(&'a self, session: &'a Session) -> Reply<'a, Standing> {
        (**self).keep(session)
    }

    fn close<'a>(&'a self, session: &'a Session) -> Reply<'a, ()> {
        (**self).close(session)
    }

    fn load<'a>(&'a self, prefix: &'a str) -> Reply<'a, Snapshot> {
        (**self).load(prefix)
    }

    fn changes<'a>(&'a self, prefix: &'a str, after: Revision) -> Reply<'a, Box<dyn Changes>> {
        (**self).changes(prefix, after)
    }

    fn commit<'a>(&'a self, commit: &'a Commit) -> Reply<'a, Committed> {
        (**self).commit(commit)
    }
}
