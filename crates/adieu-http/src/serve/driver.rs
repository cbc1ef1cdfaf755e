//! Accepts, serves and ends connections, and owns them all.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::{
    AddTaskError, CheckHandle, Drain, Gate, Phase, Readiness, Shutdown, TaskCx, TaskSpec,
};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::machine::{Effect, Event, Machine};
#[cfg(feature = "tls")]
use super::tls;
use super::{App, Now, Options, Serve, ServeError, Stage};
use crate::connection::{Common, Conn, Introduce, drive};
use crate::listener::{Listener, is_of_one_connection};

/// How long accepting rests after an error, so that a full table of files is not asked a million
/// times.
const REST: Duration = Duration::from_millis(100);

/// What the shutdown wants. It only ever wants more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Wanted {
    unbind: bool,
    stop_within: Option<Duration>,
}

const AT_ONCE: Wanted = Wanted { unbind: true, stop_within: Some(Duration::ZERO) };

/// How far we are, for the shutdown.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    unbound: bool,
    gone: bool,
    connections: usize,
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
    known: HashMap<tokio::task::Id, Arc<Conn>>,
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
    match register(&shutdown, &options, &gate, wants, reaches) {
        Ok(()) => {}
        // Told to stop while it was starting up: there is nothing to serve, and nothing wrong.
        Err(AddTaskError::TooLate { .. }) => return Ok(()),
        Err(source) => return Err(ServeError::AddTask { name: options.name, source }),
    }
    if let Some(at) = listener.describe() {
        shutdown.say(format!("listening             name={} at={at}", options.name));
    }

    let common = Arc::new(Common {
        door,
        now: Now::new(),
        probes: options.probes.clone(),
        goodbye: options.goodbye,
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
        known: HashMap::new(),
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
        async move |cx: TaskCx| {
            let within = hard_stop.min(cx.remaining() / 2);
            wants.send_modify(|wanted| wanted.stop_within = Some(within));
            let _ = reaches.wait_for(|reached| reached.gone).await;
        }
    };
    let finish = {
        let mut reaches = reaches.clone();
        async move |cx: TaskCx| {
            tokio::select! {
                _ = reaches.wait_for(|reached| reached.gone) => {}
                () = cx.cancelled() => {}
            }
        }
    };
    let task = |what| {
        let reaches = reaches.clone();
        TaskSpec::new(format!("{what} {} connections", options.name))
            .describe(move || format!("{} connections", reaches.borrow().connections))
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
                    now.stop_within.map_or(Event::Unbind, |within| Event::Stop { within })
                }
                () = drained(gate, shutdown), if self.machine.awaits_drain() => Event::Drained,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Event::Tick,
                Some(ended) = self.connections.join_next_with_id() => {
                    self.ended(ended);
                    continue;
                }
                accepted = accept(&mut self.listener, self.rests_until) => {
                    self.accepted(accepted);
                    continue;
                }
            };
            for effect in self.machine.on(Instant::now().into_std(), event) {
                self.apply(effect);
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

    fn spawn(&mut self, io: L::Io, peer: L::Peer) {
        let conn = Conn::new(Arc::clone(&self.common), Instant::now());
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
                        drive(io, conn, app, introduce, configure, stages).await;
                    }
                    return;
                }
                drive(io, conn, app, introduce, configure, stages).await;
            }
        };
        let id = self.connections.spawn(task).id();
        self.known.insert(id, conn);
        self.count();
    }

    fn ended(&mut self, ended: Result<(tokio::task::Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            // A handler that panicked took its connection with it, as it would without us.
            Err(error) => error.id(),
        };
        self.known.remove(&id);
        self.count();
    }

    fn count(&self) {
        let connections = self.connections.len();
        self.reached.send_modify(|reached| reached.connections = connections);
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::CloseListener => self.close_listener(),
            Effect::Enter(stage) => {
                self.common.now.set(stage);
                self.stages.send_replace(stage);
                if stage == Stage::Dropping {
                    self.connections.abort_all();
                }
            }
            Effect::ForgetFresh => self.known.values().for_each(|conn| conn.forget()),
        }
    }

    fn close_listener(&mut self) {
        let queued = self.listener.take().map_or_else(Vec::new, L::close);
        for (io, peer) in queued {
            self.spawn(io, peer);
        }
        let now = Instant::now();
        self.known.values().for_each(|conn| conn.let_in(now));
        self.reached.send_modify(|reached| reached.unbound = true);
    }
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
