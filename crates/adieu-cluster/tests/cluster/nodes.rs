//! Whole nodes on every server, in real time.

use std::sync::Arc;
use std::time::Duration;

use adieu_cluster::store::Store;
use adieu_cluster::{Cluster, InProcess, SingletonCx, Stage};
use adieu_core::{Reason, Shutdown};
use adieu_testkit::proxy::Proxy;

use crate::notes::Note;
use crate::served::{Served, on_every_server};
use crate::stage::{History, SECOND, config, until};

const TTL: Duration = Duration::from_secs(6);

struct Node {
    shutdown: Shutdown,
    cluster: Cluster,
}

async fn started(kind: crate::served::Kind) -> Served {
    std::future::ready(Served::start(kind)).await
}

async fn join(store: Arc<dyn Store>, name: &str, history: &History) -> Node {
    let shutdown = Shutdown::configured(config()).unwrap();
    let cluster = Cluster::new(store, "shop").node(name).ttl(TTL).on(&shutdown).unwrap();
    let (history, node) = (history.clone(), name.to_owned());
    cluster
        .singleton("sweeper", move |cx: SingletonCx| {
            let (history, node) = (history.clone(), node.clone());
            async move {
                let _running = history.running_at(&node, cx.fence().get());
                cx.stopped().await;
            }
        })
        .unwrap();
    cluster.join().await.unwrap();
    Node { shutdown, cluster }
}

on_every_server! {
    super::started =>
    s630_on_servers_a_singleton_is_handed_over_when_its_node_leaves,
    s631_on_servers_a_node_that_is_cut_off_ends_its_singleton_first,
    s1422_on_servers_a_region_may_have_more_shards_than_fit_a_commit,
}

/// A commit changes fifty shards, and etcd refuses more than 128 operations.
const MANY: u32 = 300;

async fn host(store: Arc<dyn Store>, name: &str, network: &InProcess) -> Node {
    let shutdown = Shutdown::configured(config()).unwrap();
    let builder = Cluster::new(store, "shop").node(name).ttl(TTL).in_process(network);
    let cluster = builder.on(&shutdown).unwrap();
    cluster.region::<Note>("cart").shards(MANY).serve(async |_| ()).unwrap();
    cluster.join().await.unwrap();
    Node { shutdown, cluster }
}

async fn s1422_on_servers_a_region_may_have_more_shards_than_fit_a_commit(served: Served) {
    let network = InProcess::new();
    let one = host(served.connect().await, "one", &network).await;
    let mine = |node: &Node| node.cluster.status().regions.first().map_or(0, |it| it.mine);
    until("one owns all", || mine(&one) == MANY as usize).await;
    let two = host(served.connect().await, "two", &network).await;
    let report = one.shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    until("two owns all", || mine(&two) == MANY as usize).await;
    let report = two.shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
}

async fn s630_on_servers_a_singleton_is_handed_over_when_its_node_leaves(served: Served) {
    let history = History::default();
    let one = join(served.connect().await, "one", &history).await;
    let two = join(served.connect().await, "two", &history).await;
    until("it runs", || history.running() == ["one"]).await;
    let report = one.shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    until("it runs elsewhere", || history.running() == ["two"]).await;
    let report = two.shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!((one.cluster.stage(), two.cluster.stage()), (Stage::Removed, Stage::Removed));
    history.assert_sound();
}

async fn s631_on_servers_a_node_that_is_cut_off_ends_its_singleton_first(served: Served) {
    let history = History::default();
    let proxy = Proxy::new(served.server.address()).await;
    let one = join(served.connect_by(proxy.port()).await, "one", &history).await;
    let _two = join(served.connect().await, "two", &history).await;
    until("it runs", || history.running() == ["one"]).await;
    // A connection that hangs is replaced, and the node stays.
    proxy.hang();
    tokio::time::sleep(2 * TTL).await;
    assert_eq!((history.running(), one.cluster.stage()), (vec!["one".to_owned()], Stage::Up));
    proxy.cut();
    until("it runs elsewhere", || history.running() == ["two"]).await;
    history.assert_sound();
    assert_eq!(one.shutdown.reason(), Some(Reason::ClusterDowning));
    assert!(history.began_at("two") - history.ended_at("one") >= SECOND);
}
