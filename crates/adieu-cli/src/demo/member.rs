//! A member of the fleet: the process of a replica, as seen from outside.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adieu_core::adapter::lock;
use hyper::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::time::Instant;

use super::KILL_AFTER;
use super::link::{Link, fetch};
use super::replica::{Kind, Listens};

/// How often a replica is probed. A load balancer would do the same.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);
/// How long the answer to a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a replica may take until it prints its addresses.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The program to start.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// The folder that the fleet shares.
    pub(super) folder: PathBuf,
    pub(super) report: PathBuf,
    pub(super) log: PathBuf,
}

/// A member of the fleet.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) listens: Listens,
    goal: watch::Sender<Goal>,
    seen: watch::Receiver<Snapshot>,
    /// Idle connections to the replica.
    links: Mutex<Vec<Link>>,
    /// Cloned for each request in flight.
    in_flight: Arc<()>,
}

/// The goal of the member. It only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Goal {
    Run,
    Stop,
    Kill,
}

/// The last observed state of a member. Times are from the beginning of the demo.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) state: State,
    pub(super) phase: Option<String>,
    /// The time until its deadline.
    pub(super) left: Option<Duration>,
    pub(super) started: Duration,
    pub(super) ready: Option<Duration>,
    pub(super) signalled: Option<Duration>,
    pub(super) end: Option<End>,
}

/// How a member ended.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) at: Duration,
    /// The exit code as a shell shows it: 137 after SIGKILL.
    pub(super) exit_code: i32,
    pub(super) report: Option<serde_json::Value>,
}

/// The readiness of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Starting,
    Ready,
    /// No longer ready.
    Draining,
    Gone,
}

/// The owner of a member's process, until the process has ended.
pub(super) struct Keeper {
    spec: Spec,
    child: Child,
    /// The replica ends when this pipe is closed. `Child::wait` would close it, so it is held here.
    _input: Option<ChildStdin>,
    listens: Listens,
    member: Arc<Member>,
    goal: watch::Receiver<Goal>,
    seen: watch::Sender<Snapshot>,
    began: Instant,
}

/// Starts a replica, and waits until it has printed its addresses.
///
/// The caller must run [`Keeper::keep`]: it observes the replica, and the replica ends with it.
pub(super) async fn start(spec: Spec, began: Instant) -> io::Result<(Arc<Member>, Keeper)> {
    let started = began.elapsed();
    // The report of an earlier run would be taken for the report of this replica.
    match std::fs::remove_file(&spec.report) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(["replica", "--name", &spec.name, "--kind"])
        .arg(spec.kind.name())
        .arg("--folder")
        .arg(&spec.folder)
        .arg("--report")
        .arg(&spec.report)
        .stdin(Stdio::piped()) // The replica ends when this pipe is closed.
        .stdout(Stdio::piped())
        .stderr(File::create(&spec.log)?)
        .process_group(0) // Ctrl-C signals only the demo, which then signals the replica.
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    let mut line = String::new();
    let mut lines = BufReader::new(output);
    let read = tokio::time::timeout(START_TIMEOUT, lines.read_line(&mut line)).await;
    read.map_err(|_| io::Error::other("it did not print its addresses in time"))??;
    let listens: Listens = serde_json::from_str(&line).map_err(|_| {
        let log = std::fs::read_to_string(&spec.log).unwrap_or_default();
        io::Error::other(format!("it did not start: {}", log.trim()))
    })?;

    let (goal, goals) = watch::channel(Goal::Run);
    let (seen_by_keeper, seen) = watch::channel(Snapshot { started, ..Snapshot::default() });
    let name = spec.name.clone();
    let member =
        Member { name, listens, goal, seen, links: Mutex::default(), in_flight: Arc::default() };
    let member = Arc::new(member);
    let _input = child.stdin.take();
    let keeper = Keeper {
        spec,
        child,
        _input,
        listens,
        member: Arc::clone(&member),
        goal: goals,
        seen: seen_by_keeper,
        began,
    };
    Ok((member, keeper))
}

// === impl Member ===

impl Member {
    pub(super) fn seen(&self) -> Snapshot {
        self.seen.borrow().clone()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.seen.borrow().state == State::Ready
    }

    /// Returns whether the replica is ready and was not signalled to stop.
    pub(super) fn is_live(&self) -> bool {
        let seen = self.seen.borrow();
        seen.state == State::Ready && seen.signalled.is_none()
    }

