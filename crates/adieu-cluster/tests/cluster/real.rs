//! Real processes on every store: terminated, killed, suspended and cut off, while the store is
//! restarted and compacted. The singleton writes to a database under its fence, and all writes are
//! judged: no two instances overlap.
//!
//! Scenarios of one test run at the same time, each in a cluster of its own, because they mostly wait.
//! No check depends on how fast the machine is, except that nothing may take as long as [`LONG`].

pub(crate) mod child;
mod restarts;
mod stage;
pub(crate) mod writes;

use std::time::Duration;

use adieu_testkit::process::Process;
use adieu_testkit::proxy::Proxy;
use child::{Dies, When};
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM};
use restarts::s881_thirty_restarts_lose_no_write_and_the_reports_agree;
use stage::{LONG, Servers, Stage, Start, send};

use crate::served::Kind;

/// For scenarios that wait until a session has ended.
const SHORT_TTL: Duration = Duration::from_secs(3);

/// For scenarios in which no session may end.
const LONG_TTL: Duration = Duration::from_secs(30);

type Scenario = fn(&Servers);

/// Runs scenarios at the same time.
fn together(servers: &Servers, scenarios: &[Scenario]) {
    std::thread::scope(|scope| {
        for scenario in scenarios {
            scope.spawn(|| scenario(servers));
        }
    });
}

/// Runs each test on each of these stores.
macro_rules! on_stores {
    ($($store:ident $kind:expr => $($test:ident)*;)*) => {
        $(mod $store {
            $(#[test]
            fn $test() {
                super::$test(super::Servers::start($kind));
            })*
        })*
    };
}

on_stores! {
    files None =>
        s880_processes_that_leave_hand_over s881_processes_that_die_are_replaced
        s883_a_leader_killed_at_any_step_is_replaced;
    etcd_installed Some(super::Kind::EtcdInstalled) =>
        s880_processes_that_leave_hand_over s881_processes_that_die_are_replaced
        s882_a_store_that_restarts_and_forgets_disturbs_nothing
        s883_a_leader_killed_at_any_step_is_replaced;
    etcd_current Some(super::Kind::EtcdCurrent) =>
        s880_processes_that_leave_hand_over s881_processes_that_die_are_replaced
        s881_thirty_restarts_lose_no_write_and_the_reports_agree
        s882_a_store_that_restarts_and_forgets_disturbs_nothing
        s883_a_leader_killed_at_any_step_is_replaced;
    postgres Some(super::Kind::Postgres) =>
        s880_processes_that_leave_hand_over s881_processes_that_die_are_replaced
        s882_a_store_that_restarts_and_forgets_disturbs_nothing
        s883_a_leader_killed_at_any_step_is_replaced;
}

fn s880_processes_that_leave_hand_over(servers: Servers) {
    let scenarios: [Scenario; 4] = [one_leaves_then_all, two_leave, stop_all, deployment];
    together(&servers, &scenarios);
}

fn s881_processes_that_die_are_replaced(servers: Servers) {
    let mut scenarios: Vec<Scenario> = vec![killed, suspended];
    if servers.store.is_some() {
        scenarios.push(cut_off);
    }
    together(&servers, &scenarios);
}

// --- leaving ---

/// SIGTERM to the owner; then to all others at once.
fn one_leaves_then_all(servers: &Servers) {
    let stage = servers.cluster("one-leaves", LONG_TTL);
    let [one, two, three] = stage.all_up(["one", "two", "three"]);
    stage.leaves(one);
    stage.writes_elsewhere(&["one"]);
    all_leave(&stage, [two, three]);
    let written = stage.judge();
    assert!(written.gaps()[0] < LONG, "as if the node had died");
}

/// The owner and another node leave at the same time; the third continues.
fn two_leave(servers: &Servers) {
    let stage = servers.cluster("two-leave", LONG_TTL);
    let [one, two, three] = stage.all_up(["one", "two", "three"]);
    all_leave(&stage, [one, two]);
    stage.writes("three");
    stage.leaves(three);
    let written = stage.judge();
    assert!(written.gaps().iter().all(|gap| *gap < LONG), "as if a node had died");
}

