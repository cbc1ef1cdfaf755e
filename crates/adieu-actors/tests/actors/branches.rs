//! Branches of mixed frameworks: the order of stop hooks when several actors are stuck, and children
//! that join while their parent stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adieu_actors::task::{Inbox, task};
use adieu_actors::{ActorSystem, DrainReport, NodeEnding, NodePath, Timeouts};
use adieu_core::{Config, Reason, Shutdown};

use crate::frameworks::{Framework, Job, Kameo, Log, Mixes, Ractor, Script, Tasks};

const LONG: Duration = Duration::from_secs(60);

/// Drains a branch of three generations. The first and the last are stuck, the middle is idle.
/// Returns the stop hooks that ran, in order.
async fn stuck_around_idle<A: Mixes, B: Mixes, C: Mixes>() -> (Vec<String>, Arc<DrainReport>) {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let script = || Script::new(&log);
    let first = A::spawn(&system, None, "first", script()).await.unwrap();
    let middle = B::unstarted("middle", script());
    let middle = A::spawn_below(&first, "middle", middle).await.unwrap();
    let last = C::unstarted("last", script());
    let last = B::spawn_below(&middle, "last", last).await.unwrap();
    assert!(A::send(&first, Job::forever()).await && C::send(&last, Job::forever()).await);
    let report = system.shutdown(Duration::from_secs(2)).await.unwrap();
    (log.lines(), report)
}

