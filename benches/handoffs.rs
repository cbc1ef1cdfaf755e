//! The cost of moving entities between nodes, on etcd: the hand-off of an idle shard, compared with one
//! bare transaction and its watch event; a node with many shards and idle entities that leaves,
//! compared with draining as many actors and one transaction; and the longest ask while every node is
//! replaced. Times in microseconds. The nodes are in one process, and the server is on this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use adieu::actors::{ActorSystem, kameo as on_kameo};
use adieu::{Config, Reason, Shutdown};
use adieu_benches::bare::{endpoint, transaction_and_event, with_etcd};
use adieu_benches::{Claim, main as bench};
use adieu_cluster::store::Etcd;
use adieu_cluster::{Cluster, Command, Entity, InProcess, NodeId, Region};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Longer than a case takes, so that no session expires.
const TTL: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(60);
/// How often a case repeats what it measures.
const TIMES: usize = 21;
const SHARDS: u32 = 40;
const ENTITIES: usize = 4_000;
const ASKERS: usize = 16;

fn main() {
    if with_etcd() {
        return;
    }
    bench(
        "handoffs",
        7,
        &[
            ("transaction and watch event", || run(transaction_and_event())),
            ("idle shard", || run(idle_shard())),
            ("4,000 actors and one transaction", || run(actors_and_transaction())),
            ("40 shards, 4,000 idle entities", || run(leaves(Took::HandOver))),
            ("the same, until the node has left", || run(leaves(Took::Leave))),
            ("longest ask of a rolling restart", || run(longest_ask())),
        ],
        &[
            Claim::ratio(
                "an idle shard closes, until the next owner handles a message, against one \
                 transaction and its event",
                "idle shard",
                "transaction and watch event",
                1.5,
            ),
            Claim::ratio(
                "handing over 40 shards with 4,000 idle entities, against draining 4,000 actors of \
                 kameo and one transaction",
                "40 shards, 4,000 idle entities",
                "4,000 actors and one transaction",
                2.0,
            ),
            Claim::ratio(
                "the same, until the node has left the cluster",
                "the same, until the node has left",
                "4,000 actors and one transaction",
                f64::INFINITY,
            ),
            Claim::ratio(
                "the longest ask while three nodes are replaced, against one transaction and its event",
                "longest ask of a rolling restart",
                "transaction and watch event",
                f64::INFINITY,
            ),
        ],
    );
}

fn run(measured: impl Future<Output = f64>) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measured)
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

/// Names a cluster or a node.
fn name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[derive(Serialize, Deserialize)]
struct Ping;

impl Command for Ping {
    type Reply = ();
}

/// A node in this process, with a connection to the store of its own.
struct Node {
    shutdown: Shutdown,
    cluster: Cluster,
    region: Region<Ping>,
}

/// An event of an entity, and its time.
enum Seen {
    Handles(Instant),
    Ends(Instant),
}

/// The nodes of one case.
struct Stage {
    cluster: String,
    network: InProcess,
    shards: u32,
    seen: Option<mpsc::Sender<Seen>>,
}

impl Stage {
    fn new(shards: u32) -> Self {
        Self { cluster: name(), network: InProcess::new(), shards, seen: None }
    }

    async fn join(&self, hosts: bool) -> Node {
        let mut config = Config::for_tests();
        config = config.default_phase_timeout(LONG);
        let shutdown = Shutdown::configured(config).expect("a configuration");
        let store = Etcd::connect(&endpoint()).await.expect("a server");
        let cluster = Cluster::new(store, &self.cluster).node(name()).ttl(TTL);
        let cluster = cluster.entity_starts(u32::MAX).in_process(&self.network);
        let cluster = cluster.on(&shutdown).expect("a node");
        let region = cluster.region::<Ping>("bench").shards(self.shards);
        let seen = self.seen.clone();
        let region = match hosts {
            false => region.proxy(),
            true => region.serve(move |me| entity(me, seen.clone())),
        };
        let region = region.expect("a region");
        cluster.join().await.expect("up");
        Node { shutdown, cluster, region }
    }
}

async fn entity(mut me: Entity<Ping>, seen: Option<mpsc::Sender<Seen>>) {
    while let Some(mail) = me.next().await {
        if let Some(seen) = &seen {
            seen.send(Seen::Handles(Instant::now())).await.expect("a receiver");
        }
        mail.reply(());
    }
    if let Some(seen) = &seen {
        seen.send(Seen::Ends(Instant::now())).await.expect("a receiver");
    }
}

impl Node {
    fn id(&self) -> NodeId {
        self.cluster.id().clone()
    }

    async fn ask(&self, key: &str) {
        self.region.at(key).ask(Ping).within(LONG).await.expect("a reply");
    }