/// Terminates processes together. Each leaves cleanly.
fn all_leave<const N: usize>(stage: &Stage<'_>, mut processes: [Process; N]) {
    processes.iter_mut().for_each(|process| send(process, SIGTERM));
    processes.into_iter().for_each(|process| stage.has_left(process, "SIGTERM"));
}

/// Stops the whole cluster; a node that comes later starts it again.
fn stop_all(servers: &Servers) {
    let stage = servers.cluster("stop-all", LONG_TTL);
    let processes = stage.all_up(["one", "two", "three"]);
    stage.stop_all();
    processes.into_iter().for_each(|process| stage.has_left(process, "cluster-leaving"));
    assert_eq!(stage.judge().owners(), ["one"], "nothing is handed over");
    let four = stage.up("four");
    stage.writes("four");
    stage.leaves(four);
    stage.judge();
}

/// Five nodes are replaced one by one by nodes of another build, the new one started first; then
/// back again.
fn deployment(servers: &Servers) {
    let stage = servers.cluster("deployment", LONG_TTL);
    let mut running: Vec<Process> = (0..5).map(|at| stage.up(&format!("first-{at}"))).collect();
    stage.writes("first-0");
    for build in ["second", "rollback"] {
        for (at, running) in running.iter_mut().enumerate() {
            let young = stage.up(&format!("{build}-{at}"));
            let old = std::mem::replace(running, young);
            stage.leaves(old);
        }
    }
    stage.until("the rollback writes", |it| {
        it.last().is_some_and(|it| it.node.starts_with("rollback-"))
    });
    let written = stage.judge();
    let builds: Vec<&str> =
        written.owners().iter().filter_map(|node| node.split('-').next()).collect();
    assert_eq!(builds, ["first", "second", "rollback"], "one move in each");
    assert!(written.gaps().iter().all(|gap| *gap < LONG), "as if a node had died");
}

// --- dying ---

/// The owner, which also leads, is killed.
fn killed(servers: &Servers) {
    let stage = servers.cluster("killed", SHORT_TTL);
    let [mut one, two, three] = stage.all_up(["one", "two", "three"]);
    send(&mut one, SIGKILL);
    let _ = one.wait();
    stage.writes_elsewhere(&["one"]);
    all_leave(&stage, [two, three]);
    let gap = stage.judge().gaps()[0];
    // The session ends, and then the removal margin passes.
    assert!(gap >= SHORT_TTL / 5, "{gap:?}");
}

/// The owner is suspended for three times the time to live.
fn suspended(servers: &Servers) {
    let stage = servers.cluster("suspended", SHORT_TTL);
    let [mut one, two] = stage.all_up(["one", "two"]);
    send(&mut one, SIGSTOP);
    let begun = tokio::time::Instant::now();
    stage.writes("two");
    std::thread::sleep((3 * SHORT_TTL).saturating_sub(begun.elapsed()));
    send(&mut one, SIGCONT);
    let ended = one.wait();
    assert!(ended.stdout.contains("@ended cluster-downing"), "{}", ended.stdout);
    stage.leaves(two);
    let written = stage.written();
    // A write that the suspension met between its check and its socket is sent when the process wakes.
    // Only the fence protects from that one.
    let rejected = written.rejected();
    assert!(rejected.len() <= 1 && rejected.iter().all(|it| it.node == "one"), "{rejected:?}");
    stage.judge_these(written.accepted());
}

