//! A backend that can be made to fail, to hang, to say no, and to have no fences.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_fleet::{
    Attempt, BackendError, Claim, Fence, Holder, Key, Locks, Marker, Memory, Owner, Reply, Standing,
};

/// How it behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Good,
    /// It is done at once, and the answer takes two seconds.
    Slow,
    /// It lets others run several times before and after it does what is asked.
    Stepwise,
    /// Nothing comes back.
    Silent,
    /// It is done, but nothing comes back.
    Mute,
    /// Errors come back.
    Failing,
    /// Errors come back that do not go away.
    Refusing,
    /// There are no fences.
    Unfenced,
}

#[derive(Debug, Default)]
pub(crate) struct Flaky {
    pub(crate) memory: Memory,
    mood: Mutex<Mood>,
    asked: AtomicUsize,
}

impl Flaky {
    pub(crate) fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap()
    }

    fn answer<'a, T: Send + 'a>(
        &self,
        good: impl FnOnce() -> Reply<'a, T> + Send + 'a,
    ) -> Reply<'a, T> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.mood() {
            Mood::Good | Mood::Unfenced => good(),
            Mood::Slow => {
                let done = good();
                Box::pin(async move {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    done.await
                })
            }
            Mood::Stepwise => Box::pin(async move {
                steps().await;
                let done = good().await;
                steps().await;
                done
            }),
            Mood::Silent => Box::pin(std::future::pending()),
            Mood::Mute => {
                let done = good();
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

impl Locks for Flaky {
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
        let asked = self.answer(move || self.memory.try_acquire(key, owner, ttl));
        Box::pin(async move {
            Ok(match asked.await? {
                Attempt::Acquired(claim) if unfenced => {
                    Attempt::Acquired(Claim { fence: Fence::NONE, ..claim })
                }
                attempt @ (Attempt::Acquired(_) | Attempt::Held(_)) => attempt,
            })
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, Standing> {
        self.answer(move || self.memory.renew(claim, ttl))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Standing> {
        self.answer(move || self.memory.release(claim))
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        self.answer(move || self.memory.query(key))
    }

    fn mark<'a>(&'a self, claim: &'a Claim, name: &'a str, value: &'a str) -> Reply<'a, Standing> {
        self.answer(move || self.memory.mark(claim, name, value))
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        self.answer(move || self.memory.marker(key, name))
    }
}
