//! Joining, leaving, and losing one's place.

use std::time::Duration;

use adieu_cluster::store::{Commit, Committed, Memory, Store};
use adieu_cluster::{Cluster, ClusterError, JoinError, NodeState, OperateError, Stage};
use adieu_core::{Config, Phase, Reason, Shutdown};
use tokio::time::Instant;

use crate::stage::{SECOND, TTL, TestNode, config, id, is_at, node, node_with, until};

#[tokio::test(start_paused = true)]
async fn s610_a_node_joins_and_leaves_as_its_shutdown_runs() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    assert_eq!((one.cluster.stage(), two.cluster.stage()), (Stage::Up, Stage::Up));
    until("one sees two", || one.cluster.status().nodes.len() == 2).await;

    let (report, _) = two.leave().await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(two.cluster.stage(), Stage::Removed);
    until("one sees that two has left", || one.cluster.status().nodes.len() == 1).await;
    let status = one.cluster.status();
    assert_eq!(status.gone[0].node, id("two"));
    assert_eq!(status.gone[0].how, adieu_cluster::Departure::Left);
    assert_eq!(status.leader, Some(id("one")));
}

#[tokio::test(start_paused = true)]
async fn s611_a_single_node_leaves_at_once() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let (report, took) = one.leave().await;
    assert!(report.is_clean(), "{report}");
    assert!(took < SECOND / 10, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn s612_two_nodes_that_leave_together_do_not_wait_for_each_other() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    let ((first, took), (second, took_too)) = tokio::join!(one.leave(), two.leave());
    assert!(first.is_clean() && second.is_clean(), "{first}\n{second}");
    assert!(took < SECOND && took_too < SECOND, "{took:?}, {took_too:?}");
}

