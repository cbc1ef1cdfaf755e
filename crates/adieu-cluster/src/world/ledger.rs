//! Judges what became of every message: how often it ran, in which order, and how it ended.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::records::ShardId;
use crate::route::{Kind, NotRun, Outcome, Unknown, Waited};
use crate::store::Revision;

/// A message: the process that sent it, and its number there.
pub(super) type Key = (usize, u64);

/// The reason of a loss that is not a fault: the peer has ended the link on purpose.
pub(super) const BYE: &str = "the peer has ended the link";

#[derive(Default)]
pub(super) struct Ledger {
    entries: BTreeMap<Key, Entry>,
    /// The first attempts of messages that their senders have repeated.
    first: BTreeMap<Key, Key>,
    /// The last message that ran, by sender, entity and lane.
    last: BTreeMap<(usize, u8, bool), u64>,
    /// The highest epoch under which a shard has handled a message.
    epochs: BTreeMap<ShardId, Revision>,
    /// Whether nothing fails in this world, so that every message must run.
    pub(super) is_strict: bool,
    pub(super) counts: BTreeMap<&'static str, u64>,
    problem: Option<String>,
}

pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) entity: u8,
    pub(super) is_nested: bool,
    pub(super) deadline: Instant,
}

struct Entry {
    asked: Asked,
    runs: u32,
    outcome: Option<Outcome>,
    /// A connection has sent it, or it went straight into a mailbox.
    was_sent: bool,
    /// Its sender is gone, or no longer waits.
    is_excused: bool,
    /// A kill, a crash, a failure or a lost place has ended its handler, or emptied the mailbox.
    was_killed: bool,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    fn found(&mut self, key: Key, problem: &str) {
        self.problem.get_or_insert_with(|| format!("message {}.{} {problem}", key.0, key.1));
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn asked(&mut self, key: Key, asked: Asked) {
        let entry = Entry {
            asked,
            runs: 0,
            outcome: None,
            was_sent: false,
            is_excused: false,
            was_killed: false,
        };
        self.entries.insert(key, entry);
    }

    /// A sender repeats a message under another number. Everything about that attempt is about the
    /// message.
    pub(super) fn repeats(&mut self, key: Key, of: Key) {
        let first = self.first(of);
        self.first.insert(key, first);
    }

    fn first(&self, key: Key) -> Key {
        self.first.get(&key).copied().unwrap_or(key)
    }

    /// A message has left its sender.
    pub(super) fn sent(&mut self, key: Key) {
        let key = self.first(key);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.was_sent = true;
        }
    }

    /// A handler begins with a message.
    pub(super) fn ran(&mut self, key: Key, shard: &ShardId, epoch: Revision) {
        self.count("ran");
        let key = self.first(key);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.runs += 1;
        let Asked { kind, entity, is_nested, .. } = entry.asked;
        let repeats = kind == Kind::IdempotentAsk;
        let problem = match &entry.outcome {
            Some(Outcome::NotRun(_)) => Some("runs after it was reported as not run"),
            _ if entry.runs > 1 && !repeats => Some("runs twice"),
            _ => None,
        };
        let last = self.last.entry((key.0, entity, is_nested)).or_default();
        let is_late = key.1 < *last && !repeats;
        *last = (*last).max(key.1);
        let highest = self.epochs.entry(shard.clone()).or_default();
        let went_back = epoch < *highest;
        *highest = (*highest).max(epoch);
        if let Some(problem) = problem {
            self.found(key, problem);
        } else if is_late {
            self.found(key, "runs after a later message of the same sender to the same entity");
        } else if went_back {
            self.found(key, "runs under an epoch that is over");
        }
    }

    /// A message was dropped, or its handler was ended.
    pub(super) fn killed(&mut self, key: Key) {
        self.count("killed");
        let key = self.first(key);
        if self.is_strict {
            self.found(key, "was killed, although its handler is quick");
        }
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.was_killed = true;
        }
    }

    /// Records that a handler has failed.
    pub(super) fn failed(&mut self, key: Key) {
        let key = self.first(key);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.was_killed = true;
        }
    }

    /// Records a tell that was in the mailbox until its deadline.
    pub(super) fn killed_by_deadline(&mut self, key: Key) {
        let key = self.first(key);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.was_killed = true;
        }
    }

    /// Records that the sender no longer waits for a message.
    pub(super) fn excuse(&mut self, key: Key) {
        let key = self.first(key);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.is_excused = true;
        }
    }

    pub(super) fn sender_ended(&mut self, at: usize) {
        for (_, entry) in self.entries.range_mut((at, 0)..(at + 1, 0)) {
            entry.is_excused |= entry.outcome.is_none();
        }
    }

    pub(super) fn has_outcome(&self, key: Key) -> bool {
        self.entries.get(&self.first(key)).is_none_or(|entry| entry.outcome.is_some())
    }

    pub(super) fn ended(&mut self, key: Key, outcome: Outcome, now: Instant) {
        let (is_strict, key) = (self.is_strict, self.first(key));
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let repeats = entry.asked.kind == Kind::IdempotentAsk;
        let is_past = entry.asked.deadline <= now;
        let (what, problem) = match &outcome {
            _ if entry.outcome.is_some() => ("twice", Some("has two outcomes")),
            Outcome::Replied(_) => {
                let is_wrong = if repeats { entry.runs == 0 } else { entry.runs != 1 };
                ("replied", is_wrong.then_some("was replied to, and did not run once"))
            }
            Outcome::Admitted => ("admitted", None),
            Outcome::NotRun(why) => {
                let is_blocked = !matches!(why, NotRun::Expired(Waited::NoOwner));
                let problem = if entry.runs > 0 {
                    Some("is reported as not run, and ran")
                } else {
                    let is_early = matches!(why, NotRun::Expired(_)) && !is_past;
                    (is_early || (is_strict && is_blocked && !entry.is_excused))
                        .then_some("did not run, without a reason")
                };
                ("not run", problem)
            }
            Outcome::Unknown(why) => {
                let has_reason = match why {
                    Unknown::Expired => is_past && entry.was_sent,
                    Unknown::Lost(why) => why != BYE,
                    Unknown::NotReplied(_) => entry.was_killed,
                };
                let is_wrong = !has_reason || is_strict;
                ("unknown", (is_wrong && !entry.is_excused).then_some("is unknown without a fault"))
            }
        };
        let problem = problem.map(|problem| format!("{problem}: {outcome:?}"));
        entry.outcome = Some(outcome);
        self.count(what);
        if let Some(problem) = problem {
            self.found(key, &problem);
        }
    }

    /// Long after the last deadline: every message has an outcome, and no admitted tell is lost.
    pub(super) fn final_look(&mut self) {
        let mut found = Vec::new();
        for (key, entry) in &self.entries {
            match entry.outcome {
                None if !entry.is_excused => found.push((*key, "has no outcome")),
                Some(Outcome::Admitted) if entry.runs == 0 && !entry.was_killed => {
                    found.push((*key, "was admitted, and never ran"));
                }
                _ => {}
            }
        }
        for (key, problem) in found {
            self.found(key, problem);
        }
    }
}
