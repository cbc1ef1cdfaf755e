//! What holds for every framework.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_actors::{ActorSystem, NodeEnding, NodePath, SpawnError};
use tokio::sync::Notify;

use crate::frameworks::{Framework, Job, Kameo, Log, Plain, Ractor, Script};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(2);

async fn s160_what_has_come_is_worked_off_before_the_pill<F: Framework>() {
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
    // With the first one, or without, by who counts.
    assert!([10_000, 10_001].contains(&report.drained()), "{report}");
    assert_eq!((report.dead_letters(), report.is_clean()), (0, true));
    assert!(!F::send(&orders, Job::say(&log, "too late")).await);
}

async fn s161_children_stop_before_their_parent<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let spawn = async |above: Option<&F::Ref>, name: &str| {
        F::spawn(&system, above, name, Script::new(&log)).await.unwrap()
    };
    let a = spawn(None, "a").await;
    let b = spawn(Some(&a), "b").await;
    let c = spawn(Some(&b), "c").await;
    let d = spawn(Some(&b), "d").await;
    let e = spawn(Some(&a), "e").await;
    // Nothing stops before this is done: it may need the others.
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

async fn s162_what_one_still_wants_of_those_beneath_is_heard<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let above = F::spawn(&system, None, "above", Script::new(&log)).await.unwrap();
    let beneath = F::spawn(&system, Some(&above), "beneath", Script::new(&log)).await.unwrap();
    for number in 0..20 {
        let (beneath, log) = (beneath.clone(), log.clone());
        let job = Job::new(move || async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(F::send(&beneath, Job::say(&log, format!("{number}"))).await, "{number}");
        });
        assert!(F::send(&above, job).await);
    }
    let report = system.shutdown(LONG).await.unwrap();
    let heard: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(log.lines()[..20], heard);
    assert_eq!(log.lines()[20..], ["beneath stops", "above stops"]);
    assert!(report.is_clean() && report.drained() >= 20, "{report}");
}

async fn s163_who_is_stuck_at_the_deadline_is_killed<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let above = F::spawn(&system, None, "above", Script::new(&log)).await.unwrap();
    let middle = F::spawn(&system, Some(&above), "middle", Script::new(&log)).await.unwrap();
    let stuck = F::spawn(&system, Some(&middle), "stuck", Script::new(&log)).await.unwrap();
    let other = F::spawn(&system, Some(&above), "other", Script::new(&log)).await.unwrap();
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let forever = Job::new(move || {
        begun.notify_one();
        std::future::pending()
    });
    assert!(F::send(&stuck, forever).await);
    began.notified().await;
    for _ in 0..7 {
        assert!(F::send(&stuck, Job::say(&log, "never")).await);
    }
    assert!(F::send(&other, Job::say(&log, "other")).await);
    let report = system.shutdown(SHORT).await.unwrap();
    assert_eq!(report.took.as_secs(), SHORT.as_secs());

    let stuck = report.node("/user/above/middle/stuck").unwrap();
    // Seven that were waiting, and the one that it was handling.
    assert_eq!((stuck.ending(), stuck.dead_letters()), (&NodeEnding::Killed, Some(8)));
    assert_eq!(report.dead_letters(), 8);
    assert_eq!(report.unclean().count(), 1, "{report}");
    let hooks = if F::HOOK_AFTER_KILL {
        vec!["other", "other stops", "stuck stops", "middle stops", "above stops"]
    } else {
        vec!["other", "other stops", "middle stops", "above stops"]
    };
    assert_eq!(log.lines(), hooks);
    assert!(report.to_string().contains("/user/above/middle/stuck was killed, 8 dead letters"));
}

async fn s164_all_who_shut_down_await_the_same<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    assert!(F::send(&orders, Job::forever()).await);
    // The first to call goes away again; the last one has the least time.
    let first = tokio::time::timeout(Duration::from_secs(1), system.shutdown(LONG)).await;
    assert!(first.is_err());
    let (one, two) = tokio::join!(system.shutdown(LONG), system.shutdown(SHORT));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(one.took.as_secs(), 3);
    assert!(Arc::ptr_eq(&one, &system.shutdown(LONG).await.unwrap()));
    assert!(Arc::ptr_eq(&one, &system.terminated().await));
}

async fn s165_a_pill_is_not_lost_to_a_full_mailbox<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let script = Script { room: Some(2), ..Script::new(&log) };
    let full = F::spawn(&system, None, "full", script.clone()).await.unwrap();
    let beneath = F::spawn(&system, Some(&full), "beneath", script.clone()).await.unwrap();
    let alone = F::spawn(&system, None, "alone", script).await.unwrap();
    for actor in [&full, &beneath, &alone] {
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
    assert_eq!(stops, ["beneath stops", "full stops"]);
}

async fn s166_a_panic_is_that_actors_alone<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let panics = Script { panics_in_hook: true, ..Script::new(&log) };
    let hook = F::spawn(&system, None, "hook", panics).await.unwrap();
    let handler = F::spawn(&system, None, "handler", Script::new(&log)).await.unwrap();
    let good = F::spawn(&system, None, "good", Script::new(&log)).await.unwrap();
    let wait = Job::new(|| tokio::time::sleep(Duration::from_secs(1)));
    assert!(F::send(&handler, wait).await);
    assert!(F::send(&handler, Job::new(|| async { panic!("in the handler") })).await);
    assert!(F::send(&good, Job::say(&log, "good")).await);
    let report = system.shutdown(LONG).await.unwrap();
    let ending = |path: &str| report.node(path).unwrap().ending();
    assert!(matches!(ending("/user/hook"), NodeEnding::HookFailed { .. }), "{report}");
    assert!(matches!(ending("/user/handler"), NodeEnding::Failed { .. }), "{report}");
    assert_eq!(ending("/user/good"), &NodeEnding::Drained);
    assert!(log.lines().contains(&"good stops".to_owned()));
    drop(hook);
}

async fn s167_nobody_joins_a_system_that_terminates<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let twice = F::spawn(&system, None, "orders", Script::new(&log)).await;
    let path = NodePath::user().child("orders").unwrap();
    assert_eq!(twice.err(), Some(SpawnError::NameTaken { path }));
    for bad in ["", "a/b", "a b"] {
        let refused = F::spawn(&system, None, bad, Script::new(&log)).await.err();
        assert!(matches!(refused, Some(SpawnError::Name(_))), "{bad:?}: {refused:?}");
    }
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

async fn s168_who_is_still_starting_can_be_killed<F: Framework>() {
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

/// Makes a test of each of these for every framework.
macro_rules! for_every_framework {
    ($($test:ident),* $(,)?) => {
        mod on_kameo { $(#[tokio::test(start_paused = true)] async fn $test() { super::$test::<super::Kameo>().await })* }
        mod on_ractor { $(#[tokio::test(start_paused = true)] async fn $test() { super::$test::<super::Ractor>().await })* }
        mod on_plain_tokio { $(#[tokio::test(start_paused = true)] async fn $test() { super::$test::<super::Plain>().await })* }
    };
}

for_every_framework!(
    s160_what_has_come_is_worked_off_before_the_pill,
    s161_children_stop_before_their_parent,
    s162_what_one_still_wants_of_those_beneath_is_heard,
    s163_who_is_stuck_at_the_deadline_is_killed,
    s164_all_who_shut_down_await_the_same,
    s165_a_pill_is_not_lost_to_a_full_mailbox,
    s166_a_panic_is_that_actors_alone,
    s167_nobody_joins_a_system_that_terminates,
    s168_who_is_still_starting_can_be_killed,
);
