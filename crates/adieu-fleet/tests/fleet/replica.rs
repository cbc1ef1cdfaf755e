//! Replicas: processes that run this test program.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::{DeploymentProfile, Lifecycle, Step};
use adieu_fleet::{ClaimStatus, Lease, Lock, LockBackend, LockSpec, OnceCx, OtherReplicas, Owner};
use adieu_testkit::process::Process;

use crate::history::{Log, What, machine_time};
use crate::stage::{Kind, Stage};
use crate::support::{by, shutdown};

/// The orders of a replica.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) role: &'static str,
    pub(crate) ttl: Duration,
    /// Another clock, in the format of `faketime`.
    pub(crate) clock: Option<&'static str>,
}

impl Stage {
    /// Starts a replica.
    pub(crate) fn replica(&self, orders: &Orders) -> Process {
        let me = std::env::current_exe().unwrap();
        let command = match orders.clock {
            None => Command::new(me),
            Some(clock) => {
                let mut command = Command::new("faketime");
                command.args(["-f", clock]).arg(me);
                command
            }
        };
        self.start(command, orders.role, orders.ttl)
    }

    /// Starts a replica with the process id 1, as in a container.
    pub(crate) fn first_of_a_namespace(&self, role: &'static str) -> Process {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
        command.arg(std::env::current_exe().unwrap());
        self.start(command, role, Duration::from_secs(1))
    }

    fn start(&self, mut command: Command, role: &str, ttl: Duration) -> Process {
        command
            .args(["--exact", "replica::replica", "--nocapture", "--test-threads=1"])
            .env("ADIEU_REPLICA", role)
            .env("ADIEU_KIND", format!("{:?}", self.kind))
            .env("ADIEU_PLACE", self.place())
            .env("ADIEU_TTL", ttl.as_millis().to_string())
            .env("ADIEU_LOG", self.path("log"))
            .env("ADIEU_GO", self.path("go"));
        Process::start(&mut command)
    }
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// Not a test: the entry point of the replicas.
#[tokio::test]
async fn replica() {
    let Ok(role) = std::env::var("ADIEU_REPLICA") else { return };
    let kind = Kind::parse(&var("ADIEU_KIND"));
    let ttl = Duration::from_millis(var("ADIEU_TTL").parse().unwrap());
    let (locks, log) = (kind.connect(&var("ADIEU_PLACE")).await, var("ADIEU_LOG"));
    let owner = Owner::this_process();
    let lock = |key: &str| {
        let spec = LockSpec::new(key).ttl(ttl).retry(Duration::from_millis(50)).needs_fence();
        Lock::new(std::sync::Arc::clone(&locks), spec, &owner).unwrap()
    };
    match role.as_str() {
        "open" => open(&var("ADIEU_PLACE")).await,
        "race" => race(&lock("singleton"), &lock("once"), Path::new(&log)).await,
        "hold" => hold(&lock("job"), &Log::file(Path::new(&log)), false).await,
        "stop" => hold(&lock("job"), &Log::file(Path::new(&log)), true).await,
        other => panic!("unknown role: {other}"),
    }
}

fn report(line: &str) {
    println!("@{line}");
}

/// Appends one line with a single write, so that lines of several processes do not mix.
fn note(log: &Path, what: &str) {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    file.write_all(format!("{what} {}\n", std::process::id()).as_bytes()).unwrap();
}

/// Waits until all replicas have started.
async fn go() {
    while !Path::new(&var("ADIEU_GO")).exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Opens a folder repeatedly, at the same time as the other replicas.
async fn open(folder: &str) {
    report(&format!("there {}", std::process::id()));
    go().await;
    let opened = (0..1000).filter(|_| adieu_fleet::Files::open(folder).is_ok()).count();
    report(&format!("opened {opened}"));
}

/// Starts at the same time as the other replicas, and is ready when both steps are done.
async fn race(singleton: &Lock, once: &Lock, log: &Path) {
    report("there");
    go().await;
    let log: Arc<Path> = log.into();
    let noted = |what: &'static str, for_millis: u64| {
        let log = Arc::clone(&log);
        async move {
            note(&log, &format!("{what}-begun"));
            tokio::time::sleep(Duration::from_millis(for_millis)).await;
            note(&log, &format!("{what}-done"));
        }
    };
    let (index, migration, ready) = (noted("singleton", 1_500), noted("once", 500), log.clone());
    let patience = Duration::from_secs(60);
    let index = Step::new("index").start(move |_| index);
    let migration = once.once_per_fleet_step(
        Step::new("migration").depends_on("index"),
        "v1",
        patience,
        async move |cx: OnceCx| {
            assert!(!cx.is_retry());
            migration.await;
            Ok::<_, String>(())
        },
    );
    let lifecycle = Lifecycle::builder()
        .profile(DeploymentProfile::Fleet)
        .step(singleton.singleton_step(index, OtherReplicas::Wait, patience))
        .step(migration)
        .step(
            Step::new("after")
                .depends_on("index")
                .start(async move |_| note(&ready, "singleton-ready")),
        )
        .build()
        .unwrap();
    let shutdown = shutdown();
    lifecycle.start(&shutdown).await.unwrap();
    assert!(shutdown.readiness().is_ready());
    note(&log, "once-ready");
}

/// Holds the lock whenever it can, and writes under it.
async fn hold(lock: &Lock, log: &Log, stops_itself: bool) {
    loop {
        let lease = lock.acquire(by(60)).await.unwrap();
        log.note(machine_time(), lease.fence().get(), What::Held);
        report(&format!("held {}", lease.fence()));
        let writing = write(&lease, lock, log, stops_itself);
        // A replica that stops itself is not guarded, so that only the fence protects.
        let lost = if stops_itself {
            writing.await;
            lease.check().map(drop)
        } else {
            lease.guard(writing).await
        };
        report(&format!("lost {} {lost:?}", lease.fence()));
        drop(lease);
    }
}

async fn write(lease: &Lease, lock: &Lock, log: &Log, stops_itself: bool) {
    let fence = lease.fence().get();
    for round in 0.. {
        let checked = machine_time();
        if lease.check().is_err() {
            return;
        }
        log.note(checked, fence, What::Believed);
        if stops_itself && round == 3 {
            // The worst moment: after the check, before the write.
            report("stopping");
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP).unwrap();
        }
        let sent = machine_time();
        // Not through the lease, which would check the clock again.
        match lock.locks().mark(lease.claim(), "written", &round.to_string()).await {
            Ok(ClaimStatus::Held) => {
                log.note(sent, fence, What::Accepted { by: machine_time() });
                report(&format!("wrote {fence}"));
            }
            Ok(ClaimStatus::Lost) => {
                log.note(sent, fence, What::Refused);
                report(&format!("refused {fence}"));
                return;
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
