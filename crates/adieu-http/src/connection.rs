//! One connection: what is known of it, and how it is driven to its end.

mod calling;
mod frames;
mod http2;
mod io;
mod requests;
mod service;
mod streams;
mod upgraded;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use adieu_core::{Pass, Waiting};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use requests::Ticket;
pub(crate) use service::Introduce;
pub(crate) use streams::Streams;

use io::Io;
use requests::Requests;
use service::ConnService;
use upgraded::{Ushered, usher};

use crate::layer::Door;
use crate::probes::Probes;
use crate::serve::{App, Configure, Cuts, Now, Stage, Why};
use crate::socket::{Endpoints, SendQueues};

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) door: Door,
    pub(crate) now: Now,
    pub(crate) probes: Option<Probes>,
    /// How long the closing handshake of a WebSocket may take.
    pub(crate) goodbye: Duration,
    /// How long a client may acknowledge nothing of its answer when all else is done, in
    /// milliseconds.
    pub(crate) patience_ms: AtomicU64,
    pub(crate) queues: SendQueues,
    pub(crate) cuts: Arc<Cuts>,
}

/// What is known of a connection.
pub(crate) struct Conn {
    pub(crate) common: Arc<Common>,
    born: Instant,
    /// It has had a request.
    used: AtomicBool,
    /// It speaks HTTP/2, as far as we know.
    is_http2: AtomicBool,
    /// A [`Speaks`].
    speaks: AtomicU8,
    /// How the kernel knows it, if it is a TCP connection.
    endpoints: Option<Endpoints>,
    requests: Requests,
    sent: Sent,
    /// How much the client had acknowledged when it was last seen to acknowledge something.
    heard: Mutex<Option<Heard>>,
    /// A request was turned away: the client may still be sending its body.
    is_sending: AtomicBool,
    /// The end of the connection is all that tells the client where the answer ends.
    ends_by_close: AtomicBool,
    passes: Mutex<Passes>,
    /// What the connection was upgraded to, for its usher.
    upgraded: Mutex<Option<Arc<dyn Ushered>>>,
}

/// What has been sent. Only the connection itself writes these.
#[derive(Debug, Default)]
struct Sent {
    /// How many bytes have been written, up to where they belong to answers, and whether some of
    /// them are still on their way to the kernel.
    written: AtomicU64,
    answered: AtomicU64,
    is_unflushed: AtomicBool,
    /// With HTTP/2, how many answers have begun and not ended.
    open_answers: AtomicUsize,
    /// How many bytes that belong to no answer were written last: the end of the stream.
    farewell: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    bytes: u64,
    since: Instant,
}

/// What the bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http,
    WebSocket,
    Other,
}

#[derive(Debug, Default)]
struct Passes {
    /// For the first request of a connection that was taken in just before the doors closed.
    fresh: Option<Pass>,
    /// For what the connection was upgraded to.
    upgraded: Option<Pass>,
}

/// What was accepted within this time before the doors closed may still ask its first question.
pub(crate) const FRESH: Duration = Duration::from_millis(500);

/// A connection that has sent no more than this is left to the kernel when it is closed before the
/// shutdown: all of it is on its way.
const LITTLE: u64 = 64 * 1024;

/// How long a connection that has nothing more to say may take to notice that, and how often one
/// that has is looked at.
const GLANCE: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_millis(100);

// === impl Common ===

impl Common {
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms.load(Ordering::Relaxed))
    }
}

// === impl Conn ===

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conn").field("speaks", &self.speaks()).finish_non_exhaustive()
    }
}

impl Conn {
    pub(crate) fn new(
        common: Arc<Common>,
        endpoints: Option<Endpoints>,
        born: Instant,
    ) -> Arc<Self> {
        Arc::new(Self {
            common,
            born,
            used: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            speaks: AtomicU8::new(Speaks::Http as u8),
            endpoints,
            requests: Requests::default(),
            sent: Sent::default(),
            heard: Mutex::default(),
            is_sending: AtomicBool::new(false),
            ends_by_close: AtomicBool::new(false),
            passes: Mutex::default(),
            upgraded: Mutex::default(),
        })
    }

    fn passes(&self) -> MutexGuard<'_, Passes> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The doors are about to close: who has just come and not yet spoken is still let in.
    pub(crate) fn let_in(&self, now: Instant) {
        if self.used.load(Ordering::Acquire) || now.duration_since(self.born) > FRESH {
            return;
        }
        let pass = self.common.door.gate.enter().ok();
        self.passes().fresh = pass.map(|pass| pass.labelled("a new connection"));
    }