/// The owner can no longer reach the store; everything else can.
fn cut_off(servers: &Servers) {
    let served = servers.store.as_ref().unwrap();
    let proxy = servers.runtime.block_on(Proxy::new(served.server.address()));
    let stage = servers.cluster("cut-off", SHORT_TTL);
    let start = Start { port: Some(proxy.port()), ..Start::default() };
    let one = stage.up_with("one", start);
    stage.writes("one");
    let two = stage.up("two");
    proxy.cut();
    stage.writes("two");
    // Its shutdown ends, although it cannot leave.
    let ended = one.wait();
    assert!(ended.stdout.contains("@ended cluster-downing"), "{}", ended.stdout);
    proxy.mend();
    stage.leaves(two);
    let gap = stage.judge().gaps()[0];
    assert!(gap >= SHORT_TTL / 5, "{gap:?}");
}

// --- the store ---

/// The store is killed and started again, and loses its history while a node is suspended. No node
/// loses its place, and all can join, hand over and leave afterwards.
fn s882_a_store_that_restarts_and_forgets_disturbs_nothing(mut servers: Servers) {
    let stage = servers.cluster("restarted", LONG_TTL);
    let mut processes = stage.all_up(["one", "two"]);
    let before = stage.written().all.len();
    drop(stage);
    if let Some(served) = &mut servers.store {
        served.server.kill();
        served.server.start();
    }
    let stage = servers.cluster("restarted", LONG_TTL);
    stage.until("one goes on", |it| it.all.len() > before + 10);
    let three = stage.up("three");

    // A suspended node misses changes that the store then compacts.
    send(&mut processes[1], SIGSTOP);
    let four = stage.up("four");
    stage.leaves(three);
    if let Some(served) = &servers.store {
        servers.runtime.block_on(served.compact());
    }
    send(&mut processes[1], SIGCONT);
    let [one, two] = processes;
    stage.leaves(one);
    stage.writes_elsewhere(&["one"]);
    all_leave(&stage, [two, four]);
    let written = stage.judge();
    assert!(written.gaps()[0] < LONG, "as if the node had died");
}

// --- the leader ---

/// The event that makes the leader commit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trigger {
    /// It starts, alone, and has the singleton.
    Starts,
    /// Another node starts, which has the singleton.
    AnotherStarts,
    /// The owner of the singleton, another node, leaves.
    OwnerLeaves,
    /// The owner of the singleton, another node, is killed.
    OwnerDies,
    /// It leaves.
    Leaves,
    /// It leaves, and owns the singleton.
    LeavesAsOwner,
}

