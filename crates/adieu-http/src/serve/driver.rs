//! Accepts, serves and ends connections, and owns them all.
//!
//! The driver is a task of the runtime, and the shutdown's tasks wait for its end. The future that
//! the application holds only waits, too: dropping it must not lose the requests that got in.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use adieu_core::adapter::{ListInFlight, log};
use adieu_core::{AddTaskError, CheckHandle, Gate, Readiness, Shutdown};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
#[cfg(feature = "tls")]
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::accept_queue::{self, Unserved};
use super::machine::{Effect, Event, Machine};
use super::phases::{StopProgress, StopRequest, register};
use super::roster::Roster;
#[cfg(feature = "tls")]
use super::tls;
use super::{Options, Serve, ServeError};
use crate::app::App;
use crate::clock::TickingClock;
use crate::connection::{AddPeer, Conn, CutReason, Cuts, NEW_CONNECTION, ServerContext, drive};
use crate::listener::{Listener, is_of_one_connection};
use crate::refusal::Refusal;
use crate::socket::{Endpoints, SendQueues};
use crate::spare_fd::{SpareFd, between_exchanges};
use crate::stage::{CurrentStage, Stage};

/// How long accepting pauses after an error, so that a lack of file descriptors does not become a
/// busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often the server checks, while requests finish, whether it still has to wait.
const DRAIN_CHECK: Duration = Duration::from_millis(250);

struct Server<L: Listener, S> {
    listener: Option<L>,
    app: S,
    options: Options,
    context: Arc<ServerContext>,
    machine: Machine,
    shutdown: Shutdown,
    stages: watch::Sender<Stage>,
    reached: watch::Sender<StopProgress>,
    connections: JoinSet<()>,
    roster: Arc<Roster>,
    spare: SpareFd,
    next_check: Instant,
    next_tick: Instant,
    accept_after: Option<Instant>,
    /// A failure to accept is logged once, until a connection has been accepted again.
    has_warned: bool,
}

