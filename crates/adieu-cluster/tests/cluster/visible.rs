//! The status and the readiness of a node, and its page of the admin port.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_cluster::store::{Memory, Store};
use adieu_cluster::{Cluster, ClusterBuilder, InstanceState, JoinError, SingletonState, Stage};
use adieu_core::adapter::{Command, CommandError, Metrics, Page, pages};
use adieu_core::{CheckState, Phase, Readiness, Reason, Shutdown};
use serde_json::{Value, json};

use crate::notes::{Note, Stage as Notes, beside};
use crate::stage::{History, SECOND, TTL, TestNode, config, id, node, node_with, until};

pub(crate) fn page(shutdown: &Shutdown) -> Arc<dyn Page> {
    let found = pages(shutdown).into_iter().find(|(name, _)| &**name == "cluster");
    found.expect("a cluster publishes a page").1
}

#[tokio::test(start_paused = true)]
async fn s853_the_status_shows_nodes_leader_singletons_and_the_last_renewal() {
    let store = Memory::new();
    let history = History::default();
    let one = node_with(&store, "one", config(), |it| it.build("7").zone("a").address("h:1"));
    let one = one.sweeper(&history).joined().await;
    let _two = node(&store, "two").joined().await;
    until("it runs", || history.running() == ["one"]).await;
    until("one sees two", || one.cluster.status().nodes.len() == 2).await;
    tokio::time::sleep(TTL / 4).await;
    let status = page(&one.shutdown).status();
    let seen = &status["clusters"][0];
    assert_eq!((&seen["cluster"], &seen["node"]), (&"shop".into(), &"one".into()), "{status}");
    assert_eq!((&seen["stage"], &seen["leader"]), (&"up".into(), &"one".into()));
    let first = &seen["nodes"][0];
    assert_eq!(
        [&first["node"], &first["state"], &first["build"], &first["zone"], &first["address"]],
        ["one", "up", "7", "a", "h:1"]
    );
    let renewed = Duration::from_secs_f64(first["renewed_ms"].as_f64().unwrap() / 1e3);
    assert!(renewed > Duration::ZERO && renewed < TTL / 2, "{renewed:?}");
    // This node may act for four fifths of the time to live after its last renewal.
    let left = Duration::from_secs_f64(seen["session_left_ms"].as_f64().unwrap() / 1e3);
    let sum = renewed + left;
    assert!((sum.as_secs_f64() - 8.0).abs() < 0.01, "{sum:?}");
    assert_eq!(seen["nodes"][1]["renewed_ms"], Value::Null, "the store does not show it");
    let sweeper = &one.cluster.status().singletons[0];
    assert_eq!((&*sweeper.name, &sweeper.owner), ("sweeper", &Some(id("one"))));
    assert_eq!(sweeper.fence, Some(history.entries()[0].fence));
    assert_eq!(sweeper.state, SingletonState::Owned);
    assert_eq!(sweeper.instance, Some(InstanceState::Running));
}

#[tokio::test(start_paused = true)]
async fn s1420_a_node_record_contains_the_facts_that_other_nodes_use() {
    let store = Memory::new();
    let options = |it: ClusterBuilder| it.build("7").zone("a").address("h:1").weight(3);
    let one = node_with(&store, "one", config(), options).sweeper(&History::default());
    one.cluster.region::<Note>("cart").shards(8).serve(async |_| ()).unwrap();
    one.cluster.region::<Note>("user").shards(8).proxy().unwrap();
    let _one = one.joined().await;
    let table = store.load("adieu/cluster/shop/node/").await.unwrap();
    let record: Value = serde_json::from_str(&table.records[0].value).unwrap();
    let expected = json!({
        "state": "up", "ready": true, "drain": "nothing", "address": "h:1", "build": "7", "zone": "a",
        "weight": 3, "hosts": ["sweeper", "cart"], "protocol": [1, 1],
    });
    assert_eq!((&*table.records[0].key, record), ("adieu/cluster/shop/node/one", expected));
    assert!(table.records[0].session.is_some(), "it goes with the session");
}

