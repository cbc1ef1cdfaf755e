//! Sends requests to the store: one report for all policies at each tick, and the requests of calls.
//!
//! One loop of the shutdown sends every request, each with the timeout [`ASK_WITHIN`]. After the first
//! request that fails or times out, the store counts as away: no call waits for it, and only periodic
//! reports are sent, until one is answered.

mod answers;
mod recovery;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use adieu_core::{LoopCx, Readiness, Stage, WeakShutdown, adapter};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::answers::{Answered, NoAnswer};
use super::{Cadence, REPEAT, Sent, Sharers, Work};
use crate::breaker::{Circuit, Ended, Ticket};
use crate::link::{ASK_WITHIN, Link, Probing, Request};
use crate::rate::Share;
use crate::state::State;
use crate::store::{Forced, Probe, Report, Settled, Store, StoreError};
use crate::time::{Instant, now};

/// How long connecting again may take, while no call waits.
const RECONNECT_WITHIN: Duration = Duration::from_secs(2);
/// If a timer fires later than this, the process was not scheduled. The wait for an answer is then
/// extended by this time.
const STALLED: Duration = Duration::from_millis(5);
/// How many breakers of keys are reported in one tick, if none of their calls has failed.
const KEYS_IN_A_TICK: usize = 256;

/// The parts of the driver that survive a restart of its loop.
pub(crate) struct Driver {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) link: Arc<Link>,
    pub(crate) policies: Vec<Weak<State>>,
    pub(crate) shutdown: WeakShutdown,
    /// Identifies this process in the fleet.
    pub(crate) replica: Arc<str>,
    pub(crate) requests: Mutex<mpsc::UnboundedReceiver<Request>>,
}

/// One run of the driver.
struct Run {
    driver: Arc<Driver>,
    cadence: Cadence,
    sent: Sent,
    epoch: u64,
    is_syncing: bool,
    is_draining: bool,
    /// The generation of the fleet's breaker whose recovery is being reported.
    recovering: Option<u64>,
    /// When a request was first not answered, if the store has not been back since.
    away_since: Option<Instant>,
    /// Whether it was logged that the store is away.
    is_away_logged: bool,
    sharers: Sharers,
    next_key: usize,
    next_probe: u64,
    /// The probes that the store has granted to calls of this process, by their ids.
    probes: HashMap<Arc<str>, Granted>,
    /// The rate limit whose request failed last. In a Redis Cluster, reports go to another node, which
    /// may still answer.
    unanswered: Option<Arc<Share>>,
    /// When the store last answered that it has forced open or released a policy.
    last_forced: Option<Instant>,
    /// When forces were last reported.
    forces_reported: Option<Instant>,
    /// When reports of breakers that no longer exist were last forgotten.
    cleaned: Option<Instant>,
    questions: JoinSet<Answered>,
}

#[derive(Clone)]
struct Granted {
    circuit: Arc<Circuit>,
    probe: Probe,
    generation: u64,
}

/// Marks the store as away when the driver ends or panics, so that calls decide without it.
struct AwayAtEnd(Arc<Link>);

/// Runs until the shutdown stops the loop.
pub(crate) async fn drive(driver: Arc<Driver>, cx: LoopCx) {
    let begun = driver.shutdown.upgrade().map(|shutdown| shutdown.token()).unwrap_or_default();
    let _away = AwayAtEnd(Arc::clone(&driver.link));
    // A driver that crashed has left the store marked as away.
    driver.link.set_away(!driver.store.is_connected());
    Run::new(driver).run(cx.stop_token(), begun).await;
}

// === impl Run ===

impl Run {
    fn new(driver: Arc<Driver>) -> Self {
        let sharers = Sharers::new(driver.link.sharers());
        Self {
            driver,
            cadence: Cadence::new(now()),
            sent: Sent::default(),
            epoch: 0,
            is_syncing: false,
            is_draining: false,
            recovering: None,
            away_since: None,
            is_away_logged: false,
            sharers,
            next_key: 0,
            next_probe: fastrand::u64(..),
            probes: HashMap::new(),
            unanswered: None,
            last_forced: None,
            forces_reported: None,
            cleaned: None,
            questions: JoinSet::new(),
        }
    }

