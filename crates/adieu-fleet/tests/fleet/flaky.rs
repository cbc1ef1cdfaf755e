//! A backend that fails, hangs, refuses or has no fences, as a test requires.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_fleet::{
    Attempt, BackendError, Claim, ClaimStatus, Fence, Holder, Key, LockBackend, Marker, Memory,
    Owner, Reply,
};

/// How the backend behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Good,
    /// Executes requests immediately, and responds after two seconds.
    Slow,
    /// Yields several times before and after it executes a request.
    Stepwise,
    /// Neither executes requests nor responds.
    Silent,
    /// Executes requests, but does not respond.
    Mute,
    /// Responds with errors.
    Failing,
    /// Responds with permanent errors.
    Refusing,
    /// Has no fences.
    Unfenced,
}

#[derive(Debug, Default)]
pub(crate) struct Flaky {
    pub(crate) memory: Memory,
    mood: Mutex<Mood>,
    requests: AtomicUsize,
}

impl Flaky {
    pub(crate) fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap()
    }

    fn respond<'a, T: Send + 'a>(
        &self,
        execute: impl FnOnce() -> Reply<'a, T> + Send + 'a,
    ) -> Reply<'a, T> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match self.mood() {
            Mood::Good | Mood::Unfenced => execute(),
            Mood::Slow => {
                let done = execute();
                Box::pin(async move {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    done.await
                })
            }
            Mood::Stepwise => Box::pin(async move {
                steps().await;
                let done = execute().await;
                steps().await;
                done
            }),
            Mood::Silent => Box::pin(std::future::pending()),
            Mood::Mute => {
                let done = execute();
                Box::pin(async move {
                    let _ = done.await;
                    std::future::pending().await
                })
            }
            Mood::Failing => {
                Box::pin(std::future::ready(Err(BackendError::new("flaky", "answer", "no"))))
            }
            Mood::Refusing => {
                let error = BackendError::permanent("flaky", "answer", "never");
                Box::pin(std::future::ready(Err(error)))
            }
        }
    }
}

async fn steps() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

impl LockBackend for Flaky {
    fn name(&self) -> &'static str {
        "flaky"
    }

    fn has_fences(&self) -> bool {
        self.mood() != Mood::Unfenced
    }

    fn try_acquire<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        ttl: Duration,
    ) -> Reply<'a, Attempt> {
        let unfenced = !self.has_fences();
        let response = self.respond(move || self.memory.try_acquire(key, owner, ttl));
        Box::pin(async move {
            Ok(match response.await? {
                Attempt::Acquired(claim) if unfenced => {
                    Attempt::Acquired(Claim { fence: Fence::NONE, ..claim })
                }
                attempt @ (Attempt::Acquired(_) | Attempt::Held(_)) => attempt,
            })
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, ClaimStatus> {
        self.respond(move || self.memory.renew(claim, ttl))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, ClaimStatus> {
        self.respond(move || self.memory.release(claim))
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        self.respond(move || self.memory.query(key))
    }

    fn mark<'a>(
        &'a self,
        claim: &'a Claim,
        name: &'a str,
        value: &'a str,
    ) -> Reply<'a, ClaimStatus> {
        self.respond(move || self.memory.mark(claim, name, value))
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        self.respond(move || self.memory.marker(key, name))
    }
}
