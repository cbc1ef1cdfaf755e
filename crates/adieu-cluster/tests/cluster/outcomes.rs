//! Every ask has a true outcome: before its node joins, while the store is away, after the node is down,
//! and if it is repeated.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use adieu_cluster::store::Memory;
use adieu_cluster::{AskError, Cluster, Command, Entity, NotRun, Stage as NodeStage};
use adieu_core::{Config, Shutdown};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::notes::{Note, Stage, beside};
use crate::stage::{SECOND, config, node_with, until};

/// Fails if a message has no outcome long after it should have.
async fn ends<T>(outcome: impl IntoFuture<Output = T>) -> T {
    let ended = tokio::time::timeout(120 * SECOND, outcome.into_future()).await;
    ended.expect("it has no outcome")
}

#[tokio::test(start_paused = true)]
async fn s1601_an_idempotent_ask_that_may_have_run_never_ends_as_not_run() {
    let stage = Stage::new();
    let one = stage.node_with("one", |it| it, |it| it.mailbox(1)).await;
    let region = one.region.clone();
    // The first attempt fails in its handler. Then the entity is busy, and its mailbox is full.
    let asked =
        beside(
            async move { region.at("n").ask(Note::Panic).idempotent().within(2 * SECOND).await },
        );
    tokio::time::sleep(Duration::from_millis(5)).await;
    let region = one.region.clone();
    let busy = beside(async move { region.at("n").ask(Note::Take(4 * SECOND)).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    one.region.at("n").tell(Note::Add(1)).await.unwrap();
    let outcome = asked.await.unwrap();
    assert!(matches!(outcome, Err(AskError::Unknown(_))), "{outcome:?}");
    busy.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn s1602_an_ask_of_a_node_that_has_not_begun_to_join_does_not_run() {
    let stage = Stage::new();
    let node = node_with(&stage.store, "one", config(), |it| it.in_process(&stage.network));
    let region = node.cluster.region::<Note>("notes").shards(16).proxy().unwrap();
    let begun = Instant::now();
    let asked = ends(region.at("n").ask(Note::Add(1)).within(SECOND)).await;
    assert_eq!(asked, Err(AskError::NotRun(NotRun::Outside)));
    let told = ends(region.at("n").tell(Note::Add(2)).within(SECOND)).await;
    assert_eq!(told, Err(AskError::NotRun(NotRun::Outside)));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn s1603_asks_of_a_node_that_waits_for_its_store_end_at_their_deadlines() {
    let stage = Stage::new();
    let node = node_with(&stage.store, "one", config(), |it| it.in_process(&stage.network));
    let region = node.cluster.region::<Note>("notes").shards(16).proxy().unwrap();
    node.store.faults().cut(true);
    let (_, ()) = tokio::join!(node.cluster.join(), async {
        tokio::time::sleep(SECOND).await;
        let begun = Instant::now();
        let asked = ends(region.at("n").ask(Note::Add(1)).within(SECOND)).await;
        assert!(matches!(asked, Err(AskError::NotRun(NotRun::Unreachable(_)))), "{asked:?}");
        assert!((SECOND..2 * SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        // This one ends when the node gives up.
        let begun = Instant::now();
        let asked = ends(region.at("n").ask(Note::Add(2)).within(3_600 * SECOND)).await;
        assert_eq!(asked, Err(AskError::NotRun(NotRun::Outside)));
        assert!(begun.elapsed() < 120 * SECOND, "{:?}", begun.elapsed());
    });
    node.completed().await;
    let late = ends(region.at("n").ask(Note::Add(3)).within(SECOND)).await;
    assert_eq!(late, Err(AskError::NotRun(NotRun::Outside)));
}

#[derive(Serialize, Deserialize)]
struct Block;

impl Command for Block {
    type Reply = ();
}

/// An entity blocks its thread, so the driver cannot wait for it. The process lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s1604_every_ask_of_a_node_that_is_down_ends_although_an_entity_cannot_be_stopped() {
    let store = Memory::new();
    let shutdown = Shutdown::configured(Config::for_tests().run_when_down(false)).unwrap();
    let builder = Cluster::new(store.clone(), "shop").node("one").ttl(SECOND);
    let cluster = builder.on(&shutdown).unwrap();
    let (release, blocks) = mpsc::channel::<()>();
    let (blocks, begun) = (Arc::new(Mutex::new(blocks)), Arc::new(Mutex::new(false)));
    let begins = Arc::clone(&begun);
    let region = cluster.region::<Block>("blocks").shards(1);
    let region = region
        .serve(move |mut me: Entity<Block>| {
            let (blocks, begins) = (Arc::clone(&blocks), Arc::clone(&begins));
            async move {
                while let Some(mail) = me.next().await {
                    *begins.lock().unwrap() = true;
                    // Until the test drops the other end.
                    assert!(blocks.lock().unwrap().recv().is_err());
                    mail.reply(());
                }
            }
        })
        .unwrap();
    // No node hosts it, so its messages are kept.
    let elsewhere = cluster.region::<Block>("elsewhere").shards(1).proxy().unwrap();
    cluster.join().await.unwrap();
    let in_hand = region.clone();
    let in_hand = beside(async move { in_hand.at("n").ask(Block).within(3_600 * SECOND).await });
    until("the entity blocks", || *begun.lock().unwrap()).await;
    let kept = elsewhere.clone();
    let kept = beside(async move { kept.at("n").ask(Block).within(3_600 * SECOND).await });
    store.faults().cut(true);
    until("it is down", || cluster.stage() == NodeStage::Down).await;
    let in_hand = ends(in_hand).await.unwrap();
    assert!(matches!(in_hand, Err(AskError::Unknown(_))), "{in_hand:?}");
    let kept = ends(kept).await.unwrap();
    assert_eq!(kept, Err(AskError::NotRun(NotRun::Outside)));
    for region in [&region, &elsewhere] {
        let late = ends(region.at("n").ask(Block).within(3_600 * SECOND)).await;
        assert_eq!(late, Err(AskError::NotRun(NotRun::Outside)));
    }
    drop(release);
}

#[tokio::test(start_paused = true)]
async fn s1608_a_time_longer_than_a_year_counts_as_a_year() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    for (number, node) in (0..).zip([&one, &two]) {
        let ask = node.region.at("n").ask(Note::Add(2 * number)).within(Duration::MAX);
        ask.await.unwrap();
        let tell = node.region.at("n").tell(Note::Add(2 * number + 1)).within(Duration::MAX);
        tell.await.unwrap();
    }
    until("all are handled", || stage.handled.numbers("n") == [0, 1, 2, 3]).await;
}
