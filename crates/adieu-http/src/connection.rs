//! One connection: what is known of it, and how it is driven to its end.

mod calling;
mod frames;
mod io;
mod service;
mod streams;
mod upgraded;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use adieu_core::Pass;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use service::Introduce;
pub(crate) use streams::Streams;

use io::Io;
use service::ConnService;
use upgraded::{Ushered, usher};

use crate::layer::Door;
use crate::probes::Probes;
use crate::serve::{App, Configure, Now, Stage};

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) door: Door,
    pub(crate) now: Now,
    pub(crate) probes: Option<Probes>,
    /// How long a client may take to say goodbye, or to read a little more of its answer.
    pub(crate) goodbye: Duration,
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
    /// How many bytes have been written, and whether some of them are still on their way to the
    /// kernel. Only the connection itself writes these.
    written: AtomicU64,
    is_unflushed: AtomicBool,
    /// A request was turned away: the client may still be sending its body.
    is_sending: AtomicBool,
    passes: Mutex<Passes>,
    /// What the connection was upgraded to, for its usher.
    upgraded: Mutex<Option<Arc<dyn Ushered>>>,
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

/// How long a connection that has nothing more to say may take to notice that.
const GLANCE: Duration = Duration::from_millis(10);

// === impl Conn ===

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conn").field("speaks", &self.speaks()).finish_non_exhaustive()
    }
}

impl Conn {
    pub(crate) fn new(common: Arc<Common>, born: Instant) -> Arc<Self> {
        Arc::new(Self {
            common,
            born,
            used: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            speaks: AtomicU8::new(Speaks::Http as u8),
            written: AtomicU64::new(0),
            is_unflushed: AtomicBool::new(false),
            is_sending: AtomicBool::new(false),
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

    fn saw(&self, version: http::Version) {
        if version == http::Version::HTTP_2 && !self.is_http2.load(Ordering::Relaxed) {
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

    fn wrote(&self, bytes: usize) {
        let written = self.written.load(Ordering::Relaxed);
        self.written.store(written.wrapping_add(bytes as u64), Ordering::Relaxed);
    }

    /// Something is to be written.
    fn writes(&self) {
        self.is_unflushed.store(true, Ordering::Relaxed);
    }

    fn flushed(&self) {
        self.is_unflushed.store(false, Ordering::Relaxed);
    }

    /// Whether the client may still be reading an answer. With HTTP/2 that cannot be known.
    fn may_have_more_to_say(&self) -> bool {
        let (is_http2, is_unflushed) = (&self.is_http2, &self.is_unflushed);
        is_http2.load(Ordering::Relaxed) || is_unflushed.load(Ordering::Relaxed)
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
    let io = TokioIo::new(Io::new(io, Arc::clone(&conn)));
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
                    adieu_core::log_aside(tracing::Level::DEBUG, || {
                        let error = adieu_core::error_text(&*error);
                        move || tracing::debug!(error, "connection ended")
                    });
                }
                return Poll::Ready(None);
            }
            // GOAWAY loses nothing, so it can be said as soon as it is known to be understood.
            // HTTP/1 has no such word: there, closing an idle connection may meet a request that
            // is on its way.
            if !was_told && conn.is_http2.load(Ordering::Relaxed) && conn.winds_down() {
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

/// Says what is left to say, for as long as it is being heard.
async fn part(mut http: Pin<&mut impl Future>, conn: &Conn, mut stages: watch::Receiver<Stage>) {
    loop {
        let written = conn.written.load(Ordering::Relaxed);
        let patience = if conn.may_have_more_to_say() { conn.common.goodbye } else { GLANCE };
        tokio::select! {
            biased;
            _ = http.as_mut() => return,
            _ = stages.wait_for(|stage| *stage == Stage::Dropping) => return,
            () = tokio::time::sleep(patience) => {}
        }
        if written == conn.written.load(Ordering::Relaxed) {
            return;
        }
    }
}
