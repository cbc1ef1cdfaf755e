//! Asks to all carts at a steady rate, and what became of each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adieu::cluster::{AskError, Region};
use adieu_core::adapter::lock;
use hyper::Method;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::carts::{Add, Answers};
use super::node::SHARDS;
use super::rehash::{place, shard_of};
use crate::demo::fleet::Fleet;
use crate::demo::member::Member;

/// How long an answer may take: longer than the shards of a dead node take to run elsewhere.
const ANSWER: Duration = Duration::from_secs(20);

/// How many asks to one cart are sent at the same time.
const ASKERS: u32 = 2;

/// The target of the asks.
#[derive(Clone, Debug)]
pub(super) enum To {
    /// To the owner in the table of the cluster.
    Region(Region<Add>),
    /// To the live node that the hash names.
    Rehash(Arc<Fleet>),
}

/// Asks carts.
#[derive(Debug)]
pub(super) struct Load {
    to: To,
    counts: Mutex<Counts>,
    next: AtomicU64,
}

/// The outcomes of the asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) answers: Answers,
    /// The longest time from an ask to its reply.
    pub(super) stall: Duration,
    /// Why asks were not run, or are unknown.
    pub(super) why: BTreeMap<String, u64>,
    /// For the comparison: the node of each shard, and how often it has changed.
    places: BTreeMap<u32, (String, u64)>,
}

enum Answer {
    Ran,
    NotRun(String),
    Unknown(String),
}

// === impl Load ===

impl Load {
    pub(super) fn new(to: To) -> Self {
        Self { to, counts: Mutex::default(), next: AtomicU64::new(0) }
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    /// Asks `carts` carts, each in turn, `rate` times a second in all, until `stop`; and waits for all
    /// answers.
    pub(super) async fn run(self: Arc<Self>, carts: u32, rate: u32, stop: CancellationToken) {
        let mut askers = JoinSet::new();
        let count = carts * ASKERS;
        let pause = Duration::from_secs(1) * count / rate.max(1);
        for asker in 0..count {
            let (load, stop, cart) = (Arc::clone(&self), stop.clone(), asker / ASKERS);
            askers.spawn(async move {
                let begins = Instant::now() + pause * cart / carts;
                let mut ticks = tokio::time::interval_at(begins, pause);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let key = format!("cart-{cart}");
                while stop.run_until_cancelled(ticks.tick()).await.is_some() {
                    load.ask(&key).await;
                }
            });
        }
        while askers.join_next().await.is_some() {}
    }

    async fn ask(&self, key: &str) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let answer = match &self.to {
            To::Region(region) => match region.at(key).ask(Add { number }).within(ANSWER).await {
                Ok(_) => Answer::Ran,
                Err(AskError::NotRun(why)) => Answer::NotRun(why.to_string()),
                Err(AskError::Unknown(why)) => Answer::Unknown(why.to_string()),
            },
            To::Rehash(fleet) => {
                match tokio::time::timeout(ANSWER, self.send(fleet, key, number)).await {
                    Ok(answer) => answer,
                    Err(_) => Answer::Unknown("no answer in time".to_owned()),
                }
            }
        };
        let mut counts = self.lock();
        let (answers, why) = match answer {
            Answer::Ran => {
                counts.stall = counts.stall.max(began.elapsed());
                (&mut counts.answers.ran, None)
            }
            Answer::NotRun(why) => (&mut counts.answers.not_run, Some(format!("not run: {why}"))),
            Answer::Unknown(why) => (&mut counts.answers.unknown, Some(format!("unknown: {why}"))),
        };
        answers.insert(number);
        if let Some(why) = why {
            *counts.why.entry(why).or_default() += 1;
        }
    }

    /// Sends an ask to the node that the hash names.
    async fn send(&self, fleet: &Fleet, key: &str, number: u64) -> Answer {
        let live: Vec<Arc<Member>> =
            fleet.members().into_iter().filter(|it| it.is_live()).collect();
        let shard = shard_of(key);
        let Some(member) = place(shard, live.len()).and_then(|at| live.get(at)) else {
            return Answer::NotRun("no node is ready".to_owned());
        };
        self.note_place(shard, &member.name);
        let mut link = match member.link().await {
            Ok(link) => link,
            Err(why) => return Answer::NotRun(why),
        };
        match link.get(Method::POST, &format!("/carts/{key}/{number}")).await {
            Err(why) => Answer::Unknown(why),
            Ok((status, _)) if !status.is_success() => {
                Answer::Unknown(format!("answered {status}"))
            }
            Ok(_) => {
                if link.stays_open().await {
                    member.keep(link);
                }
                Answer::Ran
            }
        }
    }

    fn note_place(&self, shard: u32, node: &str) {
        let mut counts = self.lock();
        let place = counts.places.entry(shard).or_insert_with(|| (node.to_owned(), 0));
        if place.0 != node {
            *place = (node.to_owned(), place.1 + 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        lock(&self.counts)
    }
}

// === impl Counts ===

impl Counts {
    pub(super) fn asks(&self) -> usize {
        let Answers { ran, not_run, unknown } = &self.answers;
        ran.len() + not_run.len() + unknown.len()
    }

    /// Returns how often each shard has changed its node, of the comparison.
    pub(super) fn moves(&self) -> BTreeMap<u32, u64> {
        let moved = |shard| self.places.get(&shard).map_or(0, |(_, moves)| *moves);
        (0..SHARDS).map(|shard| (shard, moved(shard))).collect()
    }
}
