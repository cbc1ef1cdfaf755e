//! The state of the fleet as this process last received it, and the requests of calls to the
//! driver.
//!
//! Calls send nothing to the store. They read the state that the driver has received, and send
//! requests to the driver. A call waits for an answer for at most [`ASK_WITHIN`], and not at all
//! while the store is away.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use adieu_core::CheckHandle;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::breaker::{Circuit, Ended, Fleet, Standing, Ticket};
use crate::rate::{Limiter, Permit, Question, Share, WithoutStore};
use crate::store::{Force, News, StoreError};
use crate::striped::lock;
use crate::time::{Instant, now};

/// How long the store may take to answer a question, and how long a call may wait for it in all.
pub(crate) const ASK_WITHIN: Duration = Duration::from_millis(25);

/// How often states of breakers that mean nothing any longer are removed.
const PRUNED_EVERY: Duration = Duration::from_secs(60);
/// How long it is known that the fleet has closed a breaker: longer than in the store, for breakers of
/// keys that are first used in the meantime.
const CLOSED_KEPT: Duration = Duration::from_secs(120);
/// How long an open breaker is known after its break: as long as in the store.
const OPEN_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The connection of calls to the driver.
pub(crate) struct Link {
    pub(crate) service: Arc<str>,
    requests: mpsc::UnboundedSender<Request>,
    /// Notified if a report should not wait for the next tick.
    pub(crate) nudged: Notify,
    /// Whether the store is away, also because the driver has ended.
    is_away: AtomicBool,
    /// Notified when the store is away.
    went_away: Notify,
    /// How many replicas were last seen.
    replicas: AtomicU32,
    /// By how many replicas a rate limit is divided while the store is away.
    sharers: AtomicU32,
    /// How many calls a rate limit has decided without the store.
    decided_alone: AtomicU64,
    /// How often the store went away.
    times_away: AtomicU64,
    /// The checks of readiness that depend on the store.
    checks: Mutex<Vec<StoreCheck>>,
    standings: Mutex<Standings>,
}

/// The fleet's state of its breakers.
#[derive(Default)]
struct Standings {
    /// With the time at which the request for it was sent.
    by_breaker: HashMap<String, (Standing, Instant)>,
    /// The breakers that were read so far, while everything that the store knows is being read.
    reading: Option<HashSet<String>>,
    /// When the request was sent after whose answer everything was known, for breakers that the store
    /// does not know.
    complete: Option<Instant>,
    /// The breakers of this process by their names, so that a change costs the same with many keys.
    circuits: HashMap<Arc<str>, Weak<Circuit>>,
    /// When those that mean nothing any longer were last removed.
    pruned: Option<Instant>,
}

/// A check of readiness, and the last result that was reported to it.
struct StoreCheck {
    handle: CheckHandle,
    is_ready: Option<bool>,
}

/// A request of a call to the driver.
pub(crate) enum Request {
    Take { share: Arc<Share>, question: Question },
    Probe { circuit: Arc<Circuit>, breaker: Arc<str>, answer: oneshot::Sender<Probing> },
    Settle { ticket: Ticket, ended: Ended },
    Force { force: Force, answer: oneshot::Sender<Result<(), ForceFailure>> },
}

/// Why a policy was not forced open in the whole fleet.
pub(crate) enum ForceFailure {
    Store(StoreError),
    NoAnswer,
}

/// The answer to a request to probe.
pub(crate) enum Probing {
    Granted(Grant),
    Busy(Duration),
    /// The standing of the breaker has changed, or the store has not answered.
    Again,
}

/// A probe that the store has granted to a call which may have gone. If no call takes it, it is
/// returned.
pub(crate) struct Grant {
    ticket: Option<Ticket>,
    link: Arc<Link>,
}

/// How long a call may still wait for the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience(Duration);

/// A shared limit did not grant a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPermit {
    /// A permit will be free after this time.
    Limited(Duration),
    /// The store is away, and the limit admits no call without it.
    StoreAway,
}

// === impl Link ===

