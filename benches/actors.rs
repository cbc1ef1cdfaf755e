//! The cost of draining actors, compared with the frameworks' own stop-and-wait. Times in nanoseconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adieu::actors::{ActorSystem, kameo as on_kameo, ractor as on_ractor};
use adieu_benches::counting::{Counting, allocated};
use adieu_benches::{Claim, main as bench};
use futures_util::future::join_all;
use kameo::actor::{ActorRef as KameoRef, Spawn};
use kameo::error::Infallible;
use kameo::mailbox;
use kameo::message::{Context, Message};
use ractor::{ActorProcessingErr, ActorRef as RactorRef};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const IDLE: usize = 100_000;
/// Enough actors to measure the bytes of each.
const SOME: usize = 10_000;
const BACKLOG: usize = 1_000_000;
const LONG: Duration = Duration::from_secs(60);

fn main() {
    bench(
        "actors",
        // Many rounds: the cases of a round are seconds apart, and the load of the machine changes.
        25,
        &[
            ("kameo, 100,000 idle: adieu", || kameo_idle(IDLE, true).0),
            ("kameo, 100,000 idle: alone", || kameo_idle(IDLE, false).0),
            ("ractor, 100,000 idle: drain_and_wait", || ractor_drain_and_wait(IDLE)),
            ("ractor, 100,000 idle: adieu", || ractor_idle(IDLE, true).0),
            ("ractor, 100,000 idle: alone", || ractor_idle(IDLE, false).0),
            ("kameo, backlog of 1,000,000: adieu", || kameo_backlog(true)),
            ("kameo, backlog of 1,000,000: alone", || kameo_backlog(false)),
            ("ractor, backlog of 1,000,000: adieu", || ractor_backlog(true)),
            ("ractor, backlog of 1,000,000: alone", || ractor_backlog(false)),
            ("kameo, bytes beyond its own", || {
                kameo_idle(SOME, true).1 - kameo_idle(SOME, false).1
            }),
            ("ractor, bytes beyond its own", || {
                ractor_idle(SOME, true).1 - ractor_idle(SOME, false).1
            }),
        ],
        &[
            Claim::ratio(
                "draining 100,000 idle actors of kameo, against its own stop-and-wait",
                "kameo, 100,000 idle: adieu",
                "kameo, 100,000 idle: alone",
                1.3,
            ),
            // The baseline is two loops: one sends all stop messages, one awaits each actor. With ractor
            // nothing cheaper is possible.
            Claim::ratio(
                "draining 100,000 idle actors of ractor, against its own stop-and-wait",
                "ractor, 100,000 idle: adieu",
                "ractor, 100,000 idle: alone",
                1.3,
            ),
            Claim::ratio(
                "draining 100,000 idle actors of ractor, against its drain_and_wait for all at once",
                "ractor, 100,000 idle: adieu",
                "ractor, 100,000 idle: drain_and_wait",
                f64::INFINITY,
            ),
            Claim::ratio(
                "draining a backlog of 1,000,000 messages with kameo, against it alone",
                "kameo, backlog of 1,000,000: adieu",
                "kameo, backlog of 1,000,000: alone",
                1.1,
            ),
            Claim::ratio(
                "draining a backlog of 1,000,000 messages with ractor, against it alone",
                "ractor, backlog of 1,000,000: adieu",
                "ractor, backlog of 1,000,000: alone",
                1.1,
            ),
            Claim {
                what: "bytes of an actor of kameo beyond its own",
                ours: "kameo, bytes beyond its own",
                against: None,
                per: (1.0, 1.0),
                at_most: 512.0,
            },
            Claim {
                what: "bytes of an actor of ractor beyond its own",
                ours: "ractor, bytes beyond its own",
                against: None,
                per: (1.0, 1.0),
                at_most: 512.0,
            },
        ],
    );
}

/// An actor that counts messages.
struct Counts(usize);

/// A message to be counted.
struct One;

/// A message whose handler waits for a permit.
struct Wait(Arc<Semaphore>);

impl kameo::Actor for Counts {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(args: Self, _: KameoRef<Self>) -> Result<Self, Infallible> {
        Ok(args)
    }
}

impl Message<One> for Counts {
    type Reply = ();

    async fn handle(&mut self, _: One, _: &mut Context<Self, ()>) {
        self.0 += 1;
    }
}

impl Message<Wait> for Counts {
    type Reply = ();

    async fn handle(&mut self, Wait(go): Wait, _: &mut Context<Self, ()>) {
        drop(go.acquire().await);
    }
}

enum Msg {
    One,
    Wait(Arc<Semaphore>),
}

impl ractor::Actor for Counts {
    type Msg = Msg;
    type State = usize;
    type Arguments = ();

    async fn pre_start(&self, _: RactorRef<Msg>, (): ()) -> Result<usize, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(
        &self,
        _: RactorRef<Msg>,
        message: Msg,
        count: &mut usize,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::One => *count += 1,
            Msg::Wait(go) => drop(go.acquire().await),
        }
        Ok(())
    }
}

/// Runs `work` on a worker thread, as applications do: `block_on` is woken more slowly.
fn on_a_worker<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(runtime.spawn(work)).expect("no panic")
}

