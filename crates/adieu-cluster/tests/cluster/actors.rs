//! Actors of kameo and ractor as entities.

mod cart;

use std::sync::Arc;
use std::time::Duration;

use adieu_actors::ActorSystem;
use adieu_cluster::store::Memory;
use adieu_cluster::{AskError, InProcess, NotRun, Region, Stage as NodeStage, Unknown};
use adieu_core::Reason;
use tokio::task::JoinSet;

use self::cart::{CartRef, Do, Events, Kind, start};
use crate::notes::beside;
use crate::stage::{SECOND, TestNode, config, node_with, until};

/// A cluster whose entities are actors.
struct Stage {
    kind: Kind,
    store: Memory,
    network: InProcess,
    events: Events,
}

struct Node {
    node: TestNode,
    system: ActorSystem,
    region: Region<Do>,
}

impl Stage {
    fn new(kind: Kind) -> Self {
        let (store, network) = (Memory::new(), InProcess::new());
        Self { kind, store, network, events: Events::default() }
    }

    async fn node(&self, name: &str) -> Node {
        let node = node_with(&self.store, name, config(), |it| it.in_process(&self.network));
        let system = ActorSystem::on(&node.shutdown, name).unwrap();
        let builder = node.cluster.region::<Do>("cart").shards(16).idle(60 * SECOND);
        let others = Arc::<CartRef>::default();
        let (events, given, id) = (self.events.clone(), Arc::clone(&others), name.to_owned());
        let region = start(self.kind, builder, &system, id, events, given);
        *others.0.lock().unwrap() = Some(region.clone());
        Node { node: node.joined().await, system, region }
    }
}

/// Runs a test with actors of both frameworks.
macro_rules! with_both {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            for kind in [Kind::Kameo, Kind::Ractor] {
                cases::$name(Stage::new(kind)).await;
            }
        }
    )*};
}

with_both! {
    s1464_an_actor_is_an_entity_with_its_id_and_fence,
    s1465_a_stop_hook_runs_before_the_shard_is_handed_over,
    s1466_an_actor_that_does_not_end_is_killed_and_named_and_its_shard_moves,
    s1467_an_idle_actor_is_stopped_and_the_next_mail_starts_another,
    s1468_an_actor_that_fails_or_stops_is_replaced,
    s1469_an_actor_that_asks_while_its_shard_drains_is_answered,
    s1470_an_actor_does_not_run_after_its_node_has_lost_its_place,
    s1827_an_ask_to_an_actor_that_is_stopped_ends_as_one_to_a_function,
}

mod cases {
    use super::*;

    pub(super) async fn s1464_an_actor_is_an_entity_with_its_id_and_fence(stage: Stage) {
        let one = stage.node("one").await;
        let two = stage.node("two").await;
        assert_eq!(one.region.at("a/b").ask(Do::Add(2)).await, Ok(2));
        assert_eq!(two.region.at("a/b").ask(Do::Add(3)).await, Ok(5));
        two.region.at("a/b").tell(Do::Add(4)).await.unwrap();
        assert_eq!(two.region.at("a/b").ask(Do::Add(0)).await, Ok(9));
        let tree = format!("{:?}", one.system.tree());
        assert!(tree.contains("/user/cart:a%2Fb"), "{tree}");
        let fence = one.region.enter("a/b").unwrap().fence().get();
        assert_eq!(stage.events.all(), [format!("one starts a/b under {fence}")]);
    }

