//! Servers, processes and outcomes for one test.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use adieu_cluster::{Cluster, MoveRefusal, NodeId, OperateError};
use adieu_core::{Config, Shutdown};
use adieu_testkit::process::Process;
use adieu_testkit::servers::Server;
use nix::sys::signal::Signal::{self, SIGTERM};
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_postgres::Client;

use super::appends::{Appended, Tally, create, judge, read};
use super::child::{ORDER, Order};
use super::load::{Load, Outcome};
use crate::real::child::Place;
use crate::real::writes::connect;
use crate::served::{Kind, config, url};

/// How long a condition may take to hold, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const CLUSTER: &str = "linked";

/// The servers, and one cluster on them.
pub(crate) struct Stage {
    pub(crate) runtime: Runtime,
    pub(crate) etcd: Server,
    _postgres: Server,
    database: String,
    client: Client,
    folder: tempfile::TempDir,
    ttl: Duration,
}

// === impl Stage ===

impl Stage {
    pub(crate) fn new(ttl: Duration) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let (etcd, postgres) = (Kind::EtcdCurrent.etcd(&[]), Server::postgres());
        let database = config(postgres.port());
        let client = runtime.block_on(async {
            let client = connect(&database).await.unwrap();
            create(&client).await;
            client
        });
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("outcomes")).unwrap();
        Self { runtime, etcd, _postgres: postgres, database, client, folder, ttl }
    }

    /// Returns the settings of a node that hosts entities and sends no asks.
    pub(crate) fn host(&self, name: &str) -> Order {
        Order {
            store: Place::Etcd(url(self.etcd.port())),
            cluster: CLUSTER.to_owned(),
            node: name.to_owned(),
            ttl: self.ttl,
            listen: "127.0.0.1:0".to_owned(),
            address: None,
            appends_to: Some(self.database.clone()),
            load: None,
        }
    }

    /// Returns the settings of a node that sends asks and hosts no entity.
    pub(crate) fn sender(&self, load: Load) -> Order {
        Order { appends_to: None, load: Some(load), ..self.host("sender") }
    }

    pub(crate) fn load(&self, keys: u64, pause: Duration) -> Load {
        Load {
            keys,
            pause,
            within: Duration::from_secs(60),
            until: self.enough(),
            outcomes: self.folder.path().join("outcomes"),
        }
    }

    fn enough(&self) -> PathBuf {
        self.folder.path().join("enough")
    }

    /// Starts a node, and waits until it is a member.
    pub(crate) fn up(&self, order: &Order) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "linked::child::node_process", "--nocapture", "--test-threads=1"])
            .env(ORDER, serde_json::to_string(order).unwrap());
        let mut process = Process::start(&mut command);
        process.wait_for("@up");
        process
    }

    /// Terminates a node, and waits until it has left cleanly.
    pub(crate) fn leaves(&self, mut process: Process) {
        send(&mut process, SIGTERM);
        let ended = process.wait();
        let is_clean = ended.stdout.contains("@ended SIGTERM clean=true");
        assert!(is_clean, "{}{}", ended.stdout, ended.stderr);
    }

    /// Ends the load of the sender, waits for its last ask, and returns the process.
    pub(crate) fn finish(&self, mut sender: Process) -> Process {
        std::fs::write(self.enough(), "").unwrap();
        sender.wait_for("@asked");
        sender
    }

    /// Moves a shard as an operator does, and waits until the node owns it. Returns whether it had to
    /// move.
    pub(crate) fn moves(&self, shard: u32, to: &str) -> bool {
        let to = NodeId::new(to).unwrap();
        self.runtime.block_on(async {
            let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
            let store = Place::Etcd(url(self.etcd.port())).connect().await;
            let operator = Cluster::new(store, CLUSTER).on(&shutdown).unwrap();
            let begun = Instant::now();
            let mut has_moved = false;
            loop {
                match operator.request_move("log", shard, &to).await {
                    Ok(()) => has_moved = true,
                    Err(OperateError::MoveRefused {
                        source: MoveRefusal::AlreadyThere { .. },
                        ..
                    }) => return has_moved,
                    Err(error) => panic!("{error:?}"),
                }
                assert!(begun.elapsed() < PATIENCE, "never: {shard} moves to {to}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    }

    pub(crate) fn appends(&self) -> Vec<Appended> {
        self.runtime.block_on(read(&self.client, CLUSTER))
    }

    /// Returns how many appends there are, without reading them.
    pub(crate) fn count_appends(&self) -> u64 {
        let query = "SELECT count(*) FROM appends WHERE cluster = $1";
        let row = self.runtime.block_on(self.client.query_one(query, &[&CLUSTER])).unwrap();
        u64::try_from(row.get::<_, i64>(0)).unwrap()
    }

    /// Waits until a condition holds for the appended entries.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut(&[Appended]) -> bool) {
        let begun = Instant::now();
        while !holds(&self.appends()) {
            assert!(begun.elapsed() < PATIENCE, "never: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until each entity has appended again.
    pub(crate) fn until_all_run_again(&self, keys: u64) {
        let before = self.appends().len();
        self.until("all entities run again", |it| {
            let after = it.get(before..).unwrap_or_default();
            let mut keys_after: Vec<_> = after.iter().map(|it| it.key.as_str()).collect();
            keys_after.sort_unstable();
            keys_after.dedup();
            keys_after.len() as u64 == keys
        });
    }

    /// Returns the outcome of each ask of each node.
    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        let files = std::fs::read_dir(self.folder.path().join("outcomes")).unwrap();
        let read = |file: std::fs::DirEntry| std::fs::read(file.path()).unwrap();
        let parse = |it: Vec<u8>| serde_json::from_slice::<Vec<Outcome>>(&it).unwrap();
        files.flat_map(|file| parse(read(file.unwrap()))).collect()
    }

    /// Judges everything.
    #[expect(clippy::print_stdout, reason = "the tally is a result of the test")]
    pub(crate) fn judge(&self) -> Tally {
        let tally = judge(&self.outcomes(), &self.appends()).unwrap();
        println!("{tally}");
        tally
    }
}

pub(crate) fn send(process: &mut Process, signal: Signal) {
    process.signal(adieu_core::Signal::new(signal as i32));
}