fn nanos(began: Instant) -> f64 {
    began.elapsed().as_nanos() as f64
}

/// Returns the time to end many idle actors, and the bytes of each.
fn kameo_idle(many: usize, with_adieu: bool) -> (f64, f64) {
    on_a_worker(async move {
        let mut held = Vec::with_capacity(many);
        let mut alone = Vec::with_capacity(many);
        let system = ActorSystem::new("bench");
        let before = allocated();
        for number in 0..many {
            if with_adieu {
                let actor = on_kameo::actor::<Counts>(Counts(0));
                held.push(system.spawn(&format!("worker-{number}"), actor).await.expect("room"));
            } else {
                let actor = Counts::spawn(Counts(0));
                actor.wait_for_startup().await;
                alone.push(actor);
            }
        }
        let bytes = (allocated() - before) / many as f64;
        let began = Instant::now();
        if with_adieu {
            let report = system.shutdown(LONG).await.expect("from outside");
            let took = nanos(began);
            assert!(report.is_clean() && report.nodes.len() == many);
            (took, bytes)
        } else {
            for actor in &alone {
                actor.stop_gracefully().await.expect("it runs");
            }
            for actor in &alone {
                actor.wait_for_shutdown_with_result(|_| ()).await;
            }
            (nanos(began), bytes)
        }
    })
}

fn ractor_idle(many: usize, with_adieu: bool) -> (f64, f64) {
    on_a_worker(async move {
        let mut held = Vec::with_capacity(many);
        let mut alone = Vec::with_capacity(many);
        let system = ActorSystem::new("bench");
        let before = allocated();
        for number in 0..many {
            if with_adieu {
                let actor = on_ractor::actor(Counts(0), ());
                held.push(system.spawn(&format!("worker-{number}"), actor).await.expect("room"));
            } else {
                let (actor, _) = ractor::Actor::spawn(None, Counts(0), ()).await.expect("room");
                alone.push(actor);
            }
        }
        let bytes = (allocated() - before) / many as f64;
        let began = Instant::now();
        if with_adieu {
            let report = system.shutdown(LONG).await.expect("from outside");
            let took = nanos(began);
            assert!(report.is_clean() && report.nodes.len() == many);
            (took, bytes)
        } else {
            for actor in &alone {
                actor.drain().expect("it runs");
            }
            for actor in &alone {
                actor.wait(None).await.expect("no timeout");
            }
            (nanos(began), bytes)
        }
    })
}

/// Returns the time of ractor's own `drain_and_wait`, called for all actors at once.
fn ractor_drain_and_wait(many: usize) -> f64 {
    on_a_worker(async move {
        let mut alone = Vec::with_capacity(many);
        for _ in 0..many {
            alone.push(ractor::Actor::spawn(None, Counts(0), ()).await.expect("room").0);
        }
        let began = Instant::now();
        let ended = join_all(alone.iter().map(|actor| actor.drain_and_wait(None))).await;
        let took = nanos(began);
        assert!(ended.iter().all(Result::is_ok));
        took
    })
}

/// Returns the time in which one actor processes a large backlog.
fn kameo_backlog(with_adieu: bool) -> f64 {
    on_a_worker(async move {
        let system = ActorSystem::new("bench");
        let go = Arc::new(Semaphore::new(0));
        let held;
        let actor = if with_adieu {
            let actor = on_kameo::actor::<Counts>(Counts(0)).mailbox(mailbox::unbounded());
            held = system.spawn("counts", actor).await.expect("room");
            held.actor_ref().clone()
        } else {
            Counts::spawn_with_mailbox(Counts(0), mailbox::unbounded())
        };
        actor.tell(Wait(Arc::clone(&go))).await.expect("it runs");
        for _ in 0..BACKLOG {
            actor.tell(One).await.expect("it runs");
        }
        let began = Instant::now();
        go.add_permits(1);
        if with_adieu {
            assert!(system.shutdown(LONG).await.expect("from outside").is_clean());
        } else {
            actor.stop_gracefully().await.expect("it runs");
            actor.wait_for_shutdown_with_result(|_| ()).await;
        }
        nanos(began)
    })
}

fn ractor_backlog(with_adieu: bool) -> f64 {
    on_a_worker(async move {
        let system = ActorSystem::new("bench");
        let go = Arc::new(Semaphore::new(0));
        let actor = if with_adieu {
            let actor = on_ractor::actor(Counts(0), ());
            system.spawn("counts", actor).await.expect("room").actor_ref().clone()
        } else {
            ractor::Actor::spawn(None, Counts(0), ()).await.expect("room").0
        };
        let send = |message| assert!(actor.send_message(message).is_ok());
        send(Msg::Wait(Arc::clone(&go)));
        for _ in 0..BACKLOG {
            send(Msg::One);
        }
        let began = Instant::now();
        go.add_permits(1);
        if with_adieu {
            assert!(system.shutdown(LONG).await.expect("from outside").is_clean());
        } else {
            actor.drain_and_wait(None).await.expect("it runs");
        }
        nanos(began)
    })
}
