//! Real processes: twenty at once, killed, stopped, and with wrong clocks.

use std::time::{Duration, Instant};

use adieu_core::Signal;
use adieu_testkit::process::Process;

use crate::history::{What, assert_sound, read};
use crate::replica::Orders;
use crate::stage::{Kind, Stage};

const RACE: Orders = Orders { role: "race", ttl: Duration::from_secs(2), clock: None };

fn twenty_processes(kind: Kind) {
    let stage = Stage::new(kind);
    let mut replicas: Vec<Process> = (0..20).map(|_| stage.replica(&RACE)).collect();
    for replica in &mut replicas {
        replica.wait_for("@there");
    }
    std::fs::write(stage.path("go"), "").unwrap();
    for replica in replicas {
        let ended = replica.wait();
        let log = std::fs::read_to_string(stage.path("log")).unwrap_or_default();
        assert!(ended.status.success(), "{}\n{}\n{log}", ended.stdout, ended.stderr);
    }
    let log = std::fs::read_to_string(stage.path("log")).unwrap();
    let at = |what: &str| -> Vec<usize> {
        log.lines().enumerate().filter(|(_, l)| l.starts_with(what)).map(|(n, _)| n).collect()
    };
    for step in ["singleton", "once"] {
        let (begun, done) = (at(&format!("{step}-begun")), at(&format!("{step}-done")));
        let ready = at(&format!("{step}-ready"));
        assert_eq!((begun.len(), done.len(), ready.len()), (1, 1, 20), "{step}:\n{log}");
        assert!(ready.iter().all(|ready| *ready > done[0]), "ready too soon:\n{log}");
    }
    // Three processes start later. The singleton runs again; once-per-fleet work does not.
    let late: Vec<Process> = (0..3).map(|_| stage.replica(&RACE)).collect();
    for replica in late {
        let ended = replica.wait();
        let log = std::fs::read_to_string(stage.path("log")).unwrap_or_default();
        assert!(ended.status.success(), "{}\n{}\n{log}", ended.stdout, ended.stderr);
    }
    let log = std::fs::read_to_string(stage.path("log")).unwrap();
    let count = |what: &str| log.lines().filter(|line| line.starts_with(what)).count();
    assert_eq!(count("once-begun"), 1, "{log}");
    assert_eq!((count("singleton-ready"), count("once-ready")), (23, 23), "{log}");
    assert!((2..=4).contains(&count("singleton-begun")), "{log}");
}

fn signal(process: &mut Process, signal: nix::sys::signal::Signal) {
    process.signal(Signal::new(signal as i32));
}

