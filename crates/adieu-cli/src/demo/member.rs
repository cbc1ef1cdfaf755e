//! A member of the fleet: the process of a replica, as seen from outside.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::time::Instant;

use super::KILL_AFTER;
use super::link::{Link, look};
use super::replica::{Kind, Listens};

/// How often it is asked whether it is ready: what a load balancer would do.
const PROBE: Duration = Duration::from_millis(200);
/// How long an answer to that may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it may take to say where it listens.
const BIRTH: Duration = Duration::from_secs(10);

/// The program to start.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// What the fleet shares.
    pub(super) folder: PathBuf,
    pub(super) report: PathBuf,
    pub(super) log: PathBuf,
}

/// A member of the fleet.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) listens: Listens,
    wish: watch::Sender<Wish>,
    seen: watch::Receiver<Seen>,
    /// Idle connections to it.
    links: Mutex<Vec<Link>>,
    /// One is cloned for each request in flight.
    in_flight: Arc<()>,
}

/// The wanted state. Only ever rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Live,
    Stop,
    Kill,
}

/// The last observed state of a member. Times are from the beginning of the demo.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) state: State,
    pub(super) phase: Option<String>,
    /// The remaining time of its deadline.
    pub(super) left: Option<Duration>,
    pub(super) born: Duration,
    pub(super) ready: Option<Duration>,
    pub(super) told: Option<Duration>,
    pub(super) end: Option<End>,
}

/// How it ended.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) at: Duration,
    /// As a shell would show it: 137 for one that was killed.
    pub(super) exit_code: i32,
    pub(super) report: Option<serde_json::Value>,
}

/// How far a member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Starting,
    Ready,
    /// Told to stop.
    Draining,
    Gone,
}

/// The owner of a member: holds its process until it has ended.
pub(super) struct Keeper {
    spec: Spec,
    child: Child,
    /// Held so that it is not closed before we go: waiting for a process would close it.
    _input: Option<ChildStdin>,
    listens: Listens,
    member: Arc<Member>,
    wish: watch::Receiver<Wish>,
    seen: watch::Sender<Seen>,
    began: Instant,
}

/// Starts a replica, and waits until it has said where it listens.
///
/// It must be kept: nothing is seen of it otherwise, and it ends with its [`Keeper`].
pub(super) async fn start(spec: Spec, began: Instant) -> io::Result<(Arc<Member>, Keeper)> {
    let born = began.elapsed();
    // That of an earlier run would be taken for its own.
    match std::fs::remove_file(&spec.report) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(["replica", "--name", &spec.name, "--kind"])
        .arg(match spec.kind {
            Kind::Adieu => "adieu",
            Kind::Plain => "plain",
        })
        .arg("--folder")
        .arg(&spec.folder)
        .arg("--report")
        .arg(&spec.report)
        .stdin(Stdio::piped()) // Closed by our end: then it goes, too.
        .stdout(Stdio::piped())
        .stderr(File::create(&spec.log)?)
        .process_group(0) // Ctrl-C is for us; we tell it.
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    let mut line = String::new();
    let mut lines = BufReader::new(output);
    let said = tokio::time::timeout(BIRTH, lines.read_line(&mut line)).await;
    said.map_err(|_| io::Error::other("it does not say where it listens"))??;
    let listens: Listens = serde_json::from_str(&line).map_err(|_| {
        let log = std::fs::read_to_string(&spec.log).unwrap_or_default();
        io::Error::other(format!("it did not start: {}", log.trim()))
    })?;

    let (wish, wished) = watch::channel(Wish::Live);
    let (tell, seen) = watch::channel(Seen { born, ..Seen::default() });
    let name = spec.name.clone();
    let member =
        Member { name, listens, wish, seen, links: Mutex::default(), in_flight: Arc::default() };
    let member = Arc::new(member);
    let _input = child.stdin.take();
    let keeper = Keeper {
        spec,
        child,
        _input,
        listens,
        member: Arc::clone(&member),
        wish: wished,
        seen: tell,
        began,
    };
    Ok((member, keeper))
}