    pub(super) async fn s1465_a_stop_hook_runs_before_the_shard_is_handed_over(stage: Stage) {
        let one = stage.node("one").await;
        let two = stage.node("two").await;
        stage.network.delay(Duration::from_millis(3));
        let mut askers = JoinSet::new();
        for asker in 0..10_u64 {
            let region = two.region.clone();
            askers.spawn(async move {
                for step in 1..=200 {
                    let key = format!("k-{asker}");
                    let asked = region.at(key).ask(Do::Note).within(20 * SECOND).await;
                    asked.unwrap_or_else(|error| panic!("{asker}, step {step}: {error}"));
                    tokio::time::sleep(Duration::from_millis(7)).await;
                }
            });
        }
        tokio::time::sleep(SECOND / 4).await;
        let (report, took) = one.node.leave().await;
        assert!(report.is_clean() && took < 3 * SECOND, "{took:?}: {report}");
        while let Some(ended) = askers.join_next().await {
            ended.unwrap();
        }
        for asker in 0..10 {
            let key = format!("k-{asker}");
            let events = stage.events.of(&key);
            let handled = events.iter().filter(|it| it.contains("handles")).count();
            assert_eq!(handled, 200, "lost or doubled");
            // Each actor starts, handles, and stops before the next one starts.
            let lives: Vec<_> = events.iter().filter(|it| !it.contains("handles")).collect();
            assert_eq!(lives.len(), 3, "{lives:?}");
            assert!(lives[0].starts_with("one starts"), "{lives:?}");
            assert!(lives[1].starts_with("one has stopped"), "{lives:?}");
            assert!(lives[2].starts_with("two starts"), "{lives:?}");
        }
    }

    pub(super) async fn s1466_an_actor_that_does_not_end_is_killed_and_named_and_its_shard_moves(
        stage: Stage,
    ) {
        let one = stage.node("one").await;
        let two = stage.node("two").await;
        let (slow, behind) = (two.region.clone(), two.region.clone());
        let ask = async move { slow.at("slow").ask(Do::Take(600)).within(300 * SECOND).await };
        let in_hand = beside(ask);
        tokio::time::sleep(SECOND).await;
        let ask = async move { behind.at("slow").ask(Do::Add(1)).within(300 * SECOND).await };
        let unopened = beside(ask);
        tokio::time::sleep(SECOND).await;
        let (report, took) = one.node.leave().await;
        assert!((9 * SECOND..11 * SECOND).contains(&took), "{took:?}");
        let phase = report.phase("cluster-sharding-shutdown-region").unwrap();
        let text = format!("{:?}", phase.task("cluster: hand over regions").unwrap());
        for expected in ["entities killed", "slow busy 11", "1 asks not run"] {
            assert!(text.contains(expected), "no {expected:?} in {text}");
        }
        let outcome = in_hand.await.unwrap();
        assert!(matches!(outcome, Err(AskError::Unknown(Unknown::Ended(_)))), "{outcome:?}");
        assert_eq!(unopened.await.unwrap(), Err(AskError::NotRun(NotRun::Moving)));
        assert_eq!(one.node.cluster.stage(), NodeStage::Removed);
        assert_eq!(two.region.at("slow").ask(Do::Add(3)).await, Ok(3));
        // The handler was dropped before the next actor started.
        let events = stage.events.of("slow");
        let dropped = events.iter().position(|it| it == "one drops slow");
        let starts = events.iter().position(|it| it.starts_with("two starts"));
        assert!(dropped.is_some() && dropped < starts, "{events:?}");
    }

    pub(super) async fn s1467_an_idle_actor_is_stopped_and_the_next_mail_starts_another(
        stage: Stage,
    ) {
        let one = stage.node("one").await;
        assert_eq!(one.region.at("a").ask(Do::Add(2)).await, Ok(2));
        let stopped = || stage.events.all().iter().filter(|it| it.contains("stopped")).count();
        tokio::time::sleep(50 * SECOND).await;
        assert_eq!(stopped(), 0);
        tokio::time::sleep(20 * SECOND).await;
        assert_eq!(stopped(), 1);
        until("it is gone", || one.node.cluster.status().regions[0].entities == 0).await;
        assert_eq!(one.region.at("a").ask(Do::Add(3)).await, Ok(3));
        let (report, _) = one.node.leave().await;
        assert!(report.is_clean(), "{report}");
        assert_eq!(stopped(), 2);
    }

