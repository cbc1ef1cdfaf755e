//! HTTP/2 and gRPC under a link.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioIo, TokioTimer};
use tonic::body::Body;
use tonic_prost::ProstCodec;

use super::frame::{Backward, Forward};
use super::limits::Limits;
use super::together::Executor;

/// The path of the one method that nodes call.
pub(super) const PATH: &str = "/adieu.cluster.Links/Link";

/// The encoding on the side that dials.
pub(super) type DiallingCodec = ProstCodec<Forward, Backward>;
/// The encoding on the side that is dialled.
pub(super) type AcceptingCodec = ProstCodec<Backward, Forward>;

/// The number of unread bytes of a link that HTTP/2 permits in transit.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;
const LONGEST_FRAME: u32 = 64 * 1024;

/// Calls the peer.
pub(super) struct Calls(pub(super) SendRequest<Body>);

impl tower_service::Service<Request<Body>> for Calls {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future =
        Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send + 'static>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

pub(super) fn client(
    executor: Executor,
    limits: &Limits,
) -> hyper::client::conn::http2::Builder<Executor> {
    let mut builder = hyper::client::conn::http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(LONGEST_FRAME)
        .keep_alive_interval(limits.probe)
        .keep_alive_timeout(limits.probe);
    builder
}

pub(super) fn server(
    executor: Executor,
    limits: &Limits,
) -> hyper::server::conn::http2::Builder<Executor> {
    let mut builder = hyper::server::conn::http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(LONGEST_FRAME)
        .max_concurrent_streams(16)
        .keep_alive_interval(limits.probe)
        .keep_alive_timeout(limits.probe);
    builder
}

/// A connection, encrypted or not.
pub(super) trait Connection:
    tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static
{
}

impl<T> Connection for T where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static
{
}

pub(super) type Io = TokioIo<Box<dyn Connection>>;

/// Returns an error with its causes, in one line.
pub(super) fn text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
