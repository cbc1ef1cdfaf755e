//! Regions: entities that are found wherever they are, and move without losing a message.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adieu_cluster::{AskError, Elsewhere, NotRun, Region, Stage as NodeStage, Unknown};
use adieu_core::{Reason, Report};
use tokio::task::JoinSet;

use crate::notes::{Handled, Note, Stage, beside, notes};
use crate::stage::{SECOND, config, id, node_with, until};

#[tokio::test(start_paused = true)]
async fn s1152_an_ask_reaches_its_entity_on_whichever_node_it_is() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    tokio::time::sleep(400 * SECOND).await;
    let mut by = BTreeMap::<String, u32>::new();
    for number in 0..64_u64 {
        let key = format!("n-{number}");
        let from_one = one.add(&key, 2 * number).await.unwrap();
        let from_two = two.add(&key, 2 * number + 1).await.unwrap();
        assert_eq!(from_one.0, from_two.0, "two owners");
        *by.entry(from_one.0).or_default() += 1;
    }
    assert_eq!(by.len(), 2, "all on one node: {by:?}");
    stage.handled.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn s1153_no_ask_is_lost_doubled_or_unknown_while_a_node_leaves() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    let three = stage.node("three").await;
    stage.network.delay(Duration::from_millis(3));
    // Long enough for the shards to be spread over the nodes.
    tokio::time::sleep(400 * SECOND).await;
    let sequence = Arc::new(AtomicU64::new(0));
    let mut askers = JoinSet::new();
    for (at, region) in [&one, &two, &three].iter().map(|it| it.region.clone()).enumerate() {
        for asker in 0..10 {
            let (region, sequence) = (region.clone(), Arc::clone(&sequence));
            // Nodes that leave ask no longer than they serve.
            let count = if at == 0 { 5 } else { 48 };
            askers.spawn(async move {
                for step in 0..count {
                    let key = format!("n-{at}-{asker}");
                    let number = sequence.fetch_add(1, Ordering::Relaxed);
                    let asked = region.at(key).ask(Note::Add(number)).within(20 * SECOND).await;
                    if let Err(error) = asked {
                        panic!("ask {number} of asker {at}-{asker}, step {step}: {error}");
                    }
                    tokio::time::sleep(Duration::from_millis(7)).await;
                }
            });
        }
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (report, took) = one.node.leave().await;
    assert!(report.is_clean() && took < 2 * SECOND, "{took:?}: {report}");
    while let Some(ended) = askers.join_next().await {
        ended.unwrap();
    }
    let handled: usize = stage.handled.notes.lock().unwrap().values().map(Vec::len).sum();
    assert_eq!(handled, 10 * (5 + 48 + 48));
    stage.handled.assert_sound();
    let fences: usize = {
        let notes = stage.handled.notes.lock().unwrap();
        notes.values().filter(|it| it.first().map(|n| n.0) != it.last().map(|n| n.0)).count()
    };
    assert!(fences > 0, "no entity has moved");
}

#[tokio::test(start_paused = true)]
async fn s1155_an_entity_that_does_not_end_is_killed_and_named_and_its_shard_moves() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    let region = two.region.clone();
    let (slow, behind) = (region.clone(), region.clone());
    let in_hand =
        beside(
            async move { slow.at("slow").ask(Note::Take(600 * SECOND)).within(300 * SECOND).await },
        );
    tokio::time::sleep(SECOND).await;
    let unopened =
        beside(async move { behind.at("slow").ask(Note::Add(1)).within(300 * SECOND).await });
    region.at("slow").tell(Note::Add(2)).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let (report, took) = one.node.leave().await;
    // The phase has ten seconds, and the last of them is for this.
    assert!((9 * SECOND..10 * SECOND).contains(&took), "{took:?}");
    let phase = report.phase("cluster-sharding-shutdown-region").unwrap();
    let text = format!("{:?}", phase.task("cluster: hand over regions").unwrap());
    for expected in ["entities killed", "slow busy 11", "1 asks not run", "1 tells lost"] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
    assert!(matches!(in_hand.await.unwrap(), Err(AskError::Unknown(_))));
    assert_eq!(unopened.await.unwrap(), Err(AskError::NotRun(NotRun::Moving)));
    assert_eq!(one.node.cluster.stage(), NodeStage::Removed);
    two.add("slow", 3).await.unwrap();
    assert_eq!(stage.handled.numbers("slow"), [3]);
}