    async fn run(mut self, stop: CancellationToken, begun: CancellationToken) {
        let driver = Arc::clone(&self.driver);
        let mut requests = driver.requests.lock().await;
        let is_used = || driver.policies.iter().any(|policy| policy.strong_count() > 0);
        while is_used() {
            let due = tokio::time::Instant::from_std(self.cadence.due);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = begun.cancelled(), if !self.is_draining => self.withdraw(),
                Some(answered) = self.questions.join_next(), if !self.questions.is_empty() => {
                    match answered {
                        Ok(answered) => self.on_answer(answered),
                        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
                    }
                }
                Some(request) = requests.recv() => self.on_request(request),
                () = driver.link.nudged.notified(), if !self.is_syncing => self.cadence.hurry(),
                () = tokio::time::sleep_until(due), if !self.is_syncing => self.sync(),
            }
        }
        self.leave().await;
    }

    fn is_away(&self) -> bool {
        self.driver.link.is_away()
    }

    fn policies(&self) -> impl Iterator<Item = Arc<State>> {
        self.driver.policies.iter().filter_map(Weak::upgrade)
    }

    /// Sends a request to the store, with the timeout that all requests have.
    fn ask<F, T>(
        &mut self,
        question: F,
        answered: impl FnOnce(Result<T, NoAnswer>) -> Answered + Send + 'static,
    ) where
        F: FnOnce(Arc<Driver>) -> Asking<T>,
        T: Send + 'static,
    {
        let asking = question(Arc::clone(&self.driver));
        self.questions.spawn(async move { answered(within(ASK_WITHIN, asking).await) });
    }

    fn sync(&mut self) {
        let now = now();
        self.cadence.on_sent(now, fastrand::f64());
        self.is_syncing = true;
        let report = self.report(now, false);
        let (driver, is_away) = (Arc::clone(&self.driver), self.is_away());
        let unanswered = self.unanswered.clone().filter(|_| is_away);
        self.questions.spawn(async move {
            let store = &driver.store;
            // A connection whose server has vanished may never report an error, so it is replaced.
            let connected = match is_away {
                true => within(RECONNECT_WITHIN, store.reconnect()).await,
                false => Ok(()),
            };
            let sent = crate::time::now();
            let result = match connected {
                Ok(()) => within(ASK_WITHIN, store.sync(&driver.link.service, &report)).await,
                Err(error) => Err(error),
            };
            // The store counts as back only if the node that did not answer answers now. Otherwise the
            // next call would wait until its timeout, and the store would be away and back with each
            // report.
            let answered = match &unanswered {
                Some(share) if result.is_ok() => {
                    within(ASK_WITHIN, store.take(&share.key, share.limit, 0)).await.map(drop)
                }
                _ => Ok(()),
            };
            let result = answered.and(result);
            Answered::Synced { sent, result }
        });
    }

    /// Returns whether the failures that this process has seen count for the fleet. During start-up and
    /// shutdown, calls fail for reasons that other replicas do not share.
    fn is_witness(&self) -> bool {
        self.driver.shutdown.upgrade().is_some_and(|shutdown| {
            shutdown.stage() == Stage::Up && shutdown.readiness() == Readiness::Ready
        })
    }

    fn report(&mut self, now: Instant, is_leaving: bool) -> Report {
        let is_witness = !is_leaving && self.is_witness();
        let (mut whole, mut keyed, mut turn) = (Vec::new(), Vec::new(), 0);
        for policy in self.policies() {
            whole.extend(policy.circuit());
            keyed.extend(policy.keyed_circuits());
            turn += KEYS_IN_A_TICK;
        }
        let first = self.next_key % keyed.len().max(1);
        let mut next_key = first + turn.min(keyed.len());
        let (before, after) = keyed.split_at(first);
        let in_order = whole
            .iter()
            .map(|one| (0, one))
            .chain(after.iter().chain(before).zip(0..).map(|(one, at)| (at, one)));
        let mut work = Work::new(self.driver.link.replicas());
        let mut snapshots = Vec::new();
        for (at, (breaker, circuit)) in in_order {
            if work.is_used_up() {
                // The next report begins with the first breaker that this one leaves out.
                next_key = first + at;
                self.cadence.hurry();
                break;
            }
            // The store does not count what is seen of a breaker that the fleet has opened.
            if circuit.is_open_in_fleet() {
                continue;
            }
            // A process that no longer is a witness withdraws what it has reported.
            let is_withdrawn = !is_witness && self.sent.is_counted(breaker);
            if circuit.take_has_failed() || is_withdrawn || at < turn {
                let (sight, terms) = (circuit.sight(now), circuit.terms());
                let snapshot = self.sent.snapshot(now, is_witness, breaker, sight, terms);
                snapshots.extend(snapshot.inspect(|snapshot| work.add(snapshot)));
            }
        }
        self.next_key = next_key;
        if self.cleaned.is_none_or(|at| now.saturating_duration_since(at) >= REPEAT) {
            self.cleaned = Some(now);
            let known = whole.into_iter().chain(keyed).map(|(breaker, _)| breaker).collect();
            self.sent.retain(&known);
        }
        let forces = if is_leaving { Vec::new() } else { self.forces(now) };
        let replica = Arc::clone(&self.driver.replica);
        Report { replica, is_leaving, epoch: self.epoch, forces, snapshots }
    }

    /// Returns the forces that this process knows of, once a second: the store may have lost its data.
    fn forces(&mut self, now: Instant) -> Vec<(Arc<str>, Forced)> {
        let reported = self.forces_reported;
        if reported.is_some_and(|at| now.saturating_duration_since(at) < REPEAT) {
            return Vec::new();
        }
        self.forces_reported = Some(now);
        let forced =
            |policy: Arc<State>| Some((Arc::clone(&policy.name), policy.fleet_force(now)?));
        self.policies().filter_map(forced).collect()
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Take { share, question } if self.is_away() => {
                share.on_answer(now(), question, None, self.driver.link.sharers());
            }
            Request::Take { share, question } => {
                let (key, limit) = (share.key.clone(), share.limit);
                self.ask(
                    move |driver| {
                        Box::pin(
                            async move { driver.store.take(&key, limit, question.wanted).await },
                        )
                    },
                    move |result| Answered::Took { share, question, result },
                );
            }
            Request::Probe { answer, .. } if self.is_away() || self.is_draining => {
                // Fails if the call was dropped.
                let _ = answer.send(Probing::Again);
            }
            Request::Probe { circuit, breaker, answer } => self.probe(circuit, breaker, answer),
            Request::Settle { ticket, ended } => {
                let Ticket { id, .. } = ticket;
                if let Some(granted) = self.probes.remove(&id) {
                    self.settle(granted, ended);
                }
            }
            Request::Force { force, answer } => {
                let (sent, epoch, asked) = (now(), self.epoch, force.clone());
                self.ask(
                    move |driver| {
                        Box::pin(
                            async move { driver.store.force(&driver.link.service, &asked).await },
                        )
                    },
                    move |result| Answered::Forced { sent, epoch, force, answer, result },
                );
            }
        }
    }

    fn next_probe(&mut self, breaker: Arc<str>, circuit: &Circuit) -> Probe {
        self.next_probe = self.next_probe.wrapping_add(1);
        let id = format!("{}.{}", self.driver.replica, self.next_probe).into();
        Probe { breaker, id, terms: circuit.terms() }
    }

    fn probe(
        &mut self,
        circuit: Arc<Circuit>,
        breaker: Arc<str>,
        answer: oneshot::Sender<Probing>,
    ) {
        let probe = self.next_probe(breaker, &circuit);
        let (sent, asked) = (now(), probe.clone());
        self.ask(
            move |driver| {
                Box::pin(async move { driver.store.probe(&driver.link.service, &asked).await })
            },
            move |result| Answered::Probed { sent, circuit, probe, answer, result },
        );
    }

    fn settle(&mut self, granted: Granted, ended: Ended) {
        if self.is_away() {
            granted.circuit.settle_alone(now(), granted.generation, ended);
            return;
        }
        let (sent, spread) = (now(), fastrand::f64());
        let (probe, generation) = (granted.probe.clone(), granted.generation);
        let settled = Settled { probe, generation, ended, spread };
        self.ask(
            move |driver| {
                Box::pin(async move { driver.store.settle(&driver.link.service, &settled).await })
            },
            move |result| Answered::Settled { sent, granted, ended, result },
        );
    }

    fn log(&self, emit: impl FnOnce() + Send + 'static) {
        match self.driver.shutdown.upgrade() {
            Some(shutdown) => adapter::log(&shutdown, emit),
            None => adapter::log_aside(tracing::Level::WARN, || emit),
        }
    }

    /// Withdraws from the fleet, because the shutdown has begun: the failures that this process has seen
    /// no longer count, and its probes are returned.
    fn withdraw(&mut self) {
        self.is_draining = true;
        self.cadence.hurry();
        self.return_probes();
    }

    fn return_probes(&mut self) {
        for granted in std::mem::take(&mut self.probes).into_values() {
            self.settle(granted, Ended::Neutral);
        }
    }

    /// Sends the last report. If the store is away, sends nothing.
    async fn leave(mut self) {
        let is_away = self.is_away();
        self.driver.link.set_away(true);
        if !is_away {
            let report = self.report(now(), true);
            let Self { driver, questions, .. } = &mut self;
            let last = async {
                let (_, ()) =
                    tokio::join!(driver.store.sync(&driver.link.service, &report), async {
                        while questions.join_next().await.is_some() {}
                    },);
            };
            // If the report is lost, the store removes this replica after a few seconds.
            let _ = timeout(ASK_WITHIN, last).await;
        }
        self.questions.shutdown().await;
    }
}

