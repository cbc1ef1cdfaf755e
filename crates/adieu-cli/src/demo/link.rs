//! A connection of the load generator to a replica, kept between requests.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use adieu_core::adapter::error_text;

/// A connection to a replica.
#[derive(Debug)]
pub(super) struct Link {
    to: SocketAddr,
    requests: SendRequest<Empty<Bytes>>,
    /// The task of the connection, which ends with the link.
    _connection: JoinSet<()>,
}

/// Why a request has no answer, in a few words.
pub(super) type Cause = String;

// === impl Link ===

impl Link {
    pub(super) async fn open(to: SocketAddr) -> Result<Self, Cause> {
        let stream = TcpStream::connect(to).await.map_err(|error| format!("connect: {error}"))?;
        let _ = stream.set_nodelay(true);
        let (requests, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| error_text(&error))?;
        let mut connection_task = JoinSet::new();
        connection_task.spawn(async {
            // The request that waits for an answer gets the error.
            let _ = connection.await;
        });
        Ok(Self { to, requests, _connection: connection_task })
    }

    /// Sends a request, and returns the head of the answer.
    pub(super) async fn send(
        &mut self,
        how: Method,
        path: &str,
    ) -> Result<Response<Incoming>, Cause> {
        let request = Request::builder().method(how).uri(path).header("host", self.to.to_string());
        let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
        self.requests.send_request(request).await.map_err(|error| error_text(&error))
    }

    /// Sends a request, and reads the answer to its end.
    pub(super) async fn get(
        &mut self,
        how: Method,
        path: &str,
    ) -> Result<(StatusCode, Bytes), Cause> {
        let (head, body) = self.send(how, path).await?.into_parts();
        let body = body.collect().await.map_err(|error| error_text(&error))?;
        Ok((head.status, body.to_bytes()))
    }

    /// Waits until it is known whether the connection can be used again, and returns that.
    pub(super) async fn stays_open(&mut self) -> bool {
        self.requests.ready().await.is_ok()
    }

    /// Returns whether the replica has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }
}

/// Requests one page over a new connection, for a limited time.
pub(super) async fn fetch(
    at: SocketAddr,
    path: &str,
    within: Duration,
) -> Result<(StatusCode, Bytes), Cause> {
    let fetched = async { Link::open(at).await?.get(Method::GET, path).await };
    tokio::time::timeout(within, fetched).await.unwrap_or_else(|_| Err("no answer in time".into()))
}