#[tokio::test(start_paused = true)]
async fn s1421_a_node_that_leaves_counts_the_shards_that_it_has_handed_over() {
    let stage = Notes::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    let (region, takes) = (two.region.clone(), 5 * SECOND);
    let busy = beside(async move { region.at("slow").ask(Note::Take(takes)).within(TTL).await });
    tokio::time::sleep(SECOND).await;
    let shard = one.region.shard_of("slow");
    let waiting = async {
        until("it leaves", || !one.node.shutdown.status().waiting_for.is_empty()).await;
        tokio::time::sleep(SECOND).await;
        one.node.shutdown.status().waiting_for.remove(0).detail.unwrap()
    };
    let ((report, _), detail) = tokio::join!(one.node.leave(), waiting);
    let expected = format!("15/16 shards handed over (notes 15/16); notes/{shard}: slow busy 2");
    assert!(detail.starts_with(&expected), "{detail}");
    assert!(report.is_clean(), "{report}");
    busy.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn s854_status_and_errors_name_what_a_node_waits_for() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    assert_eq!(one.cluster.status().waiting_for, None);

    // A second process of the same name waits for the first.
    let twin = node_with(&store, "one", config(), |it| it.join_deadline(3 * SECOND));
    let (joined, ()) = tokio::join!(twin.cluster.join(), async {
        tokio::time::sleep(2 * SECOND).await;
        let waiting = twin.cluster.status().waiting_for.unwrap();
        assert_eq!(waiting.to_string(), "join: waiting until the earlier node one is gone, 2s");
    });
    let error = joined.unwrap_err();
    assert!(matches!(error, JoinError::TimedOut { .. }), "{error}");
    let expected = "failed to join cluster shop within 3s: join: waiting until the earlier node one \
                    is gone";
    assert_eq!(error.to_string(), expected);

    // A node that leaves names the leader that has to acknowledge it.
    let two = node(&store, "two").joined().await;
    until("one leads", || two.cluster.status().leader == Some(id("one"))).await;
    one.store.faults().cut(true);
    let leaving = two.leave();
    let waiting = async {
        until("it waits", || two.cluster.stage() == Stage::Leaving).await;
        tokio::time::sleep(SECOND).await;
        let waiting = two.cluster.status().waiting_for.unwrap().to_string();
        let expected = "leave: waiting for acknowledgement by one, 1";
        assert!(waiting.starts_with(expected), "{waiting}");
        let task = two.shutdown.status().waiting_for.remove(0);
        assert_eq!(task.detail.as_deref(), Some("waiting for acknowledgement by one"), "{task:?}");
    };
    let ((report, _), ()) = tokio::join!(leaving, waiting);
    assert!(report.to_string().contains("without acknowledgement by one within 5s"), "{report}");
}

/// The phases before those of the cluster run first, also if an operator has requested the leave.
#[tokio::test(start_paused = true)]
async fn s854_a_node_that_was_asked_to_leave_names_the_phases_that_it_waits_for() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    let slow = async |_| tokio::time::sleep(4 * SECOND).await;
    one.shutdown.add_task(Phase::SERVICE_STOP, "slow", slow).unwrap();
    two.cluster.request_leave(&id("one")).await.unwrap();
    until("it leaves", || one.cluster.stage() == Stage::Leaving).await;
    tokio::time::sleep(SECOND).await;
    let waiting = one.cluster.status().waiting_for.unwrap().to_string();
    let expected = "leave: waiting for the earlier phases of the shutdown, 1";
    assert!(waiting.starts_with(expected), "{waiting}");
    assert!(one.completed().await.is_clean());
}