    pub(super) async fn s1468_an_actor_that_fails_or_stops_is_replaced(stage: Stage) {
        let one = stage.node("one").await;
        let at = |command| one.region.at("a").ask(command).within(10 * SECOND);
        assert_eq!(at(Do::Add(2)).await, Ok(2));
        let panicked = at(Do::Panic).await;
        assert!(
            matches!(panicked, Err(AskError::Unknown(Unknown::NoReply | Unknown::Ended(_)))),
            "{panicked:?}"
        );
        assert_eq!(at(Do::Add(3)).await, Ok(3), "of a new actor");
        assert_eq!(at(Do::Stop).await, Ok(3));
        for number in 1..20 {
            assert_eq!(at(Do::Add(1)).await, Ok(number), "of the same new actor");
        }
        let starts = stage.events.all().iter().filter(|it| it.contains("starts")).count();
        assert_eq!(starts, 3);
        // One that cannot start is tried again, and its mail is not lost.
        stage.events.fail_starts(2);
        assert_eq!(one.region.at("b").ask(Do::Add(7)).within(10 * SECOND).await, Ok(7));
    }

    pub(super) async fn s1469_an_actor_that_asks_while_its_shard_drains_is_answered(stage: Stage) {
        let one = stage.node("one").await;
        let _two = stage.node("two").await;
        let shard = one.region.shard_of("a");
        let mut keys = (0..).map(|at| format!("b-{at}"));
        let other = keys.find(|it| one.region.shard_of(it) == shard).unwrap();
        let (region, to) = (one.region.clone(), other.clone());
        let nested =
            beside(async move { region.at("a").ask(Do::Through(2, to)).within(60 * SECOND).await });
        tokio::time::sleep(SECOND).await;
        let (report, took) = one.node.leave().await;
        assert!(report.is_clean() && took < 4 * SECOND, "{took:?}: {report}");
        assert_eq!(nested.await.unwrap(), Ok(1));
        assert!(stage.events.of(&other)[0].starts_with("one starts"));
    }

    pub(super) async fn s1827_an_ask_to_an_actor_that_is_stopped_ends_as_one_to_a_function(
        stage: Stage,
    ) {
        let one = stage.node("one").await;
        let region = one.region.clone();
        let ask = async move { region.at("a").ask(Do::Take(600)).within(300 * SECOND).await };
        let in_hand = beside(ask);
        tokio::time::sleep(SECOND).await;
        one.node.store.faults().cut(true);
        let Err(AskError::Unknown(Unknown::Ended(why))) = in_hand.await.unwrap() else {
            panic!("not ended")
        };
        assert!(why.contains("its node may no longer act"), "{why}");
    }

    pub(super) async fn s1470_an_actor_does_not_run_after_its_node_has_lost_its_place(
        stage: Stage,
    ) {
        let one = stage.node("one").await;
        let two = stage.node("two").await;
        let region = one.region.clone();
        let in_hand =
            beside(async move { region.at("a").ask(Do::Tick(600)).within(300 * SECOND).await });
        tokio::time::sleep(SECOND).await;
        one.node.store.faults().cut(true);
        let outcome = in_hand.await.unwrap();
        assert!(matches!(outcome, Err(AskError::Unknown(Unknown::Ended(_)))), "{outcome:?}");
        assert_eq!(two.region.at("a").ask(Do::Add(2)).within(30 * SECOND).await, Ok(2));
        assert_eq!(one.node.shutdown.reason(), Some(Reason::ClusterDowning));
        tokio::time::sleep(60 * SECOND).await;
        let events = stage.events.of("a");
        let last = events.iter().rposition(|it| it == "one ticks a").unwrap();
        let starts = events.iter().position(|it| it.starts_with("two starts")).unwrap();
        assert!(last < starts, "{events:?}");
    }
}
