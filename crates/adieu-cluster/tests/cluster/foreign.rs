//! Code of the application that a node calls: it may block, panic or never end, and harms only itself.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use adieu_cluster::store::{
    Changes, Commit, Committed, Memory, Reply, Revision, Session, Snapshot, Standing, Store,
};
use adieu_cluster::{AskError, Cluster, Command, Entity, InProcess, NotRun, Region};
use adieu_core::Shutdown;
use adieu_core::adapter::Metrics;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::notes::{Node, Stage, beside};
use crate::stage::{SECOND, TTL, TestNode, config, id, node_with, until};
use crate::visible::{Log, page};

#[tokio::test(start_paused = true)]
async fn s1620_on_open_may_call_its_node_and_a_panic_in_it_is_logged() {
    let log = Log::default();
    let _guard = log.subscribe();
    let (stage, cluster) = (Stage::new(), Arc::new(Mutex::new(None::<Cluster>)));
    let (seen, opened) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&cluster));
    let count = Arc::clone(&seen);
    let node = node_with(&stage.store, "one", config(), |it| it.in_process(&stage.network));
    let region = node.cluster.region::<Odd>("odd").shards(16).on_open(move |shard| {
        // Not in the future: the function itself.
        let status = opened.lock().unwrap().as_ref().unwrap().status();
        count.fetch_add(status.regions[0].shards, Ordering::Relaxed);
        assert_ne!(shard, 3, "oops");
        async move { assert_ne!(shard, 5, "later") }
    });
    let region = region.serve(echo).unwrap();
    *cluster.lock().unwrap() = Some(node.cluster.clone());
    let node = node.joined().await;
    until("all are open", || seen.load(Ordering::Relaxed) == 16 * 16).await;
    until("it is logged", || log.lines("on_open failed").len() == 2).await;
    let failed = log.lines("on_open failed");
    assert!(failed[0].contains("shard=\"odd/3\"") && failed[0].contains("oops"), "{failed:?}");
    assert!(failed[1].contains("shard=\"odd/5\"") && failed[1].contains("later"), "{failed:?}");
    assert_eq!(region.at("n").ask(Odd::new("ok")).await, Ok("ok".to_owned()));
    let (report, took) = node.leave().await;
    assert!(report.is_clean() && took < SECOND, "{took:?}: {report}");
    cluster.lock().unwrap().take();
}

/// Counts the futures of `on_open` that are not dropped.
struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Joins a node whose futures of `on_open` never end, and are counted.
async fn with_futures_of_on_open(stage: &Stage, alive: &Arc<AtomicUsize>) -> Node {
    let count = Arc::clone(alive);
    let one = stage.node_with(
        "one",
        |it| it,
        |it| {
            it.on_open(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                let alive = Alive(Arc::clone(&count));
                async move {
                    std::future::pending::<()>().await;
                    drop(alive);
                }
            })
        },
    );
    one.await
}

#[tokio::test(start_paused = true)]
async fn s1621_a_future_of_on_open_is_dropped_when_its_shard_moves_or_its_node_may_not_act() {
    let (stage, alive) = (Stage::new(), Arc::default());
    let one = with_futures_of_on_open(&stage, &alive).await;
    let now = || alive.load(Ordering::Relaxed);
    until("all are open", || now() == 16).await;
    let two = stage.node("two").await;
    until("one sees two", || one.node.cluster.status().nodes.len() == 2).await;
    tokio::time::sleep(TTL).await;
    one.node.cluster.request_move("notes", 3, &id("two")).await.unwrap();
    until("it has moved", || two.node.cluster.status().regions[0].mine == 1).await;
    assert_eq!(now(), 15);
    let (report, took) = one.node.leave().await;
    assert!(report.is_clean() && took < SECOND, "{took:?}: {report}");
    assert_eq!(now(), 0);
}

