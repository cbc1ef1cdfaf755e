//! Servers, processes and clusters for one test.

use std::process::Command;
use std::time::Duration;

use adieu_cluster::{Cluster, NodeId};
use adieu_core::{Config, Shutdown};
use adieu_testkit::process::Process;
use adieu_testkit::servers::Server;
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_postgres::Client;

use super::child::{Dies, ORDER, Order, Place};
use super::writes::{Writes, connect, create};
use crate::served::{Kind, Served, config, url};

/// How long a condition may take to hold: longer than any machine is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than a hand-off takes on a busy machine, so that one that waits for it is noticed.
pub(crate) const LONG: Duration = Duration::from_secs(15);

/// The servers of one test: of the store, and of the database that singletons write to.
pub(crate) struct Servers {
    pub(crate) runtime: Runtime,
    /// `None` for the store in files.
    pub(crate) store: Option<Served>,
    folder: tempfile::TempDir,
    _database: Server,
    database: String,
    client: Client,
}

/// A cluster on the servers of a test.
pub(crate) struct Stage<'a> {
    pub(crate) servers: &'a Servers,
    pub(crate) cluster: String,
    ttl: Duration,
    place: Place,
}

/// How to start a node.
#[derive(Clone, Default)]
pub(crate) struct Start {
    /// Reaches the store at another port.
    pub(crate) port: Option<u16>,
    pub(crate) dies: Option<Dies>,
    /// Has no singleton.
    pub(crate) is_idle: bool,
}

// === impl Servers ===

impl Servers {
    /// Starts the servers; `None` is the store in files.
    pub(crate) fn start(kind: Option<Kind>) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let database_server = Server::postgres();
        let database = config(database_server.port());
        let client = runtime.block_on(async {
            create(&database).await;
            connect(&database).await.unwrap()
        });
        Self {
            runtime,
            store: kind.map(Served::start),
            folder: tempfile::tempdir().unwrap(),
            _database: database_server,
            database,
            client,
        }
    }

    /// A cluster of its own.
    pub(crate) fn cluster(&self, name: impl Into<String>, ttl: Duration) -> Stage<'_> {
        let cluster = name.into();
        let place = match &self.store {
            None => Place::Files(self.folder.path().join(&cluster).to_str().unwrap().to_owned()),
            Some(served) => at(served.kind, served.server.port()),
        };
        Stage { servers: self, cluster, ttl, place }
    }
}

fn at(kind: Kind, port: u16) -> Place {
    match kind {
        Kind::EtcdInstalled | Kind::EtcdCurrent => Place::Etcd(url(port)),
        Kind::Postgres => Place::Postgres(config(port)),
    }
}

// === impl Stage ===