    /// Who has not spoken by now is not waited for.
    pub(crate) fn forget(&self) {
        let pass = self.passes().fresh.take();
        drop(pass); // Not under the lock.
    }

    /// The first request rides on the pass that was kept for it.
    fn first_pass(&self) -> Option<Pass> {
        if self.used.load(Ordering::Relaxed) {
            return None;
        }
        self.used.store(true, Ordering::Release);
        self.passes().fresh.take()
    }

    fn is_sending(&self) -> bool {
        self.is_sending.load(Ordering::Relaxed)
    }

    /// A request is turned away before its body has been read.
    pub(crate) fn turns_away(&self) {
        self.is_sending.store(true, Ordering::Relaxed);
    }

    fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }

    /// The stream of the request that is called now; 0 with HTTP/1.
    fn next_stream(&self) -> u32 {
        if self.is_http2() { self.requests.next_stream() } else { 0 }
    }

    fn saw(&self, version: http::Version) {
        if version == http::Version::HTTP_2 && !self.is_http2() {
            self.is_http2.store(true, Ordering::Relaxed);
        }
    }

    /// Whether clients are to be sent away from this connection.
    pub(crate) fn winds_down(&self) -> bool {
        self.common.now.get() >= Stage::WindingDown
    }

    /// From here on the connection speaks something else; the pass goes when it does.
    pub(crate) fn upgrade(&self, pass: Pass, is_websocket: bool) {
        self.passes().upgraded = Some(pass);
        let speaks = if is_websocket { Speaks::WebSocket } else { Speaks::Other };
        self.speaks.store(speaks as u8, Ordering::Release);
    }

    fn take_in(&self, upgraded: Arc<dyn Ushered>) {
        *self.upgraded.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgraded);
    }

    fn upgraded(&self) -> Option<Arc<dyn Ushered>> {
        self.upgraded.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    #[inline]
    fn speaks(&self) -> Speaks {
        match self.speaks.load(Ordering::Acquire) {
            speaks if speaks == Speaks::WebSocket as u8 => Speaks::WebSocket,
            speaks if speaks == Speaks::Other as u8 => Speaks::Other,
            _ => Speaks::Http,
        }
    }

    /// The end of the connection will be all that tells the client where its answer ends.
    pub(crate) fn answer_ends_by_close(&self) {
        self.ends_by_close.store(true, Ordering::Relaxed);
    }

    /// The requests that are inside the gate.
    pub(crate) fn inside(&self, now: Instant) -> Vec<Waiting> {
        self.requests.inside(now)
    }

    pub(crate) fn open_requests(&self) -> usize {
        self.requests.open()
    }

    fn has_open_answers(&self) -> bool {
        self.sent.open_answers.load(Ordering::Relaxed) > 0
    }

    /// How many bytes of answers have been written and not been acknowledged, as far as is known.
    fn unacknowledged(&self) -> Option<u64> {
        let queued = self.common.queues.unacknowledged(self.endpoints.as_ref()?)?;
        Some(queued.saturating_sub(self.sent.farewell.load(Ordering::Relaxed)))
    }

    /// How much the client has yet to acknowledge when its last answer has been written, as far as
    /// that is to be waited for.
    fn unread_at_the_end(&self) -> u64 {
        let is_little = self.sent.written.load(Ordering::Relaxed) < LITTLE;
        if is_little && !self.winds_down() {
            return 0;
        }
        self.unacknowledged().unwrap_or(0)
    }

    /// The end of the stream has been written, after so many bytes that had not been acknowledged.
    /// It belongs to no answer.
    fn said_farewell(&self, before: u64) {
        let now = self.unacknowledged().unwrap_or(before);
        self.sent.farewell.store(now.saturating_sub(before), Ordering::Relaxed);
    }

    /// Up to where the client has acknowledged what belongs to answers, and up to where it should.
    /// On a platform that does not tell, what the kernel has taken counts.
    fn heard(&self) -> (u64, u64) {
        // What is queued is read first: what is written meanwhile must not look acknowledged.
        let queued = self.unacknowledged().unwrap_or(0);
        let answered = self.sent.answered.load(Ordering::Relaxed);
        let written = self.sent.written.load(Ordering::Relaxed);
        (answered.min(written.saturating_sub(queued)), answered)
    }

    /// Whether the client has not got all of an answer whose body has ended.
    fn owes(&self) -> bool {
        if self.speaks() != Speaks::Http {
            return false;
        }
        let (heard, answered) = self.heard();
        heard < answered
            || self.has_open_answers()
            || self.sent.is_unflushed.load(Ordering::Relaxed)
    }

    /// How long the client has acknowledged nothing more, as far as somebody looked.
    fn unheard_for(&self, now: Instant) -> Duration {
        let (bytes, _) = self.heard();
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let last = heard.get_or_insert(Heard { bytes, since: now });
        if bytes > last.bytes {
            *last = Heard { bytes, since: now };
        }
        now.saturating_duration_since(last.since)
    }

    /// Whether all requests here wait for a client that has stopped reading.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        // Looked at in any case, so that the time counts from the first look.
        self.requests.are_the_clients_turn() && self.unheard_for(now) >= self.common.patience()
    }

    /// The names of answers that the client has not got all of.
    pub(crate) fn unread(&self) -> Vec<String> {
        if self.owes() { self.unread_names() } else { Vec::new() }
    }

    fn unread_names(&self) -> Vec<String> {
        let (heard, _) = self.heard();
        let mut names = self.requests.unread(heard);
        if names.is_empty() {
            names.push("an answer".into());
        }
        names
    }

    /// The connection is ended, whether or not the client has got its answer.
    pub(crate) fn give_up(&self, why: Why) {
        if self.owes() {
            self.common.cuts.add(self.unread_names(), why);
        }
    }

    /// Whether this connection needs more time, be it for an answer, or because with HTTP/2 the
    /// client has yet to agree to the end.
    fn needs_time(&self) -> bool {
        self.is_http2() || self.is_sending() || self.owes()
    }

    /// The connection is gone, and whatever it had become.
    fn gone(&self) {
        let passes = std::mem::take(&mut *self.passes());
        drop(passes); // Not under the lock.
    }
}

