//! Messages that nobody worked off: how many, the latest of them, and who wants to hear of each.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::path::NodePath;

/// How many of the latest dead letters are kept.
const KEPT: usize = 1000;

/// How many a subscriber may be behind before it misses some.
const BEHIND: usize = 1024;

/// A message that nobody worked off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Whom it was for.
    pub to: NodePath,
    /// Who sent it, if that was an actor and it is known.
    pub from: Option<NodePath>,
    /// The type of the message, if it is known.
    pub message: Option<&'static str>,
    /// Why it was not delivered.
    pub because: Undelivered,
}

/// Why a message was not worked off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undelivered {
    /// It came when the actor had stopped, or was about to.
    Stopped,
    /// It had been accepted, and the actor ended without it.
    LeftBehind,
    /// It was being handled when the actor was killed, or when its handler panicked.
    Interrupted,
}

/// Hears of each dead letter, from when it subscribed. See
/// [`ActorSystem::subscribe_to_dead_letters`](crate::ActorSystem::subscribe_to_dead_letters).
#[derive(Debug)]
pub struct DeadLetterSubscription {
    letters: mpsc::Receiver<DeadLetter>,
}

#[derive(Debug, Default)]
pub(crate) struct Letters {
    count: AtomicU64,
    latest: Mutex<Latest>,
}

#[derive(Debug, Default)]
struct Latest {
    ring: VecDeque<DeadLetter>,
    subscribers: Vec<mpsc::Sender<DeadLetter>>,
}

// === impl Letters ===

impl Letters {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn latest(&self) -> Vec<DeadLetter> {
        self.lock().ring.iter().cloned().collect()
    }

    pub(crate) fn subscribe(&self) -> DeadLetterSubscription {
        let (sender, letters) = mpsc::channel(BEHIND);
        self.lock().subscribers.push(sender);
        DeadLetterSubscription { letters }
    }

    /// So many letters that are alike.
    pub(crate) fn add(&self, letter: &DeadLetter, count: u64) {
        if count == 0 {
            return;
        }
        self.count.fetch_add(count, Ordering::Relaxed);
        let mut latest = self.lock();
        for _ in 0..count.min(KEPT as u64) {
            if latest.ring.len() == KEPT {
                latest.ring.pop_front();
            }
            latest.ring.push_back(letter.clone());
            // Who is too far behind misses it: dead letters must not hold up the living.
            latest.subscribers.retain(|subscriber| {
                !matches!(
                    subscriber.try_send(letter.clone()),
                    Err(mpsc::error::TrySendError::Closed(_))
                )
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl DeadLetterSubscription ===

impl DeadLetterSubscription {
    /// The next dead letter. None when the system is gone.
    ///
    /// One that falls more than 1,024 behind misses what comes then; the count of the system does
    /// not. Cancel safe.
    pub async fn next(&mut self) -> Option<DeadLetter> {
        self.letters.recv().await
    }
}

// === impl DeadLetter ===

impl DeadLetter {
    /// A message to this node, from nobody that is known.
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
            Undelivered::LeftBehind => ", which ended without it",
            Undelivered::Interrupted => ", which ended while it handled it",
        })
    }
}
