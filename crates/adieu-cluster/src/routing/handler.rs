//! Runs the requests that other nodes have forwarded.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Mutex;

use adieu_core::adapter::lock;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower_service::Service;

use super::BoxError;
use super::body::RoutedBody;
use super::owned::OwnedKey;
use super::wire::{Whole, decode_request, encode_problem, encode_response};
use crate::entity::{Inside, Requests};

/// An application of this node.
pub(super) struct Handles<S> {
    // Services need not be `Sync`. It is locked to clone it.
    app: Mutex<S>,
    body_limit: usize,
}

/// Why a body could not be read as a whole.
pub(super) enum Unread {
    TooLong,
    Failed(BoxError),
}

// === impl Handles ===

impl<S> Handles<S> {
    pub(super) fn new(app: S, body_limit: usize) -> Self {
        Self { app: Mutex::new(app), body_limit }
    }
}

impl<S, B> Requests for Handles<S>
where
    S: Service<Request<RoutedBody>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    fn run(&self, request: Bytes, inside: &Inside) -> Pin<Box<dyn Future<Output = Bytes> + Send>> {
        let app = lock(&self.app).clone();
        let (owned, limit) = (OwnedKey::of(inside), self.body_limit);
        Box::pin(async move {
            let mut request = match decode_request(request) {
                Ok(request) => request,
                Err(why) => {
                    let problem = format!("its owner cannot decode it: {why}");
                    return encode_problem(problem, false);
                }
            };
            request.extensions_mut().insert(owned);
            let (head, body) = call(app, request).await.into_parts();
            match read(body, limit).await {
                Ok(body) => encode_response(head, body),
                Err(Unread::TooLong) => {
                    let problem = format!(
                        "its response has more than {limit} bytes, which is the most that is \
                         forwarded from its owner"
                    );
                    encode_problem(problem, true)
                }
                Err(Unread::Failed(error)) => {
                    encode_problem(format!("its response failed: {error}"), true)
                }
            }
        })
    }
}

/// Calls a service when it is ready.
pub(super) async fn call<S, B>(mut app: S, request: Request<RoutedBody>) -> Response<B>
where
    S: Service<Request<RoutedBody>, Response = Response<B>, Error = Infallible>,
{
    let Ok(()) = poll_fn(|cx| app.poll_ready(cx)).await;
    let Ok(response) = app.call(request).await;
    response
}

/// Reads a body that has at most this many bytes.
pub(super) async fn read<B>(body: B, limit: usize) -> Result<Whole, Unread>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let collected = Limited::new(body, limit).collect().await.map_err(|error| {
        match error.is::<LengthLimitError>() {
            true => Unread::TooLong,
            false => Unread::Failed(error),
        }
    })?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    Ok(Whole { bytes: collected.to_bytes(), trailers })
}