/// Returns another key in the same shard, which drains for as long as the first.
fn neighbour(region: &Region<Note>, key: &str) -> String {
    let shard = region.shard_of(key);
    let mut keys = (0..).map(|at| format!("b-{at}"));
    keys.find(|it| region.shard_of(it) == shard).unwrap()
}

/// A node that leaves while an entity of it asks a neighbour, which it does after a pause.
struct NestedInDrain {
    stage: Stage,
    other: String,
    report: Arc<Report>,
    took: Duration,
    outcome: Result<(String, u64), AskError>,
}

async fn nested_in_drain(pause: Duration) -> NestedInDrain {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let _two = stage.node("two").await;
    let other = neighbour(&one.region, "a");
    one.add(&other, 1).await.unwrap();
    let (region, to) = (one.region.clone(), other.clone());
    let nested = beside(async move {
        region.at("a").ask(Note::Through(pause, to, 2)).within(60 * SECOND).await
    });
    tokio::time::sleep(SECOND).await;
    let (report, took) = one.node.leave().await;
    let outcome = nested.await.unwrap();
    NestedInDrain { stage, other, report, took, outcome }
}

#[tokio::test(start_paused = true)]
async fn s1156_an_entity_that_asks_another_one_of_the_draining_node_is_answered() {
    let NestedInDrain { stage, other, report, took, outcome } = nested_in_drain(2 * SECOND).await;
    assert!(report.is_clean() && took < 3 * SECOND, "{took:?}: {report}");
    assert_eq!(outcome.unwrap().1, 2);
    assert_eq!(stage.handled.numbers(&other), [1, 2]);
    stage.handled.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn s1157_late_in_a_drain_a_nested_ask_is_refused_at_once() {
    let NestedInDrain { stage, other, report, took, outcome } = nested_in_drain(7 * SECOND).await;
    // It failed six seconds after the leave had begun, and did not wait for its own deadline.
    assert!(report.is_clean() && took < 7 * SECOND, "{took:?}: {report}");
    assert!(matches!(outcome, Err(AskError::Unknown(_))));
    assert_eq!(stage.handled.numbers(&other), [1]);
}

#[tokio::test(start_paused = true)]
async fn s1158_when_a_node_loses_its_place_its_entities_are_dropped_first() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    let region = one.region.clone();
    let in_hand = beside(async move {
        region.at("slow").ask(Note::Take(600 * SECOND)).within(300 * SECOND).await
    });
    tokio::time::sleep(SECOND).await;
    let region = one.region.clone();
    let unopened =
        beside(async move { region.at("slow").ask(Note::Add(1)).within(300 * SECOND).await });
    tokio::time::sleep(SECOND).await;
    one.node.store.faults().cut(true);
    assert!(matches!(in_hand.await.unwrap(), Err(AskError::Unknown(Unknown::Ended(_)))));
    assert!(unopened.await.unwrap().unwrap_err().is_not_run());
    // `Handled` fails if there are two instances.
    two.add("slow", 2).await.unwrap();
    assert_eq!(one.node.shutdown.reason(), Some(Reason::ClusterDowning));
    let late = one.region.at("slow").ask(Note::Add(3)).within(SECOND).await;
    assert!(late.unwrap_err().is_not_run());
    assert_eq!(stage.handled.numbers("slow"), [2]);
}