impl Link {
    /// Creates a link, and the end of it that the driver has.
    #[expect(
        clippy::disallowed_methods,
        reason = "one request at a time for each limit and breaker"
    )]
    pub(crate) fn new(service: Arc<str>) -> (Arc<Self>, mpsc::UnboundedReceiver<Request>) {
        let (requests, receiver) = mpsc::unbounded_channel();
        let link = Self {
            service,
            requests,
            nudged: Notify::new(),
            is_away: AtomicBool::new(false),
            went_away: Notify::new(),
            replicas: AtomicU32::new(1),
            sharers: AtomicU32::new(1),
            decided_alone: AtomicU64::new(0),
            times_away: AtomicU64::new(0),
            checks: Mutex::default(),
            standings: Mutex::default(),
        };
        (Arc::new(link), receiver)
    }

    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Acquire)
    }

    /// Sets whether the store is away. Calls that wait for it are woken.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Release);
        if is_away {
            self.went_away.notify_waiters();
        }
    }

    /// Adds a check of readiness. It succeeds with the next answer of the store.
    pub(crate) fn add_check(&self, handle: CheckHandle) {
        lock(&self.checks).push(StoreCheck { handle, is_ready: None });
        if self.is_away() {
            self.report_to_checks(false);
        }
    }

    /// Reports to the readiness checks whether the store answers.
    pub(crate) fn report_to_checks(&self, is_ready: bool) {
        for check in lock(&self.checks).iter_mut() {
            match check.is_ready.replace(is_ready) {
                Some(was_ready) if was_ready == is_ready => {}
                _ if is_ready => check.handle.mark_ready(),
                _ => check.handle.mark_failed("the store does not answer"),
            }
        }
    }

    pub(crate) fn count_away(&self) {
        self.times_away.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn times_away(&self) -> u64 {
        self.times_away.load(Ordering::Relaxed)
    }

    pub(crate) fn replicas(&self) -> u32 {
        self.replicas.load(Ordering::Relaxed)
    }

    pub(crate) fn set_replicas(&self, replicas: u32) {
        self.replicas.store(replicas.max(1), Ordering::Relaxed);
    }

    pub(crate) fn sharers(&self) -> u32 {
        self.sharers.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sharers(&self, sharers: u32) {
        self.sharers.store(sharers.max(1), Ordering::Relaxed);
    }

    pub(crate) fn decided_alone(&self) -> u64 {
        self.decided_alone.load(Ordering::Relaxed)
    }

    /// Stores the changed states of breakers, from the answer to a request that was sent at `sent`.
    /// Returns whether all that the store knows has just become known: then it does not know the other
    /// breakers.
    pub(crate) fn set_standings(&self, sent: Instant, news: &News) -> bool {
        let mut standings = lock(&self.standings);
        let Standings { by_breaker, reading, complete, circuits, pruned } = &mut *standings;
        if news.is_from_start {
            *reading = Some(HashSet::new());
        }
        for (breaker, standing) in &news.breakers {
            by_breaker.insert(breaker.clone(), (*standing, sent));
            if let Some(reading) = reading {
                reading.insert(breaker.clone());
            }
        }
        if pruned.is_none_or(|pruned| sent.saturating_duration_since(pruned) >= PRUNED_EVERY) {
            *pruned = Some(sent);
            circuits.retain(|_, circuit| circuit.strong_count() > 0);
            by_breaker.retain(|_, (standing, learnt)| {
                let age = sent.saturating_duration_since(*learnt);
                age < match standing {
                    Standing::Open { left, .. } => left.saturating_add(OPEN_KEPT),
                    Standing::Closed { .. } => CLOSED_KEPT,
                }
            });
        }
        let read = if news.has_more { None } else { reading.take() };
        if let Some(read) = &read {
            by_breaker.retain(|breaker, _| read.contains(breaker));
            *complete = Some(sent);
        }
        read.is_some()
    }

    /// Applies the fleet's last known state to a new breaker of this process, and each later one.
    pub(crate) fn register(&self, breaker: &Arc<str>, circuit: &Arc<Circuit>) {
        lock(&self.standings).circuits.insert(Arc::clone(breaker), Arc::downgrade(circuit));
        self.adopt_into(breaker, circuit);
    }

    /// Returns the breaker with this name, if the process has it.
    pub(crate) fn circuit(&self, breaker: &str) -> Option<Arc<Circuit>> {
        lock(&self.standings).circuits.get(breaker)?.upgrade()
    }

    /// Applies the fleet's last known state to a breaker.
    pub(crate) fn adopt_into(&self, breaker: &str, circuit: &Circuit) {
        let (sent, known) = {
            let standings = lock(&self.standings);
            let known = standings.by_breaker.get(breaker).copied();
            let sent = known.map(|(_, sent)| sent).or(standings.complete);
            (sent, known.map(|(standing, _)| standing))
        };
        circuit.adopt(sent.unwrap_or_else(now), known);
    }

    /// Sends a request. Returns whether there is a driver.
    pub(crate) fn send(&self, request: Request) -> bool {
        self.requests.send(request).is_ok()
    }

    /// Takes a permit of a shared limit, if the process has one, or has received that none is free.
    /// `None` if the call must wait for the store; see [`Link::take_after_answer`].
    #[inline]
    pub(crate) fn take(
        &self,
        limiter: &Limiter,
        key: impl FnOnce() -> String,
        at: Instant,
    ) -> Option<Result<(), NoPermit>> {
        if self.is_away() {
            return Some(self.take_alone(limiter, at));
        }
        let share = limiter.share(key);
        self.decide(limiter, share, at, share.take(at))
    }

    /// Waits for the answer that decides about a permit, and takes the permit. Returns when it was taken.
    pub(crate) async fn take_after_answer(
        &self,
        limiter: &Limiter,
        key: impl FnOnce() -> String,
        patience: &mut Patience,
    ) -> Result<Instant, NoPermit> {
        let share = limiter.share(key);
        loop {
            let is_answered = patience.wait(self.unless_away(share.answered())).await;
            let at = now();
            if !is_answered || self.is_away() {
                return self.take_alone(limiter, at).map(|()| at);
            }
            if let Some(decided) = self.decide(limiter, share, at, share.take_again(at)) {
                return decided.map(|()| at);
            }
        }
    }

    /// Sends the request of a call for a permit, if it has one. Returns the decision about the
    /// call, or `None` if the answer decides.
    #[inline]
    fn decide(
        &self,
        limiter: &Limiter,
        share: &Arc<Share>,
        at: Instant,
        (permit, question): (Permit, Option<Question>),
    ) -> Option<Result<(), NoPermit>> {
        if let Some(question) = question
            && !self.send(Request::Take { share: Arc::clone(share), question })
        {
            share.on_answer(at, question, None, self.sharers());
            return Some(self.take_alone(limiter, at));
        }
        match permit {
            Permit::Granted => Some(Ok(())),
            Permit::Refused(wait) => Some(Err(NoPermit::Limited(wait))),
            Permit::Ask => None,
        }
    }

    /// Decides without the store.
    fn take_alone(&self, limiter: &Limiter, at: Instant) -> Result<(), NoPermit> {
        self.decided_alone.fetch_add(1, Ordering::Relaxed);
        match limiter.without_store {
            WithoutStore::Share => {
                limiter.take_share(at, self.sharers()).map_err(NoPermit::Limited)
            }
            WithoutStore::Open => Ok(()),
            WithoutStore::Closed => Err(NoPermit::StoreAway),
        }
    }

    /// Requests the probe of a breaker that the fleet has opened.
    pub(crate) async fn probe(
        &self,
        circuit: &Arc<Circuit>,
        breaker: &Arc<str>,
        patience: &mut Patience,
    ) -> Probing {
        let (answer, answered) = oneshot::channel();
        let (circuit, breaker) = (Arc::clone(circuit), Arc::clone(breaker));
        if !self.send(Request::Probe { circuit, breaker, answer }) {
            return Probing::Again;
        }
        let mut probing = Probing::Again;
        let waiting = async { probing = answered.await.unwrap_or(Probing::Again) };
        patience.wait(self.unless_away(waiting)).await;
        probing
    }

    /// Forces a policy open in the whole fleet for this long. Zero releases it.
    pub(crate) async fn force(
        &self,
        policy: &Arc<str>,
        time: Duration,
        by: &str,
    ) -> Result<(), ForceFailure> {
        let (answer, answered) = oneshot::channel();
        let force = Force { policy: Arc::clone(policy), time, by: by.to_owned() };
        self.send(Request::Force { force, answer });
        answered.await.unwrap_or(Err(ForceFailure::NoAnswer))
    }

    /// Waits, but no longer than until the store is away.
    async fn unless_away(&self, waiting: impl Future<Output = ()>) {
        let went_away = self.went_away.notified();
        tokio::pin!(went_away);
        went_away.as_mut().enable();
        if self.is_away() {
            return;
        }
        tokio::select! {
            biased;
            () = waiting => {}
            () = went_away => {}
        }
    }
}

impl Fleet for Link {
    fn nudge(&self) {
        self.nudged.notify_one();
    }

    fn settle(&self, ticket: Ticket, ended: Ended) {
        // If there is no driver, the lease expires.
        self.send(Request::Settle { ticket, ended });
    }
}

// === impl Grant ===

impl Grant {
    pub(crate) fn new(ticket: Ticket, link: Arc<Link>) -> Self {
        Self { ticket: Some(ticket), link }
    }

    /// Takes the probe, which the caller must settle.
    pub(crate) fn take(mut self) -> Option<Ticket> {
        self.ticket.take()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.link.settle(ticket, Ended::Neutral);
        }
    }
}

// === impl Patience ===

impl Patience {
    pub(crate) fn new() -> Self {
        Self(ASK_WITHIN)
    }

    /// Limits the patience to the end of the call.
    pub(crate) fn until(&mut self, now: Instant, end: Option<Instant>) {
        let left = end.map(|end| end.saturating_duration_since(now));
        self.0 = left.map_or(self.0, |left| left.min(self.0));
    }

    /// Waits. All waits of a call together take at most [`ASK_WITHIN`]. Returns false if that was reached.
    async fn wait(&mut self, waiting: impl Future<Output = ()>) -> bool {
        let began = now();
        let result = tokio::time::timeout(self.0, waiting).await;
        self.0 = self.0.saturating_sub(now().saturating_duration_since(began));
        result.is_ok()
    }
}