// === impl Member ===

impl Member {
    pub(super) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.seen.borrow().state == State::Ready
    }

    /// How many requests are in flight to it.
    pub(super) fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
    }

    /// Counts as one request in flight until it is dropped.
    pub(super) fn enter(&self) -> Arc<()> {
        Arc::clone(&self.in_flight)
    }

    /// Waits until it is ready, or has ended.
    pub(super) async fn until_ready(&self) -> bool {
        let is_either = |seen: &Seen| matches!(seen.state, State::Ready | State::Gone);
        let seen = self.seen.clone().wait_for(is_either).await.map(|seen| seen.state);
        seen.is_ok_and(|state| state == State::Ready)
    }

    /// Tells it to stop, with SIGTERM. It is killed if it does not in time.
    pub(super) fn stop(&self) {
        self.wish_for(Wish::Stop);
    }

    /// Ends it at once.
    pub(super) fn kill(&self) {
        self.wish_for(Wish::Kill);
    }

    fn wish_for(&self, wish: Wish) {
        self.wish.send_if_modified(|wished| {
            let is_more = *wished < wish;
            *wished = wish.max(*wished);
            is_more
        });
    }

    /// Waits until it has ended.
    pub(super) async fn until_gone(&self) {
        // If the keeper is gone, so is what it kept.
        let _ = self.seen.clone().wait_for(|seen| seen.state == State::Gone).await;
    }

    /// A connection to it, from before if there is one.
    pub(super) async fn link(&self) -> Result<Link, super::link::Lost> {
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
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Keeper ===

impl Keeper {
    /// Watches over the process until it has ended.
    pub(super) async fn keep(mut self) {
        let looking = {
            let look = Look { seen: self.seen.clone(), listens: self.listens, began: self.began };
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
            *seen = Seen {
                state: State::Gone,
                phase: None,
                left: None,
                end: Some(end),
                ..seen.clone()
            };
        });
    }

    async fn until_exit(&mut self) -> i32 {
        let mut told = Wish::Live;
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
                wish = next_wish(&mut self.wish, told) => {
                    told = wish;
                    if told == Wish::Stop {
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
            // The process may have ended before: the effect is the same.
            let _ = kill_process(pid, Signal::TERM);
        }
        let told = self.began.elapsed();
        self.seen.send_modify(|seen| {
            seen.told = Some(told);
            seen.left = Some(KILL_AFTER);
        });
    }
}

fn code_of(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// What is wished for beyond what was.
async fn next_wish(wish: &mut watch::Receiver<Wish>, told: Wish) -> Wish {
    wish.wait_for(|wish| *wish > told).await.map_or(Wish::Kill, |wish| *wish)
}

/// Looks at a replica again and again, as a load balancer and an operator would.
struct Look {
    seen: watch::Sender<Seen>,
    listens: Listens,
    began: Instant,
}

impl Look {
    async fn on(self, member: Arc<Member>) {
        let mut ticks = tokio::time::interval(PROBE);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let probe = look(self.listens.http, "/readyz", PATIENCE);
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
                    None => (None, seen.told.map(|told| (told + KILL_AFTER).saturating_sub(now))),
                };
            });
            if !is_ready {
                member.links().clear();
            }
        }
    }

    /// The phase of its shutdown, if it reports one.
    async fn shutdown(&self) -> Option<(Option<String>, Duration)> {
        let (_, status) = look(self.listens.admin?, "/shutdown", PATIENCE).await.ok()?;
        let status: serde_json::Value = serde_json::from_slice(&status).ok()?;
        if status["stage"] == "up" {
            return None;
        }
        let phase = status["waiting_for"][0]["phase"].as_str().map(str::to_owned);
        let left = status["remaining_ms"].as_f64().unwrap_or(0.0).max(0.0);
        Some((phase, Duration::try_from_secs_f64(left / 1_000.0).unwrap_or_default()))
    }
}