#[tokio::test(start_paused = true)]
async fn s1159_a_message_is_unknown_only_if_the_link_broke_after_it_was_read() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    let region = two.region.clone();
    let in_hand =
        beside(
            async move { region.at("slow").ask(Note::Take(20 * SECOND)).within(60 * SECOND).await },
        );
    tokio::time::sleep(SECOND).await;
    stage.network.cut(&id("one"), &id("two"));
    assert!(matches!(in_hand.await.unwrap(), Err(AskError::Unknown(Unknown::Disconnected(_)))));
    let unreachable = two.region.at("other").ask(Note::Add(1)).within(2 * SECOND).await;
    assert!(
        matches!(unreachable, Err(AskError::NotRun(NotRun::Unreachable(_)))),
        "{unreachable:?}"
    );
    // It is kept meanwhile, and sent when the nodes can reach each other again.
    let (asked, ()) = tokio::join!(two.add("other", 2), async {
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(two.node.cluster.status().regions[0].kept, 1);
        stage.network.mend(&id("one"), &id("two"));
    });
    asked.unwrap();
    assert_eq!(stage.handled.numbers("other"), [2]);
    drop(one);
}

#[tokio::test(start_paused = true)]
async fn s1160_an_idempotent_ask_is_repeated_until_it_is_answered() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    for node in [&one, &two] {
        let asked = node.region.at("n").ask(Note::FailOnce(node.node.cluster.id().to_string()));
        let answered = asked.idempotent().within(10 * SECOND).await;
        assert_eq!(answered.unwrap().0, "one");
    }
    let once = one.region.at("n").ask(Note::FailOnce("again".to_owned())).await;
    assert!(matches!(once, Err(AskError::Unknown(_))), "{once:?}");
}

#[tokio::test(start_paused = true)]
async fn s1161_a_pass_holds_its_shard_until_it_is_dropped() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    let pass = one.region.enter("n").unwrap();
    assert_eq!(pass.check().unwrap(), pass.fence());
    let refused: Elsewhere = two.region.enter("n").unwrap_err();
    assert_eq!(refused.node, Some(id("one")));
    assert_eq!(refused.epoch, Some(pass.fence().get()));
    assert!(refused.to_string().contains("belongs to one (fence"), "{refused}");
    let fence = pass.fence();
    let (left, ()) = tokio::join!(one.node.leave(), async {
        pass.closing().await;
        tokio::time::sleep(2 * SECOND).await;
        assert!(
            pass.is_closing() && two.region.enter("n").is_err() && one.region.enter("n").is_err()
        );
        drop(pass);
    });
    assert!(left.0.is_clean() && left.1 >= 2 * SECOND, "{:?}: {}", left.1, left.0);
    until("it is open elsewhere", || two.region.enter("n").is_ok()).await;
    assert!(two.region.enter("n").unwrap().fence() > fence);
}

#[tokio::test(start_paused = true)]
async fn s1162_a_proxy_asks_and_hosts_nothing() {
    let stage = Stage::new();
    let proxy = node_with(&stage.store, "proxy", config(), |it| it.in_process(&stage.network));
    let region = proxy.cluster.region::<Note>("notes").shards(16).proxy().unwrap();
    let proxy = proxy.joined().await;
    let unhosted = region.at("n").ask(Note::Add(0)).within(SECOND).await;
    assert!(matches!(unhosted, Err(AskError::NotRun(NotRun::Unreachable(_)))), "{unhosted:?}");
    let one = stage.node("one").await;
    assert_eq!(region.at("n").ask(Note::Add(1)).within(20 * SECOND).await.unwrap().0, "one");
    let status = proxy.cluster.status();
    assert_eq!((status.regions[0].owned, status.regions[0].mine), (16, 0));
    assert_eq!(one.node.cluster.status().regions[0].mine, 16);
}

