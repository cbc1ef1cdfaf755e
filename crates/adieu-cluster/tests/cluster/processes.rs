//! Real processes on the files store: terminated, killed and suspended.

#![cfg(target_os = "linux")]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use adieu_cluster::store::Files;
use adieu_cluster::{Cluster, SingletonCx};
use adieu_core::{Config, Shutdown, Signal};
use adieu_testkit::process::Process;
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM};
use rustix::time::{ClockId, clock_gettime};

const TTL: Duration = Duration::from_secs(2);

/// A cluster in a folder, with a log that the singleton appends to.
struct Place {
    folder: tempfile::TempDir,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq)]
struct Written {
    at: Duration,
    node: String,
    fence: u64,
}

/// Not a test: the code of the other processes.
#[test]
fn node_process() {
    let Ok(name) = std::env::var("ADIEU_NODE") else { return };
    let folder = PathBuf::from(std::env::var("ADIEU_PLACE").unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let shutdown = Shutdown::configured(Config::new()).unwrap();
        shutdown.install_signals().unwrap();
        let files = Files::open(folder.join("table")).unwrap();
        let cluster = Cluster::new(files, "shop")
            .node(&name)
            .build(build_of(&name))
            .ttl(TTL)
            .on(&shutdown)
            .unwrap();
        let node = name.clone();
        let writes = move |me: SingletonCx| write(folder.join("log"), node.clone(), me);
        cluster.singleton("sweeper", writes).unwrap();
        cluster.join().await.unwrap();
        println!("@up");
        let report = shutdown.completed().await.unwrap();
        println!("@ended {} clean={}", report.reason, report.is_clean());
        println!("{report}");
    });
}

/// Appends a line every ten milliseconds, until the singleton is stopped.
#[expect(clippy::print_stdout, reason = "the test that started this process reads it")]
async fn write(log: PathBuf, node: String, me: SingletonCx) {
    println!("@sweeps");
    while !me.is_stopped() {
        if let Ok(fence) = me.check() {
            let mut log = OpenOptions::new().append(true).create(true).open(&log).unwrap();
            let line = format!("{} {node} {fence}\n", machine_time().as_micros());
            log.write_all(line.as_bytes()).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The build of a node, as its name says.
fn build_of(name: &str) -> &str {
    name.split('-').next().unwrap()
}

/// The same clock for all processes of the machine.
fn machine_time() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn start(&self, name: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "processes::node_process", "--nocapture", "--test-threads=1"])
            .env("ADIEU_NODE", name)
            .env("ADIEU_PLACE", self.folder.path());
        Process::start(&mut command)
    }

    /// Starts a node, and waits until it is a member.
    fn up(&self, name: &str) -> Process {
        let mut process = self.start(name);
        process.wait_for("@up");
        process
    }

    fn log(&self) -> Vec<Written> {
        read(&self.folder.path().join("log"))
    }

    /// Waits until a node writes, and returns when it first did.
    fn writes(&self, node: &str) -> Duration {
        let begun = machine_time();
        loop {
            if let Some(written) = self.log().into_iter().find(|it| it.node == node) {
                return written.at;
            }
            assert!(machine_time() < begun + Duration::from_secs(60), "{node} never writes");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn last_write(&self, node: &str) -> Duration {
        self.log().into_iter().rfind(|it| it.node == node).unwrap().at
    }

    /// Nothing was written under a fence after something was written under a higher one, and each
    /// fence has one writer.
    fn assert_sound(&self) {
        let log = self.log();
        for pair in log.windows(2) {
            let [before, after] = pair else { continue };
            assert!(before.fence <= after.fence, "{before:?} before {after:?}");
            assert!(before.fence < after.fence || before.node == after.node, "{pair:?}");
        }
    }
}

fn read(log: &Path) -> Vec<Written> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let [at, node, fence] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let at = Duration::from_micros(at.parse().unwrap());
        Written { at, node: node.to_owned(), fence: fence.parse().unwrap() }
    });
    lines.collect()
}

fn send(process: &mut Process, signal: nix::sys::signal::Signal) {
    process.signal(Signal::new(signal as i32));
}

