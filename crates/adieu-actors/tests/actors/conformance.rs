//! Promises that hold for every framework, and for nodes of your own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_actors::{ActorSystem, DrainReport, NodeEnding, NodePath, SpawnError};
use tokio::sync::Notify;

use crate::frameworks::{Framework, Job, Log, Script};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(2);

async fn s160_accepted_messages_are_processed_before_the_stop<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let count = Arc::new(AtomicUsize::new(0));
    let script = Script { room: Some(20_000), ..Script::new(&log) };
    let orders = F::spawn(&system, None, "orders", script).await.unwrap();
    let (began, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begun, gone) = (Arc::clone(&began), Arc::clone(&go));
    let first = Job::new(move || async move {
        begun.notify_one();
        gone.notified().await;
    });
    assert!(F::send(&orders, first).await);
    began.notified().await;
    for _ in 0..10_000 {
        let count = Arc::clone(&count);
        let job = Job::new(move || async move {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert!(F::send(&orders, job).await);
    }
    assert_eq!(count.load(Ordering::Relaxed), 0);
    go.notify_one();
    let report = system.shutdown(LONG).await.unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 10_000);
    assert_eq!(log.lines(), ["orders stops"]);
    // The message that was being processed when the drain began may be counted or not.
    assert!([10_000, 10_001].contains(&report.drained()), "{report}");
    assert_eq!((report.dead_letters(), report.is_clean()), (0, true));
}

async fn s340_a_stopped_actor_refuses_messages<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    assert!(F::send(&orders, Job::log(&log, "accepted")).await);
    system.shutdown(LONG).await.unwrap();
    assert!(!F::send(&orders, Job::log(&log, "refused")).await);
    assert_eq!(log.lines(), ["accepted", "orders stops"]);
}

async fn s161_children_stop_before_their_parent<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let spawn = async |parent: Option<&F::Ref>, name: &str| {
        F::spawn(&system, parent, name, Script::new(&log)).await.unwrap()
    };
    let a = spawn(None, "a").await;
    let b = spawn(Some(&a), "b").await;
    let c = spawn(Some(&b), "c").await;
    let d = spawn(Some(&b), "d").await;
    let e = spawn(Some(&a), "e").await;
    // No actor stops before this is processed: its handler may need the others.
    let slow = Job::new(|| tokio::time::sleep(Duration::from_secs(1)));
    assert!(F::send(&c, slow).await);
    let report = system.shutdown(LONG).await.unwrap();
    let stops = log.lines();
    let at = |name: &str| stops.iter().position(|line| *line == format!("{name} stops")).unwrap();
    assert!(at("c") < at("b") && at("d") < at("b"), "{stops:?}");
    assert!(at("b") < at("a") && at("e") < at("a"), "{stops:?}");
    let ended: Vec<&str> = report.nodes.iter().map(|node| node.path().name()).collect();
    assert_eq!(ended[3..], ["b", "a"]);
    assert!(report.nodes.iter().all(|node| node.after() >= Duration::from_secs(1)), "{report}");
    assert_eq!(report.nodes[4].path().as_str(), "/user/a");
    assert!(report.is_clean(), "{report}");
    drop((a, b, c, d, e));
}

async fn s162_children_accept_messages_from_their_parents_remaining_work<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let child = F::spawn(&system, Some(&parent), "child", Script::new(&log)).await.unwrap();
    for number in 0..20 {
        let (child, log) = (child.clone(), log.clone());
        let job = Job::new(move || async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(F::send(&child, Job::log(&log, format!("{number}"))).await, "{number}");
        });
        assert!(F::send(&parent, job).await);
    }
    let report = system.shutdown(LONG).await.unwrap();
    let expected: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(log.lines()[..20], expected);
    assert_eq!(log.lines()[20..], ["child stops", "parent stops"]);
    assert!(report.is_clean() && report.drained() >= 20, "{report}");
}

/// Drains a tree in which the leaf `stuck` never finishes its first message, and has seven more.
async fn drain_with_a_stuck_leaf<F: Framework>(log: &Log) -> Arc<DrainReport> {
    let system = ActorSystem::new("shop");
    let spawn = async |parent: Option<&F::Ref>, name: &str| {
        F::spawn(&system, parent, name, Script::new(log)).await.unwrap()
    };
    let top = spawn(None, "top").await;
    let middle = spawn(Some(&top), "middle").await;
    let stuck = spawn(Some(&middle), "stuck").await;
    let other = spawn(Some(&top), "other").await;
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let forever = Job::new(move || {
        begun.notify_one();
        std::future::pending()
    });
    assert!(F::send(&stuck, forever).await);
    began.notified().await;
    for _ in 0..7 {
        assert!(F::send(&stuck, Job::log(log, "never")).await);
    }
    assert!(F::send(&other, Job::log(log, "other")).await);
    system.shutdown(SHORT).await.unwrap()
}