fn middle_is_drained(report: &DrainReport) {
    let middle = report.node("/user/first/middle").unwrap();
    assert_eq!(middle.ending(), &NodeEnding::Drained, "{report}");
    assert_eq!(report.dead_letters(), 2, "{report}");
    assert!(!report.to_string().contains("unknown"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s245_an_idle_actor_between_stuck_ones_stops_in_order() {
    let all = ["last stops", "middle stops", "first stops"];
    let (hooks, report) = stuck_around_idle::<Kameo, Kameo, Kameo>().await;
    assert_eq!(hooks, all, "{report}");
    middle_is_drained(&report);
    let (hooks, report) = stuck_around_idle::<Kameo, Tasks, Kameo>().await;
    assert_eq!(hooks, all, "{report}");
    middle_is_drained(&report);
    let (hooks, report) = stuck_around_idle::<Kameo, Ractor, Kameo>().await;
    assert_eq!(hooks, all, "{report}");
    middle_is_drained(&report);
    // The stop hooks of killed tasks and actors of ractor do not run.
    let (hooks, report) = stuck_around_idle::<Ractor, Kameo, Kameo>().await;
    assert_eq!(hooks, all[..2], "{report}");
    middle_is_drained(&report);
    let (hooks, report) = stuck_around_idle::<Kameo, Ractor, Ractor>().await;
    assert_eq!(hooks, all[1..], "{report}");
    middle_is_drained(&report);
    let (hooks, report) = stuck_around_idle::<Kameo, Tasks, Tasks>().await;
    assert_eq!(hooks, all[1..], "{report}");
    middle_is_drained(&report);
}

#[tokio::test(start_paused = true)]
async fn s161_stuck_actors_of_one_branch_stop_in_order() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let mut branch = vec![Kameo::spawn(&system, None, "0", Script::new(&log)).await.unwrap()];
    for depth in 1..5 {
        let (parent, name) = (&branch[depth - 1], depth.to_string());
        branch.push(Kameo::spawn(&system, Some(parent), &name, Script::new(&log)).await.unwrap());
    }
    for actor in &branch {
        for _ in 0..3 {
            assert!(Kameo::send(actor, Job::forever()).await);
        }
    }
    let report = system.shutdown(Duration::from_secs(2)).await.unwrap();
    assert!(report.took < Duration::from_millis(2100), "it does not use the grace: {report}");
    let expected: Vec<String> = (0..5).rev().map(|depth| format!("{depth} stops")).collect();
    assert_eq!(log.lines(), expected, "{report}");
    assert_eq!((report.dead_letters(), system.dead_letter_count()), (15, 15), "{report}");
    assert!(!report.to_string().contains("unknown"), "{report}");
}

/// Spawns children below an actor until that fails, while the actor is stopped.
async fn orphans<P: Mixes>() {
    for round in 0..100 {
        let (system, log) = (ActorSystem::new("shop"), Log::default());
        let parent = P::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (below, over, inner) = (parent.clone(), Arc::clone(&is_over), log.clone());
        let spawning = tokio::spawn(async move {
            let mut children = Vec::new();
            for number in 0.. {
                let name = number.to_string();
                let child = Kameo::unstarted(&name, Script::new(&inner));
                match P::spawn_below(&below, &name, child).await {
                    Ok(child) => children.push(child),
                    Err(_) if over.load(Ordering::SeqCst) => break,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
            children
        });
        tokio::time::sleep(Duration::from_micros(round * 20)).await;
        let path = NodePath::user().child("parent").unwrap();
        system.stop(&path, LONG).await.unwrap();
        is_over.store(true, Ordering::SeqCst);
        let children = spawning.await.unwrap();
        let alive = children.iter().filter(|child| child.node().has_terminated().is_none());
        assert_eq!(alive.count(), 0, "round {round}: {}", system.tree());
        assert!(system.tree().nodes.is_empty(), "{}", system.tree());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s244_no_child_outlives_a_parent_that_is_stopped() {
    orphans::<Kameo>().await;
    orphans::<Ractor>().await;
    orphans::<Tasks>().await;
}

#[tokio::test(start_paused = true)]
async fn s443_a_task_lives_as_long_as_its_inbox() {
    let config = Config::for_tests().terminate_actor_system(true);
    let shutdown = Shutdown::configured(config).unwrap();
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let log = Log::default();
    let inner = log.clone();
    let orders = task(64, async move |mut inbox: Inbox<u32>| {
        tokio::spawn(async move {
            while let Some(delivery) = inbox.recv().await {
                let order = *delivery;
                tokio::time::sleep(Duration::from_millis(20)).await;
                inner.add(order.to_string());
                delivery.done();
            }
        });
    });
    let orders = system.spawn("orders", orders).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_millis(500), orders.terminated()).await;
    assert!(ended.is_err(), "its inbox still exists");
    for number in 0..20 {
        orders.send(number).await.unwrap();
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(log.len(), 20);
    assert!(orders.send(20).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn s443_messages_in_the_inbox_of_a_killed_task_are_counted() {
    let system = ActorSystem::new("shop");
    let orders = task(64, async move |mut inbox: Inbox<u32>| {
        tokio::spawn(async move {
            while let Some(delivery) = inbox.recv().await {
                tokio::time::sleep(Duration::from_secs(3)).await;
                delivery.done();
            }
        });
    });
    let orders = system.spawn("orders", orders).await.unwrap();
    for number in 0..20 {
        orders.send(number).await.unwrap();
    }
    let report = system.shutdown(Duration::from_secs(7)).await.unwrap();
    assert!(!report.is_clean(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s441_senders_that_wait_for_room_are_in_the_report() {
    async fn waiting<F: Framework>() {
        for _ in 0..20 {
            let (system, log) = (ActorSystem::new("shop"), Log::default());
            let script = Script { room: Some(5), ..Script::new(&log) };
            let stuck = F::spawn(&system, None, "stuck", script).await.unwrap();
            let mut senders = tokio::task::JoinSet::new();
            for _ in 0..10 {
                let stuck = stuck.clone();
                senders.spawn(async move { F::send(&stuck, Job::forever()).await });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            let report = system.shutdown(Duration::from_millis(30)).await.unwrap();
            while senders.join_next().await.is_some() {}
            assert_eq!(report.dead_letters(), system.dead_letter_count(), "{report}");
            assert!(!report.is_clean());
        }
    }
    waiting::<Kameo>().await;
    waiting::<Tasks>().await;
}

async fn s176_the_guardian_owns_a_system_without_handles<F: Framework>() {
    let log = Log::default();
    let (guardian, orders) = {
        let system = ActorSystem::new("shop");
        let guardian = F::spawn(&system, None, "guardian", Script::new(&log)).await.unwrap();
        let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
        system.set_guardian(&NodePath::user().child("guardian").unwrap());
        (guardian, orders)
    };
    assert!(F::send(&orders, Job::log(&log, "order")).await);
    assert!(F::send(&guardian, Job::new(|| async { panic!("on purpose") })).await);
    let ended = async {
        while log.lines().last().is_none_or(|line| line != "orders stops") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Timeouts::EVENT_SOURCED, ended).await.expect("it is drained");
    assert!(log.lines().contains(&"order".to_owned()));
}

async fn s803_a_child_spawned_during_a_stop_sends_to_actors_that_are_being_stopped<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let sibling = F::spawn(&system, Some(&parent), "sibling", Script::new(&log)).await.unwrap();
    let (inside, top, inner) = (system.clone(), parent.clone(), log.clone());
    let job = Job::new(move || async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let child = F::spawn(&inside, Some(&top), "child", Script::new(&inner)).await.unwrap();
        let (done, began) = (Job::log(&inner, "sibling works"), inner.clone());
        let forward = Job::new(move || async move {
            began.add(format!("accepted: {}", F::send(&sibling, done).await));
        });
        assert!(F::send(&child, forward).await);
    });
    assert!(F::send(&parent, job).await);
    let path = NodePath::user().child("parent").unwrap();
    let report = system.stop(&path, LONG).await.unwrap();
    let lines = log.lines();
    for line in ["accepted: true", "sibling works"] {
        assert!(lines.iter().any(|other| other == line), "{line} is missing: {lines:?}; {report}");
    }
    assert!(report.is_clean(), "{report}");
}

on_all_actors![
    s176_the_guardian_owns_a_system_without_handles,
    s803_a_child_spawned_during_a_stop_sends_to_actors_that_are_being_stopped,
];
