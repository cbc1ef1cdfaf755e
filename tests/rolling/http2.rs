//! HTTP/2 clients that have the addresses of all replicas and send requests to one that is ready.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Seen;

/// A load that runs until it is stopped.
pub(crate) struct Load {
    stop: tokio::sync::watch::Sender<bool>,
    clients: JoinSet<Seen>,
    requests: Arc<AtomicU64>,
}

/// The body of a request.
type Nothing = String;

impl Load {
    pub(crate) fn start(replicas: Vec<SocketAddr>, clients: usize) -> Self {
        let stop = tokio::sync::watch::Sender::new(false);
        let replicas = Arc::new(replicas);
        let requests = Arc::new(AtomicU64::new(0));
        let start = |at| client(Arc::clone(&replicas), at, stop.subscribe(), Arc::clone(&requests));
        let clients = (0..clients).map(start).collect();
        Self { stop, clients, requests }
    }

    /// Returns how many requests have been answered so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) async fn stop(self) -> Seen {
        self.stop.send_replace(true);
        let mut all = Seen { requests: 0, failed: 0, output: String::new() };
        for seen in self.clients.join_all().await {
            all.requests += seen.requests;
            all.failed += seen.failed;
            all.output += &seen.output;
        }
        all
    }
}

/// Sends several requests at a time on one connection, until the server asks to reconnect.
async fn client(
    replicas: Arc<Vec<SocketAddr>>,
    mut at: usize,
    stop: tokio::sync::watch::Receiver<bool>,
    answered: Arc<AtomicU64>,
) -> Seen {
    let mut seen = Seen { requests: 0, failed: 0, output: String::new() };
    while !*stop.borrow() {
        at = (at + 1) % replicas.len();
        let Some((mut requests, mut connection)) = connect(replicas[at]).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < 8 && !*stop.borrow() {
                // Not ready means that GOAWAY was received. No request has been sent.
                if requests.ready().await.is_err() {
                    break;
                }
                asked.spawn(page(requests.clone(), replicas[at]));
            }
            match asked.join_next().await {
                None => break,
                Some(Ok(Ok(was_sent))) => {
                    seen.requests += u64::from(was_sent);
                    answered.fetch_add(u64::from(was_sent), Ordering::Relaxed);
                }
                Some(Ok(Err(error))) => {
                    seen.requests += 1;
                    seen.failed += 1;
                    seen.output += &format!("{error}\n");
                }
                Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
        seen.output += &format!("left {}\n", replicas[at]);
        connection.abort_all();
        while connection.join_next().await.is_some() {}
    }
    seen
}

/// Connects to a replica, if it is ready.
async fn connect(addr: SocketAddr) -> Option<(SendRequest<Nothing>, JoinSet<()>)> {
    let stream = TcpStream::connect(addr).await.ok()?;
    let (mut requests, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async {
        let _ = connection.await;
    });
    let ready = http::Request::get(format!("http://{addr}/readyz")).body(Nothing::new()).ok()?;
    let ready = requests.send_request(ready).await.is_ok_and(|answer| answer.status().is_success());
    ready.then_some((requests, tasks))
}

async fn page(mut requests: SendRequest<Nothing>, addr: SocketAddr) -> Result<bool, String> {
    let request = http::Request::get(format!("http://{addr}/")).body(Nothing::new());
    match requests.try_send_request(request.map_err(|error| error.to_string())?).await {
        Ok(answer) => {
            let status = answer.status();
            let body =
                answer.into_body().collect().await.map_err(|error| format!("body: {error}"))?;
            let body: Bytes = body.to_bytes();
            if status == 200 && body == "welcome" {
                Ok(true)
            } else {
                Err(format!("{status} {body:?}"))
            }
        }
        Err(mut error) => match was_never_sent(&mut error) {
            true => Ok(false),
            false => Err(format!("{addr}: {:?}", error.into_error())),
        },
    }
}

/// Returns whether the request can be sent to another replica, because this one has not seen it.
///
/// hyper returns a request that was still queued. If GOAWAY arrived while it was being sent, only the
/// error shows that. Requests that GOAWAY does not cover were not processed (RFC 9113, 6.8).
fn was_never_sent(error: &mut TrySendError<http::Request<Nothing>>) -> bool {
    let source = std::error::Error::source(error.error());
    let h2 = source.and_then(|source| source.downcast_ref::<h2::Error>());
    let has_goaway = h2.is_some_and(|error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
    });
    has_goaway || error.take_message().is_some()
}
