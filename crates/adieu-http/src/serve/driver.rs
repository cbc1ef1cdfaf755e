//! Accepts, serves and ends connections, and owns them all.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use adieu_core::{
    AddTaskError, CheckHandle, Drain, Gate, Names, Phase, Readiness, Shutdown, TaskCx, TaskSpec,
};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::closing::{self, Turned};
use super::cuts::{Cuts, Why};
use super::machine::{Effect, Event, Machine};
use super::roster::Roster;
#[cfg(feature = "tls")]
use super::tls;
use super::{App, Now, Options, Serve, ServeError, Stage};
use crate::connection::{Common, Conn, Introduce, drive};
use crate::layer::Refusal;
use crate::listener::{Listener, is_of_one_connection};
use crate::socket::{Endpoints, SendQueues};
use crate::spare::Spare;

/// How long accepting rests after an error, so that a full table of files is not asked a million
/// times.
const REST: Duration = Duration::from_millis(100);

/// How often it is checked, while requests are waited for, whether all of them wait for clients that
/// have stopped reading.
const LOOK: Duration = Duration::from_millis(250);

/// What the shutdown wants. It only ever wants more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Wanted {
    unbind: bool,
    /// The window has begun, and is this long.
    finish_within: Option<Duration>,
    stop_within: Option<Duration>,
}

const AT_ONCE: Wanted =
    Wanted { unbind: true, finish_within: None, stop_within: Some(Duration::ZERO) };

/// How far we are, for the shutdown.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    unbound: bool,
    gone: bool,
}

struct Server<L: Listener, S> {
    listener: Option<L>,
    app: S,
    options: Options,
    common: Arc<Common>,
    machine: Machine,
    shutdown: Shutdown,
    stages: watch::Sender<Stage>,
    reached: watch::Sender<Reached>,
    connections: JoinSet<()>,
    roster: Arc<Roster>,
    spare: Spare,
    looks_at: Instant,
    rests_until: Option<Instant>,
    /// Said once, not for each connection that could not be accepted.
    has_complained: bool,
}

pub(super) async fn run<L: Listener, S: App>(
    serve: Serve<L, S>,
    check: CheckHandle,
) -> Result<(), ServeError> {
    let Serve { listener, mut app, shutdown, options } = serve;
    prepare(&mut app);
    let door = options.door();
    let gate = door.gate.clone();
    let (wants, wanted) = watch::channel(Wanted::default());
    let (reached, reaches) = watch::channel(Reached::default());
    let roster = Arc::new(Roster::default());
    let cuts = Arc::new(Cuts::new(Arc::clone(&options.name), shutdown.clone(), gate.clone()));
    match register(&shutdown, &options, &gate, wants, reaches, &roster, &cuts) {
        Ok(()) => {}
        // Told to stop while it was starting up: there is nothing to serve, and nothing wrong.
        Err(AddTaskError::TooLate { .. }) => return Ok(()),
        Err(source) => return Err(ServeError::AddTask { name: options.name, source }),
    }
    if let Some(at) = listener.describe() {
        shutdown.say(format!("listening             name={} at={at}", options.name));
    }

    let queues = SendQueues::open();
    if queues.is_forbidden() {
        shutdown.warn(format!(
            "acknowledgements      name={} unknown: no netlink socket; answers count as read when the kernel has taken them",
            options.name
        ));
    }
    let names: Weak<dyn Names> = Arc::downgrade(&roster) as _;
    gate.add_names(names);
    let common = Arc::new(Common {
        door,
        now: Now::new(),
        probes: options.probes.clone(),
        goodbye: options.goodbye,
        patience_ms: AtomicU64::new(millis(options.stall_timeout)),
        queues,
        cuts,
    });
    let server = Server {
        listener: Some(listener),
        app,
        options,
        common,
        machine: Machine::new(),
        shutdown: shutdown.clone(),
        stages: watch::Sender::new(Stage::Serving),
        reached,
        connections: JoinSet::new(),
        roster,
        spare: Spare::new(),
        looks_at: Instant::now(),
        rests_until: None,
        has_complained: false,
    };
    // Start-up has ended, as far as it is up to this server.
    check.ready();
    shutdown.started();
    server.run(&shutdown, &gate, wanted).await;
    drop(check); // From here on nobody serves.
    Ok(())
}

/// Does once what an `axum::Router` would else do with every request: make routes of handlers.
fn prepare<S: 'static>(app: &mut S) {
    #[cfg(feature = "axum")]
    if let Some(router) = (app as &mut dyn std::any::Any).downcast_mut::<axum::Router>() {
        *router = std::mem::take(router).with_state(());
    }
    let _ = app;
}