async fn s163_an_actor_with_work_is_killed_at_the_deadline<F: Framework>() {
    let report = drain_with_a_stuck_leaf::<F>(&Log::default()).await;
    assert_eq!(report.took.as_secs(), SHORT.as_secs());
    let stuck = report.node("/user/top/middle/stuck").unwrap();
    assert_eq!(stuck.ending(), &NodeEnding::Killed);
    assert_eq!(report.unclean().count(), 1, "{report}");
}

async fn s342_unprocessed_messages_of_a_killed_actor_are_dead_letters<F: Framework>() {
    let report = drain_with_a_stuck_leaf::<F>(&Log::default()).await;
    // Seven queued messages, and the one that was being processed.
    assert_eq!(report.node("/user/top/middle/stuck").unwrap().dead_letters(), Some(8));
    assert_eq!(report.dead_letters(), 8);
    assert!(report.to_string().contains("/user/top/middle/stuck was killed, 8 dead letters"));
}

async fn s344_stop_hooks_run_when_an_actor_is_killed<F: Framework>() {
    let log = Log::default();
    drain_with_a_stuck_leaf::<F>(&log).await;
    let hooks = if F::HOOK_AFTER_KILL {
        vec!["other", "other stops", "stuck stops", "middle stops", "top stops"]
    } else {
        vec!["other", "other stops", "middle stops", "top stops"]
    };
    assert_eq!(log.lines(), hooks);
}

async fn s164_all_calls_return_the_same_report<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    assert!(F::send(&orders, Job::forever()).await);
    // The first caller is dropped.
    let first = tokio::time::timeout(Duration::from_secs(1), system.shutdown(SHORT)).await;
    assert!(first.is_err());
    let (one, two) = tokio::join!(system.shutdown(LONG), system.shutdown(LONG));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(Arc::ptr_eq(&one, &two));
    assert!(Arc::ptr_eq(&one, &system.shutdown(LONG).await.unwrap()));
    assert!(Arc::ptr_eq(&one, &system.terminated().await));
}

async fn s345_the_shortest_timeout_holds_for_all_callers<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    assert!(F::send(&orders, Job::forever()).await);
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        system.shutdown(SHORT).await.unwrap()
    };
    let (report, _) = tokio::join!(system.shutdown(LONG), later);
    assert_eq!(report.unwrap().took.as_secs(), 3);
}

async fn s165_a_stop_message_is_not_lost_to_a_full_mailbox<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let script = Script { room: Some(2), ..Script::new(&log) };
    let full = F::spawn(&system, None, "full", script.clone()).await.unwrap();
    let child = F::spawn(&system, Some(&full), "child", script.clone()).await.unwrap();
    let alone = F::spawn(&system, None, "alone", script).await.unwrap();
    for actor in [&full, &child, &alone] {
        for _ in 0..3 {
            let (log, slow) = (log.clone(), tokio::time::sleep(Duration::from_secs(1)));
            let job = Job::new(move || async move {
                slow.await;
                log.add("done");
            });
            assert!(F::send(actor, job).await);
        }
    }
    let report = system.shutdown(LONG).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let done = log.lines().iter().filter(|line| *line == "done").count();
    assert_eq!(done, 9);
    let mut stops = log.lines().split_off(9);
    stops.retain(|line| line != "alone stops");
    assert_eq!(stops, ["child stops", "full stops"]);
}

async fn s346_a_stop_message_that_waits_for_room_delays_no_other_actor<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let script = Script { room: Some(2), ..Script::new(&log) };
    let full = F::spawn(&system, None, "full", script.clone()).await.unwrap();
    let _idle = F::spawn(&system, None, "idle", script).await.unwrap();
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let forever = Job::new(move || {
        begun.notify_one();
        std::future::pending()
    });
    assert!(F::send(&full, forever).await);
    began.notified().await;
    for _ in 0..2 {
        assert!(F::send(&full, Job::forever()).await);
    }
    let timeout = Duration::from_secs(4);
    let report = system.shutdown(timeout).await.unwrap();
    // Stop messages are sent when three quarters of the time have passed.
    assert!(report.node("/user/idle").unwrap().after() < timeout, "{report}");
    assert!(report.node("/user/full").unwrap().after() >= timeout, "{report}");
}