#[tokio::test(start_paused = true)]
async fn s1424_a_node_that_is_back_is_not_shown_as_gone() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    one.leave().await;
    let gone = || two.cluster.status().gone.iter().map(|it| it.node.clone()).collect::<Vec<_>>();
    until("one has left", || gone() == [id("one")]).await;
    let _again = node(&store, "one").joined().await;
    until("one is back", || two.cluster.status().nodes.len() == 2).await;
    assert_eq!(gone(), []);
}

/// The lines that are logged.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Collects what this thread logs.
    pub(crate) fn subscribe(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false);
        let subscriber = subscriber.with_writer(move || writer.clone()).finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Returns the lines that contain this.
    pub(crate) fn lines(&self, what: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(what)).map(str::to_owned).collect()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s854_the_log_names_what_a_node_that_joins_waits_for() {
    let log = Log::default();
    let store = Memory::new();
    let _one = node(&store, "one").joined().await;
    let _guard = log.subscribe();
    let twin = node_with(&store, "one", config(), |it| it.join_deadline(12 * SECOND));
    assert!(twin.cluster.join().await.is_err());
    drop(twin.completed().await);
    let lines = log.lines("still waiting");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("join: waiting until the earlier node one is gone"), "{lines:?}");
}

/// An instance that was dropped has not reached its end, and the log distinguishes the two.
#[tokio::test(start_paused = true)]
async fn s1606_the_log_counts_what_the_entities_of_a_lost_node_leave() {
    let log = Log::default();
    let _guard = log.subscribe();
    let stage = Notes::new();
    let one = stage.node("one").await;
    one.add("idle", 1).await.unwrap();
    for note in [Note::Take(600 * SECOND), Note::Add(2), Note::Add(3)] {
        one.region.at("slow").tell(note).await.unwrap();
    }
    tokio::time::sleep(SECOND).await;
    one.node.store.faults().cut(true);
    one.node.completed().await;
    until("it is logged", || !log.lines("entities dropped").is_empty()).await;
    let [line] = &log.lines("entities dropped")[..] else { panic!("one line for the region") };
    for expected in [
        "this node may no longer act",
        "entities=2 busy=1",
        "asks_not_run=0",
        "tells_lost=2",
        "slow",
    ] {
        assert!(line.contains(expected), "no {expected:?} in {line}");
    }
    // The shutdown reports none of them as killed, because nothing was to be handed over.
    assert!(log.lines("entity killed").is_empty());
}

