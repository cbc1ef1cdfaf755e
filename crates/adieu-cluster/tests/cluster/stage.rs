//! Nodes of one cluster in one process, on the memory store and the paused clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_cluster::store::Memory;
use adieu_cluster::{Cluster, ClusterBuilder, NodeId, SingletonCx, Stage};
use adieu_core::{Config, Report, Shutdown};
use tokio::time::Instant;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const TTL: Duration = Duration::from_secs(10);

pub(crate) struct TestNode {
    pub(crate) store: Memory,
    pub(crate) shutdown: Shutdown,
    pub(crate) cluster: Cluster,
}

/// The actions of the instances of singletons, in order.
#[derive(Clone, Default)]
pub(crate) struct History {
    entries: Arc<Mutex<Vec<Entry>>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) node: String,
    pub(crate) fence: u64,
    pub(crate) what: What,
    pub(crate) at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    Began,
    Polled,
    Ended,
}

/// Notes the end of an instance, however it ends.
pub(crate) struct Ends(History, String, u64);

pub(crate) fn config() -> Config {
    Config::for_tests().run_when_down(true)
}

pub(crate) fn node(store: &Memory, name: &str) -> TestNode {
    node_with(store, name, config(), |builder| builder)
}

pub(crate) fn node_with(
    store: &Memory,
    name: &str,
    config: Config,
    change: impl FnOnce(ClusterBuilder) -> ClusterBuilder,
) -> TestNode {
    let store = store.connect();
    let shutdown = Shutdown::configured(config).unwrap();
    let builder = Cluster::new(store.clone(), "shop").node(name).ttl(TTL);
    let cluster = change(builder).on(&shutdown).unwrap();
    TestNode { store, shutdown, cluster }
}

impl TestNode {
    /// Declares a singleton that runs until it is stopped, and notes what it does.
    pub(crate) fn sweeper(self, history: &History) -> Self {
        self.singleton("sweeper", history, |cx| async move { cx.stopped().await })
    }

    /// Declares a singleton that runs until the future of `until` is over.
    pub(crate) fn singleton<Fut>(
        self,
        name: &str,
        history: &History,
        until: fn(SingletonCx) -> Fut,
    ) -> Self
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (history, node) = (history.clone(), self.cluster.id().to_string());
        self.cluster
            .singleton(name, move |cx: SingletonCx| {
                let (history, node) = (history.clone(), node.clone());
                async move {
                    let fence = cx.fence().get();
                    history.note(&node, fence, What::Began);
                    let _ends = Ends(history.clone(), node.clone(), fence);
                    let ticks = async {
                        loop {
                            tokio::time::sleep(SECOND / 10).await;
                            history.note(&node, fence, What::Polled);
                        }
                    };
                    tokio::select! {
                        () = ticks => {}
                        () = until(cx.clone()) => {}
                    }
                }
            })
            .unwrap();
        self
    }

    pub(crate) async fn joined(self) -> Self {
        self.cluster.join().await.unwrap();
        self
    }

    /// Waits until the shutdown is over, whatever its reason. Fails after two virtual minutes.
    pub(crate) async fn completed(&self) -> Arc<Report> {
        let completed = tokio::time::timeout(120 * SECOND, self.shutdown.completed());
        completed.await.expect("the shutdown runs and ends").unwrap()
    }

    /// Runs the shutdown, and returns its report and how long it took.
    pub(crate) async fn leave(&self) -> (Arc<Report>, Duration) {
        let begun = Instant::now();
        drop(self.shutdown.run(adieu_core::Reason::Unknown));
        let report = self.completed().await;
        (report, begun.elapsed())
    }
}

pub(crate) fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// Waits until something holds. Fails after a virtual minute.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < 60 * SECOND, "never: {what}");
        tokio::time::sleep(SECOND / 100).await;
    }
}

/// Waits until a node has a stage.
pub(crate) async fn is_at(node: &TestNode, stage: Stage) {
    until(&format!("{} is {stage}", node.cluster.id()), || node.cluster.stage() == stage).await;
}

impl History {
    fn note(&self, node: &str, fence: u64, what: What) {
        let entry = Entry { node: node.to_owned(), fence, what, at: Instant::now() };
        self.entries.lock().unwrap().push(entry);
    }

    /// Notes that an instance has begun, and when it ends.
    pub(crate) fn running_at(&self, node: &str, fence: u64) -> Ends {
        self.note(node, fence, What::Began);
        Ends(self.clone(), node.to_owned(), fence)
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }

    /// Returns the instances that began, as nodes, in order.
    pub(crate) fn owners(&self) -> Vec<String> {
        let entries = self.entries();
        entries.into_iter().filter(|it| it.what == What::Began).map(|it| it.node).collect()
    }

    /// The node on which an instance runs now.
    pub(crate) fn running(&self) -> Vec<String> {
        let mut running = Vec::new();
        for entry in self.entries() {
            match entry.what {
                What::Began => running.push(entry.node),
                What::Ended => running.retain(|node| *node != entry.node),
                What::Polled => {}
            }
        }
        running
    }

    /// No instance began before the one before had ended, and fences rise.
    pub(crate) fn assert_sound(&self) {
        let (mut running, mut fence) = (None, 0);
        for entry in self.entries() {
            match entry.what {
                What::Began => {
                    assert_eq!(running, None, "two instances: {:#?}", self.entries());
                    assert!(entry.fence > fence, "the fence did not rise: {:#?}", self.entries());
                    running = Some(entry.node.clone());
                    fence = entry.fence;
                }
                What::Polled => assert_eq!(running.as_deref(), Some(&*entry.node)),
                What::Ended => running = None,
            }
        }
    }

    pub(crate) fn began_at(&self, node: &str) -> Instant {
        self.at(node, What::Began)
    }

    pub(crate) fn ended_at(&self, node: &str) -> Instant {
        self.at(node, What::Ended)
    }

    fn at(&self, node: &str, what: What) -> Instant {
        let found = self.entries().into_iter().find(|it| it.node == node && it.what == what);
        found.unwrap_or_else(|| panic!("{node} never {what:?}: {:#?}", self.entries())).at
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let Self(history, node, fence) = self;
        history.note(node, *fence, What::Ended);
    }
}
