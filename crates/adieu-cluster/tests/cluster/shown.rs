//! The display of a node's regions: the progress of a hand-over, the last moves, metrics, and nodes
//! that it cannot reach.

use std::time::Duration;

use adieu_cluster::{LastMove, MoveReason};
use adieu_core::adapter::Metrics;

use crate::notes::{Node, Note, Stage, beside};
use crate::stage::{SECOND, TTL, TestNode, id, until};
use crate::visible::{Log, page};

/// Returns a key of a shard.
fn key_of(node: &Node, shard: u32) -> String {
    let mut keys = (0..).map(|at| format!("n-{at}"));
    keys.find(|key| node.region.shard_of(key) == shard).unwrap()
}

/// Two nodes, of which the first owns all shards.
async fn pair(stage: &Stage) -> (Node, Node) {
    let one = stage.node("one").await;
    until("it owns all", || one.node.cluster.status().regions.iter().any(|it| it.mine == 16)).await;
    let two = stage.node("two").await;
    until("one sees two", || one.node.cluster.status().nodes.len() == 2).await;
    // A node receives shards only after it has been ready for a while.
    tokio::time::sleep(TTL / 2).await;
    (one, two)
}

fn last_move(node: &TestNode, shard: u32) -> Option<LastMove> {
    node.cluster.status().last_moves.into_iter().find(|it| it.shard == shard)
}

#[tokio::test(start_paused = true)]
async fn s1626_the_status_shows_the_last_moves_their_causes_and_how_long_they_took() {
    let stage = Stage::new();
    let (one, two) = pair(&stage).await;
    assert_eq!(one.node.cluster.status().last_moves, [], "shards were placed, and none has moved");
    let pass = one.region.enter(&key_of(&one, 7)).unwrap();
    two.node.cluster.request_move("notes", 7, &id("two")).await.unwrap();
    tokio::time::sleep(2 * SECOND).await;
    drop(pass);
    for node in [&one.node, &two.node] {
        until("it has moved", || last_move(node, 7).is_some()).await;
        let moved = last_move(node, 7).unwrap();
        assert_eq!((&*moved.name, moved.why), ("notes", MoveReason::Requested));
        assert_eq!((moved.from, moved.to), (Some(id("one")), id("two")));
        assert!((SECOND..3 * SECOND).contains(&moved.took), "{:?}", moved.took);
    }
    tokio::time::sleep(3 * SECOND).await;
    let status = page(&two.node.shutdown).status();
    let shown = &status["clusters"][0]["last_moves"][0];
    assert_eq!([&shown["name"], &shown["from"], &shown["why"]], ["notes", "one", "requested"]);
    assert!(shown["ago_ms"].as_f64().unwrap() >= 3_000.0, "{shown}");

    // A node that leaves.
    let (report, _) = one.node.leave().await;
    assert!(report.is_clean(), "{report}");
    until("all are received", || two.node.cluster.status().regions[0].mine == 16).await;
    let left = last_move(&two.node, 3).unwrap();
    assert_eq!((left.from, left.why), (Some(id("one")), MoveReason::Left));
    assert!(left.took < SECOND, "{:?}", left.took);

    // A node that dies: from the end of its session, the removal margin passes.
    let three = stage.node("three").await;
    until("it is seen", || three.node.cluster.status().nodes.len() == 2).await;
    tokio::time::sleep(TTL / 2).await;
    two.node.store.faults().cut(true);
    until("all are received", || three.node.cluster.status().regions[0].mine == 16).await;
    let died = last_move(&three.node, 3).unwrap();
    assert_eq!((died.from, died.why), (Some(id("two")), MoveReason::Died));
    assert!((TTL / 5..TTL / 2).contains(&died.took), "{:?}", died.took);
}

#[tokio::test(start_paused = true)]
async fn s1629_the_status_shows_how_far_a_hand_over_is_and_for_how_long_it_runs() {
    let stage = Stage::new();
    let (one, _two) = pair(&stage).await;
    let pass = one.region.enter(&key_of(&one, 7)).unwrap();
    let seen = async {
        until("it leaves", || one.node.shutdown.reason().is_some()).await;
        tokio::time::sleep(2 * SECOND).await;
        let seen = one.node.cluster.status();
        drop(pass);
        seen
    };
    let ((report, _), seen) = tokio::join!(one.node.leave(), seen);
    assert!(report.is_clean(), "{report}");
    assert_eq!(seen.stage, "up", "it leaves the cluster in a later phase");
    let waiting = seen.waiting_for.unwrap();
    assert_eq!(waiting.what, "leave: 15/16 shards handed over (notes 15/16)");
    assert!((SECOND..3 * SECOND).contains(&waiting.since), "{:?}", waiting.since);
    assert_eq!(one.node.cluster.status().waiting_for, None, "it has left");
}