    /// Waits until this node has seen that another is up.
    async fn sees(&self, other: &NodeId) {
        let is_up = |status: &adieu_cluster::ClusterStatus| {
            status.nodes.iter().any(|it| it.node == *other && it.ready)
        };
        while !is_up(&self.cluster.status()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The time from when an entity notices that its shard is to be handed over, until the next owner
/// handles a message that was sent then.
async fn idle_shard() -> f64 {
    let (sender, mut seen) = mpsc::channel(16);
    let stage = Stage { seen: Some(sender), ..Stage::new(1) };
    let (one, two, asks) =
        (stage.join(true).await, stage.join(true).await, stage.join(false).await);
    one.sees(&two.id()).await;
    asks.sees(&two.id()).await;
    asks.ask("a").await;
    let Some(Seen::Handles(_)) = seen.recv().await else { panic!("it handles") };
    let mut took = Vec::new();
    for turn in 0..TIMES {
        let to = if turn % 2 == 0 { two.id() } else { one.id() };
        asks.cluster.request_move("bench", 0, &to).await.expect("a move");
        let Some(Seen::Ends(ended)) = seen.recv().await else { panic!("it ends") };
        asks.ask("a").await;
        let Some(Seen::Handles(handled)) = seen.recv().await else { panic!("it handles") };
        took.push(handled - ended);
    }
    took.sort();
    micros(took[took.len() / 2])
}

/// An idle actor.
struct Idle;

impl kameo::Actor for Idle {
    type Args = Self;
    type Error = kameo::error::Infallible;

    async fn on_start(
        args: Self,
        _: kameo::actor::ActorRef<Self>,
    ) -> Result<Self, kameo::error::Infallible> {
        Ok(args)
    }
}

/// Drains as many actors as the node has entities, and commits once.
async fn actors_and_transaction() -> f64 {
    let drained = tokio::spawn(async {
        let system = ActorSystem::new("bench");
        let mut held = Vec::with_capacity(ENTITIES);
        for number in 0..ENTITIES {
            let actor = on_kameo::actor::<Idle>(Idle);
            held.push(system.spawn(&format!("worker-{number}"), actor).await.expect("room"));
        }
        let began = Instant::now();
        let report = system.shutdown(LONG).await.expect("from outside");
        assert!(report.is_clean());
        micros(began.elapsed())
    });
    drained.await.expect("no panic") + transaction_and_event().await
}

/// The part of a leave that is measured.
#[derive(Clone, Copy)]
enum Took {
    HandOver,
    Leave,
}

/// A node leaves that owns all shards, each with idle entities.
async fn leaves(part: Took) -> f64 {
    let stage = Stage::new(SHARDS);
    let one = stage.join(true).await;
    for number in 0..ENTITIES {
        one.ask(&format!("entity-{number}")).await;
    }
    let two = stage.join(true).await;
    one.sees(&two.id()).await;
    let began = Instant::now();
    let report = one.shutdown.run(Reason::Unknown).await.expect("a report");
    let took = began.elapsed();
    assert!(report.is_clean(), "{report}");
    let phase = report.phase("cluster-sharding-shutdown-region").expect("the phase");
    match part {
        Took::HandOver => micros(phase.took.expect("it ran")),
        Took::Leave => micros(took),
    }
}

/// The longest ask while three nodes are replaced one after another.
async fn longest_ask() -> f64 {
    let stage = Stage::new(SHARDS);
    let first = [stage.join(true).await, stage.join(true).await, stage.join(true).await];
    let asks = Arc::new(stage.join(false).await);
    for (at, node) in first.iter().enumerate() {
        asks.sees(&node.id()).await;
        for shard in (0..SHARDS).filter(|shard| *shard as usize % first.len() == at) {
            // It may be there already.
            let _ = asks.cluster.request_move("bench", shard, &node.id()).await;
        }
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let mut askers = JoinSet::new();
    for asker in 0..ASKERS {
        let (asks, is_over) = (Arc::clone(&asks), Arc::clone(&is_over));
        askers.spawn(async move {
            let mut longest = Duration::ZERO;
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let began = Instant::now();
                asks.ask(&format!("entity-{asker}-{}", number % 100)).await;
                longest = longest.max(began.elapsed());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            longest
        });
    }
    let mut joined = Vec::new();
    for node in first {
        let next = stage.join(true).await;
        node.sees(&next.id()).await;
        let report = node.shutdown.run(Reason::Unknown).await.expect("a report");
        assert!(report.is_clean(), "{report}");
        joined.push(next);
    }
    is_over.store(true, Ordering::Relaxed);
    let longest = askers.join_all().await.into_iter().max().expect("askers");
    micros(longest)
}
