//! The connections of the admin port: few, short, and none can hold up the others.

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

/// When there are more, the oldest has to go: somebody who only holds connections open must not
/// keep a probe out.
const MOST: usize = 256;

/// How long a request's head may take, and a whole connection.
const HEAD: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(60);

/// The longest head.
const LONGEST_HEAD: usize = 16 * 1024;

/// How long those who are being answered have when the port is closed: the last answer is the one
/// that says how it ended.
const LAST_ANSWERS: Duration = Duration::from_millis(200);

/// How long accepting rests after an error.
const REST: Duration = Duration::from_millis(100);

/// Answers until `close` fires.
pub(super) async fn serve(
    listener: std::net::TcpListener,
    answers: Arc<Answers>,
    close: CancellationToken,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            adieu_core::log_aside(
                tracing::Level::ERROR,
                || move || tracing::error!(%error, "failed to listen on the admin port"),
            );
            return;
        }
    };
    let mut connections = JoinSet::new();
    let mut oldest = VecDeque::new();
    let mut spare = SpareFd::new();
    let mut rests_until = Instant::now();
    loop {
        tokio::select! {
            () = close.cancelled() => break,
            // At once, or somebody else would take the descriptor that has become free.
            Some(_) = connections.join_next() => {
                spare.refill();
            }
            accepted = accept(&listener, &mut spare, rests_until) => match accepted {
                Ok((stream, from)) => {
                    make_room(&connections, &mut oldest);
                    let (answers, close) = (Arc::clone(&answers), close.clone());
                    let connection = connection(stream, from, answers, close);
                    oldest.push_back(connections.spawn(connection));
                }
                Err(_) => {
                    spare.refill();
                    rests_until = Instant::now() + REST;
                }
            },
        }
    }
    drop(listener);
    let answered = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
    connections.shutdown().await;
}

/// Accepts a connection, on the descriptor in reserve if there is no other: a process that has used
/// up its descriptors is one that an operator asks about.
async fn accept(
    listener: &TcpListener,
    spare: &mut SpareFd,
    rests_until: Instant,
) -> std::io::Result<(TcpStream, SocketAddr)> {
    tokio::time::sleep_until(rests_until).await;
    loop {
        match listener.accept().await {
            Err(error) if is_exhausted(&error) && spare.release() => {}
            accepted => return accepted,
        }
        // The kernel takes a descriptor before it looks into the queue, which may be empty. Then the
        // descriptor goes back into the reserve at once, or somebody else would take it.
        let again = std::future::poll_fn(|cx| Poll::Ready(listener.poll_accept(cx))).await;
        match again {
            Poll::Ready(accepted) => return accepted,
            Poll::Pending => {
                spare.refill();
            }
        }
    }
}

fn make_room(connections: &JoinSet<()>, oldest: &mut VecDeque<AbortHandle>) {
    if oldest.len() > 2 * MOST {
        oldest.retain(|connection| !connection.is_finished());
    }
    if connections.len() < MOST {
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
    let asked = AtomicBool::new(false);
    let service = service_fn(|request| {
        asked.store(true, Ordering::Relaxed);
        let answering = Arc::clone(&answers).answer(request, from);
        async { Ok::<Response<FullBody>, Infallible>(answering.await.map(FullBody::from)) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LONGEST_HEAD);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let connection = async {
        tokio::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = close.cancelled() => {}
        }
        // Who has not asked anything is waited for by nobody.
        if asked.load(Ordering::Relaxed) {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    };
    // What goes wrong here is the client's, and said to it.
    let _ = tokio::time::timeout(WHOLE, connection).await;
}
