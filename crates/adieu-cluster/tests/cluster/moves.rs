//! Shards that an operator moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use adieu_cluster::{ClusterStatus, MoveRefusal, OperateError};
use tokio::task::JoinSet;

use crate::notes::{Note, Stage, beside};
use crate::stage::{History, SECOND, TestNode, id, node, until};

const SHARDS: u32 = 16;

/// Returns the owner of each shard.
fn owners(status: &ClusterStatus) -> BTreeMap<u32, String> {
    let region = status.regions.iter().find(|it| &*it.name == "notes").unwrap();
    let each = region.owners.iter();
    each.flat_map(|(owner, shards)| shards.iter().map(|shard| (*shard, owner.to_string())))
        .collect()
}

fn owner(node: &TestNode, shard: u32) -> Option<String> {
    owners(&node.cluster.status()).get(&shard).cloned()
}

/// Every shard is moved several times under load, and no ask notices.
#[tokio::test(start_paused = true)]
async fn s1502_no_ask_is_lost_doubled_or_unknown_while_shards_are_moved() {
    let stage = Stage::new();
    let (one, two) = (stage.node("one").await, stage.node("two").await);
    let three = stage.node("three").await;
    stage.network.delay(Duration::from_millis(3));
    until("all are owned", || owners(&one.node.cluster.status()).len() == SHARDS as usize).await;
    let (sequence, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut askers = JoinSet::new();
    for (at, region) in [&one, &two, &three].iter().map(|it| it.region.clone()).enumerate() {
        for asker in 0..10 {
            let (region, sequence) = (region.clone(), Arc::clone(&sequence));
            let is_over = Arc::clone(&is_over);
            askers.spawn(async move {
                let key = format!("n-{at}-{asker}");
                while !is_over.load(Ordering::Relaxed) {
                    let number = sequence.fetch_add(1, Ordering::Relaxed);
                    let asked = region.at(&key).ask(Note::Add(number)).within(20 * SECOND).await;
                    assert!(asked.is_ok(), "ask {number} to {key}: {asked:?}");
                    tokio::time::sleep(Duration::from_millis(7)).await;
                }
            });
        }
    }
    let cluster = &one.node.cluster;
    let mut moves = 0;
    for round in 0..3_u32 {
        for shard in 0..SHARDS {
            let to = ["one", "two", "three"][((shard + round) % 3) as usize];
            if owner(&one.node, shard).as_deref() == Some(to) {
                continue;
            }
            moves += 1;
            cluster.request_move("notes", shard, &id(to)).await.unwrap();
            // Without effect: the shard moves there already, or is there.
            let again = cluster.request_move("notes", shard, &id(to)).await;
            let is_there = |error: &OperateError| {
                matches!(
                    error,
                    OperateError::MoveRefused { source: MoveRefusal::AlreadyThere { .. }, .. }
                )
            };
            assert!(again.as_ref().err().is_none_or(is_there), "{again:?}");
            if shard % 4 == 0 {
                until("it moved", || owner(&one.node, shard).as_deref() == Some(to)).await;
            }
        }
        until("all moved", || {
            owners(&cluster.status()).iter().all(|(shard, owner)| {
                owner == ["one", "two", "three"][((shard + round) % 3) as usize]
            })
        })
        .await;
    }
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = askers.join_next().await {
        ended.unwrap();
    }
    assert!(moves >= SHARDS, "{moves} moves");
    let handled: usize = stage.handled.notes.lock().unwrap().values().map(Vec::len).sum();
    assert_eq!(handled as u64, sequence.load(Ordering::Relaxed));
    stage.handled.assert_sound();
}

/// No deadline limits a move, so a slow handler is not killed for it.
#[tokio::test(start_paused = true)]
async fn s1610_a_move_waits_for_a_slow_handler_and_kills_a_stuck_one_after_a_minute() {
    for (takes, has_reply) in [(45 * SECOND, true), (600 * SECOND, false)] {
        let stage = Stage::new();
        let (one, two) = (stage.node("one").await, stage.node("two").await);
        until("all are owned", || owners(&one.node.cluster.status()).len() == SHARDS as usize)
            .await;
        let shard = one.region.shard_of("slow");
        let before = owner(&one.node, shard).unwrap();
        let other = if before == "one" { "two" } else { "one" };
        let region = two.region.clone();
        let asked =
            beside(
                async move { region.at("slow").ask(Note::Take(takes)).within(300 * SECOND).await },
            );
        tokio::time::sleep(SECOND).await;
        let begun = tokio::time::Instant::now();
        one.node.cluster.request_move("notes", shard, &id(other)).await.unwrap();
        // A message that arrives meanwhile is kept, and runs on the next owner.
        assert!(one.add("slow", 1).await.is_err(), "it ran before its deadline");
        let region = one.region.clone();
        let kept =
            beside(async move { region.at("slow").ask(Note::Add(2)).within(60 * SECOND).await });
        let asked = asked.await.unwrap();
        assert_eq!(asked.is_ok(), has_reply, "{asked:?}");
        assert_eq!(kept.await.unwrap().unwrap().0, other);
        let took = begun.elapsed();
        let expected = if has_reply { 43 * SECOND..46 * SECOND } else { 59 * SECOND..62 * SECOND };
        assert!(expected.contains(&took), "{took:?}");
        assert_eq!(stage.handled.numbers("slow"), [2]);
    }
}

/// A shard that was moved against the balance stays for five minutes.
#[tokio::test(start_paused = true)]
async fn s1503_a_shard_that_was_moved_is_not_moved_for_balance_for_five_minutes() {
    let stage = Stage::new();
    let (one, two) = (stage.node("one").await, stage.node("two").await);
    // Long enough for the shards to be spread evenly.
    tokio::time::sleep(600 * SECOND).await;
    let before = owners(&one.node.cluster.status());
    let count = |owners: &BTreeMap<u32, String>, name: &str| {
        owners.values().filter(|it| *it == name).count()
    };
    assert_eq!(count(&before, "one"), count(&before, "two"), "{before:?}");
    let moved: Vec<u32> =
        before.iter().filter(|(_, owner)| *owner == "one").map(|(shard, _)| *shard).collect();
    for shard in &moved {
        two.node.cluster.request_move("notes", *shard, &id("two")).await.unwrap();
    }
    let are_there = |what: &str| {
        let now = owners(&one.node.cluster.status());
        for shard in &moved {
            assert_eq!(now[shard], "two", "{what}: {shard}");
        }
    };
    until("they moved", || {
        let now = owners(&one.node.cluster.status());
        moved.iter().all(|shard| now[shard] == "two")
    })
    .await;
    // The other shards of that node may move for balance meanwhile, and these may not.
    for _ in 0..29 {
        tokio::time::sleep(10 * SECOND).await;
        are_there("within five minutes");
    }
    tokio::time::sleep(600 * SECOND).await;
    let after = owners(&one.node.cluster.status());
    assert_eq!(count(&after, "one"), count(&after, "two"), "balanced again: {after:?}");
}

#[tokio::test(start_paused = true)]
async fn s1501_a_move_that_is_not_possible_is_refused_with_the_reason() {
    let stage = Stage::new();
    let (one, two) = (stage.node("one").await, stage.node("two").await);
    until("all are owned", || owners(&one.node.cluster.status()).len() == SHARDS as usize).await;
    until("both are seen", || one.node.cluster.status().nodes.len() == 2).await;
    let owner = owner(&one.node, 3).unwrap();
    let other = if owner == "one" { "two" } else { "one" };
    let cluster = &one.node.cluster;
    let refused = async |region: &str, shard: u32, to: &str| {
        let error = cluster.request_move(region, shard, &id(to)).await.unwrap_err();
        adieu_core::adapter::error_text(&error)
    };
    let refusal = refused("note", 3, other).await;
    assert!(refusal.ends_with(": there is no region note; regions: notes"), "{refusal}");
    let refusal = refused("notes", SHARDS, other).await;
    let expected = format!(
        "failed to move notes/{SHARDS} of cluster shop to {other}: region notes has the shards 0 to {}",
        SHARDS - 1
    );
    assert_eq!(refusal, expected);
    let refusal = refused("notes", 3, &owner).await;
    assert!(refusal.ends_with(&format!(": {owner} owns it already")), "{refusal}");
    let refusal = refused("notes", 3, "four").await;
    assert_eq!(refusal, "no node four in cluster shop; nodes: one, two");
    let target = if other == "one" { &one.node } else { &two.node };
    target.shutdown.cordon();
    until("it is cordoned", || {
        cluster.status().nodes.iter().any(|it| it.node == id(other) && !it.ready)
    })
    .await;
    let refusal = refused("notes", 3, other).await;
    let expected = format!(": {other} takes no shards: it is cordoned, not ready, or shuts down");
    assert!(refusal.ends_with(&expected), "{refusal}");
}

/// A singleton is one shard: it is moved in the same way.
#[tokio::test(start_paused = true)]
async fn s1504_a_singleton_can_be_moved() {
    let store = adieu_cluster::store::Memory::new();
    let history = History::default();
    let one = node(&store, "one").sweeper(&history).joined().await;
    let two = node(&store, "two").sweeper(&history).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    one.cluster.request_move("sweeper", 0, &id("two")).await.unwrap();
    until("it runs there", || history.running() == ["two"]).await;
    two.cluster.request_move("sweeper", 0, &id("one")).await.unwrap();
    until("it runs here", || history.running() == ["one"]).await;
    history.assert_sound();
    assert_eq!(history.owners(), ["one", "two", "one"]);
}