async fn s166_a_panic_fails_only_that_actor<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let panics = Script { panics_in_hook: true, ..Script::new(&log) };
    let hook = F::spawn(&system, None, "hook", panics).await.unwrap();
    let handler = F::spawn(&system, None, "handler", Script::new(&log)).await.unwrap();
    let good = F::spawn(&system, None, "good", Script::new(&log)).await.unwrap();
    let wait = Job::new(|| tokio::time::sleep(Duration::from_secs(1)));
    assert!(F::send(&handler, wait).await);
    assert!(F::send(&handler, Job::new(|| async { panic!("in the handler") })).await);
    assert!(F::send(&good, Job::log(&log, "good")).await);
    let report = system.shutdown(LONG).await.unwrap();
    let ending = |path: &str| report.node(path).unwrap().ending();
    assert!(matches!(ending("/user/hook"), NodeEnding::HookFailed { .. }), "{report}");
    assert!(matches!(ending("/user/handler"), NodeEnding::Failed { .. }), "{report}");
    assert_eq!(ending("/user/good"), &NodeEnding::Drained);
    assert!(log.lines().contains(&"good stops".to_owned()));
    drop(hook);
}

async fn s167_no_actor_is_spawned_from_outside_during_a_drain<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let slow = Job::new(|| tokio::time::sleep(Duration::from_secs(1)));
    assert!(F::send(&orders, slow).await);
    let late = async {
        tokio::task::yield_now().await;
        F::spawn(&system, Some(&orders), "late", Script::new(&log)).await.err()
    };
    let (report, late) = tokio::join!(system.shutdown(LONG), late);
    let late = late.unwrap();
    assert!(matches!(late, SpawnError::Terminating { .. }), "{late}");
    assert_eq!(
        late.to_string(),
        "/user/orders/late was not spawned: actor system shop is terminating"
    );
    assert_eq!(report.unwrap().nodes.len(), 1);
    assert_eq!(log.lines(), ["orders stops"]);
}

async fn s348_a_name_is_used_by_one_actor_at_a_time<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let _orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let twice = F::spawn(&system, None, "orders", Script::new(&log)).await;
    let path = NodePath::user().child("orders").unwrap();
    assert_eq!(twice.err(), Some(SpawnError::NameTaken { path }));
}

async fn s349_an_invalid_name_is_refused<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    for bad in ["", "a/b", "a b", "a\n"] {
        let refused = F::spawn(&system, None, bad, Script::new(&log)).await.err();
        assert!(matches!(refused, Some(SpawnError::Name(_))), "{bad:?}: {refused:?}");
        let error = refused.unwrap().to_string();
        assert!(error.starts_with(&format!("{bad:?} is not a valid name")), "{error}");
    }
}

async fn s168_an_actor_that_is_starting_can_be_killed<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let start = Some(Arc::new(Notify::new()));
    let script = Script { start, ..Script::new(&log) };
    let spawning = F::spawn(&system, None, "slow", script);
    let shutdown = async {
        tokio::task::yield_now().await;
        system.shutdown(SHORT).await.unwrap()
    };
    let (spawned, report) = tokio::join!(spawning, shutdown);
    let path = NodePath::user().child("slow").unwrap();
    assert_eq!(spawned.err(), Some(SpawnError::Killed { path }));
    assert_eq!(report.node("/user/slow").unwrap().ending(), &NodeEnding::Killed);
    assert_eq!(log.len(), 0);
}

on_all_frameworks![
    s160_accepted_messages_are_processed_before_the_stop,
    s340_a_stopped_actor_refuses_messages,
    s161_children_stop_before_their_parent,
    s162_children_accept_messages_from_their_parents_remaining_work,
    s163_an_actor_with_work_is_killed_at_the_deadline,
    s342_unprocessed_messages_of_a_killed_actor_are_dead_letters,
    s344_stop_hooks_run_when_an_actor_is_killed,
    s164_all_calls_return_the_same_report,
    s345_the_shortest_timeout_holds_for_all_callers,
    s165_a_stop_message_is_not_lost_to_a_full_mailbox,
    s346_a_stop_message_that_waits_for_room_delays_no_other_actor,
    s166_a_panic_fails_only_that_actor,
    s167_no_actor_is_spawned_from_outside_during_a_drain,
    s348_a_name_is_used_by_one_actor_at_a_time,
    s349_an_invalid_name_is_refused,
    s168_an_actor_that_is_starting_can_be_killed,
];
