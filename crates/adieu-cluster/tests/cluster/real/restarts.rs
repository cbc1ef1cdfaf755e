//! Three processes that are restarted thirty times: terminated, requested to leave, killed and
//! suspended. What the singleton wrote, what each process claims and what each report states must agree.

use std::collections::{BTreeMap, BTreeSet};

use adieu_testkit::process::{Ended, Process};
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM};

use super::SHORT_TTL;
use super::stage::{Servers, Stage, send};

const NODES: [&str; 3] = ["one", "two", "three"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Terminate,
    Leave,
    Kill,
    /// For longer than its session lasts.
    Suspend,
}

const ACTS: [Act; 6] =
    [Act::Terminate, Act::Leave, Act::Kill, Act::Leave, Act::Terminate, Act::Suspend];

/// How a process ended.
struct Run {
    act: Act,
    node: &'static str,
    ended: Ended,
}

/// The singleton runs in one of the processes, whatever happens to them.
pub(super) fn s881_thirty_restarts_lose_no_write_and_the_reports_agree(servers: Servers) {
    let stage = servers.cluster("restarts", SHORT_TTL);
    let mut processes: Vec<Process> = stage.all_up(NODES).into();
    let mut random = fastrand::Rng::with_seed(17);
    let mut runs = Vec::new();
    for round in 0..30 {
        // Mostly the process of the singleton.
        let owner = stage.last_writer();
        let owner = NODES.iter().position(|node| *node == owner).unwrap();
        let at = if random.u8(..3) > 0 { owner } else { random.usize(..NODES.len()) };
        let act = ACTS[round % ACTS.len()];
        processes[at].wait_for("@up");
        match act {
            Act::Terminate => send(&mut processes[at], SIGTERM),
            Act::Leave => stage.request_leave(NODES[at]),
            Act::Kill => send(&mut processes[at], SIGKILL),
            Act::Suspend => {
                send(&mut processes[at], SIGSTOP);
                std::thread::sleep(SHORT_TTL + SHORT_TTL / 2);
                send(&mut processes[at], SIGCONT);
            }
        }
        // The next process of this name waits until the earlier one is gone.
        let old = std::mem::replace(&mut processes[at], stage.start(NODES[at]));
        runs.push(Run { act, node: NODES[at], ended: old.wait() });
        let before = stage.count();
        stage.wait(&format!("it writes after round {round}, {act:?}"), || stage.count() > before);
    }
    for process in &mut processes {
        process.wait_for("@up");
        send(process, SIGTERM);
    }
    for (process, node) in processes.into_iter().zip(NODES) {
        runs.push(Run { act: Act::Terminate, node, ended: process.wait() });
    }
    judge(&stage, &runs);
}

/// Compares the database with what the processes wrote and reported.
fn judge(stage: &Stage<'_>, runs: &[Run]) {
    let written = stage.written();
    let accepted = stage.judge_these(written.accepted());
    let mut rows: BTreeMap<i64, u64> = BTreeMap::new();
    accepted.all.iter().for_each(|it| *rows.entry(it.fence).or_default() += 1);

    let mut claimed: BTreeMap<i64, u64> = BTreeMap::new();
    let mut unfinished: BTreeSet<i64> = BTreeSet::new();
    let mut suspended: BTreeSet<i64> = BTreeSet::new();
    for run in runs {
        let begun: BTreeSet<i64> = run.numbers("@began ").iter().map(|it| it[0]).collect();
        let mut open = begun.clone();
        for it in run.numbers("@wrote ") {
            open.remove(&it[0]);
            *claimed.entry(it[0]).or_default() += u64::try_from(it[1]).unwrap();
        }
        run.agrees(&open);
        unfinished.extend(open);
        if run.act == Act::Suspend {
            suspended.extend(begun);
        }
    }
    for (fence, count) in &rows {
        match claimed.get(fence) {
            Some(claimed) => assert_eq!(claimed, count, "rows under fence {fence}"),
            None => assert!(unfinished.contains(fence), "no write under fence {fence}"),
        }
    }
    for fence in claimed.keys() {
        assert!(rows.contains_key(fence) || claimed[fence] == 0, "the rows of {fence} are gone");
    }
    let rejected: BTreeSet<i64> = written.rejected().iter().map(|it| it.fence).collect();
    assert!(rejected.is_subset(&suspended), "{rejected:?} rejected, {suspended:?} suspended");
    let kills = runs.iter().filter(|run| run.act == Act::Kill).count();
    assert!(rows.len() > 10 && kills == 5, "little has happened: {}", written.story());
}

// === impl Run ===

impl Run {
    /// Returns the numbers of the lines that begin like this.
    fn numbers(&self, begins: &str) -> Vec<Vec<i64>> {
        let lines = self.ended.stdout.lines().filter_map(|line| line.split_once(begins));
        lines
            .map(|(_, rest)| rest.split_whitespace().map(|it| it.parse().unwrap()).collect())
            .collect()
    }

    /// A process that has not been killed names in its report, or in its reason, why instances of its
    /// singleton did not end.
    fn agrees(&self, unfinished: &BTreeSet<i64>) {
        let Self { act, node, ended } = self;
        let context = || format!("{act:?} of {node}:\n{}{}", ended.stdout, ended.stderr);
        let end = ended.stdout.lines().find_map(|line| line.split_once("@ended "));
        let Some((_, end)) = end else {
            return assert_eq!(*act, Act::Kill, "no report: {}", context());
        };
        let (reason, is_clean) = end.split_once(" clean=").unwrap();
        let expected = match act {
            Act::Terminate => "SIGTERM",
            Act::Leave => "cluster-leaving",
            Act::Suspend => "cluster-downing",
            Act::Kill => panic!("a killed process has a report: {}", context()),
        };
        // On a busy machine a node may lose its place before the test acts.
        assert!(reason == expected || reason == "cluster-downing", "{reason}: {}", context());
        if is_clean == "true" && reason != "cluster-downing" {
            assert!(unfinished.is_empty(), "clean, and {unfinished:?} not ended: {}", context());
        }
        if is_clean == "false" {
            // On a busy machine, a leader that was killed may be replaced too late for the phase.
            let causes = ["lost its place", "left the cluster without acknowledgement"];
            let has_cause = causes.iter().any(|cause| ended.stdout.contains(cause));
            assert!(has_cause, "unclean without cause: {}", context());
        }
    }
}