/// What the server does, in the phases where it belongs.
fn register(
    shutdown: &Shutdown,
    options: &Options,
    gate: &Gate,
    wants: watch::Sender<Wanted>,
    reaches: watch::Receiver<Reached>,
    roster: &Arc<Roster>,
    cuts: &Arc<Cuts>,
) -> Result<(), AddTaskError> {
    let wants = Arc::new(wants);
    let unbind = {
        let (wants, mut reaches) = (Arc::clone(&wants), reaches.clone());
        async move |_| {
            wants.send_modify(|wanted| wanted.unbind = true);
            // If the server is gone, so is its listener.
            let _ = reaches.wait_for(|reached| reached.unbound).await;
        }
    };
    let stop = {
        let (mut reaches, hard_stop) = (reaches.clone(), options.hard_stop);
        let (wants, cuts) = (Arc::clone(&wants), Arc::clone(cuts));
        async move |cx: TaskCx| {
            let within = hard_stop.min(cx.remaining() / 2);
            wants.send_modify(|wanted| wanted.stop_within = Some(within));
            let _ = reaches.wait_for(|reached| reached.gone).await;
            cuts.report()
        }
    };
    let finish = {
        let (mut reaches, cuts) = (reaches.clone(), Arc::clone(cuts));
        async move |cx: TaskCx| {
            wants.send_modify(|wanted| wanted.finish_within = Some(cx.remaining()));
            tokio::select! {
                _ = reaches.wait_for(|reached| reached.gone) => cuts.report(),
                () = cx.cancelled() => Ok(()),
            }
        }
    };
    let task = |what| {
        let roster = Arc::clone(roster);
        TaskSpec::new(format!("{what} {} connections", options.name))
            .describe(move || roster.summary())
    };
    shutdown.drain(Drain::of(gate).first(unbind))?;
    // The last request is done before the last byte of its answer has been sent.
    shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, task("finish"), finish)?;
    let close = task("close").timeout((2 * options.hard_stop).max(Duration::from_secs(1)));
    shutdown.add_task(Phase::SERVICE_STOP, close, stop)?;
    Ok(())
}

