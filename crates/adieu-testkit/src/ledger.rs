//! Checks from outside whether a service lost work that it had accepted, and whether its report
//! accounts for that.
//!
//! A [`Ledger`] collects facts about pieces of work: a request was accepted, a message was handled, a
//! job went back to its queue. The facts come from outside the process: from the client's own view,
//! and from a [`Journal`] that the service under test appends to and that survives it. When the
//! process has ended, [`Ledger::judge`] compares the facts with its report and its exit code.
//!
//! A run is honest if
//!
//! 1. everything accepted was finished or returned, or the report accounts for it,
//! 2. the outcome is unclean whenever accepted work was not finished,
//! 3. the report does not contradict itself, and
//! 4. the exit code is the one in the report.
//!
//! ```
//! use adieu_testkit::ledger::{Ledger, Run};
//!
//! let ledger = Ledger::new().counted("message", "dead letters");
//! ledger.accepted("message", 1);
//! ledger.accepted("message", 2);
//! ledger.finished("message", 1);
//! # let report: adieu_core::Report = serde_json::from_value(serde_json::json!({
//! #     "outcome": { "kind": "clean" }, "reason": "SIGTERM", "started_at": "", "took_ms": 1,
//! #     "allowed_ms": 1, "exit_code": 0, "phases": []
//! # })).unwrap();
//! // The outcome is clean, with exit code 0, but message 2 was never handled.
//! let verdict = ledger.judge(&Run { exit_code: Some(0), report: Some(&report) });
//! assert!(!verdict.is_honest());
//! assert_eq!(verdict.lost("message"), 1);
//! ```
//!
//! With a real process, use [`Process`](crate::process::Process):
//!
//! ```no_run
//! # use adieu_testkit::{ledger::Ledger, process::Process};
//! # let (mut command, journal) = (std::process::Command::new("shop"), "journal");
//! # let ledger = Ledger::new();
//! let mut process = Process::start(&mut command); // It appends to the journal.
//! // … clients record what they see in the ledger …
//! process.signal(adieu_core::Signal::TERM);
//! let ended = process.wait();
//! ledger.read(journal)?;
//! ledger.judge(&(&ended).into()).assert_honest();
//! # Ok::<(), std::io::Error>(())
//! ```

mod journal;
mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use adieu_core::Report;
use adieu_core::adapter::lock;

pub use journal::Journal;
pub use judge::{Charge, Tally, Verdict};

use crate::process::Ended;

/// The facts about the work that a service was given.
///
/// Facts can be recorded by several threads at the same time, and in any order.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<String, Account>,
    entries: Mutex<BTreeMap<Entry, BTreeSet<Fact>>>,
}

/// Something that happened to a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fact {
    /// The service took responsibility: it answered 202, `tell` returned `Ok`, a job was taken.
    Accepted,
    /// The work was completed: its effect is in the store, or its answer arrived whole.
    Finished,
    /// The service refused it, and the sender was notified.
    Refused,
    /// The service handed it back to its source before it was begun, or after it was interrupted.
    Returned,
    /// The response broke off, and the client could detect that.
    Cut,
    /// The answer broke off, and looked complete to the client.
    Disguised,
}

/// How a report accounts for unfinished work of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Account {
    /// It contains the id of each piece.
    #[default]
    Named,
    /// It contains the number, followed by these words. It may be too high by `slack`.
    Counted { words: String, slack: usize },
    /// It contains these words.
    Mentioned { words: String },
}

/// A piece of work: its kind and its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    kind: String,
    id: String,
}

/// How the process ended. The facts are compared with it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The exit code. `None` if a signal killed the process.
    pub exit_code: Option<i32>,
    /// The report, if the process wrote one.
    pub report: Option<&'a Report>,
}

// === impl Ledger ===

impl Ledger {
    /// Creates a ledger without facts. By default, a report has to name unfinished work by its id.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares that the report accounts for unfinished work of this kind by its exact number,
    /// followed by `words`, as in "3 dead letters". "unknown" in place of the number, and a lower
    /// bound ("at least 3 dead letters"), are honest as well.
    #[must_use]
    pub fn counted(self, kind: impl Into<String>, words: impl Into<String>) -> Self {
        self.counted_up_to(kind, words, 0)
    }

    /// Declares a number that may be too high, because work that is in flight when it is counted can
    /// still end. See [`Ledger::counted`].
    #[must_use]
    pub fn counted_at_least(self, kind: impl Into<String>, words: impl Into<String>) -> Self {
        self.counted_up_to(kind, words, usize::MAX)
    }

    /// Declares a number that may be too high by `slack`, because a report may also count work that
    /// was refused. See [`Ledger::counted`].
    #[must_use]
    pub fn counted_up_to(
        mut self,
        kind: impl Into<String>,
        words: impl Into<String>,
        slack: usize,
    ) -> Self {
        self.accounts.insert(kind.into(), Account::Counted { words: words.into(), slack });
        self
    }

    /// Declares that the report accounts for unfinished work of this kind with these words, such as
    /// the name of the part that had the work, and without a number.
    #[must_use]
    pub fn mentioned(mut self, kind: impl Into<String>, words: impl Into<String>) -> Self {
        self.accounts.insert(kind.into(), Account::Mentioned { words: words.into() });
        self
    }

    /// Records a fact. Recording it again has no effect.
    pub fn record(&self, fact: Fact, kind: &str, id: impl fmt::Display) {
        let entry = Entry { kind: kind.to_owned(), id: id.to_string() };
        self.entries().entry(entry).or_default().insert(fact);
    }

    /// Records that the service took responsibility.
    pub fn accepted(&self, kind: &str, id: impl fmt::Display) {
        self.record(Fact::Accepted, kind, id);
    }

    /// Records that the work was completed.
    pub fn finished(&self, kind: &str, id: impl fmt::Display) {
        self.record(Fact::Finished, kind, id);
    }

    /// Records that the service refused the work.
    pub fn refused(&self, kind: &str, id: impl fmt::Display) {
        self.record(Fact::Refused, kind, id);
    }

    /// Records the facts of a [`Journal`], and returns their number. A file that does not exist has
    /// none, because the service may have ended before it wrote one.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or has a line that is not a fact.
    pub fn read(&self, journal: impl AsRef<Path>) -> io::Result<usize> {
        let facts = journal::read(journal.as_ref())?;
        for (fact, kind, id) in &facts {
            self.record(*fact, kind, id);
        }
        Ok(facts.len())
    }

    /// Returns how many pieces of work of this kind have this fact.
    #[must_use]
    pub fn count(&self, fact: Fact, kind: &str) -> usize {
        let entries = self.entries();
        let of_kind = entries.iter().filter(|(entry, _)| entry.kind == kind);
        of_kind.filter(|(_, facts)| facts.contains(&fact)).count()
    }

    /// Compares the facts with how the process ended.
    pub fn judge(&self, run: &Run<'_>) -> Verdict {
        judge::judge(&self.accounts, &self.entries(), run)
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Entry, BTreeSet<Fact>>> {
        lock(&self.entries)
    }
}

// === impl Fact ===

impl Fact {
    const ALL: [Self; 6] =
        [Self::Accepted, Self::Finished, Self::Refused, Self::Returned, Self::Cut, Self::Disguised];

    fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Finished => "finished",
            Self::Refused => "refused",
            Self::Returned => "returned",
            Self::Cut => "cut",
            Self::Disguised => "disguised",
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

// === impl Run ===

impl<'a> From<&'a Ended> for Run<'a> {
    fn from(ended: &'a Ended) -> Self {
        Self { exit_code: ended.status.code(), report: ended.report.as_ref() }
    }
}