type Asking<T> = std::pin::Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Waits for an answer. Time in which this process was not scheduled does not count against the store.
async fn within<T>(
    limit: Duration,
    asking: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, NoAnswer> {
    tokio::pin!(asking);
    let began = now();
    let mut answer = timeout(limit, &mut asking).await;
    let late = now().saturating_duration_since(began).saturating_sub(limit);
    if answer.is_err() && late >= STALLED {
        // The answer may have arrived, but the task that reads it has not run yet.
        answer = timeout(STALLED, asking).await;
    }
    match answer {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(NoAnswer::Failed(error)),
        Err(_) => Err(NoAnswer::InTime),
    }
}

// === impl AwayAtEnd ===

impl Drop for AwayAtEnd {
    fn drop(&mut self) {
        self.0.set_away(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn s1558_an_answer_that_arrived_while_the_process_did_not_run_counts() {
        let (answer, answered) = oneshot::channel();
        let mut tasks = JoinSet::new();
        // As the task of a connection, which has to run several times.
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let _ = answer.send(7);
        });
        // Nothing else runs meanwhile.
        tasks.spawn(async { std::thread::sleep(ASK_WITHIN * 3) });
        let asking = async { Ok::<_, StoreError>(answered.await.unwrap_or_default()) };
        assert!(matches!(within(ASK_WITHIN, asking).await, Ok(7)));
        while let Some(ended) = tasks.join_next().await {
            assert!(ended.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn s922_a_question_without_an_answer_ends_after_25_ms() {
        let began = tokio::time::Instant::now();
        let never = std::future::pending::<Result<(), StoreError>>();
        assert!(matches!(within(ASK_WITHIN, never).await, Err(NoAnswer::InTime)));
        assert_eq!(began.elapsed(), ASK_WITHIN);
    }
}
