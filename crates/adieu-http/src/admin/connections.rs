//! The connections of the admin port, with limits so that none can delay the others.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::Answers;
use crate::full_body::FullBody;
use crate::spare_fd::{SpareFd, is_exhausted};

/// The limit on connections. Beyond it the oldest is closed, so that a client that only holds
/// connections open cannot keep a probe out.
const MAX_CONNECTIONS: usize = 256;

/// How long the head of a request, and a whole connection, may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// The limit on the head of a request.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// How long open requests are answered when the port is closed: the last response is the one that
/// reports the outcome of the shutdown.
const LAST_ANSWERS: Duration = Duration::from_millis(200);

/// How long accepting pauses after an error.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the admin port until `close` fires.
pub(super) async fn serve(
    listener: std::net::TcpListener,
    answers: Arc<Answers>,
    close: CancellationToken,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            adieu_core::adapter::log_aside(
                tracing::Level::ERROR,
                || move || tracing::error!(%error, "failed to listen on the admin port"),
            );
            return;
        }
    };
    let mut connections = JoinSet::new();
    let mut oldest = VecDeque::new();
    let mut spare = SpareFd::new();
    let mut accept_after = Instant::now();
    loop {
        tokio::select! {
            () = close.cancelled() => break,
            // Refilled at once, before another thread takes the descriptor that has become free.
            Some(_) = connections.join_next() => {
                spare.refill();
            }
            accepted = accept(&listener, &mut spare, accept_after) => match accepted {
                Ok((stream, from)) => {
                    make_room(&connections, &mut oldest);
                    let (answers, close) = (Arc::clone(&answers), close.clone());
                    let connection = connection(stream, from, answers, close);
                    oldest.push_back(connections.spawn(connection));
                }
                Err(_) => {
                    spare.refill();
                    accept_after = Instant::now() + ACCEPT_PAUSE;
                }
            },
        }
    }
    drop(listener);
    let answered = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
    connections.shutdown().await;
}

/// Accepts a connection, with the descriptor in reserve if there is no other: operators need the
/// status of a process that has used up its file descriptors.
async fn accept(
    listener: &TcpListener,
    spare: &mut SpareFd,
    accept_after: Instant,
) -> std::io::Result<(TcpStream, SocketAddr)> {
    tokio::time::sleep_until(accept_after).await;
    loop {
        let error = match listener.accept().await {
            Err(error) if is_exhausted(&error) => error,
            accepted => return accepted,
        };
        let exchanged =
            std::future::poll_fn(|cx| Poll::Ready(spare.exchange(|| listener.poll_accept(cx))));
        match exchanged.await {
            None => return Err(error),
            Some(Poll::Ready(accepted)) => return accepted,
            // The kernel allocates a descriptor before it looks into the queue, which may be empty.
            Some(Poll::Pending) => {}
        }
    }
}

fn make_room(connections: &JoinSet<()>, oldest: &mut VecDeque<AbortHandle>) {
    if oldest.len() > 2 * MAX_CONNECTIONS {
        oldest.retain(|connection| !connection.is_finished());
    }
    if connections.len() < MAX_CONNECTIONS {
        return;
    }
    while let Some(connection) = oldest.pop_front() {
        if !connection.is_finished() {
            connection.abort();
            return;
        }
    }
}

async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    answers: Arc<Answers>,
    close: CancellationToken,
) {
    let has_had_request = AtomicBool::new(false);
    let service = service_fn(|request| {
        has_had_request.store(true, Ordering::Relaxed);
        let answering = Arc::clone(&answers).answer(request, from);
        async { Ok::<Response<FullBody>, Infallible>(answering.await.map(FullBody::from)) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD_BYTES);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let connection = async {
        tokio::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = close.cancelled() => {}
        }
        // A connection without a request is closed at once.
        if has_had_request.load(Ordering::Relaxed) {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    };
    // Errors concern this client only, and hyper has answered it.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}