/// If an operator has requested it, the node is leaving before it hands its shards over.
#[tokio::test(start_paused = true)]
async fn s1629_a_leave_that_an_operator_requested_is_counted_too() {
    let stage = Stage::new();
    let (one, two) = pair(&stage).await;
    let pass = one.region.enter(&key_of(&one, 7)).unwrap();
    two.node.cluster.request_leave(&id("one")).await.unwrap();
    until("it leaves", || one.node.shutdown.reason().is_some()).await;
    tokio::time::sleep(2 * SECOND).await;
    let seen = one.node.cluster.status();
    assert_eq!(seen.stage, "leaving");
    assert_eq!(seen.waiting_for.unwrap().what, "leave: 15/16 shards handed over (notes 15/16)");
    drop(pass);
    assert!(one.node.completed().await.is_clean());
}

#[tokio::test(start_paused = true)]
async fn s1629_the_log_and_the_report_show_how_far_a_hand_over_is() {
    let log = Log::default();
    let stage = Stage::new();
    let (one, _two) = pair(&stage).await;
    // A pass that is never dropped keeps its shard for longer than the phase.
    let _pass = one.region.enter(&key_of(&one, 7)).unwrap();
    let _guard = log.subscribe();
    let (report, _) = one.node.leave().await;
    let expected = "15/16 shards handed over (notes 15/16); notes/7: 1 passes are held";
    until("it is logged", || !log.lines(expected).is_empty()).await;
    assert!(report.to_string().contains(expected), "{report}");
}

fn metrics(node: &TestNode) -> String {
    let mut metrics = Metrics::default();
    page(&node.shutdown).metrics(&mut metrics);
    metrics.to_string()
}

/// Returns the value of a metric of the region.
fn value(node: &TestNode, name: &str, labels: &str) -> Option<f64> {
    let name = format!("adieu_cluster_{name}{{cluster=\"shop\",region=\"notes\"{labels}}} ");
    let text = metrics(node);
    let mut values = text.lines().filter_map(|line| line.strip_prefix(&name));
    let value = values.next().map(|value| value.parse().unwrap());
    assert_eq!(values.next(), None, "{name} is there twice");
    value
}

#[tokio::test(start_paused = true)]
async fn s1630_metrics_show_shards_entities_asks_and_moves_of_a_region() {
    let stage = Stage::new();
    let (one, two) = pair(&stage).await;
    let (here, there) = (&one.node, &two.node);
    for (state, count) in [("owned", 16.0), ("moving", 0.0), ("free", 0.0)] {
        assert_eq!(value(here, "shards", &format!(",state=\"{state}\"")), Some(count), "{state}");
    }
    assert_eq!(
        (value(here, "shards_here", ""), value(there, "shards_here", "")),
        (Some(16.0), Some(0.0))
    );
    assert_eq!(value(here, "moves_total", ",why=\"placed\""), Some(16.0));
    assert_eq!(value(there, "moves_total", ",why=\"placed\""), None);
    assert_eq!(value(there, "handoff_seconds", ""), None);

    let (key, other) = (key_of(&one, 7), key_of(&one, 8));
    two.add(&key, 1).await.unwrap();
    one.add(&key, 2).await.unwrap();
    let asked = |outcome: &str| format!(",outcome=\"{outcome}\"");
    assert!(two.region.at(&other).ask(Note::Fail).await.is_err());
    assert_eq!(value(there, "asks_total", &asked("ran")), Some(1.0));
    assert_eq!(value(there, "asks_total", &asked("unknown")), Some(1.0));
    assert_eq!(value(here, "asks_total", &asked("ran")), Some(1.0));
    assert_eq!(value(here, "entities", ""), Some(1.0));
    assert_eq!(value(here, "entity_starts_total", ""), Some(2.0));
    assert_eq!(value(here, "entity_failures_total", ""), Some(1.0));
    assert_eq!(value(here, "dead_letters_total", ""), Some(0.0));

    // A shard that moves: its messages are kept meanwhile.
    let pass = one.region.enter(&key).unwrap();
    two.node.cluster.request_move("notes", 7, &id("two")).await.unwrap();
    until("it moves", || value(there, "shards", ",state=\"moving\"") == Some(1.0)).await;
    let region = two.region.clone();
    let kept = beside(async move { region.at(key).ask(Note::Add(3)).within(TTL).await });
    until("it is kept", || value(there, "kept_messages", "") == Some(1.0)).await;
    tokio::time::sleep(2 * SECOND).await;
    drop(pass);
    kept.await.unwrap().unwrap();
    assert_eq!(value(there, "kept_messages", ""), Some(0.0));
    assert_eq!(value(there, "shards_here", ""), Some(1.0));
    assert_eq!(value(there, "moves_total", ",why=\"requested\""), Some(1.0));
    assert_eq!(value(here, "moves_total", ",why=\"requested\""), None, "the receiver counts it");
    let took = Duration::from_secs_f64(value(there, "handoff_seconds", "").unwrap());
    assert!((2 * SECOND..3 * SECOND).contains(&took), "{took:?}");
}