impl<L: Listener, S: App> Server<L, S> {
    async fn run(mut self, shutdown: &Shutdown, gate: &Gate, mut wanted: watch::Receiver<Wanted>) {
        let (mut seen, mut is_over) = (Wanted::default(), false);
        let is_draining =
            |readiness| matches!(readiness, Readiness::Draining | Readiness::Stopping);
        let mut unready = std::pin::pin!(shutdown.until_readiness(is_draining));
        loop {
            let is_closed = self.machine.stage() >= Stage::Closing;
            if is_closed && self.connections.is_empty() {
                break;
            }
            let due = self.machine.due().map(Instant::from_std);
            let event = tokio::select! {
                _ = &mut unready, if self.machine.stage() == Stage::Serving => Event::Unready,
                now = wanted.wait_for(|wanted| *wanted != seen), if !is_over => {
                    // Who wants something is gone when the shutdown is over, also when it had no
                    // time left to want anything.
                    let (now, over) = now.map_or((AT_ONCE, true), |now| (*now, false));
                    (seen, is_over) = (now, over);
                    self.set_patience(now.finish_within);
                    now.stop_within.map_or(Event::Unbind, |within| Event::Stop { within })
                }
                () = drained(gate, shutdown), if self.machine.waits_for_drain() => Event::Drained,
                () = sleep_until(self.looks_at), if self.machine.waits_for_drain() => {
                    self.looks_at = Instant::now() + LOOK;
                    if !self.waits_only_for_clients(gate) {
                        continue;
                    }
                    Event::Stalled
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Event::Tick,
                Some(ended) = self.connections.join_next_with_id() => {
                    self.ended(ended);
                    continue;
                }
                accepted = accept(&mut self.listener, self.rests_until), if self.has_room() => {
                    self.accepted(accepted);
                    continue;
                }
            };
            for effect in self.machine.on(Instant::now().into_std(), event) {
                self.apply(effect).await;
            }
        }
        self.reached.send_modify(|reached| reached.gone = true);
    }

    fn accepted(&mut self, accepted: io::Result<(L::Io, L::Peer)>) {
        match accepted {
            Ok((io, peer)) => {
                self.rests_until = None;
                self.has_complained = false;
                self.spawn(io, peer);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                self.rests_until = Some(Instant::now() + REST);
                if !std::mem::replace(&mut self.has_complained, true) {
                    let name = &self.options.name;
                    self.shutdown
                        .warn(format!("failed to accept      name={name} {error}; trying on"));
                }
            }
        }
    }

    /// Whether one more connection may be accepted. Others wait in the kernel's queue.
    fn has_room(&self) -> bool {
        self.connections.len() < self.options.max_connections
    }

    fn spawn(&mut self, io: L::Io, peer: L::Peer) {
        let endpoints = L::endpoints(&io).map(|(local, peer)| Endpoints { local, peer });
        let conn = Conn::new(Arc::clone(&self.common), endpoints, Instant::now());
        let stages = self.stages.subscribe();
        let configure = Arc::clone(&self.options.configure);
        let app = self.app.clone();
        let introduce = introduce(&self.options, peer);
        let task = {
            let conn = Arc::clone(&conn);
            #[cfg(feature = "tls")]
            let acceptor = self.options.tls.clone();
            async move {
                #[cfg(feature = "tls")]
                if let Some(acceptor) = acceptor {
                    if let Some(io) = tls::handshake(acceptor, io, stages.clone()).await {
                        // Without the goodbye of TLS, the client knows that the answer was cut.
                        let reset = |_: &_| {};
                        drive(io, reset, conn, app, introduce, configure, stages).await;
                    }
                    return;
                }
                drive(io, L::reset_on_drop, conn, app, introduce, configure, stages).await;
            }
        };
        let id = self.connections.spawn(task).id();
        self.roster.add(id, conn);
    }

    fn ended(&mut self, ended: Result<(tokio::task::Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            // A handler that panicked took its connection with it, as it would without us.
            Err(error) => error.id(),
        };
        self.roster.remove(id);
    }

    fn say_who_was_turned(&self, Turned { refused, reset }: Turned) {
        let name = &self.options.name;
        if refused > 0 {
            let why = "out of file descriptors";
            self.shutdown.warn(format!(
                "queue refused         name={name} connections={refused} reason={why:?}"
            ));
        }
        if reset {
            self.shutdown.warn(format!(
                "queue reset           name={name}: connections that could not be accepted are lost"
            ));
        }
    }

    /// In a short window, a client that stops reading is given up sooner.
    fn set_patience(&self, window: Option<Duration>) {
        let most = self.options.stall_timeout;
        let patience = window.map_or(most, |window| most.min(window / 2));
        self.common.patience_ms.store(millis(patience), Ordering::Relaxed);
    }

    /// Whether all that is inside the gate waits for clients of ours that have stopped reading.
    fn waits_only_for_clients(&self, gate: &Gate) -> bool {
        let stalled = self.roster.stalled_requests(Instant::now());
        stalled > 0 && gate.in_flight() <= stalled
    }

    async fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::CloseListener => self.close_listener().await,
            Effect::Enter(stage) => {
                if stage == Stage::Dropping {
                    self.roster.all().iter().for_each(|conn| conn.give_up(Why::OutOfTime));
                }
                self.common.now.set(stage);
                self.stages.send_replace(stage);
                if stage == Stage::Dropping {
                    self.connections.abort_all();
                }
            }
            Effect::ForgetFresh => self.roster.all().iter().for_each(|conn| conn.forget()),
        }
    }

    async fn close_listener(&mut self) {
        if let Some(listener) = self.listener.take() {
            let door = &self.common.door;
            let refusal = Refusal::from(door.gate.draining()).with_status(door.status);
            let mut spare = std::mem::replace(&mut self.spare, Spare::none());
            let turned = closing::empty(listener.close(), &mut spare, refusal, |io, peer| {
                self.spawn(io, peer);
            });
            let turned = turned.await;
            self.say_who_was_turned(turned);
        }
        let now = Instant::now();
        self.roster.all().iter().for_each(|conn| conn.let_in(now));
        self.reached.send_modify(|reached| reached.unbound = true);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Tells handlers who is at the other end, if they want to know.
fn introduce<P: Clone + Send + Sync + 'static>(options: &Options, peer: P) -> Option<Introduce> {
    #[cfg(feature = "axum")]
    if options.connect_info {
        return Some(Box::new(move |extensions| {
            extensions.insert(axum::extract::ConnectInfo(peer.clone()));
        }));
    }
    let _ = (options, peer);
    None
}

async fn accept<L: Listener>(
    listener: &mut Option<L>,
    rests_until: Option<Instant>,
) -> io::Result<(L::Io, L::Peer)> {
    let Some(listener) = listener else { return std::future::pending().await };
    if let Some(until) = rests_until {
        sleep_until(until).await;
    }
    listener.accept().await
}

/// Waits until the gate is closed and empty. Whether that comes too late is not ours to say.
async fn drained(gate: &Gate, shutdown: &Shutdown) {
    if let Some(deadline) = shutdown.deadline()
        && gate.drained(deadline).await == 0
        && gate.is_drained()
    {
        return;
    }
    std::future::pending().await
}