#[tokio::test(start_paused = true)]
async fn s1621_a_node_that_loses_its_place_drops_the_futures_of_on_open() {
    let (stage, alive) = (Stage::new(), Arc::default());
    let one = with_futures_of_on_open(&stage, &alive).await;
    until("all are open", || alive.load(Ordering::Relaxed) == 16).await;
    one.node.store.faults().cut(true);
    let begun = tokio::time::Instant::now();
    until("all are dropped", || alive.load(Ordering::Relaxed) == 0).await;
    assert!(begun.elapsed() < TTL, "{:?}", begun.elapsed());
}

/// A text that is slow to decode, or makes its decoder panic.
#[derive(Clone, Debug)]
struct Odd(String);

impl Odd {
    fn new(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Serialize for Odd {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

/// Whether a decoder has begun to block, and whether it may continue.
static BLOCK: (Mutex<(bool, bool)>, Condvar) = (Mutex::new((false, false)), Condvar::new());

impl<'de> Deserialize<'de> for Odd {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        match text.as_str() {
            "panic" => panic!("no such command"),
            "block" => {
                let mut state = BLOCK.0.lock().unwrap();
                state.0 = true;
                let may = |state: &mut (bool, bool)| !state.1;
                drop(BLOCK.1.wait_timeout_while(state, 20 * SECOND, may).unwrap());
            }
            _ => {}
        }
        Ok(Self(text))
    }
}

impl Command for Odd {
    type Reply = String;
}

async fn echo(mut me: Entity<Odd>) {
    while let Some(mail) = me.next().await {
        let text = mail.command().0.clone();
        mail.reply(text);
    }
}

/// A node with a region of two shards.
async fn odd(store: &Memory, network: &InProcess, name: &str) -> (TestNode, Region<Odd>) {
    let node = node_with(store, name, config(), |it| it.ttl(2 * SECOND).in_process(network));
    let region = node.cluster.region::<Odd>("odd").shards(2).serve(echo).unwrap();
    (node.joined().await, region)
}

/// Returns two keys of one shard.
fn keys(region: &Region<Odd>) -> (String, String) {
    let mut keys = (0..).map(|at| format!("k-{at}")).filter(|key| region.shard_of(key) == 0);
    (keys.next().unwrap(), keys.next().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s1622_a_command_that_is_slow_to_decode_does_not_delay_other_senders_of_its_shard() {
    let (store, network) = (Memory::new(), InProcess::new());
    let (one, here) = odd(&store, &network, "one").await;
    until("it owns all", || one.cluster.status().regions.iter().any(|it| it.mine == 2)).await;
    let (two, there) = odd(&store, &network, "two").await;
    let (slow, other) = keys(&here);
    let ask = async move { there.at(slow).ask(Odd::new("block")).within(30 * SECOND).await };
    let blocked = beside(ask);
    until("it is being decoded", || BLOCK.0.lock().unwrap().0).await;
    let region = here.clone();
    let asked = beside(async move { region.at(other).ask(Odd::new("ok")).await });
    assert_eq!(asked.await.unwrap(), Ok("ok".to_owned()));
    assert!(!blocked.is_finished(), "it waited for the decoder");
    BLOCK.0.lock().unwrap().1 = true;
    BLOCK.1.notify_all();
    assert_eq!(blocked.await.unwrap(), Ok("block".to_owned()));
    drop((one, two));
}

#[tokio::test(start_paused = true)]
async fn s1623_a_decoder_that_panics_ends_its_ask_as_not_run_and_the_shard_can_move() {
    let (store, network) = (Memory::new(), InProcess::new());
    let (one, here) = odd(&store, &network, "one").await;
    let (two, there) = odd(&store, &network, "two").await;
    let (key, _) = keys(&here);
    until("it owns all", || two.cluster.status().regions[0].owners[&id("one")].len() == 2).await;
    let panicked = |asked: Result<String, AskError>| match asked.unwrap_err() {
        AskError::NotRun(NotRun::Unsupported(why)) => {
            assert!(why.contains("odd cannot be decoded: panicked: no such command"), "{why}");
        }
        other @ (AskError::NotRun(_) | AskError::Unknown(_)) => panic!("{other}"),
    };
    panicked(there.at(&key).ask(Odd::new("panic")).await);
    let told = there.at(&key).tell(Odd::new("panic")).await.unwrap_err();
    panicked(Err(told));
    // The link and the shard are as before.
    assert_eq!(there.at(&key).ask(Odd::new("ok")).await, Ok("ok".to_owned()));

    // A message that its sender keeps until it owns the shard itself is decoded by the entity.
    tokio::time::sleep(TTL).await;
    let pass = here.enter(&key).unwrap();
    two.cluster.request_move("odd", 0, &id("two")).await.unwrap();
    until("it moves", || one.cluster.status().regions[0].moving == 1).await;
    tokio::time::sleep(SECOND / 10).await;
    let (asked, told) = (there.clone(), there.clone());
    let (key_of_ask, key_of_tell) = (key.clone(), key.clone());
    let asked = beside(async move { asked.at(key_of_ask).ask(Odd::new("panic")).await });
    let told = beside(async move { told.at(key_of_tell).tell(Odd::new("panic")).await });
    until("both are kept", || two.cluster.status().regions[0].kept == 2).await;
    drop(pass);
    panicked(asked.await.unwrap());
    assert_eq!(told.await.unwrap(), Ok(()), "it was admitted");
    assert_eq!(there.at(&key).ask(Odd::new("ok")).await, Ok("ok".to_owned()));
    let mut metrics = Metrics::default();
    page(&two.shutdown).metrics(&mut metrics);
    let lost = "adieu_cluster_dead_letters_total{cluster=\"shop\",region=\"odd\"} 1";
    assert!(metrics.to_string().contains(lost), "{metrics}");
    for node in [one, two] {
        let (report, took) = node.leave().await;
        assert!(report.is_clean() && took < SECOND, "{took:?}: {report}");
    }
}

/// A store that panics on request.
struct Fragile {
    store: Memory,
    panics: Arc<AtomicBool>,
}

impl Store for Fragile {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn shortest_ttl(&self) -> Duration {
        self.store.shortest_ttl()
    }

    fn open(&self, ttl: Duration) -> Reply<'_, Session> {
        self.store.open(ttl)
    }

    fn keep<'a>(&'a self, session: &'a Session) -> Reply<'a, Standing> {
        assert!(!self.panics.load(Ordering::Relaxed), "as requested");
        self.store.keep(session)
    }

    fn close<'a>(&'a self, session: &'a Session) -> Reply<'a, ()> {
        self.store.close(session)
    }

    fn load<'a>(&'a self, prefix: &'a str) -> Reply<'a, Snapshot> {
        self.store.load(prefix)
    }

    fn changes<'a>(&'a self, prefix: &'a str, after: Revision) -> Reply<'a, Box<dyn Changes>> {
        self.store.changes(prefix, after)
    }

    fn commit<'a>(&'a self, commit: &'a Commit) -> Reply<'a, Committed> {
        self.store.commit(commit)
    }
}

#[tokio::test(start_paused = true)]
async fn s1625_a_node_whose_store_panics_is_reported_and_does_not_delay_the_shutdown() {
    let (store, panics) = (Memory::new(), Arc::new(AtomicBool::new(false)));
    let shutdown = Shutdown::configured(config()).unwrap();
    let fragile = Fragile { store: store.connect(), panics: Arc::clone(&panics) };
    let cluster = Cluster::new(fragile, "shop").node("one").ttl(TTL).on(&shutdown).unwrap();
    cluster.join().await.unwrap();
    let node = TestNode { store, shutdown, cluster };
    panics.store(true, Ordering::Relaxed);
    tokio::time::sleep(TTL / 2).await;
    let (report, took) = node.leave().await;
    assert!(took < SECOND, "it waited for the driver: {took:?}");
    assert!(report.to_string().contains("the task of the node panicked"), "{report}");
}