impl Stage<'_> {
    /// Starts a node. Its build is the part of its name before a hyphen.
    pub(crate) fn start(&self, name: &str) -> Process {
        self.start_with(name, Start::default())
    }

    pub(crate) fn start_with(&self, name: &str, start: Start) -> Process {
        let store = match (start.port, &self.servers.store) {
            (Some(port), Some(served)) => at(served.kind, port),
            _ => self.place.clone(),
        };
        let order = Order {
            store,
            cluster: self.cluster.clone(),
            node: name.to_owned(),
            build: name.split('-').next().unwrap_or_default().to_owned(),
            ttl: self.ttl,
            writes_to: (!start.is_idle).then(|| self.servers.database.clone()),
            dies: start.dies,
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "real::child::node_process", "--nocapture", "--test-threads=1"])
            .env(ORDER, serde_json::to_string(&order).unwrap());
        Process::start(&mut command)
    }

    /// Starts a node, and waits until it is a member.
    pub(crate) fn up(&self, name: &str) -> Process {
        self.up_with(name, Start::default())
    }

    pub(crate) fn up_with(&self, name: &str, start: Start) -> Process {
        let mut process = self.start_with(name, start);
        process.wait_for("@up");
        process
    }

    /// Starts several nodes, and waits until the singleton writes at the first.
    pub(crate) fn all_up<const N: usize>(&self, names: [&str; N]) -> [Process; N] {
        names.map(|name| {
            let process = self.up(name);
            self.writes(names[0]);
            process
        })
    }

    /// An operator's handle to the cluster, which is not a member of it.
    pub(crate) fn stop_all(&self) {
        self.servers.runtime.block_on(async {
            let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
            let operator = Cluster::new(self.place.connect().await, &self.cluster);
            operator.on(&shutdown).unwrap().stop_all().await.unwrap();
        });
    }

    /// An operator requests that a node leave.
    pub(crate) fn request_leave(&self, node: &str) {
        self.servers.runtime.block_on(async {
            let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
            let operator = Cluster::new(self.place.connect().await, &self.cluster);
            let operator = operator.on(&shutdown).unwrap();
            operator.request_leave(&NodeId::new(node).unwrap()).await.unwrap();
        });
    }

    /// Returns how many writes were attempted.
    pub(crate) fn count(&self) -> i64 {
        let Servers { runtime, client, .. } = self.servers;
        let query = "SELECT count(*) FROM writes WHERE cluster = $1";
        runtime.block_on(client.query_one(query, &[&self.cluster])).unwrap().get(0)
    }

    /// Returns the node that wrote last.
    pub(crate) fn last_writer(&self) -> String {
        let Servers { runtime, client, .. } = self.servers;
        let query = "SELECT node FROM writes WHERE cluster = $1 ORDER BY number DESC LIMIT 1";
        runtime.block_on(client.query_one(query, &[&self.cluster])).unwrap().get(0)
    }

    /// Waits until something holds.
    pub(crate) fn wait(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            let written = || self.written().story();
            assert!(begun.elapsed() < PATIENCE, "{}: never: {what}: {}", self.cluster, written());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn written(&self) -> Writes {
        let Servers { runtime, client, .. } = self.servers;
        runtime.block_on(Writes::read(client, &self.cluster))
    }

    /// Waits until something holds for what was written.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut(&Writes) -> bool) -> Writes {
        let begun = Instant::now();
        loop {
            let written = self.written();
            if holds(&written) {
                return written;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{}: never: {what}: {}",
                self.cluster,
                written.story()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the last that was written is of this node.
    pub(crate) fn writes(&self, node: &str) {
        self.until(&format!("{node} writes"), |it| it.last().is_some_and(|it| it.node == node));
    }

    /// Waits until the last that was written is of another node. Returns which.
    pub(crate) fn writes_elsewhere(&self, than: &[&str]) -> String {
        let is_other = |it: &super::writes::Written| !than.contains(&it.node.as_str());
        let written = self.until("another writes", |it| it.last().is_some_and(is_other));
        written.last().unwrap().node.clone()
    }

    /// Terminates a process, and waits until it has left cleanly.
    pub(crate) fn leaves(&self, mut process: Process) {
        send(&mut process, Signal::SIGTERM);
        self.has_left(process, "SIGTERM");
    }

    /// Waits until a process has left cleanly, for this reason.
    pub(crate) fn has_left(&self, process: Process, reason: &str) {
        let ended = process.wait();
        let expected = format!("@ended {reason} clean=true");
        let cluster = &self.cluster;
        assert!(ended.stdout.contains(&expected), "{cluster}: {}{}", ended.stdout, ended.stderr);
    }

    /// Judges everything that was written.
    pub(crate) fn judge(&self) -> Writes {
        self.judge_these(self.written())
    }

    /// Judges what was written, and reports the gaps at hand-offs.
    #[expect(clippy::print_stdout, reason = "the gaps are a result of the test")]
    pub(crate) fn judge_these(&self, written: Writes) -> Writes {
        println!("{}: {}", self.cluster, written.story());
        if let Err(problem) = written.judge() {
            panic!("{}: {problem}\n{}", self.cluster, written.story());
        }
        written
    }
}

pub(crate) fn send(process: &mut Process, signal: Signal) {
    process.signal(adieu_core::Signal::new(signal as i32));
}
