//! The cost of entities on one node: an ask, compared with a bounded channel and a oneshot, and with an
//! ask of kameo; and the memory of entities that wait for mail. Nanoseconds for each ask, bytes for
//! memory.

use std::time::{Duration, Instant};

use adieu::{Config, Shutdown};
use adieu_benches::counting::{Counting, allocated};
use adieu_benches::{Claim, main as bench};
use adieu_cluster::store::Memory;
use adieu_cluster::{Cluster, Command, Entity, Region};
use kameo::actor::{ActorRef, Spawn};
use kameo::message::{Context, Message};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ASKS: u32 = 200_000;
const ENTITIES: u32 = 100_000;
const TTL: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Add(u64);

impl Command for Add {
    type Reply = u64;
}

fn main() {
    bench(
        "regions",
        9,
        &[
            ("channel, one thread", || one_thread(channel())),
            ("ask, one thread", || one_thread(ask())),
            ("kameo, one thread", || one_thread(kameo_ask())),
            ("channel, two threads", || two_threads(channel())),
            ("ask, two threads", || two_threads(ask())),
            ("kameo, two threads", || two_threads(kameo_ask())),
            ("ask, 100,000 entities in turn", || one_thread(spread())),
            ("memory of an idle entity", || one_thread(memory())),
            ("memory of a node with 100,000 entities", || one_thread(node_memory())),
            ("memory of an idle task with a channel", || one_thread(bare_memory())),
        ],
        &[
            Claim::ratio(
                "an ask to an entity of the same node, against a channel and a oneshot",
                "ask, one thread",
                "channel, one thread",
                1.5,
            ),
            Claim::ratio(
                "the same, with two worker threads",
                "ask, two threads",
                "channel, two threads",
                1.5,
            ),
            Claim::ratio(
                "an ask to an entity of the same node, against an ask of kameo",
                "ask, one thread",
                "kameo, one thread",
                1.1,
            ),
            Claim::ratio(
                "the same, with two worker threads",
                "ask, two threads",
                "kameo, two threads",
                1.1,
            ),
            // For the record: bytes, and MiB.
            figure("memory of an idle entity, in bytes", "memory of an idle entity", 1.0),
            figure(
                "memory of a node with 100,000 idle entities, in MiB",
                "memory of a node with 100,000 entities",
                1024.0 * 1024.0,
            ),
            Claim::ratio(
                "memory of an idle entity, against a task with a channel",
                "memory of an idle entity",
                "memory of an idle task with a channel",
                f64::INFINITY,
            ),
        ],
    );
}

fn figure(what: &'static str, ours: &'static str, unit: f64) -> Claim {
    Claim { what, ours, against: None, per: (unit, 1.0), at_most: f64::INFINITY }
}

fn one_thread(measured: impl Future<Output = f64>) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measured)
}

fn two_threads(measured: impl Future<Output = f64> + Send + 'static) -> f64 {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    // On a worker, as the application is.
    runtime.block_on(async { tokio::spawn(measured).await.expect("a figure") })
}

fn per_ask(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e9 / f64::from(ASKS)
}

/// A task behind a channel of the size of a mailbox, and a oneshot for each reply.
async fn channel() -> f64 {
    let (to, mut from) = mpsc::channel::<(Add, oneshot::Sender<u64>)>(1_000);
    let task = tokio::spawn(async move {
        let mut total = 0;
        while let Some((Add(number), reply)) = from.recv().await {
            total += number;
            let _ = reply.send(total);
        }
    });
    let ask = async |number| {
        let (reply, answer) = oneshot::channel();
        to.send((Add(number), reply)).await.expect("the task runs");
        answer.await.expect("a reply")
    };
    ask(0).await;
    let began = Instant::now();
    for number in 0..ASKS {
        ask(number.into()).await;
    }
    let took = per_ask(began);
    drop(to);
    task.await.expect("the task ended");
    took
}

/// An actor with the work of the entity.
struct Counts(u64);

impl kameo::Actor for Counts {
    type Args = Self;
    type Error = kameo::error::Infallible;

    async fn on_start(args: Self, _: ActorRef<Self>) -> Result<Self, kameo::error::Infallible> {
        Ok(args)
    }
}

impl Message<Add> for Counts {
    type Reply = u64;

    async fn handle(&mut self, Add(number): Add, _: &mut Context<Self, u64>) -> u64 {
        self.0 += number;
        self.0
    }
}

/// An actor of kameo with a mailbox of the same size.
async fn kameo_ask() -> f64 {
    let actor = Counts::spawn_with_mailbox(Counts(0), kameo::mailbox::bounded(1_000));
    actor.ask(Add(0)).await.expect("a reply");
    let began = Instant::now();
    for number in 0..ASKS {
        actor.ask(Add(number.into())).await.expect("a reply");
    }
    let took = per_ask(began);
    actor.stop_gracefully().await.expect("it runs");
    actor.wait_for_shutdown().await;
    took
}

async fn region() -> (Shutdown, Region<Add>) {
    let shutdown = Shutdown::configured(Config::for_tests()).expect("a configuration");
    let cluster = Cluster::new(Memory::new(), "bench").ttl(TTL).entity_starts(u32::MAX);
    let cluster = cluster.on(&shutdown).expect("a node");
    let region = cluster.region("counter").serve(async |mut me: Entity<Add>| {
        let mut total = 0;
        while let Some(mail) = me.next().await {
            total += mail.command().0;
            mail.reply(total);
        }
    });
    let region = region.expect("a region");
    cluster.join().await.expect("a member");
    region.at("a").ask(Add(0)).await.expect("a reply");
    (shutdown, region)
}

async fn ask() -> f64 {
    let (_shutdown, region) = region().await;
    let began = Instant::now();
    for number in 0..ASKS {
        region.at("a").ask(Add(number.into())).await.expect("a reply");
    }
    per_ask(began)
}

/// Asks as many entities in turn, which all run.
async fn spread() -> f64 {
    let (_shutdown, region) = region().await;
    let keys: Vec<String> = (0..ENTITIES - 1).map(|at| format!("counter-{at}")).collect();
    for key in &keys {
        region.at(key).ask(Add(0)).await.expect("a reply");
    }
    let began = Instant::now();
    for key in &keys {
        region.at(key).ask(Add(1)).await.expect("a reply");
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(ENTITIES - 1)
}

async fn memory() -> f64 {
    let (_shutdown, region) = region().await;
    let keys: Vec<String> = (0..ENTITIES - 1).map(|at| format!("counter-{at}")).collect();
    let before = allocated();
    for key in &keys {
        region.at(key).ask(Add(0)).await.expect("a reply");
    }
    (allocated() - before) / f64::from(ENTITIES - 1)
}

/// The memory of a whole node: table, region, and as many entities.
async fn node_memory() -> f64 {
    let before = allocated();
    let (_shutdown, region) = region().await;
    for at in 0..ENTITIES - 1 {
        region.at(format!("counter-{at}")).ask(Add(0)).await.expect("a reply");
    }
    allocated() - before
}

async fn bare_memory() -> f64 {
    let before = allocated();
    let mut channels = Vec::with_capacity(ENTITIES as usize);
    for _ in 0..ENTITIES {
        let (to, mut from) = mpsc::channel::<(Add, oneshot::Sender<u64>)>(1_000);
        drop(tokio::spawn(async move {
            let mut total = 0;
            while let Some((Add(number), reply)) = from.recv().await {
                total += number;
                let _ = reply.send(total);
            }
        }));
        channels.push(to);
    }
    tokio::task::yield_now().await;
    (allocated() - before) / f64::from(ENTITIES)
}