    /// Returns how many requests to the replica are in flight.
    pub(super) fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
    }

    /// Counts as one request in flight until it is dropped.
    pub(super) fn enter(&self) -> Arc<()> {
        Arc::clone(&self.in_flight)
    }

    /// Waits until the replica is ready or has ended, and returns whether it is ready.
    pub(super) async fn until_ready(&self) -> bool {
        let is_either = |seen: &Snapshot| matches!(seen.state, State::Ready | State::Gone);
        let seen = self.seen.clone().wait_for(is_either).await.map(|seen| seen.state);
        seen.is_ok_and(|state| state == State::Ready)
    }

    /// Sends SIGTERM. A replica that does not end in time is killed.
    pub(super) fn stop(&self) {
        self.raise_goal(Goal::Stop);
    }

    /// Kills the replica.
    pub(super) fn kill(&self) {
        self.raise_goal(Goal::Kill);
    }

    fn raise_goal(&self, goal: Goal) {
        self.goal.send_if_modified(|goals| {
            let is_more = *goals < goal;
            *goals = goal.max(*goals);
            is_more
        });
    }

    /// Waits until the replica has ended.
    pub(super) async fn until_gone(&self) {
        // An error means that the keeper was dropped, and the replica with it.
        let _ = self.seen.clone().wait_for(|seen| seen.state == State::Gone).await;
    }

    /// Returns an idle connection to the replica, or a new one.
    pub(super) async fn link(&self) -> Result<Link, super::link::Cause> {
        let kept = self.links().pop();
        match kept {
            Some(link) if !link.is_closed() => Ok(link),
            _ => Link::open(self.listens.http).await,
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, link: Link) {
        if self.is_ready() {
            self.links().push(link);
        }
    }

    fn links(&self) -> MutexGuard<'_, Vec<Link>> {
        lock(&self.links)
    }
}

// === impl Keeper ===

impl Keeper {
    /// Probes the process, and signals it to stop, until it has ended.
    pub(super) async fn keep(mut self) {
        let looking = {
            let look = Prober { seen: self.seen.clone(), listens: self.listens, began: self.began };
            look.on(Arc::clone(&self.member))
        };
        let exit_code = tokio::select! {
            exit_code = self.until_exit() => exit_code,
            () = looking => return,
        };
        let report = std::fs::read(&self.spec.report).ok();
        let report = report.and_then(|report| serde_json::from_slice(&report).ok());
        let end = End { at: self.began.elapsed(), exit_code, report };
        self.member.links().clear();
        self.seen.send_modify(|seen| {
            *seen = Snapshot {
                state: State::Gone,
                phase: None,
                left: None,
                end: Some(end),
                ..seen.clone()
            };
        });
    }

    async fn until_exit(&mut self) -> i32 {
        let mut signalled = Goal::Run;
        let mut kill_at = None;
        loop {
            let killing = async {
                match kill_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                exited = self.child.wait() => return exited.map_or(-1, code_of),
                goal = next_goal(&mut self.goal, signalled) => {
                    signalled = goal;
                    if signalled == Goal::Stop {
                        kill_at = Some(Instant::now() + KILL_AFTER);
                        self.terminate();
                    } else {
                        kill_at = Some(Instant::now());
                    }
                }
                () = killing => {
                    kill_at = None;
                    let _ = self.child.start_kill();
                }
            }
        }
    }

    fn terminate(&self) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(pid) = pid {
            // If the process has ended already, the error does not matter.
            let _ = kill_process(pid, Signal::TERM);
        }
        let signalled = self.began.elapsed();
        self.seen.send_modify(|seen| {
            seen.signalled = Some(signalled);
            seen.left = Some(KILL_AFTER);
        });
    }
}

fn code_of(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// Waits until the goal has risen above `signalled`.
async fn next_goal(goal: &mut watch::Receiver<Goal>, signalled: Goal) -> Goal {
    goal.wait_for(|goal| *goal > signalled).await.map_or(Goal::Kill, |goal| *goal)
}

/// Polls a replica: its readiness, as a load balancer would, and its status, as an operator would.
struct Prober {
    seen: watch::Sender<Snapshot>,
    listens: Listens,
    began: Instant,
}

impl Prober {
    async fn on(self, member: Arc<Member>) {
        let mut ticks = tokio::time::interval(PROBE_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let probe = fetch(self.listens.http, "/readyz", PROBE_TIMEOUT);
            let (probe, shutdown) = tokio::join!(probe, self.shutdown());
            let is_ready = probe.is_ok_and(|(status, _)| status == StatusCode::OK);
            let now = self.began.elapsed();
            self.seen.send_modify(|seen| {
                if is_ready && seen.ready.is_none() {
                    seen.ready = Some(now);
                }
                seen.state = match (seen.state, is_ready) {
                    (State::Gone, _) => State::Gone,
                    (_, true) => State::Ready,
                    (State::Starting, false) => State::Starting,
                    (State::Ready | State::Draining, false) => State::Draining,
                };
                (seen.phase, seen.left) = match shutdown {
                    Some((phase, left)) => (phase, Some(left)),
                    None => (
                        None,
                        seen.signalled
                            .map(|signalled| (signalled + KILL_AFTER).saturating_sub(now)),
                    ),
                };
            });
            if !is_ready {
                member.links().clear();
            }
        }
    }

    /// Returns the phase and the remaining time of the shutdown, if it has begun.
    async fn shutdown(&self) -> Option<(Option<String>, Duration)> {
        let (_, status) = fetch(self.listens.admin?, "/shutdown", PROBE_TIMEOUT).await.ok()?;
        let status: serde_json::Value = serde_json::from_slice(&status).ok()?;
        if status["stage"] == "up" {
            return None;
        }
        let phase = status["waiting_for"][0]["phase"].as_str().map(str::to_owned);
        let left = status["remaining_ms"].as_f64().unwrap_or(0.0).max(0.0);
        Some((phase, Duration::try_from_secs_f64(left / 1_000.0).unwrap_or_default()))
    }
}
