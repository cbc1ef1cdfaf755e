//! The load: requests at a steady rate, balanced over the replicas that are ready.
//!
//! No request is retried: a request that a client or a proxy would have to repeat has failed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adieu_core::adapter::lock;
use http_body_util::BodyExt;
use hyper::Method;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fleet::Fleet;
use super::link::Cause;

/// How often requests are sent. All requests that are due are sent together.
const SEND_INTERVAL: Duration = Duration::from_millis(5);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How many requests may be in flight. With more of them, the machine is too slow for the rate.
const MOST_IN_FLIGHT: usize = 1_000;
/// How many clients listen to the ticker of the shop.
const LISTENERS: usize = 4;

/// The results of the load.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) failed: u64,
    pub(super) slowest: Duration,
    /// Orders that were answered with a number.
    pub(super) orders: u64,
    /// How many requests failed, by cause.
    pub(super) why: BTreeMap<String, u64>,
}

/// Sends requests to a fleet.
#[derive(Debug)]
pub(super) struct Load {
    fleet: Arc<Fleet>,
    rate: u32,
    counts: Mutex<Counts>,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug)]
enum RequestKind {
    Front,
    Order,
    Invoice,
}

// === impl Load ===

impl Load {
    pub(super) fn new(fleet: Arc<Fleet>, rate: u32) -> Self {
        Self { fleet, rate, counts: Mutex::default() }
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    /// Sends requests until `stop`, and waits for all answers.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut in_flight = JoinSet::new();
        for _ in 0..LISTENERS {
            in_flight.spawn(Arc::clone(&self).listen(stop.clone()));
        }
        let (began, mut sent) = (Instant::now(), 0_u64);
        let mut ticks = tokio::time::interval(SEND_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            while in_flight.try_join_next().is_some() {}
            let due = began.elapsed().as_millis() * u128::from(self.rate) / 1_000;
            while u128::from(sent) < due && in_flight.len() < MOST_IN_FLIGHT {
                in_flight.spawn(Arc::clone(&self).send(RequestKind::of(sent)));
                sent += 1;
            }
        }
        while in_flight.join_next().await.is_some() {}
    }

    async fn send(self: Arc<Self>, kind: RequestKind) {
        let began = Instant::now();
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, self.answer(kind)).await;
        let answered = answered.unwrap_or_else(|_| Err("no answer in time".into()));
        self.note(answered, Some(began.elapsed()), kind);
    }

    async fn answer(&self, kind: RequestKind) -> Result<(), Cause> {
        let member = self.fleet.pick().ok_or("no replica is ready")?;
        let in_flight = member.enter();
        let mut link = member.link().await?;
        let (how, path) = kind.request();
        let (status, _) = link.get(how, path).await?;
        drop(in_flight);
        if !status.is_success() {
            return Err(format!("answered {status}"));
        }
        if link.stays_open().await {
            member.keep(link);
        }
        Ok(())
    }

    /// Listens to the ticker of any replica that is ready, again and again. A stream that ends
    /// regularly is a success, and a stream that breaks off is a failure.
    async fn listen(self: Arc<Self>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            match stop.run_until_cancelled(self.listen_once()).await {
                None => self.note(Ok(()), None, RequestKind::Front),
                Some(ended) => self.note(ended, None, RequestKind::Front),
            }
            // The replica may not have begun its shutdown yet.
            let _ = stop.run_until_cancelled(tokio::time::sleep(SEND_INTERVAL * 20)).await;
        }
    }

    async fn listen_once(&self) -> Result<(), Cause> {
        let member = self.fleet.pick().ok_or("no replica is ready")?;
        let _in_flight = member.enter();
        let mut link = member.link().await?;
        let answer = link.send(Method::GET, "/ticker").await?;
        if !answer.status().is_success() {
            return Err(format!("answered {}", answer.status()));
        }
        let mut ticks = answer.into_body();
        while let Some(tick) = ticks.frame().await {
            tick.map_err(|error| format!("stream: {}", adieu_core::adapter::error_text(&error)))?;
        }
        Ok(())
    }

    fn note(&self, answered: Result<(), Cause>, took: Option<Duration>, kind: RequestKind) {
        let mut counts = self.lock();
        counts.requests += 1;
        match answered {
            Ok(()) if matches!(kind, RequestKind::Order) => counts.orders += 1,
            Ok(()) => {}
            Err(why) => {
                counts.failed += 1;
                *counts.why.entry(why).or_default() += 1;
            }
        }
        counts.slowest = counts.slowest.max(took.unwrap_or_default());
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        lock(&self.counts)
    }
}

// === impl RequestKind ===

impl RequestKind {
    /// Returns the kind of a request by its number. Of twenty requests, one is a slow invoice, and
    /// five are orders.
    fn of(number: u64) -> Self {
        match number % 20 {
            7 => Self::Invoice,
            rest if rest % 4 == 1 => Self::Order,
            _ => Self::Front,
        }
    }

    fn request(self) -> (Method, &'static str) {
        match self {
            Self::Front => (Method::GET, "/"),
            Self::Order => (Method::POST, "/orders"),
            Self::Invoice => (Method::GET, "/invoice"),
        }
    }
}