#[tokio::test(start_paused = true)]
async fn s613_the_tasks_do_nothing_for_a_node_that_never_joined() {
    let one = node(&Memory::new(), "one");
    let (report, took) = one.leave().await;
    assert!(report.is_clean() && took < SECOND / 10, "{report}");
    let ran = report.phase("cluster-leave").unwrap().task("cluster: leave").unwrap();
    assert!(ran.outcome.is_clean(), "{ran:?}");
    let error = one.cluster.join().await.unwrap_err();
    assert!(matches!(error, JoinError::ShuttingDown { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn s614_a_node_that_is_not_up_in_time_runs_the_shutdown() {
    let store = Memory::new();
    let one = node_with(&store, "one", config(), |it| it.join_deadline(7 * SECOND));
    one.store.faults().cut(true);
    let begun = Instant::now();
    let error = one.cluster.join().await.unwrap_err();
    assert!(matches!(error, JoinError::TimedOut { .. }), "{error}");
    assert_eq!(begun.elapsed(), 7 * SECOND);
    let report = one.completed().await;
    assert_eq!(one.shutdown.reason(), Some(Reason::ClusterJoinUnsuccessful));
    assert_eq!(report.exit_code, 255);
}

#[tokio::test(start_paused = true)]
async fn s603_a_configuration_that_does_not_fit_runs_the_shutdown() {
    let store = Memory::new();
    let config = r#"{"protocol":1,"regions":{"sweeper":{"kind":"region","shards":16}}}"#;
    let theirs = Commit::new().create("adieu/cluster/shop/config", config);
    assert!(matches!(store.commit(&theirs).await.unwrap(), Committed::Done(_)));
    let one = node(&store, "one");
    one.cluster.singleton("sweeper", async |_| ()).unwrap();
    let error = one.cluster.join().await.unwrap_err();
    let JoinError::Incompatible { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.field, "regions.sweeper.kind");
    assert_eq!(one.shutdown.reason(), Some(Reason::IncompatibleConfiguration));
    one.completed().await;
}

/// The advice of the error is right: only another name helps, not a restart of all nodes.
#[tokio::test(start_paused = true)]
async fn s1423_a_region_keeps_its_settings_while_no_node_is_there() {
    let store = Memory::new();
    let one = node(&store, "one");
    one.cluster.singleton("sweeper", async |_| ()).unwrap();
    let one = one.joined().await;
    assert!(one.leave().await.0.is_clean());
    let two = node(&store, "two");
    two.cluster.region::<crate::notes::Note>("sweeper").shards(8).proxy().unwrap();
    let error = adieu_core::adapter::error_text(&two.cluster.join().await.unwrap_err());
    let expected = "regions.sweeper.kind is region here and singleton in the cluster; use the same \
                    value, or another name: the cluster keeps it, even if all nodes stop";
    assert!(error.ends_with(expected), "{error}");
    two.completed().await;
    let three = node(&store, "three");
    three.cluster.region::<crate::notes::Note>("sweepers").shards(8).proxy().unwrap();
    three.joined().await;
}

#[tokio::test(start_paused = true)]
async fn s615_leaving_that_is_requested_elsewhere_runs_the_shutdown() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    one.cluster.request_leave(&id("two")).await.unwrap();
    let report = two.completed().await;
    assert_eq!(two.shutdown.reason(), Some(Reason::ClusterLeaving));
    assert!(report.is_clean(), "{report}");
    assert_eq!(two.cluster.stage(), Stage::Removed);
    let error = one.cluster.request_leave(&id("three")).await.unwrap_err();
    assert!(matches!(error, OperateError::NoSuchNode { .. }), "{error}");
    assert!(error.to_string().contains("nodes: one"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn s616_a_node_that_is_declared_dead_runs_the_shutdown() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    one.cluster.declare_dead(&id("two")).await.unwrap();
    let report = two.completed().await;
    assert_eq!(two.shutdown.reason(), Some(Reason::ClusterDowning));
    assert_eq!(report.exit_code, 255);
    assert_eq!(two.cluster.stage(), Stage::Down);
}

#[tokio::test(start_paused = true)]
async fn s617_a_node_that_cannot_reach_the_store_loses_its_place() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    one.store.faults().cut(true);
    let begun = Instant::now();
    one.completed().await;
    assert_eq!(one.shutdown.reason(), Some(Reason::ClusterDowning));
    // The session was last kept at most a third of the time to live before the cut.
    let after = begun.elapsed();
    assert!((4 * SECOND..=8 * SECOND).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn s618_losing_the_place_does_not_run_the_shutdown_if_that_is_switched_off() {
    let store = Memory::new();
    let config = config().run_when_down(false);
    let one = node_with(&store, "one", config, |it| it).joined().await;
    one.store.faults().cut(true);
    is_at(&one, Stage::Down).await;
    tokio::time::sleep(TTL).await;
    assert_eq!(one.shutdown.reason(), None);
    // The tasks of the phases do nothing for a node that is down.
    let (report, took) = one.leave().await;
    assert!(report.is_clean() && took < SECOND, "{report}");
}

#[tokio::test(start_paused = true)]
async fn s619_stopping_the_cluster_runs_the_shutdown_of_every_node() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    one.cluster.stop_all().await.unwrap();
    let (first, second) = tokio::join!(one.completed(), two.completed());
    assert!(first.is_clean() && second.is_clean());
    assert_eq!(two.shutdown.reason(), Some(Reason::ClusterLeaving));
    // The first node that joins starts the cluster again.
    let three = node(&store, "three").joined().await;
    assert_eq!(three.cluster.stage(), Stage::Up);
}

#[tokio::test(start_paused = true)]
async fn s620_a_dead_leader_delays_a_leave_by_no_more_than_the_phase() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    until("one leads", || two.cluster.status().leader == Some(id("one"))).await;
    // The leader no longer reaches the store, and its session lasts for a while.
    one.store.faults().cut(true);
    let (report, took) = two.leave().await;
    assert_eq!(two.cluster.stage(), Stage::Removed, "{report}");
    assert!(took < 12 * SECOND, "{took:?}");
    // Half of the phase is not enough to outlast the session of the leader.
    let task =
        report.phase("cluster-exiting").unwrap().task("cluster: hand over singletons").unwrap();
    assert!(format!("{task:?}").contains("without acknowledgement"), "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn s621_a_new_leader_is_elected_when_the_leader_leaves_or_dies() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    let three = node(&store, "three").joined().await;
    until("one leads", || three.cluster.status().leader == Some(id("one"))).await;
    one.leave().await;
    until("two leads", || three.cluster.status().leader == Some(id("two"))).await;
    two.store.faults().cut(true);
    until("three leads", || three.cluster.status().leader == Some(id("three"))).await;
    until("two is noted as dead", || {
        let gone = three.cluster.status().gone;
        gone.iter().any(|it| it.node == id("two") && it.how == adieu_cluster::Departure::Down)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn s622_a_second_process_of_the_same_name_waits_for_the_first() {
    let store = Memory::new();
    let first = node(&store, "one").joined().await;
    let second = node(&store, "one");
    let leaves = async {
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(second.cluster.stage(), Stage::Outside);
        first.leave().await;
    };
    let (joined, ()) = tokio::join!(second.cluster.join(), leaves);
    joined.unwrap();
    assert_eq!(second.cluster.stage(), Stage::Up);
}

#[tokio::test(start_paused = true)]
async fn s623_lost_answers_and_a_silent_watch_stop_nothing() {
    let store = Memory::new();
    let one = node(&store, "one");
    one.store.faults().lose_answers(5);
    let one = one.joined().await;
    let two = node(&store, "two");
    // Its watch reports nothing, and no error either.
    two.store.faults().hang_changes(true);
    let two = node_with_hung_watch_joins(two).await;
    two.store.faults().lose_answers(3);
    let (report, _) = two.leave().await;
    assert_eq!(two.cluster.stage(), Stage::Removed, "{report}");
    store.compact();
    until("one sees that", || one.cluster.status().nodes.len() == 1).await;
}

async fn node_with_hung_watch_joins(node: crate::stage::TestNode) -> crate::stage::TestNode {
    let begun = Instant::now();
    node.cluster.join().await.unwrap();
    // It has loaded the table instead: after each of its commits, and when nothing came for long.
    assert!(begun.elapsed() <= 2 * TTL, "{:?}", begun.elapsed());
    node
}

#[tokio::test(start_paused = true)]
async fn s623_a_watch_that_ends_is_opened_again_at_once() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    one.store.faults().cut(true);
    tokio::time::sleep(SECOND).await;
    one.store.faults().cut(false);
    let _two = node(&store, "two").joined().await;
    let joined = Instant::now();
    until("one sees two", || one.cluster.status().nodes.len() == 2).await;
    assert!(joined.elapsed() < SECOND, "{:?}", joined.elapsed());
}

#[tokio::test(start_paused = true)]
async fn s624_a_cordoned_node_is_a_member_that_takes_nothing() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    one.shutdown.mark_started();
    one.shutdown.cordon();
    until("the record shows it", || !one.cluster.status().nodes[0].ready).await;
    assert!(one.shutdown.uncordon());
    until("the record shows it", || one.cluster.status().nodes[0].ready).await;
    assert_eq!(one.cluster.status().nodes[0].state, NodeState::Up);
}

#[tokio::test(start_paused = true)]
async fn s625_a_node_whose_shutdown_is_dropped_closes_its_session() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    until("one sees two", || one.cluster.status().nodes.len() == 2).await;
    let TestNode { shutdown, cluster, .. } = two;
    let dropped = Instant::now();
    drop(shutdown);
    until("two is gone", || one.cluster.status().nodes.len() == 1).await;
    assert!(dropped.elapsed() <= SECOND, "{:?}", dropped.elapsed());
    drop(cluster);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_work_is_refused_where_it_is_set_up() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let on = |change: fn(adieu_cluster::ClusterBuilder) -> adieu_cluster::ClusterBuilder| {
        change(Cluster::new(Memory::new(), "shop")).on(&shutdown).map(drop)
    };
    assert!(matches!(on(|it| it.node("a/b")), Err(ClusterError::Name(_))));
    assert!(matches!(on(|it| it.ttl(Duration::ZERO)), Err(ClusterError::Time { .. })));
    assert!(matches!(on(|it| it.join_deadline(Duration::ZERO)), Err(ClusterError::Time { .. })));
    let one = node(&Memory::new(), "one").joined().await;
    let late = one.cluster.singleton("sweeper", async |_| ());
    assert!(matches!(late, Err(ClusterError::TooLate { .. })), "{late:?}");
    let twice = one.cluster.join().await;
    assert!(matches!(twice, Err(JoinError::Twice { .. })), "{twice:?}");
    let phases = one.shutdown.tasks();
    let has = |phase: Phase| phases.iter().any(|task| task.phase == phase);
    assert!(has(Phase::CLUSTER_LEAVE) && has(Phase::CLUSTER_EXITING));
}
