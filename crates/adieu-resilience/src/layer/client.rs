//! The layer for clients: any tower service whose requests and responses are HTTP.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::meaning;
use crate::call::{Attempt, Repeats};
use crate::classify::Class;
use crate::policy::Policy;
use crate::refused::CallError;

/// A request that a client can send more than once.
pub trait ClientRequest: Sized {
    /// Returns a copy, unless its body cannot be repeated.
    fn try_clone(&self) -> Option<Self>;

    /// Returns whether it does no harm if the server processes it twice.
    fn is_idempotent(&self) -> bool;
}

/// A response from which the health of the server is judged.
pub trait ClientResponse {
    /// Returns what the response means for the server's health and for a repetition.
    fn class(&self) -> Class;
}

/// A tower layer that sends the requests of a client through a [`Policy`]; see [`Policy::client`].
///
/// A request is repeated if its method is idempotent, or if the server has provably not processed it; and
/// only if its body can be repeated.
#[derive(Clone, Debug)]
pub struct ClientLayer {
    policy: Policy,
}

/// The service that [`ClientLayer`] makes.
#[derive(Clone)]
pub struct Client<S> {
    inner: S,
    policy: Policy,
}

// === impl Policy ===

impl Policy {
    /// Returns the policy as a layer for a client.
    ///
    /// The future that the service returns ends with the head of the response; the body is read outside
    /// of the policy.
    #[must_use]
    pub fn client(&self) -> ClientLayer {
        ClientLayer { policy: self.clone() }
    }
}

// === impl ClientLayer ===

impl<S> Layer<S> for ClientLayer {
    type Service = Client<S>;

    fn layer(&self, inner: S) -> Client<S> {
        Client { inner, policy: self.policy.clone() }
    }
}

// === impl Client ===

impl<S, R> Service<R> for Client<S>
where
    R: ClientRequest + Send + 'static,
    S: Service<R, Response: ClientResponse + Send> + Clone + Send + 'static,
    S::Error: Error + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = CallError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(CallError::Failed)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let service = self.inner.clone();
        // The one that was polled until it was ready makes the first attempt.
        let mut ready = Some(std::mem::replace(&mut self.inner, service.clone()));
        let policy = self.policy.clone();
        let copy = if policy.has_retries() { request.try_clone() } else { None };
        let repeats = match &copy {
            None => Repeats::Never,
            Some(request) if request.is_idempotent() => Repeats::IfIdempotent,
            Some(_) => Repeats::IfUnprocessed,
        };
        let mut first = Some(request);
        Box::pin(async move {
            let class = |result: &Result<S::Response, S::Error>| match result {
                Ok(response) => response.class(),
                Err(error) => meaning::of_error(error),
            };
            let caller = policy.caller().repeats(repeats).classify(class);
            let call = caller.call(move |_: Attempt| {
                let again = || copy.as_ref().and_then(R::try_clone);
                let request = first.take().or_else(again);
                let ready = ready.take();
                let service = service.clone();
                async move {
                    let request = request.expect("a request that was copied can be copied again");
                    match ready {
                        Some(mut ready) => ready.call(request).await,
                        None => send(service, request).await,
                    }
                }
            });
            call.await
        })
    }
}

async fn send<S: Service<R>, R>(mut service: S, request: R) -> Result<S::Response, S::Error> {
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}

impl<S> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("policy", &self.policy.name()).finish_non_exhaustive()
    }
}

// === impl for http ===

impl<B: Clone> ClientRequest for Request<B> {
    fn try_clone(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn is_idempotent(&self) -> bool {
        self.method().is_idempotent()
    }
}

impl<B> ClientResponse for Response<B> {
    fn class(&self) -> Class {
        meaning::of_response(self.status(), self.headers())
    }
}