#[tokio::test(start_paused = true)]
async fn s1163_a_node_with_another_number_of_shards_cannot_join() {
    let stage = Stage::new();
    let _one = stage.node("one").await;
    let two = node_with(&stage.store, "two", config(), |it| it);
    let handled = Handled::default();
    two.cluster
        .region::<Note>("notes")
        .shards(32)
        .serve(move |me| notes(me, "two".to_owned(), handled.clone(), Arc::default()))
        .unwrap();
    let refused = adieu_core::adapter::error_text(&two.cluster.join().await.unwrap_err());
    assert!(refused.contains("regions.notes.shards is 32 here and 16 in the cluster"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn s1164_invalid_region_options_are_refused_at_once() {
    let stage = Stage::new();
    let node = node_with(&stage.store, "one", config(), |it| it);
    let region = |name: &str| node.cluster.region::<Note>(name);
    let refused = |error: adieu_cluster::ClusterError| error.to_string();
    let none = refused(region("notes").shards(0).proxy().unwrap_err());
    assert_eq!(none, "region notes cannot have 0 shards: set a number from 1 to 20000");
    region("notes").proxy().unwrap();
    let twice = refused(region("notes").proxy().unwrap_err());
    let expected = "failed to declare singleton or region notes: it is declared already; use another \
                    name";
    assert_eq!(twice, expected);
    assert!(node.cluster.singleton("notes", |_| async {}).is_err());
    assert!(region("a/b").proxy().is_err());
    let node = node.joined().await;
    let late = refused(node.cluster.region::<Note>("late").proxy().unwrap_err());
    let expected = "failed to declare singleton or region late: the node has begun to join; declare \
                    it before `join`";
    assert_eq!(late, expected);
}

/// A node that leaves while it waits for a reply of another node. Returns its report, how long it took
/// and the outcome of the ask.
async fn leaves_with_an_ask(
    takes: Duration,
) -> (Arc<Report>, Duration, Result<(String, u64), AskError>) {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    // Until the shards were balanced.
    tokio::time::sleep(80 * SECOND).await;
    until("two owns shards", || two.node.cluster.status().regions.iter().any(|it| it.mine > 0))
        .await;
    let mut keys = (0..).map(|number| format!("k{number}"));
    // An entity of the other node.
    let key = loop {
        let key = keys.next().unwrap();
        if one.add(&key, 1).await.unwrap().0 == "two" {
            break key;
        }
    };
    let region = one.region.clone();
    let asked =
        beside(async move { region.at(key).ask(Note::Take(takes)).within(600 * SECOND).await });
    tokio::time::sleep(SECOND / 2).await;
    let (report, took) = one.node.leave().await;
    (report, took, asked.await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn s1825_a_node_that_leaves_waits_for_the_replies_to_its_own_asks() {
    let (report, took, outcome) = leaves_with_an_ask(8 * SECOND).await;
    assert_eq!(outcome.unwrap().0, "two");
    assert!(report.is_clean() && took < 12 * SECOND, "{took:?}: {report}");
}

#[tokio::test(start_paused = true)]
async fn s1826_the_report_names_the_asks_of_a_node_that_leaves_without_their_replies() {
    let (report, took, outcome) = leaves_with_an_ask(300 * SECOND).await;
    assert!(matches!(outcome, Err(AskError::Unknown(_))), "{outcome:?}");
    assert!(took < 30 * SECOND, "{took:?}");
    let text = format!("{report:?}");
    assert!(!report.is_clean() && text.contains("1 to notes (k"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn s1824_nodes_that_start_one_after_another_share_the_shards_soon() {
    let stage = Stage::new();
    let mut nodes = Vec::new();
    for name in ["one", "two", "three"] {
        nodes.push(stage.node(name).await);
        tokio::time::sleep(5 * SECOND).await;
    }
    let mine = |node: &crate::notes::Node| {
        node.node.cluster.status().regions.iter().map(|it| it.mine).sum::<usize>()
    };
    assert_eq!(mine(&nodes[0]), 16, "the first node was alone");
    // A minute without changes, and then a few moves at a time.
    tokio::time::sleep(80 * SECOND).await;
    let shares: Vec<usize> = nodes.iter().map(mine).collect();
    assert!(shares.iter().all(|it| (5..=6).contains(it)), "{shares:?}");
}