/// Starts the server, and waits for its end.
pub(super) async fn run<L: Listener, S: App>(
    serve: Serve<L, S>,
    check: CheckHandle,
) -> Result<(), ServeError> {
    let released = CancellationToken::new();
    let Some(server) = start(serve, &check, released.clone())? else { return Ok(()) };
    // Dropped with this future. The check is, too: from then on the process is unavailable.
    let _released = released.drop_guard();
    match server.await {
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The task is cancelled only with its runtime.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Adds the server to the shutdown, and spawns its driver. Returns `None` if the shutdown has begun.
///
/// `released` fires when the application has dropped the server's future.
fn start<L: Listener, S: App>(
    serve: Serve<L, S>,
    check: &CheckHandle,
    released: CancellationToken,
) -> Result<Option<JoinHandle<()>>, ServeError> {
    let Serve { listener, mut app, shutdown, options } = serve;
    prepare(&mut app);
    let admission = options.admission();
    let gate = admission.gate.clone();
    let (requests, requested) = watch::channel(StopRequest::default());
    let (reached, reached_rx) = watch::channel(StopProgress::default());
    let roster = Arc::new(Roster::default());
    let cuts = Arc::new(Cuts::new(Arc::clone(&options.name), shutdown.clone(), gate.clone()));
    let registered = register(&shutdown, &options, &gate, requests, reached_rx, &roster, &cuts);
    if let Err(source) = registered {
        // Some tasks may have been added. They wait for a server that has accepted nothing.
        reached.send_replace(StopProgress { is_unbound: true, has_ended: true });
        // The shutdown began during start-up: nothing is to be served, and that is no failure.
        if let AddTaskError::TooLate { .. } = source {
            return Ok(None);
        }
        return Err(ServeError::AddTask { name: options.name, source });
    }
    if let Some(at) = listener.describe() {
        let (name, at) = (Arc::clone(&options.name), at.to_string());
        log(&shutdown, move || info!(name = &*name, at, "listening"));
    }

    let queues = SendQueues::open();
    if queues.is_forbidden() {
        let name = Arc::clone(&options.name);
        let reason = "netlink sockets are not permitted";
        let fallback = "bytes count as received when the kernel has taken them";
        log(&shutdown, move || {
            warn!(name = &*name, reason, fallback, "acknowledgements not observable")
        });
    }
    let names: Weak<dyn ListInFlight> = Arc::downgrade(&roster) as _;
    gate.add_names(names);
    let context = Arc::new(ServerContext {
        admission,
        stage: CurrentStage::new(),
        probes: options.probes.clone(),
        websocket_close_timeout: options.websocket_close_timeout,
        stall_timeout: options.stall_timeout,
        queues,
        clock: TickingClock::new(),
        cuts,
    });
    let server = Server {
        listener: Some(listener),
        app,
        options,
        context,
        machine: Machine::new(),
        shutdown: shutdown.clone(),
        stages: watch::Sender::new(Stage::Serving),
        reached,
        connections: JoinSet::new(),
        roster,
        spare: SpareFd::new(),
        next_check: Instant::now(),
        next_tick: Instant::now(),
        accept_after: None,
        has_warned: false,
    };
    // Start-up has ended, as far as this server is concerned.
    check.mark_ready();
    shutdown.mark_started();
    let driver = async move { server.run(&shutdown, &gate, requested, released).await };
    Ok(Some(Handle::current().spawn(driver)))
}

/// Converts the handlers of an `axum::Router` into routes once, which axum would otherwise do with
/// every request.
fn prepare<S: 'static>(app: &mut S) {
    #[cfg(feature = "axum")]
    if let Some(router) = (app as &mut dyn std::any::Any).downcast_mut::<axum::Router>() {
        *router = std::mem::take(router).with_state(());
    }
    let _ = app;
}

impl<L: Listener, S: App> Server<L, S> {
    async fn run(
        mut self,
        shutdown: &Shutdown,
        gate: &Gate,
        mut requested: watch::Receiver<StopRequest>,
        released: CancellationToken,
    ) {
        let (mut seen, mut is_over, mut is_released) = (StopRequest::default(), false, false);
        let is_draining =
            |readiness| matches!(readiness, Readiness::Draining | Readiness::Stopping);
        let mut unready = std::pin::pin!(shutdown.until_readiness(is_draining));
        loop {
            let is_unbound = self.machine.stage() >= Stage::Unbound;
            if is_unbound && self.connections.is_empty() {
                break;
            }
            let due = self.machine.due().map(Instant::from_std);
            let event = tokio::select! {
                _ = &mut unready, if self.machine.stage() == Stage::Serving => Event::Unready,
                now = requested.wait_for(|requested| *requested != seen), if !is_over => {
                    // The channel closes when the shutdown is over, even if the shutdown had no
                    // time for its requests.
                    let (now, over) = now.map_or((StopRequest::STOP_NOW, true), |now| (*now, false));
                    (seen, is_over) = (now, over);
                    now.stop_within.map_or(Event::Unbind, |within| Event::Stop { within })
                }
                () = released.cancelled(), if !is_released => {
                    is_released = true;
                    // A shutdown that has begun ends the server, in its own time.
                    if shutdown.deadline().is_some() {
                        continue;
                    }
                    Event::Released
                }
                () = drained(gate, shutdown), if self.machine.is_draining() => Event::Drained,
                () = sleep_until(self.next_check), if self.machine.is_draining() => {
                    self.next_check = Instant::now() + DRAIN_CHECK;
                    match self.drain_check(gate) {
                        Some(event) => event,
                        None => continue,
                    }
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Event::Tick,
                () = sleep_until(self.next_tick), if !self.connections.is_empty() => {
                    self.next_tick = self.context.clock.tick(Instant::now());
                    continue;
                }
                Some(ended) = self.connections.join_next_with_id() => {
                    self.remove(ended);
                    continue;
                }
                accepted = accept(&mut self.listener, self.accept_after), if self.has_room() => {
                    self.accepted(accepted);
                    continue;
                }
            };
            for effect in self.machine.on(Instant::now().into_std(), event) {
                self.apply(effect).await;
            }
        }
        self.reached.send_modify(|reached| reached.has_ended = true);
    }

    fn accepted(&mut self, accepted: io::Result<(L::Io, L::Peer)>) {
        match accepted {
            Ok((io, peer)) => {
                self.accept_after = None;
                self.has_warned = false;
                self.spawn(io, peer);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                if !std::mem::replace(&mut self.has_warned, true) {
                    let name = Arc::clone(&self.options.name);
                    log(&self.shutdown, move || {
                        warn!(name = &*name, %error, "failed to accept a connection; retrying");
                    });
                }
            }
        }
    }

    /// Returns whether another connection may be accepted. Until then clients wait in the kernel's
    /// queue.
    fn has_room(&self) -> bool {
        self.connections.len() < self.options.max_connections
    }

    fn spawn(&mut self, io: L::Io, peer: L::Peer) {
        let endpoints = L::endpoints(&io).map(|(local, peer)| Endpoints { local, peer });
        let now = Instant::now();
        if self.connections.is_empty() {
            self.next_tick = self.context.clock.tick(now); // The clock has not been ticking.
        }
        let conn = Conn::new(Arc::clone(&self.context), endpoints, now);
        let stages = self.stages.subscribe();
        let configure = Arc::clone(&self.options.configure);
        let app = self.app.clone();
        let add_peer = add_peer(&self.options, peer);
        let task = {
            let conn = Arc::clone(&conn);
            #[cfg(feature = "tls")]
            let acceptor = self.options.tls.clone();
            async move {
                #[cfg(feature = "tls")]
                if let Some(acceptor) = acceptor {
                    if let Some(io) = tls::handshake(acceptor, io, stages.clone()).await {
                        // Also with TLS: many clients accept a connection that ends without
                        // close_notify, and take a part of the response for all of it.
                        let reset = |io: &TlsStream<L::Io>, resets| {
                            L::reset_on_drop(io.get_ref().0, resets);
                        };
                        drive(io, reset, conn, app, add_peer, configure, stages).await;
                    }
                    return;
                }
                drive(io, L::reset_on_drop, conn, app, add_peer, configure, stages).await;
            }
        };
        let id = self.connections.spawn(task).id();
        self.roster.add(id, conn);
    }

    /// Forgets a connection that has ended.
    fn remove(&mut self, ended: Result<(tokio::task::Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            // A handler that panics ends its connection, as it does with plain hyper.
            Err(error) => error.id(),
        };
        self.roster.remove(id);
    }

    fn log_unserved(&self, Unserved { refused, is_reset }: Unserved) {
        let name = Arc::clone(&self.options.name);
        if refused > 0 {
            let (name, reason) = (Arc::clone(&name), "out of file descriptors");
            log(&self.shutdown, move || {
                warn!(name = &*name, connections = refused, reason, "queued connections refused");
            });
        }
        if is_reset {
            let reason = "the rest of the queue could not be accepted";
            log(&self.shutdown, move || warn!(name = &*name, reason, "queued connections reset"));
        }
    }

    /// Returns whether the server need not wait for the gate to drain.
    fn drain_check(&self, gate: &Gate) -> Option<Event> {
        // The gate of a released server stays open, because others may share it. So the server
        // counts its own requests.
        if self.machine.is_released() && self.roster.open_requests() == 0 {
            return Some(Event::Drained);
        }
        let stalled = self.roster.stalled_requests(Instant::now());
        (stalled > 0 && gate.in_flight() <= stalled).then_some(Event::Stalled)
    }

    async fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::CloseListener => self.close_listener().await,
            Effect::Enter(stage) => {
                if stage == Stage::Dropping {
                    let cut = |conn: &Arc<Conn>| conn.report_cut(CutReason::WindowElapsed);
                    self.roster.all().iter().for_each(cut);
                }
                self.context.stage.set(stage);
                self.stages.send_replace(stage);
                if stage == Stage::Dropping {
                    self.connections.abort_all();
                }
            }
            Effect::ReleaseFirstRequests => {
                self.roster.all().iter().for_each(|conn| drop(conn.release_first_request()));
            }
            Effect::CutFirstRequests => self.cut_first_requests(),
        }
    }

    /// Ends connections whose first request may be on its way. If the gate was cut, its drain has waited
    /// for them, and reports them.
    fn cut_first_requests(&self) {
        let gate = &self.context.admission.gate;
        let is_reported = gate.cut_token().is_cancelled();
        for conn in self.roster.all() {
            let pass = conn.release_first_request();
            if pass.is_some() && !is_reported {
                gate.note_cut_off(NEW_CONNECTION);
            }
        }
    }

    async fn close_listener(&mut self) {
        if let Some(listener) = self.listener.take() {
            let admission = &self.context.admission;
            let refusal =
                Refusal::from(admission.gate.draining()).with_status(admission.refusal_status);
            let mut spare = std::mem::replace(&mut self.spare, SpareFd::none());
            let queue = listener.close();
            let unserved = accept_queue::drain(queue, &mut spare, refusal, |io, peer| {
                self.spawn(io, peer);
            });
            let unserved = unserved.await;
            self.log_unserved(unserved);
        }
        let now = Instant::now();
        self.roster.all().iter().for_each(|conn| conn.reserve_first_request(now));
        self.reached.send_modify(|reached| reached.is_unbound = true);
    }
}

/// Returns the function that gives handlers axum's `ConnectInfo`, if the option is set.
fn add_peer<P: Clone + Send + Sync + 'static>(options: &Options, peer: P) -> Option<AddPeer> {
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
    accept_after: Option<Instant>,
) -> io::Result<(L::Io, L::Peer)> {
    let Some(listener) = listener else { return std::future::pending().await };
    if let Some(at) = accept_after {
        sleep_until(at).await;
    }
    let mut accept = pin!(listener.accept());
    poll_fn(|cx| between_exchanges(|| accept.as_mut().poll(cx))).await
}

/// Waits until the gate is closed and empty. Never returns if the deadline passes first: the
/// shutdown's own tasks report that.
async fn drained(gate: &Gate, shutdown: &Shutdown) {
    if let Some(deadline) = shutdown.deadline()
        && gate.drained(deadline).await == 0
        && gate.is_drained()
    {
        return;
    }
    std::future::pending().await
}
