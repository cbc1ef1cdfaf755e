//! The cost of a cluster: a leader change, the hand-off of a singleton and a join on etcd, compared
//! with one bare transaction and its watch event; the placement of shards; and what idle nodes ask of
//! their store. Times in microseconds, unless a claim has a unit. The server is real, and on this
//! machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use adieu::{Config, Reason, Shutdown};
use adieu_benches::bare::{endpoint, median, transaction_and_event, with_etcd};
use adieu_benches::{Claim, main as bench};
use adieu_cluster::measure::Unplaced;
use adieu_cluster::store::{
    Change, Changes, Commit, Committed, Etcd, Memory, Reply, Revision, Session, Snapshot, Standing,
    Store, Update,
};
use adieu_cluster::{Cluster, SingletonCx};
use tokio::sync::mpsc;

/// Longer than a case takes, so that no session expires.
const TTL: Duration = Duration::from_secs(60);

/// How often a case repeats what it measures.
const TIMES: usize = 21;

fn main() {
    if with_etcd() {
        return;
    }
    let claim = |what, ours, at_most| Claim { what, ours, against: None, per: (1.0, 1.0), at_most };
    bench(
        "cluster",
        7,
        &[
            ("transaction and watch event", || run(transaction_and_event())),
            ("without a leader", || run(leader_change(Since::Seen))),
            ("leader change", || run(leader_change(Since::Sent))),
            ("hand-off", || run(hand_over())),
            ("join, 1 node", || run(join(0))),
            ("join, 101 nodes", || run(join(100))),
            ("place, 1,000 nodes x 10,000 shards", place),
            ("idle: keep-alives", || run(idle(Asked::keeps))),
            ("idle: other requests", || run(idle(Asked::others))),
        ],
        &[
            // Two transactions, one after another, are the least for a resignation and its successor.
            Claim::ratio(
                "a leader has resigned, until another leads, against one transaction and its event",
                "without a leader",
                "transaction and watch event",
                2.0,
            ),
            Claim::ratio(
                "a leader sends its resignation, until another leads, against the same",
                "leader change",
                "transaction and watch event",
                f64::INFINITY,
            ),
            Claim::ratio(
                "a singleton ends, until it begins elsewhere, against one transaction and its event",
                "hand-off",
                "transaction and watch event",
                1.5,
            ),
            Claim::ratio(
                "joining a cluster of 101 nodes, against joining one of 1",
                "join, 101 nodes",
                "join, 1 node",
                2.0,
            ),
            Claim::ratio(
                "joining a cluster of 101 nodes, against one transaction and its event",
                "join, 101 nodes",
                "transaction and watch event",
                f64::INFINITY,
            ),
            claim(
                "placing 10,000 shards on 1,000 nodes, in ms",
                "place, 1,000 nodes x 10,000 shards",
                10.0,
            ),
            claim("keep-alives of an idle node, in one time to live", "idle: keep-alives", 3.5),
            claim(
                "other requests of an idle node that does not lead, in one time to live",
                "idle: other requests",
                0.0,
            ),
        ],
    );
}

fn run(measured: impl Future<Output = f64>) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measured)
}

/// Names a cluster of which nothing is in the store yet.
fn name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A node in this process, with a connection of its own.
struct Node {
    shutdown: Shutdown,
    cluster: Cluster,
}

async fn etcd() -> Arc<dyn Store> {
    Arc::new(Etcd::connect(&endpoint()).await.expect("a server"))
}

impl Node {
    fn new(store: Arc<dyn Store>, cluster: &str, ttl: Duration) -> Self {
        let shutdown = Shutdown::configured(Config::for_tests()).expect("a configuration");
        let cluster = Cluster::new(store, cluster).node(name()).ttl(ttl);
        Self { cluster: cluster.on(&shutdown).expect("a node"), shutdown }
    }

    async fn leave(&self) {
        let report = self.shutdown.run(Reason::Unknown).await.expect("a report");
        assert!(report.is_clean(), "{report}");
    }
}

/// An event of a singleton, and its time.
enum Seen {
    Begins(Instant),
    Ends(Instant),
}

/// From the end of an instance until the next one begins on another node.
async fn hand_over() -> f64 {
    let (cluster, (sender, mut seen)) = (name(), mpsc::channel(16));
    let join = async || {
        let node = Node::new(etcd().await, &cluster, TTL);
        let sender = sender.clone();
        let work = move |me: SingletonCx| {
            let sender = sender.clone();
            async move {
                sender.send(Seen::Begins(Instant::now())).await.expect("a receiver");
                me.stopped().await;
                sender.send(Seen::Ends(Instant::now())).await.expect("a receiver");
            }
        };
        node.cluster.singleton("sweeper", work).expect("a name");
        node.cluster.join().await.expect("up");
        node
    };
    let mut owner = join().await;
    let Some(Seen::Begins(_)) = seen.recv().await else { panic!("it begins") };
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let next = join().await;
        owner.leave().await;
        let Some(Seen::Ends(ended)) = seen.recv().await else { panic!("it ends") };
        let Some(Seen::Begins(begun)) = seen.recv().await else { panic!("it begins elsewhere") };
        took.push(begun - ended);
        owner = next;
    }
    median(took)
}

/// The beginning of the measurement of a leader change.
#[derive(Clone, Copy, PartialEq)]
enum Since {
    /// The leader sends its resignation.
    Sent,
    /// A third process sees the resignation.
    Seen,
}

