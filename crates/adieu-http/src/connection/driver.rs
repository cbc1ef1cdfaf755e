//! Serves one connection to its end, following the stages of its server.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;

use super::io::Io;
use super::service::{AddPeer, ConnService};
use super::upgraded::drain_upgraded;
use super::{Conn, Streams};
use crate::app::App;
use crate::stage::Stage;

/// Sets up hyper for each connection.
pub(crate) type Configure = Arc<dyn Fn(&mut Builder<Streams>) + Send + Sync>;

/// How often a connection that sends its last responses is checked, at first and later.
const FIRST_CHECK: Duration = Duration::from_millis(10);
const CHECK: Duration = Duration::from_millis(100);

/// How long an HTTP/2 client without an open request may take to acknowledge GOAWAY. A process that was
/// stopped never does, although its kernel acknowledges every byte.
const GOODBYE: Duration = Duration::from_secs(2);

/// Serves a connection until it ends.
///
/// `reset` decides whether the kernel ends the connection with a reset; see
/// [`Listener::reset_on_drop`](crate::Listener::reset_on_drop).
pub(crate) async fn drive<I, S>(
    io: I,
    reset: fn(&I, bool),
    conn: Arc<Conn>,
    app: S,
    add_peer: Option<AddPeer>,
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
    let service = ConnService::new(app, Arc::clone(&conn), add_peer);
    let mut http = pin!(builder.serve_connection_with_upgrades(io, service));

    let mut seen = Stage::Serving;
    let mut has_sent_goaway = false;
    let last = loop {
        let before = seen;
        // Polls the watch channel every time, although that takes a lock. If the poll were skipped,
        // a notification that is already on its way could consume this waiter's place in the queue,
        // and the next change would not wake this task.
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
            // GOAWAY loses no request, so it is sent as soon as the client is known to speak HTTP/2.
            // HTTP/1 has no equivalent: closing an idle connection can race with a request that is
            // already on its way.
            if !has_sent_goaway && conn.is_http2() && conn.is_winding_down() {
                has_sent_goaway = true;
                http.as_mut().graceful_shutdown();
                cx.waker().wake_by_ref();
            }
            // The channel closes when the server has been dropped.
            next.as_mut().poll(cx).map(|stage| Some(stage.map_or(Stage::Dropping, |now| *now)))
        })
        .await;
        match stage {
            None | Some(Stage::Dropping | Stage::Flushing) => break stage,
            Some(stage) => seen = stage,
        }
    };
    if last == Some(Stage::Flushing) {
        http.as_mut().graceful_shutdown();
        flush(http, &conn, stages).await;
    }
    streams.abort();
    if let Some(upgraded) = conn.take_upgraded() {
        drain_upgraded(upgraded, &conn).await;
    }
}

/// Sends the rest of the responses until they are acknowledged, or until the server gives up the
/// client.
async fn flush(mut http: Pin<&mut impl Future>, conn: &Conn, mut stages: watch::Receiver<Stage>) {
    let mut pause = FIRST_CHECK;
    let mut idle_since = None;
    loop {
        tokio::select! {
            biased;
            _ = http.as_mut() => return,
            // The server has reported the responses that are cut by this.
            _ = stages.wait_for(|stage| *stage == Stage::Dropping) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let now = Instant::now();
        if conn.needs_time() {
            idle_since = None;
        } else if !conn.is_http2() || now.duration_since(*idle_since.get_or_insert(now)) >= GOODBYE
        {
            return;
        } else {
            pause = CHECK.min(pause * 2);
            continue;
        }
        if let Some(reason) = conn.given_up(now) {
            conn.report_cut(reason);
            return;
        }
        pause = CHECK.min(pause * 2);
    }
}
