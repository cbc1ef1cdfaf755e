//! A simulated fleet: real policies and drivers on the paused clock, and a store with faults.

mod breakers;
mod forced;
mod limits;
mod outages;
mod reports;
mod shutdown;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{Config, KillAfter, Reason, Shutdown, adapter};
use tokio::time::{Instant, sleep};

use crate::breaker::Standing;
use crate::rate::{Gcra, Taken};
use crate::store::{
    Force, Memory, Probe, Probed, Reply, Report, Settled, SharedStore, Store, Synced,
};
use crate::striped::lock;
use crate::{
    Attempt, Breaker, BreakerState, CallError, Code, Policies, Policy, PolicyBuilder, Rate,
    WithoutStore,
};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The faults of one replica's way to the store.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Questions do not arrive.
    is_cut: bool,
    /// Questions about rate limits do not arrive: in a Redis Cluster, they go to another node.
    is_limit_cut: bool,
    /// Questions about rate limits panic.
    is_limit_broken: bool,
    /// Of a hundred answers, so many are lost after the store has acted on the question.
    lost: u8,
    /// How long a question and its answer take together, at most. Answers overtake each other.
    delay: Duration,
}

/// A store in memory behind faults.
struct Faulty {
    memory: Memory,
    faults: Arc<Mutex<Faults>>,
    random: Mutex<fastrand::Rng>,
    /// How many questions were sent.
    questions: Arc<Mutex<u64>>,
}

impl Faulty {
    /// Waits until the question arrives. Returns the way of its answer.
    async fn fate(&self) -> RequestFault {
        *lock(&self.questions) += 1;
        let faults = *lock(&self.faults);
        if faults.is_cut {
            std::future::pending::<()>().await;
        }
        let (fate, way) = {
            let mut random = lock(&self.random);
            let delay = faults.delay.mul_f64(random.f64());
            let way = delay.mul_f64(random.f64());
            (RequestFault { is_lost: random.u8(0..100) < faults.lost, way_back: delay - way }, way)
        };
        sleep(way).await;
        fate
    }
}

/// The fate of an answer.
struct RequestFault {
    is_lost: bool,
    way_back: Duration,
}

macro_rules! behind_faults {
    ($self:ident, $($question:tt)+) => {
        Box::pin(async move {
            let fate = $self.fate().await;
            let answer = $self.memory.$($question)+.await;
            if fate.is_lost {
                std::future::pending::<()>().await;
            }
            sleep(fate.way_back).await;
            answer
        })
    };
}

impl Store for Faulty {
    fn take<'a>(&'a self, key: &'a str, limit: Gcra, wanted: u32) -> Reply<'a, Taken> {
        let Faults { is_limit_cut, is_limit_broken, .. } = *lock(&self.faults);
        assert!(!is_limit_broken, "a fault of the test");
        if is_limit_cut {
            return Box::pin(std::future::pending());
        }
        behind_faults!(self, take(key, limit, wanted))
    }

    fn sync<'a>(&'a self, service: &'a str, report: &'a Report) -> Reply<'a, Synced> {
        behind_faults!(self, sync(service, report))
    }

    fn probe<'a>(&'a self, service: &'a str, probe: &'a Probe) -> Reply<'a, Probed> {
        behind_faults!(self, probe(service, probe))
    }

    fn settle<'a>(&'a self, service: &'a str, settled: &'a Settled) -> Reply<'a, Option<Standing>> {
        behind_faults!(self, settle(service, settled))
    }

    fn force<'a>(&'a self, service: &'a str, force: &'a Force) -> Reply<'a, ()> {
        behind_faults!(self, force(service, force))
    }

    fn reconnect(&self) -> Reply<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// A process of the simulated fleet.
struct Replica {
    shutdown: Shutdown,
    policies: Policies,
    policy: Policy,
    faults: Arc<Mutex<Faults>>,
    questions: Arc<Mutex<u64>>,
}

impl Replica {
    fn start(memory: &Memory, build: impl Fn(PolicyBuilder) -> PolicyBuilder) -> Self {
        let config = Config::for_tests().kill_after(KillAfter::After(secs(20)));
        let shutdown = Shutdown::configured(config).unwrap();
        let policy = build(Policy::new("payments")).start(&shutdown).unwrap();
        let (faults, questions) = (Arc::default(), Arc::default());
        let store = Faulty {
            memory: memory.clone(),
            faults: Arc::clone(&faults),
            random: Mutex::new(fastrand::Rng::with_seed(7)),
            questions: Arc::clone(&questions),
        };
        let policies: Policies = [policy.clone()].into_iter().collect();
        let policies = policies.shared(SharedStore(Arc::new(store)), "checkout").unwrap();
        shutdown.mark_started();
        Self { shutdown, policies, policy, faults, questions }
    }

    fn set(&self, faults: Faults) {
        *lock(&self.faults) = faults;
    }

    async fn call(&self, is_well: bool) -> Result<(), CallError<&'static str>> {
        self.policy.call(async |_: Attempt| if is_well { Ok(()) } else { Err("sick") }).await
    }

    async fn calls(&self, count: usize, is_well: bool) {
        for _ in 0..count {
            let _ = self.call(is_well).await;
        }
    }

    fn breaker(&self) -> BreakerState {
        self.policy.status().breaker.unwrap()
    }

    fn is_open(&self) -> bool {
        matches!(self.breaker(), BreakerState::Open { .. })
    }

    fn times_away(&self) -> u64 {
        self.policy.state().link().unwrap().times_away()
    }

    fn is_closed(&self) -> bool {
        self.breaker() == BreakerState::Closed
    }
}

fn with_breaker(policy: PolicyBuilder) -> PolicyBuilder {
    policy.breaker(Breaker::at(0.5).of(20).opens_for(secs(5))).timeout(secs(1))
}

fn fleet(count: usize, build: impl Fn(PolicyBuilder) -> PolicyBuilder) -> (Vec<Replica>, Memory) {
    let memory = Memory::new();
    ((0..count).map(|_| Replica::start(&memory, &build)).collect(), memory)
}

/// Waits until this holds for all replicas; returns how long that took.
async fn until_all(replicas: &[Replica], holds: impl Fn(&Replica) -> bool) -> Duration {
    let began = Instant::now();
    while !replicas.iter().all(&holds) {
        assert!(began.elapsed() < secs(60), "not within a minute");
        sleep(ms(1)).await;
    }
    began.elapsed()
}

fn code<T: std::fmt::Debug>(result: Result<T, CallError<&'static str>>) -> Code {
    match result {
        Err(CallError::Refused(refused)) => refused.code(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Runs futures at the same time, on this task.
async fn futures(futures: impl Iterator<Item: Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
