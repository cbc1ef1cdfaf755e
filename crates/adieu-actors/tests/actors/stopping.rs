//! The order in which actors stop, and stopping one actor while the rest of the system runs.

use std::time::Duration;

use adieu_actors::{ActorSystem, NodeEnding, NodePath, SpawnError};

use crate::frameworks::{Framework, Job, Kameo, Log, Script};

const LONG: Duration = Duration::from_secs(60);

async fn s243_accepted_work_can_spawn_a_child<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let (inside, top, inner) = (system.clone(), parent.clone(), log.clone());
    let job = Job::new(move || async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let child = F::spawn(&inside, Some(&top), "child", Script::new(&inner)).await.unwrap();
        assert!(F::send(&child, Job::log(&inner, "child works")).await);
        let refused = F::spawn(&inside, None, "top", Script::new(&inner)).await.err().unwrap();
        assert!(matches!(refused, SpawnError::Terminating { .. }), "{refused}");
    });
    assert!(F::send(&parent, job).await);
    let report = system.shutdown(LONG).await.unwrap();
    assert_eq!(log.lines(), ["child works", "child stops", "parent stops"]);
    assert!(report.is_clean() && report.nodes.len() == 2, "{report}");
}

async fn s244_no_actor_is_spawned_below_one_that_has_ended<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let path = NodePath::user().child("parent").unwrap();
    assert!(system.stop(&path, LONG).await.unwrap().is_clean());
    let late = F::spawn(&system, Some(&parent), "late", Script::new(&log)).await.err().unwrap();
    assert!(matches!(late, SpawnError::ParentStopped { .. }), "{late}");
    assert!(late.to_string().starts_with("/user/parent/late was not spawned: /user/parent has"));
    assert!(system.tree().nodes.is_empty());
}

async fn s245_children_of_a_stuck_actor_run_their_stop_hooks<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let child = F::spawn(&system, Some(&parent), "child", Script::new(&log)).await.unwrap();
    let leaf = F::spawn(&system, Some(&child), "leaf", Script::new(&log)).await.unwrap();
    assert!(F::send(&parent, Job::forever()).await);
    let report = system.shutdown(Duration::from_secs(2)).await.unwrap();
    assert_eq!(log.lines()[..2], ["leaf stops", "child stops"]);
    assert_eq!(log.lines().len(), if F::HOOK_AFTER_KILL { 3 } else { 2 });
    assert_eq!(report.unclean().count(), 1, "{report}");
    assert_eq!(report.node("/user/parent").unwrap().ending(), &NodeEnding::Killed);
    drop((child, leaf));
}

async fn s246_children_of_an_actor_that_panics_are_drained_first<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let child = F::spawn(&system, Some(&parent), "child", Script::new(&log)).await.unwrap();
    let inner = log.clone();
    let slow = Job::new(move || async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        inner.add("child works");
    });
    assert!(F::send(&child, slow).await);
    assert!(F::send(&parent, Job::new(|| async { panic!("on purpose") })).await);
    let report = system.shutdown(LONG).await.unwrap();
    assert_eq!(log.lines()[..2], ["child works", "child stops"], "{report}");
    assert_eq!(report.node("/user/parent/child").unwrap().ending(), &NodeEnding::Drained);
    let parent = report.node("/user/parent").unwrap();
    assert!(matches!(parent.ending(), NodeEnding::Failed { .. }), "{report}");
}

async fn s247_a_stop_continues_when_its_future_is_dropped<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let child = F::spawn(&system, Some(&parent), "child", Script::new(&log)).await.unwrap();
    assert!(F::send(&child, Job::new(|| tokio::time::sleep(Duration::from_secs(2)))).await);
    let path = NodePath::user().child("parent").unwrap();
    let stopping = tokio::time::timeout(Duration::from_secs(1), system.stop(&path, LONG)).await;
    assert!(stopping.is_err());
    assert!(system.shutdown(LONG).await.unwrap().is_clean());
    assert_eq!(log.lines(), ["child stops", "parent stops"]);
}

async fn s352_an_actor_is_stopped_with_its_children_and_its_name_is_free<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let worker = F::spawn(&system, Some(&orders), "worker", Script::new(&log)).await.unwrap();
    let other = F::spawn(&system, None, "other", Script::new(&log)).await.unwrap();
    assert!(F::send(&worker, Job::forever()).await);
    let path = NodePath::user().child("orders").unwrap();
    let report = system.stop(&path, Duration::from_secs(1)).await.unwrap();
    assert_eq!(report.node("/user/orders/worker").unwrap().ending(), &NodeEnding::Killed);
    assert_eq!(report.node("/user/orders").unwrap().ending(), &NodeEnding::Drained);
    assert_eq!(system.tree().to_string(), "shop\n  /user\n    other\n");
    assert!(F::send(&other, Job::log(&log, "other works")).await);
    F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
}

on_kameo_and_ractor![
    s243_accepted_work_can_spawn_a_child,
    s244_no_actor_is_spawned_below_one_that_has_ended,
    s245_children_of_a_stuck_actor_run_their_stop_hooks,
    s246_children_of_an_actor_that_panics_are_drained_first,
    s247_a_stop_continues_when_its_future_is_dropped,
    s352_an_actor_is_stopped_with_its_children_and_its_name_is_free,
];

#[tokio::test(start_paused = true)]
async fn s251_system_actors_stop_after_the_others() {
    let system = ActorSystem::new("shop");
    let log = Log::default();
    let inner = log.clone();
    let store =
        adieu_actors::task::task(8, async move |mut inbox: adieu_actors::task::Inbox<&str>| {
            while let Some(delivery) = inbox.recv().await {
                let line = *delivery;
                inner.add(line);
                delivery.done();
            }
            inner.add("store stops");
        });
    let store = system.spawn_system_actor("store", store).await.unwrap();
    assert_eq!(store.path().as_str(), "/system/store");
    let orders = Kameo::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let to = store.clone();
    let job = Job::new(move || async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        to.send("stored").await.unwrap();
    });
    assert!(Kameo::send(&orders, job).await);
    let report = system.shutdown(LONG).await.unwrap();
    assert!(report.is_clean() && report.nodes.len() == 2, "{report}");
    assert_eq!(log.lines(), ["stored", "orders stops", "store stops"]);
}