#[test]
fn s630_a_process_that_is_terminated_hands_its_singleton_over() {
    let place = Place::new();
    let mut one = place.up("one");
    place.writes("one");
    let mut two = place.up("two");
    let mut three = place.up("three");
    send(&mut one, SIGTERM);
    let ended = one.wait();
    assert!(ended.stdout.contains("@ended SIGTERM clean=true"), "{}", ended.stdout);
    // The next owner is whichever of the two was chosen.
    let next = loop {
        let owners: Vec<String> = place.log().into_iter().map(|it| it.node).collect();
        match owners.last().map(String::as_str) {
            Some("one") => std::thread::sleep(Duration::from_millis(10)),
            Some("two") => break &mut two,
            _ => break &mut three,
        }
    };
    next.wait_for("@sweeps");
    let log = place.log();
    let first = log.iter().find(|it| it.node != "one").unwrap();
    let gap = first.at - place.last_write("one");
    println!("hand-over gap: {gap:?}");
    assert!(gap < TTL, "{gap:?}: as if the node had died");
    place.assert_sound();
    send(&mut two, SIGTERM);
    send(&mut three, SIGTERM);
    for process in [two, three] {
        let ended = process.wait();
        assert!(ended.stdout.contains("@ended SIGTERM clean=true"), "{}", ended.stdout);
    }
    place.assert_sound();
}

/// Each node is replaced by one of another build, the new one started first; then back again.
#[test]
fn s630_a_deployment_and_its_rollback_move_the_singleton_without_overlap() {
    let place = Place::new();
    let mut running: Vec<Process> = (0..3).map(|at| place.up(&format!("first-{at}"))).collect();
    place.writes("first-0");
    for build in ["second", "rollback"] {
        for (at, running) in running.iter_mut().enumerate() {
            let young = place.up(&format!("{build}-{at}"));
            let mut old = std::mem::replace(running, young);
            send(&mut old, SIGTERM);
            let ended = old.wait();
            assert!(ended.stdout.contains("@ended SIGTERM clean=true"), "{}", ended.stdout);
        }
    }
    let mut owners: Vec<String> = place.log().into_iter().map(|it| it.node).collect();
    owners.dedup();
    let builds: Vec<&str> = owners.iter().map(|name| build_of(name)).collect();
    assert_eq!(builds, ["first", "second", "rollback"], "one move in each");
    // All leave together; the last has no receiver.
    for process in &mut running {
        send(process, SIGTERM);
    }
    for process in running {
        let ended = process.wait();
        assert!(ended.stdout.contains("@ended SIGTERM clean=true"), "{}", ended.stdout);
    }
    place.assert_sound();
    let log = place.log();
    let gaps = log.windows(2).filter(|pair| pair[0].fence != pair[1].fence);
    let longest = gaps.map(|pair| pair[1].at - pair[0].at).max().unwrap();
    println!("longest gap between two owners: {longest:?}");
    assert!(longest < TTL, "{longest:?}: as if a node had died");
}

#[test]
fn s621_a_killed_leader_is_replaced_and_the_others_can_leave() {
    let place = Place::new();
    let mut leader = place.up("one");
    let mut two = place.up("two");
    let mut three = place.up("three");
    place.writes("one");
    send(&mut leader, SIGKILL);
    let _ = leader.wait();
    // The others leave while the dead leader's session goes on.
    send(&mut two, SIGTERM);
    send(&mut three, SIGTERM);
    for process in [two, three] {
        let ended = process.wait();
        assert!(ended.stdout.contains("@ended SIGTERM"), "{}", ended.stdout);
        assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
    }
    place.assert_sound();
}

#[test]
fn s631_the_singleton_of_a_killed_process_begins_elsewhere_after_its_session() {
    let place = Place::new();
    let mut one = place.up("one");
    place.writes("one");
    let two = place.up("two");
    send(&mut one, SIGKILL);
    let _ = one.wait();
    let began = place.writes("two");
    let gap = began - place.last_write("one");
    // Not before the session has ended, which was last kept a third of its time before at most.
    assert!(gap > TTL / 2, "{gap:?}");
    assert!(gap < Duration::from_secs(20), "{gap:?}");
    place.assert_sound();
    drop(two);
}

#[test]
fn s631_a_process_that_was_suspended_writes_nothing_when_it_wakes() {
    let place = Place::new();
    let mut one = place.up("one");
    place.writes("one");
    let mut two = place.up("two");
    send(&mut one, SIGSTOP);
    let stopped = machine_time();
    place.writes("two");
    // Three times the time to live, in all.
    let wakes = stopped + 3 * TTL;
    std::thread::sleep(wakes.saturating_sub(machine_time()));
    send(&mut one, SIGCONT);
    let ended = one.wait();
    assert!(ended.stdout.contains("@ended cluster-downing"), "{}", ended.stdout);
    assert!(place.last_write("one") <= stopped + Duration::from_millis(100));
    place.assert_sound();
    send(&mut two, SIGTERM);
    let _ = two.wait();
    place.assert_sound();
}