/// They were accepted, so the shutdown that follows is not clean.
#[tokio::test(start_paused = true)]
async fn s1822_tells_that_are_lost_with_their_node_make_the_outcome_unclean() {
    let stage = Notes::new();
    let one = stage.node("one").await;
    for note in [Note::Take(600 * SECOND), Note::Add(2), Note::Add(3)] {
        one.region.at("slow").tell(note).await.unwrap();
    }
    tokio::time::sleep(SECOND).await;
    one.node.store.faults().cut(true);
    let report = one.node.completed().await;
    let found: Vec<_> = report.findings.iter().map(|it| it.what.to_string()).collect();
    assert!(!report.is_clean(), "{report}");
    let names = |it: &String| it.contains("2 tells to notes lost") && it.contains("slow");
    assert!(found.iter().any(names), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn s1425_the_log_distinguishes_ended_and_dropped_instances() {
    let log = Log::default();
    let _guard = log.subscribe();
    let (store, history) = (Memory::new(), History::default());
    let logged = |what: &str| log.lines(what).len();
    let stubborn = |_| std::future::pending::<()>();
    let one = node(&store, "one").singleton("stubborn", &history, stubborn);
    let one = one.sweeper(&History::default()).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    one.leave().await;
    until("it is logged", || logged("singleton dropped") == 1).await;
    let dropped = log.lines("singleton dropped").remove(0);
    assert!(dropped.contains(r#"singleton=stubborn"#), "{dropped}");
    assert!(dropped.contains("did not end in time"), "{dropped}");
    assert!(log.lines("singleton ended").remove(0).contains("singleton=sweeper"));

    let two = node(&store, "two").sweeper(&history).joined().await;
    until("it runs", || history.running() == ["two"]).await;
    two.store.faults().cut(true);
    two.completed().await;
    until("it is logged", || logged("singleton dropped") == 2).await;
    let dropped = log.lines("singleton dropped").remove(1);
    assert!(dropped.contains("this node may no longer act"), "{dropped}");
    assert_eq!(logged("singleton ended"), 1);

    let three = node(&store, "three");
    three.cluster.singleton("panics", async |_| panic!("oops")).unwrap();
    let _three = three.joined().await;
    until("it is logged", || logged("singleton failed") > 0).await;
    let failed = log.lines("singleton failed").remove(0);
    assert!(failed.contains(r#"error="panicked: oops""#), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn s855_a_process_is_ready_only_while_its_node_is_a_member() {
    let store = Memory::new();
    let one = node_with(&store, "one", config().run_when_down(false), |it| it);
    one.shutdown.mark_started();
    assert_eq!(one.shutdown.readiness(), Readiness::Starting);
    let one = one.joined().await;
    until("it is ready", || one.shutdown.readiness().is_ready()).await;
    one.store.faults().cut(true);
    until("it is not", || one.shutdown.readiness() == Readiness::Unavailable).await;
    assert_eq!(one.cluster.stage(), Stage::Down);
    let check = one.shutdown.checks().remove(0);
    assert_eq!((&*check.name, check.state), ("cluster shop", CheckState::Failed));
    let detail = "lost its place: the session could not be kept in time";
    assert_eq!(check.detail.as_deref(), Some(detail));
    let loss = one.cluster.status().loss;
    assert_eq!(loss.as_deref(), Some("the session could not be kept in time"));
    // A late answer changes nothing.
    one.store.faults().cut(false);
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(one.shutdown.readiness(), Readiness::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s856_the_commands_of_the_page_change_the_cluster() {
    let store = Memory::new();
    let one = node(&store, "one").joined().await;
    let two = node(&store, "two").joined().await;
    let three = node(&store, "three").joined().await;
    let run = |name: &'static str, query: &'static str| {
        let page = page(&one.shutdown);
        let run = move || page.run(&Command::new(name, Some(query)));
        async move { tokio::task::spawn_blocking(run).await.unwrap() }
    };
    let unknown = run("leave", "node=four").await.unwrap_err();
    let expected = "no node four in cluster shop; nodes: one, three, two";
    assert_eq!(unknown, CommandError::Refused(expected.into()));
    assert!(matches!(run("leave", "").await, Err(CommandError::Invalid(_))));
    assert!(matches!(run("out", "node=a/b").await, Err(CommandError::Invalid(_))));
    let other = run("stop", "cluster=other").await.unwrap_err().to_string();
    assert_eq!(other, "this process is in no cluster other; it is in shop");

    run("leave", "node=two&cluster=shop").await.unwrap();
    assert!(two.completed().await.is_clean());
    assert_eq!(two.shutdown.reason(), Some(Reason::ClusterLeaving));
    run("out", "node=three").await.unwrap();
    three.completed().await;
    assert_eq!(three.shutdown.reason(), Some(Reason::ClusterDowning));
    run("stop", "").await.unwrap();
    assert!(one.completed().await.is_clean());
    assert_eq!(one.shutdown.reason(), Some(Reason::ClusterLeaving));
    // If the store does not answer, the command fails with an error that names this.
    let silent = node(&store, "four").joined().await;
    silent.store.faults().cut(true);
    let page = page(&silent.shutdown);
    let run = move || page.run(&Command::new("stop", None));
    let failed = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(matches!(failed, Err(CommandError::Failed(_))), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn s857_metrics_show_membership_sessions_singletons_and_commits() {
    let store = Memory::new();
    let history = History::default();
    let one = node(&store, "one").sweeper(&history).joined().await;
    let _two = node(&store, "two").joined().await;
    until("it runs", || history.running() == ["one"]).await;
    until("one sees two", || one.cluster.status().nodes.len() == 2).await;
    one.store.faults().cut(true);
    tokio::time::sleep(TTL / 2).await;
    let mut metrics = Metrics::default();
    page(&one.shutdown).metrics(&mut metrics);
    let text = metrics.to_string();
    for line in [
        "adieu_cluster_member{cluster=\"shop\"} 1",
        "adieu_cluster_leads{cluster=\"shop\"} 1",
        "adieu_cluster_nodes{cluster=\"shop\",state=\"up\"} 2",
        "adieu_cluster_nodes{cluster=\"shop\",state=\"leaving\"} 0",
        "adieu_cluster_singleton_owned{cluster=\"shop\",singleton=\"sweeper\"} 1",
        "adieu_cluster_singleton_here{cluster=\"shop\",singleton=\"sweeper\"} 1",
        "adieu_cluster_singleton_starts_total{cluster=\"shop\",singleton=\"sweeper\"} 1",
        "adieu_cluster_commits_total{cluster=\"shop\",commit=\"join\",outcome=\"done\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    assert!(value("adieu_cluster_session_left_seconds") < 5.0, "{text}");
    assert!(value("adieu_cluster_renewals_failed_total") > 0.0, "{text}");
}

/// Returns the metric of the hand-off to this node, if it has one.
fn handoff(node: &TestNode) -> Option<f64> {
    let mut metrics = Metrics::default();
    page(&node.shutdown).metrics(&mut metrics);
    let text = metrics.to_string();
    let labels = "{cluster=\"shop\",singleton=\"sweeper\"} ";
    let name = format!("adieu_cluster_handoff_seconds{labels}");
    text.lines().find_map(|line| line.strip_prefix(&name)).map(|value| value.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn s1278_the_receiver_measures_a_hand_over() {
    let (store, history) = (Memory::new(), History::default());
    let slow = |node: TestNode| {
        node.singleton("sweeper", &history, |cx| async move {
            cx.stopped().await;
            tokio::time::sleep(2 * SECOND).await;
        })
    };
    let one = slow(node(&store, "one")).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    let two = slow(node(&store, "two")).joined().await;
    let three = slow(node(&store, "three")).joined().await;
    assert_eq!((handoff(&two), handoff(&three)), (None, None));
    // A node that leaves: its instance needs two seconds to end.
    one.leave().await;
    until("it moved", || history.running() != ["one"] && !history.running().is_empty()).await;
    let (owner, other) = match history.running() == ["two"] {
        true => (two, three),
        false => (three, two),
    };
    let took = handoff(&owner).unwrap();
    assert!((1.9..2.5).contains(&took), "{took}");
    assert_eq!(handoff(&other), None);
    // A node that is cut off: from the end of its session, the removal margin passes.
    owner.store.faults().cut(true);
    until("it moved", || history.running() == [other.cluster.id().to_string()]).await;
    let took = handoff(&other).unwrap();
    assert!((TTL / 5..TTL / 2).contains(&Duration::from_secs_f64(took)), "{took}");
}

#[tokio::test(start_paused = true)]
async fn two_clusters_of_one_process_share_a_page() {
    let shutdown = Shutdown::configured(config()).unwrap();
    let shop = Cluster::new(Memory::new(), "shop").on(&shutdown).unwrap();
    let till = Cluster::new(Memory::new(), "till").on(&shutdown).unwrap();
    shop.join().await.unwrap();
    till.join().await.unwrap();
    let status = page(&shutdown).status();
    let names: Vec<_> = status["clusters"].as_array().unwrap().iter().collect();
    assert_eq!([&names[0]["cluster"], &names[1]["cluster"]], ["shop", "till"]);
    let error = page(&shutdown).run(&Command::new("stop", None)).unwrap_err().to_string();
    assert_eq!(error, "this process is in several clusters: add ?cluster= of shop, till");
}