/// Every commit of a leader: its cause and its contents. The leader is `lead`; `two` owns the
/// singleton, unless the leader does, and `three` is there, too.
const STEPS: [(&str, Trigger, &[&str]); 16] = [
    ("configures", Trigger::Starts, &["/config", r#""kind":"singleton""#]),
    ("joins", Trigger::Starts, &["/node/lead", r#""state":"joining""#]),
    ("leads", Trigger::Starts, &["/leader", r#"{"node":"lead"}"#]),
    ("is up", Trigger::Starts, &["/node/lead", r#""state":"up""#]),
    ("places at itself", Trigger::Starts, &["/shard/sweeper/0", r#""owner":"lead""#]),
    ("beats", Trigger::Starts, &["/beat"]),
    ("acknowledges a join", Trigger::AnotherStarts, &["/node/two", r#""state":"up""#]),
    ("places", Trigger::AnotherStarts, &["/shard/sweeper/0", r#""owner":"two""#]),
    ("acknowledges a leave", Trigger::OwnerLeaves, &["/node/two", r#""state":"exiting""#]),
    ("takes", Trigger::OwnerDies, &["/shard/sweeper/0", "NotCreatedAt"]),
    ("notes a death", Trigger::OwnerDies, &["/gone/two", r#""how":"down""#]),
    ("drains", Trigger::Leaves, &["/node/lead", r#""drain":"regions""#, r#""state":"up""#]),
    ("resigns", Trigger::Leaves, &["/node/lead", r#""state":"leaving""#, "Delete"]),
    ("is removed", Trigger::Leaves, &["/gone/lead", r#""how":"left""#]),
    ("stops its singleton", Trigger::LeavesAsOwner, &["/node/lead", r#""drain":"singletons""#]),
    ("hands over", Trigger::LeavesAsOwner, &["/shard/sweeper/0", r#""owner":"t"#]),
];

/// Kills the leader before and after each of its commits. The others go on.
fn s883_a_leader_killed_at_any_step_is_replaced(servers: Servers) {
    let both = |step| [(step, When::Before), (step, When::After)];
    let mut runs: Vec<_> = STEPS.iter().flat_map(both).collect();
    // After its removal it is no longer a member, and ends.
    runs.retain(|((step, ..), when)| (*step, *when) != ("is removed", When::After));
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Several at a time: they mostly wait until the session of the leader has ended.
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(((step, trigger, parts), when)) = runs.get(at) else { return };
                    let name = format!("{when:?}-{}", step.replace(' ', "-"));
                    let parts = parts.iter().map(ToString::to_string).collect();
                    let dies = Dies { when: *when, parts };
                    leader_dies(&servers.cluster(name, SHORT_TTL), *trigger, dies);
                }
            });
        }
    });
}

fn leader_dies(stage: &Stage<'_>, trigger: Trigger, dies: Dies) {
    let owns = matches!(trigger, Trigger::Starts | Trigger::LeavesAsOwner);
    let mut lead =
        stage.start_with("lead", Start { dies: Some(dies), is_idle: !owns, ..Start::default() });
    if trigger == Trigger::Starts {
        is_killed(stage, lead);
        let (two, three) = (stage.up("two"), stage.up("three"));
        stage.writes_elsewhere(&["lead"]);
        return end(stage, vec![two, three]);
    }
    lead.wait_for("@up");
    if trigger == Trigger::AnotherStarts {
        let two = stage.start("two");
        is_killed(stage, lead);
        let three = stage.up("three");
        stage.writes_elsewhere(&["lead"]);
        return end(stage, vec![two, three]);
    }
    let first = if owns { "lead" } else { "two" };
    let mut two = stage.up("two");
    stage.writes(first);
    let three = stage.up("three");
    match trigger {
        Trigger::OwnerLeaves => send(&mut two, SIGTERM),
        Trigger::OwnerDies => send(&mut two, SIGKILL),
        Trigger::Leaves | Trigger::LeavesAsOwner => send(&mut lead, SIGTERM),
        Trigger::Starts | Trigger::AnotherStarts => unreachable!("{trigger:?} returned above"),
    }
    is_killed(stage, lead);
    match trigger {
        Trigger::OwnerLeaves | Trigger::OwnerDies => {
            let _ = two.wait();
            stage.writes("three");
            end(stage, vec![three]);
        }
        Trigger::LeavesAsOwner => {
            stage.writes_elsewhere(&["lead"]);
            end(stage, vec![two, three]);
        }
        Trigger::Leaves | Trigger::Starts | Trigger::AnotherStarts => {
            let before = stage.written().all.len();
            let written = stage.until("two goes on", |it| it.all.len() > before + 10);
            assert_eq!(written.owners(), ["two"], "the singleton does not move with the leader");
            end(stage, vec![two, three]);
        }
    }
}

fn is_killed(stage: &Stage<'_>, process: Process) {
    use std::os::unix::process::ExitStatusExt;
    let ended = process.wait();
    let is_killed = ended.status.signal() == Some(SIGKILL as i32);
    assert!(is_killed, "{}: {}{}", stage.cluster, ended.stdout, ended.stderr);
}

/// The others can leave, also if they must wait for the session of the leader to end.
fn end(stage: &Stage<'_>, mut processes: Vec<Process>) {
    processes.iter_mut().for_each(|process| send(process, SIGTERM));
    for process in processes {
        let ended = process.wait();
        assert!(ended.stdout.contains("@ended SIGTERM"), "{}{}", ended.stdout, ended.stderr);
    }
    stage.judge();
}
