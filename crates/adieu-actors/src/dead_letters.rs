//! Messages that were refused or never processed: their count, the latest of them, subscribers.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use adieu_core::adapter::lock;
use tokio::sync::mpsc;

use crate::path::NodePath;
use crate::report::DrainReport;

/// How many of the latest dead letters are kept.
const KEPT: usize = 1000;

/// How many dead letters are queued for a subscriber before it misses some.
const QUEUED: usize = 1024;

/// A message that was refused, or accepted and never processed to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The path of the actor that it was sent to.
    pub to: NodePath,
    /// The path of the actor that sent it, if an actor did and it is known.
    pub from: Option<NodePath>,
    /// The type of the message, if that is known.
    pub message: Option<&'static str>,
    /// Why it was not processed.
    pub because: Undelivered,
}

/// Why a message was not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undelivered {
    /// The message was refused: the actor had stopped, or was about to stop.
    Stopped,
    /// The actor had accepted the message, and ended without processing it.
    LeftBehind,
    /// The actor was killed, or its handler panicked, while it processed the message.
    Interrupted,
}

/// Receives all dead letters from when it was created. Returned by
/// [`ActorSystem::subscribe_to_dead_letters`](crate::ActorSystem::subscribe_to_dead_letters).
#[derive(Debug)]
pub struct DeadLetterSubscription {
    letters: mpsc::Receiver<DeadLetter>,
}

#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    count: AtomicU64,
    latest: Mutex<Latest>,
}

#[derive(Debug, Default)]
struct Latest {
    ring: VecDeque<DeadLetter>,
    /// The dead letters since the end of the system began, by receiver. The report contains them.
    at_end: HashMap<NodePath, u64>,
    /// How many of these the report contains, if it is complete.
    reported: Option<u64>,
    subscribers: Vec<mpsc::Sender<DeadLetter>>,
}

// === impl DeadLetters ===

impl DeadLetters {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn latest(&self) -> Vec<DeadLetter> {
        self.lock().ring.iter().cloned().collect()
    }

    pub(crate) fn subscribe(&self) -> DeadLetterSubscription {
        let (sender, letters) = mpsc::channel(QUEUED);
        self.lock().subscribers.push(sender);
        DeadLetterSubscription { letters }
    }

    /// Adds `count` equal dead letters. `is_at_end` is whether the end of the system has begun.
    pub(crate) fn add(&self, letter: &DeadLetter, count: u64, is_at_end: bool) {
        if count == 0 {
            return;
        }
        self.count.fetch_add(count, Ordering::Relaxed);
        let mut latest = self.lock();
        if is_at_end {
            *latest.at_end.entry(letter.to.clone()).or_default() += count;
        }
        for _ in 0..count.min(KEPT as u64) {
            if latest.ring.len() == KEPT {
                latest.ring.pop_front();
            }
            latest.ring.push_back(letter.clone());
            // A subscriber whose queue is full misses the letter: senders must not wait for it.
            latest.subscribers.retain(|subscriber| {
                !matches!(
                    subscriber.try_send(letter.clone()),
                    Err(mpsc::error::TrySendError::Closed(_))
                )
            });
        }
    }

    /// Adds the dead letters since the end of the system began to its report.
    pub(crate) fn complete(&self, report: &mut DrainReport) {
        let mut latest = self.lock();
        if !latest.at_end.is_empty() {
            report.add_dead_letters(&latest.at_end);
        }
        latest.reported = Some(latest.at_end.values().sum());
    }

    /// Returns how many dead letters since the end of the system began are not in its report: they were
    /// added after it was completed, or there is none.
    pub(crate) fn unreported(&self) -> u64 {
        self.lock().unreported()
    }

    /// Returns how many dead letters were added after the report was completed, and marks them as
    /// reported. Returns 0 if there is no report.
    pub(crate) fn take_unreported(&self) -> u64 {
        let mut latest = self.lock();
        let count = latest.unreported();
        match &mut latest.reported {
            Some(reported) => {
                *reported += count;
                count
            }
            None => 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        lock(&self.latest)
    }
}

// === impl Latest ===

impl Latest {
    fn unreported(&self) -> u64 {
        self.at_end.values().sum::<u64>() - self.reported.unwrap_or(0)
    }
}

// === impl DeadLetterSubscription ===

impl DeadLetterSubscription {
    /// Returns the next dead letter, or `None` when the system no longer exists.
    ///
    /// At most 1,024 dead letters are queued for a subscriber. It misses those that exceed this; the
    /// count of the system includes them.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<DeadLetter> {
        self.letters.recv().await
    }
}

// === impl DeadLetter ===

impl DeadLetter {
    /// Creates a dead letter to this node, from an unknown sender.
    #[must_use]
    pub fn new(to: NodePath, because: Undelivered) -> Self {
        Self { to, from: None, message: None, because }
    }
}

impl fmt::Display for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.message.unwrap_or("a message"), self.to)?;
        if let Some(from) = &self.from {
            write!(f, " from {from}")?;
        }
        f.write_str(match self.because {
            Undelivered::Stopped => ", which had stopped",
            Undelivered::LeftBehind => ", which ended without processing it",
            Undelivered::Interrupted => ", which ended while it was processing it",
        })
    }
}
