//! The program of the other processes: one node whose singleton writes to a database, under its fence.

use std::sync::Arc;
use std::time::Duration;

use adieu_cluster::store::{
    Changes, Commit, Committed, Etcd, Files, Postgres, Reply, Revision, Session, Snapshot,
    Standing, Store,
};
use adieu_cluster::{Cluster, SingletonCx};
use adieu_core::{Config, Shutdown};
use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};

use super::writes::Writer;
use crate::child::{print_end, run_order};

/// The variable that holds an [`Order`].
pub(crate) const ORDER: &str = "ADIEU_TEST_NODE";

/// The settings of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) store: Place,
    pub(crate) cluster: String,
    pub(crate) node: String,
    pub(crate) build: String,
    pub(crate) ttl: Duration,
    /// The file to which the singleton writes; without it, the node has no singleton.
    pub(crate) writes_to: Option<String>,
    pub(crate) dies: Option<Dies>,
}

/// A store, and where it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Place {
    Files(String),
    Etcd(String),
    Postgres(String),
}

/// The commit at which a process kills itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dies {
    pub(crate) when: When,
    /// Texts that the debug output of the commit must contain.
    pub(crate) parts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum When {
    /// The store never receives it.
    Before,
    /// The store has applied it, and the process has not seen the answer.
    After,
}

/// A store that kills the process at a commit.
struct Doomed {
    store: Arc<dyn Store>,
    dies: Dies,
}

/// Runs a node in a process that a test has started. Returns at once in the test process itself.
#[test]
fn node_process() {
    run_order(ORDER, run);
}

#[expect(clippy::print_stdout, reason = "the test that started this process reads it")]
async fn run(order: Order) {
    let shutdown = Shutdown::configured(Config::new().run_when_down(true)).unwrap();
    shutdown.install_signals().unwrap();
    let mut store = order.store.connect().await;
    if let Some(dies) = order.dies.clone() {
        store = Arc::new(Doomed { store, dies });
    }
    let cluster = Cluster::new(store, &order.cluster)
        .node(&order.node)
        .build(&order.build)
        .ttl(order.ttl)
        .on(&shutdown)
        .unwrap();
    if let Some(database) = &order.writes_to {
        let (database, cluster_name) = (database.clone(), order.cluster.clone());
        let node = order.node.clone();
        let writes = move |me: SingletonCx| {
            let (database, cluster, node) = (database.clone(), cluster_name.clone(), node.clone());
            async move { write(&database, cluster, node, me).await }
        };
        cluster.singleton("sweeper", writes).unwrap();
    }
    cluster.join().await.unwrap();
    println!("@up");
    let report = shutdown.completed().await.unwrap();
    print_end(&report);
}

/// Writes every ten milliseconds, until the singleton is stopped. Prints how often.
#[expect(clippy::print_stdout, reason = "the test that started this process reads it")]
async fn write(
    database: &str,
    cluster: String,
    node: String,
    me: SingletonCx,
) -> Result<(), tokio_postgres::Error> {
    println!("@began {}", me.fence());
    let writer = Writer::connect(database, cluster, node, me.fence().get()).await?;
    let mut count = 0;
    while !me.is_stopped() {
        if me.check().is_ok() {
            writer.write().await?;
            count += 1;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("@wrote {} {count}", me.fence());
    Ok(())
}

// === impl Place ===

impl Place {
    pub(crate) async fn connect(&self) -> Arc<dyn Store> {
        match self {
            Self::Files(folder) => Arc::new(Files::open(folder).unwrap()),
            Self::Etcd(url) => Arc::new(Etcd::connect(&[url]).await.unwrap()),
            Self::Postgres(config) => Arc::new(Postgres::connect(config, "test").await.unwrap()),
        }
    }
}

// === impl Doomed ===

impl Store for Doomed {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn shortest_ttl(&self) -> Duration {
        self.store.shortest_ttl()
    }

    fn open(&self, ttl: Duration) -> Reply<'_, Session> {
        self.store.open(ttl)
    }

    fn keep<'a>(&'a self, session: &'a Session) -> Reply<'a, Standing> {
        self.store.keep(session)
    }

    fn close<'a>(&'a self, session: &'a Session) -> Reply<'a, ()> {
        self.store.close(session)
    }

    fn load<'a>(&'a self, prefix: &'a str) -> Reply<'a, Snapshot> {
        self.store.load(prefix)
    }

    fn changes<'a>(&'a self, prefix: &'a str, after: Revision) -> Reply<'a, Box<dyn Changes>> {
        self.store.changes(prefix, after)
    }

    fn commit<'a>(&'a self, commit: &'a Commit) -> Reply<'a, Committed> {
        let text = format!("{commit:?}").replace('\\', "");
        let is_it = self.dies.parts.iter().all(|part| text.contains(part.as_str()));
        let dies = move |when: When| {
            if is_it && self.dies.when == when {
                raise(Signal::SIGKILL).unwrap();
            }
        };
        Box::pin(async move {
            dies(When::Before);
            let answer = self.store.commit(commit).await;
            if !matches!(answer, Ok(Committed::Conflict)) {
                dies(When::After);
            }
            answer
        })
    }
}
