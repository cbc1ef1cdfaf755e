//! Runs a request on this node if it owns the key, and forwards it otherwise.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Request, Response, StatusCode, request};
use http_body::Body;
use tower_service::Service;

use super::BoxError;
use super::body::RoutedBody;
use super::handler::{Unread, call, read};
use super::key::RequestKey;
use super::outcome::{of_error, of_owner, response, stopped};
use super::owned::OwnedKey;
use super::wire::{LongHead, decode_response, encode_request};
use crate::entity::{Inside, Stopped};
use crate::message::Unknown;
use crate::regions::Routing;
use crate::time::{Duration, deadline, sleep_until};

/// An application whose requests run on the nodes that own their keys. Created by
/// [`KeyRoute`](super::KeyRoute).
#[derive(Clone)]
pub struct Routed<S> {
    app: S,
    route: Arc<Route>,
}

/// How requests are routed.
pub(super) struct Route {
    pub(super) region: Arc<dyn Routing>,
    pub(super) key: Arc<dyn RequestKey>,
    pub(super) within: Duration,
    pub(super) body_limit: usize,
}

// === impl Routed ===

impl<S> Routed<S> {
    pub(super) fn new(app: S, route: Arc<Route>) -> Self {
        Self { app, route }
    }
}

impl<S, A, B> Service<Request<A>> for Routed<S>
where
    S: Service<Request<RoutedBody>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    A: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<RoutedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A request may go to another node, whether the application here is ready or not.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (app, route) = (self.app.clone(), Arc::clone(&self.route));
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Some(key) = route.key.key(&head) else {
                let request = Request::from_parts(head, RoutedBody::streamed(body));
                return Ok(call(app, request).await.map(RoutedBody::streamed));
            };
            Ok(match route.region.enter(&key) {
                Some(inside) => {
                    let ran = run_here(app, head, RoutedBody::streamed(body), inside).await;
                    let outcome = ran.as_ref().map(drop);
                    let unknown = |_: &Stopped| Unknown::Ended(Stopped::TEXT.to_owned());
                    route.region.count(outcome.map_err(unknown));
                    ran.unwrap_or_else(|Stopped| stopped(Stopped::TEXT))
                }
                None => route.forward(&key, head, body).await,
            })
        })
    }
}

impl<S> fmt::Debug for Routed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routed").field("route", &self.route).finish_non_exhaustive()
    }
}

/// Runs a request on this node. Its response body holds the shard.
async fn run_here<S, B>(
    app: S,
    head: request::Parts,
    body: RoutedBody,
    inside: Inside,
) -> Result<Response<RoutedBody>, Stopped>
where
    S: Service<Request<RoutedBody>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let mut request = Request::from_parts(head, body);
    request.extensions_mut().insert(OwnedKey::of(&inside));
    let response = inside.run(call(app, request)).await?;
    Ok(response.map(|body| RoutedBody::streamed(body).hold(inside)))
}

// === impl Route ===

impl Route {
    /// Sends a request to the node that owns its key, and waits for the response.
    async fn forward<A>(&self, key: &str, head: request::Parts, body: A) -> Response<RoutedBody>
    where
        A: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let deadline = deadline(self.within);
        if head.headers.contains_key(UPGRADE) {
            let text = "a request that upgrades its connection cannot be forwarded to the node that \
                        owns its key";
            return response(StatusCode::NOT_IMPLEMENTED, "not-forwarded", text);
        }
        let limit = self.body_limit;
        let is_too_long = body.size_hint().lower() > limit as u64;
        let read = async move {
            match is_too_long {
                true => Err(Unread::TooLong),
                false => read(body, limit).await,
            }
        };
        let body = tokio::select! {
            biased;
            body = read => body,
            () = sleep_until(deadline) => {
                let text = format!("the body did not arrive within {:?}", self.within);
                return response(StatusCode::REQUEST_TIMEOUT, "slow-body", &text);
            }
        };
        let body = match body {
            Ok(body) => body,
            Err(Unread::TooLong) => {
                let text = format!(
                    "the body has more than {limit} bytes, which is the most that is forwarded to \
                     the node that owns its key"
                );
                return response(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", &text);
            }
            Err(Unread::Failed(error)) => {
                let text = format!("the body could not be read: {error}");
                return response(StatusCode::BAD_REQUEST, "bad-body", &text);
            }
        };
        let Ok(request) = encode_request(head, body).map_err(|LongHead| ()) else {
            let text = "the head is too long to be forwarded to the node that owns its key";
            return response(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head-too-large", text);
        };
        match self.region.forward(key, request, deadline).await {
            Ok(bytes) => decode_response(bytes).unwrap_or_else(of_owner),
            Err(error) => of_error(error),
        }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("within", &self.within)
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}