/// Until a third process sees the next leader.
async fn leader_change(since: Since) -> f64 {
    let cluster = name();
    let sent = Arc::new(Mutex::new(Instant::now()));
    let join = async || {
        let store = Watched { store: etcd().await, on: Resigns(Arc::clone(&sent)) };
        let node = Node::new(Arc::new(store), &cluster, TTL);
        node.cluster.join().await.expect("up");
        node
    };
    let mut leader = join().await;
    let mut next = join().await;
    let observer = etcd().await;
    let key = format!("adieu/cluster/{cluster}/leader");
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let young = join().await;
        let loaded = observer.load(&key).await.expect("loaded");
        let mut changes = observer.changes(&key, loaded.revision).await.expect("changes");
        let sees = async {
            let mut resigned = None;
            loop {
                let update = changes.next().await.expect("an update");
                let Update::Changed { changes, .. } = update else { panic!("{update:?}") };
                for change in changes {
                    match (change, resigned) {
                        (Change::Deleted { .. }, _) => resigned = Some(Instant::now()),
                        (Change::Put(_), Some(resigned)) => return (resigned, Instant::now()),
                        (Change::Put(_), None) => {}
                    }
                }
            }
        };
        let ((resigned, seen), ()) = tokio::join!(sees, leader.leave());
        let sent = *sent.lock().unwrap_or_else(PoisonError::into_inner);
        took.push(seen - if since == Since::Sent { sent } else { resigned });
        (leader, next) = (next, young);
    }
    drop(next);
    median(took)
}

/// From the call of `join` until the node is up, in a cluster that has a leader and as many other
/// nodes. The others are records in the table.
async fn join(others: usize) -> f64 {
    let cluster = name();
    let leader = Node::new(etcd().await, &cluster, TTL);
    leader.cluster.join().await.expect("up");
    let store = etcd().await;
    let prefix = format!("adieu/cluster/{cluster}/node/");
    let like = store.load(&prefix).await.expect("loaded").records.remove(0).value;
    let session = store.open(TTL).await.expect("a session");
    for other in 0..others {
        let key = format!("{prefix}other-{other}");
        let commit = Commit::new().create_under(key, Arc::clone(&like), session.id);
        let done = store.commit(&commit).await.expect("an answer");
        assert!(matches!(done, Committed::Done(_)));
    }
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let node = Node::new(etcd().await, &cluster, TTL);
        let began = Instant::now();
        node.cluster.join().await.expect("up");
        took.push(began.elapsed());
        node.leave().await;
    }
    median(took)
}

fn place() -> f64 {
    let cluster = Unplaced::new(1_000, 10_000);
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let began = Instant::now();
        assert_eq!(cluster.place(), 10_000);
        took.push(began.elapsed());
    }
    median(took) / 1_000.0
}

/// The requests of an idle node that does not lead to its store in one time to live.
async fn idle(figure: fn(&Asked) -> u64) -> f64 {
    let (memory, ttl) = (Memory::new(), Duration::from_millis(500));
    let leader = Node::new(Arc::new(memory.connect()), "idle", ttl);
    leader.cluster.join().await.expect("up");
    let asked = Arc::new(Asked::default());
    let store = Watched { store: Arc::new(memory.connect()), on: Counts(Arc::clone(&asked)) };
    let node = Node::new(Arc::new(store), "idle", ttl);
    node.cluster.join().await.expect("up");
    tokio::time::sleep(2 * ttl).await;
    let before = figure(&asked);
    let spans = 6;
    tokio::time::sleep(spans * ttl).await;
    (figure(&asked) - before) as f64 / f64::from(spans)
}

/// A store, and the observer that is notified of its requests.
struct Watched<O> {
    store: Arc<dyn Store>,
    on: O,
}

trait OnRequest: Send + Sync + 'static {
    fn keep(&self) {}
    fn commit(&self, _: &Commit) {}
    fn other(&self) {}
}

/// Records when the leader's record was deleted.
struct Resigns(Arc<Mutex<Instant>>);

impl OnRequest for Resigns {
    fn commit(&self, commit: &Commit) {
        let text = format!("{commit:?}");
        let deleted = text.split("Delete").skip(1);
        if { deleted }.any(|write| write.split('}').next().is_some_and(|it| it.contains("/leader")))
        {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
    }
}

#[derive(Default)]
struct Asked {
    keeps: AtomicU64,
    others: AtomicU64,
}

impl Asked {
    fn keeps(&self) -> u64 {
        self.keeps.load(Ordering::Relaxed)
    }

    fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }
}

struct Counts(Arc<Asked>);

impl OnRequest for Counts {
    fn keep(&self) {
        self.0.keeps.fetch_add(1, Ordering::Relaxed);
    }

    fn commit(&self, _: &Commit) {
        self.other();
    }

    fn other(&self) {
        self.0.others.fetch_add(1, Ordering::Relaxed);
    }
}

impl<O: OnRequest> Store for Watched<O> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn shortest_ttl(&self) -> Duration {
        self.store.shortest_ttl()
    }

    fn open(&self, ttl: Duration) -> Reply<'_, Session> {
        self.on.other();
        self.store.open(ttl)
    }

    fn keep<'a>(&'a self, session: &'a Session) -> Reply<'a, Standing> {
        self.on.keep();
        self.store.keep(session)
    }

    fn close<'a>(&'a self, session: &'a Session) -> Reply<'a, ()> {
        self.on.other();
        self.store.close(session)
    }

    fn load<'a>(&'a self, prefix: &'a str) -> Reply<'a, Snapshot> {
        self.on.other();
        self.store.load(prefix)
    }

    fn changes<'a>(&'a self, prefix: &'a str, after: Revision) -> Reply<'a, Box<dyn Changes>> {
        self.on.other();
        self.store.changes(prefix, after)
    }

    fn commit<'a>(&'a self, commit: &'a Commit) -> Reply<'a, Committed> {
        self.on.commit(commit);
        self.store.commit(commit)
    }
}