/// Returns the fence that a process reports.
fn fence(line: &str) -> u64 {
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn killed_and_stopped(kind: Kind) {
    use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP};
    let stage = Stage::new(kind);
    let (log, ttl) = (stage.path("log"), kind.ttl());
    let holder = |role, clock| stage.replica(&Orders { role, ttl, clock });

    // Killed: another process takes over after the time to live, with a higher fence.
    let mut one = holder("hold", None);
    let first = fence(&one.wait_for("@held"));
    one.wait_for("@wrote");
    let mut two = holder("hold", None);
    std::thread::sleep(2 * ttl);
    signal(&mut one, SIGKILL);
    let killed = Instant::now();
    let second = fence(&two.wait_for("@held"));
    let took = killed.elapsed();
    assert!(second > first);
    assert!(took < ttl + kind.late() + Duration::from_secs(10), "{took:?}");
    drop(one);

    // Stopped at any moment: another process takes over. When it continues, it does not write again.
    two.wait_for("@wrote");
    signal(&mut two, SIGSTOP);
    let mut three = holder("hold", None);
    let give_up = Instant::now() + 4 * ttl + kind.late();
    let third = loop {
        let held = read(&log).into_iter().filter(|event| event.what == What::Held);
        match held.map(|event| event.fence).max() {
            Some(fence) if fence > second => break fence,
            _ if Instant::now() < give_up => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                // With files the process may have been stopped while it had locked the file. Then the
                // others wait until it continues.
                assert_eq!(kind, Kind::File, "no other process takes over");
                signal(&mut two, SIGCONT);
                two.wait_for(&format!("@lost {second}"));
            }
        }
    };
    assert!(third > second);
    signal(&mut two, SIGCONT);
    two.wait_for(&format!("@lost {second}"));
    drop(two);

    // Stopped between the check of the lease and the write: only the fence protects.
    signal(&mut three, SIGKILL);
    let (mut four, fourth, mut five) = loop {
        let mut four = holder("stop", None);
        let fourth = fence(&four.wait_for("@held"));
        four.wait_for("@stopping");
        let five = holder("hold", None);
        let give_up = Instant::now() + 4 * ttl + kind.late() + Duration::from_secs(5);
        let is_held = || read(&log).iter().any(|it| it.what == What::Held && it.fence > fourth);
        while !is_held() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(20));
        }
        if is_held() {
            break (four, fourth, five);
        }
        // With files it may have been stopped while its keeper had locked the file. Then the others
        // wait (N17), and the case starts again.
        assert_eq!(kind, Kind::File, "no other process takes over");
        signal(&mut four, SIGKILL);
    };
    let fifth = fence(&five.wait_for("@held"));
    five.wait_for(&format!("@wrote {fifth}"));
    signal(&mut four, SIGCONT);
    four.wait_for(&format!("@refused {fourth}"));
    drop((three, four));
    let refused = |fence| {
        move |event: &&crate::history::Event| event.fence == fence && event.what == What::Refused
    };
    assert_eq!(read(&log).iter().filter(refused(fourth)).count(), 1);

    // With clocks that are wrong, too slow or too fast: nothing depends on them.
    let skewed = ["-1h x0.95", "+1h x1.05", "+10d"];
    let mut others: Vec<Process> =
        skewed.iter().map(|clock| holder("hold", Some(*clock))).collect();
    std::thread::sleep(2 * ttl);
    signal(&mut five, SIGKILL);
    drop(five);
    // The holder is killed, then the next holder, and so on.
    let mut last = fifth;
    while !others.is_empty() {
        let give_up = Instant::now() + Duration::from_secs(30);
        let (next, at) = loop {
            let held = read(&log).into_iter().filter(|event| event.what == What::Held);
            let newest = held.map(|event| event.fence).max().filter(|fence| *fence > last);
            let is_holder = |other: &mut Process| {
                newest.is_some_and(|fence| other.has_written(&format!("@held {fence}")))
            };
            if let (Some(fence), Some(at)) = (newest, others.iter_mut().position(is_holder)) {
                break (fence, at);
            }
            assert!(Instant::now() < give_up, "no other process takes over");
            std::thread::sleep(Duration::from_millis(20));
        };
        last = next;
        drop(others.remove(at));
    }
    assert_sound(&read(&log));
}

#[test]
fn s148_twenty_processes_with_files() {
    twenty_processes(Kind::File);
}

#[test]
fn s149_killed_stopped_and_skewed_with_files() {
    killed_and_stopped(Kind::File);
}

#[test]
fn s148_twenty_processes_with_redis() {
    twenty_processes(Kind::Redis);
}

#[test]
fn s149_killed_stopped_and_skewed_with_redis() {
    killed_and_stopped(Kind::Redis);
}

#[test]
fn s148_twenty_processes_with_rows() {
    twenty_processes(Kind::Rows);
}

#[test]
fn s149_killed_stopped_and_skewed_with_rows() {
    killed_and_stopped(Kind::Rows);
}

#[test]
fn s148_twenty_processes_with_sessions() {
    twenty_processes(Kind::Session);
}

#[test]
fn s149_killed_stopped_and_skewed_with_sessions() {
    killed_and_stopped(Kind::Session);
}

#[test]
fn s148_twenty_processes_with_etcd() {
    twenty_processes(Kind::Etcd);
}

#[test]
fn s149_killed_stopped_and_skewed_with_etcd() {
    killed_and_stopped(Kind::Etcd);
}