/// Serves a connection until it ends, following the stages of its server.
pub(crate) async fn drive<I, S>(
    io: I,
    reset: fn(&I),
    conn: Arc<Conn>,
    app: S,
    introduce: Option<Introduce>,
    configure: Configure,
    mut stages: watch::Receiver<Stage>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: App,
{
    let streams = Streams::default();
    let mut builder = Builder::new(streams.clone());
    configure(&mut builder);
    let io = TokioIo::new(Io::new(io, reset, Arc::clone(&conn)));
    let service = ConnService::new(app, Arc::clone(&conn), introduce);
    let mut http = pin!(builder.serve_connection_with_upgrades(io, service));

    let mut seen = Stage::Serving;
    let mut was_told = false;
    let last = loop {
        let before = seen;
        // Polled each time, though that takes a lock: whoever skips it when the stage has not moved
        // loses the place in the queue to a wake-up that came late.
        let mut next = pin!(stages.wait_for(|stage| *stage > before));
        let stage = std::future::poll_fn(|cx| {
            if let Poll::Ready(ended) = http.as_mut().poll(cx) {
                if let Err(error) = ended {
                    adieu_core::adapter::log_aside(tracing::Level::DEBUG, || {
                        let error = adieu_core::adapter::error_text(&*error);
                        move || tracing::debug!(error, "connection ended")
                    });
                }
                return Poll::Ready(None);
            }
            // GOAWAY loses nothing, so it can be said as soon as it is known to be understood.
            // HTTP/1 has no such word: there, closing an idle connection may meet a request that
            // is on its way.
            if !was_told && conn.is_http2() && conn.winds_down() {
                was_told = true;
                http.as_mut().graceful_shutdown();
                cx.waker().wake_by_ref();
            }
            // If its sender is gone, so is the server.
            next.as_mut().poll(cx).map(|stage| Some(stage.map_or(Stage::Dropping, |now| *now)))
        })
        .await;
        match stage {
            None | Some(Stage::Dropping | Stage::Parting) => break stage,
            Some(stage) => seen = stage,
        }
    };
    if last == Some(Stage::Parting) {
        http.as_mut().graceful_shutdown();
        part(http, &conn, stages).await;
    }
    streams.end();
    if let Some(upgraded) = conn.upgraded() {
        usher(upgraded, &conn).await;
    }
}

/// Sends what is left to send, for as long as the client acknowledges some of it.
async fn part(mut http: Pin<&mut impl Future>, conn: &Conn, mut stages: watch::Receiver<Stage>) {
    let mut pause = GLANCE;
    loop {
        tokio::select! {
            biased;
            _ = http.as_mut() => return,
            // Who is dropped has been noted by the server.
            _ = stages.wait_for(|stage| *stage == Stage::Dropping) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let unheard_for = conn.unheard_for(Instant::now());
        let patience = if conn.needs_time() { conn.common.patience() } else { Duration::ZERO };
        if unheard_for >= patience {
            conn.give_up(Why::StoppedReading);
            return;
        }
        pause = LOOK.min(pause * 2);
    }
}