/// Real sockets and the real clock.
#[cfg(feature = "links")]
#[tokio::test]
async fn s1632_the_status_shows_a_node_that_cannot_be_reached() {
    use adieu_cluster::store::Memory;
    use adieu_cluster::{Entity, Security};

    use crate::stage::{config, node_with};

    let store = Memory::new();
    // Nothing listens at the address of the first node: its listener has another port.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let node = |name: &'static str, address: Option<String>| {
        let open = Security::loopback_only();
        let node = node_with(&store, name, config(), |it| {
            let it = it.ttl(SECOND).listen("127.0.0.1:0", open);
            address.into_iter().fold(it, |it, address| it.address(address))
        });
        let region = node.cluster.region::<Note>("notes").shards(4);
        let region = region.serve(async |mut me: Entity<Note>| while me.next().await.is_some() {});
        async move { (node.joined().await, region.unwrap()) }
    };
    let (one, _) = node("one", Some(nobody.to_string())).await;
    until("it owns all", || one.cluster.status().regions.iter().any(|it| it.mine == 4)).await;
    let (two, region) = node("two", None).await;
    assert_eq!(two.cluster.status().failing_links, []);
    let asked = beside(async move { region.at("n").ask(Note::Add(1)).within(30 * SECOND).await });
    until("it fails", || !two.cluster.status().failing_links.is_empty()).await;
    let failing = two.cluster.status().failing_links.remove(0);
    assert_eq!((failing.node, failing.address), (id("one"), nobody.to_string()));
    assert!(failing.error.contains("failed to connect to node one"), "{}", failing.error);
    let shown = page(&two.shutdown).status();
    let shown = &shown["clusters"][0]["failing_links"][0];
    assert_eq!((&shown["node"], shown["for_ms"].is_f64()), (&"one".into(), true), "{shown}");
    asked.abort();
}

#[tokio::test(start_paused = true)]
async fn s1828_a_node_with_regions_and_without_links_is_shown_when_there_are_other_nodes() {
    let log = Log::default();
    let _guard = log.subscribe();
    let store = adieu_cluster::store::Memory::new();
    let node = |name: &str| {
        let node = crate::stage::node(&store, name);
        let region = node.cluster.region::<Note>("notes").shards(4);
        let region = region.serve(
            async |mut me: adieu_cluster::Entity<Note>| {
                while me.next().await.is_some() {}
            },
        );
        drop(region.unwrap());
        node
    };
    let one = node("one").joined().await;
    tokio::time::sleep(SECOND).await;
    // A node that is alone needs no links.
    assert!(log.lines("no links to other nodes").is_empty());
    assert_eq!(one.cluster.status().failing_links, []);
    let _two = node("two").joined().await;
    until("both log it", || log.lines("no links to other nodes").len() == 2).await;
    let failing = one.cluster.status().failing_links.remove(0);
    assert_eq!(failing.node, id("two"));
    assert!(failing.error.contains("declare `listen`"), "{}", failing.error);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(log.lines("no links to other nodes").len(), 2, "once for each node");
}
