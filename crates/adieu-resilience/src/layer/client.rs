//! The layer for clients: any tower service whose requests and responses are HTTP.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use adieu_core::Deadline;
use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::meaning;
use super::options::Options;
use crate::bulkhead::Criticality;
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
///
/// `R` is the type of the requests.
pub struct ClientLayer<R> {
    policy: Policy,
    options: Options<R>,
}

/// The service that [`ClientLayer`] makes.
pub struct Client<S, R> {
    inner: S,
    policy: Policy,
    options: Options<R>,
}

// === impl Policy ===

impl Policy {
    /// Returns the policy as a layer for a client.
    ///
    /// The future that the service returns ends with the head of the response; the body is read outside
    /// of the policy.
    ///
    /// ```
    /// # use adieu_core::Shutdown;
    /// # use adieu_resilience::{Breaker, Policy};
    /// # let shutdown = Shutdown::new();
    /// # let policy = Policy::new("shards").breaker(Breaker::at(0.5)).start(&shutdown)?;
    /// // Each host has a breaker of its own.
    /// let layer = policy
    ///     .client()
    ///     .key(|request: &http::Request<String>| Some(request.uri().host()?.to_owned()));
    /// # let _ = layer;
    /// # Ok::<_, adieu_resilience::PolicyError>(())
    /// ```
    #[must_use]
    pub fn client<R>(&self) -> ClientLayer<R> {
        ClientLayer { policy: self.clone(), options: Options::default() }
    }
}

// === impl ClientLayer ===

impl<R> ClientLayer<R> {
    /// Uses the state of the key that this function returns; see [`Caller::key`](crate::Caller::key).
    #[must_use]
    pub fn key(mut self, key: impl Fn(&R) -> Option<String> + Send + Sync + 'static) -> Self {
        self.options.key = Some(Arc::new(key));
        self
    }

    /// Gives each request the criticality that this function returns; see
    /// [`Caller::criticality`](crate::Caller::criticality).
    #[must_use]
    pub fn criticality(
        mut self,
        criticality: impl Fn(&R) -> Criticality + Send + Sync + 'static,
    ) -> Self {
        self.options.criticality = Some(Arc::new(criticality));
        self
    }

    /// Ends each request by the deadline that this function returns; see
    /// [`Caller::by`](crate::Caller::by).
    #[must_use]
    pub fn by(mut self, by: impl Fn(&R) -> Option<Deadline> + Send + Sync + 'static) -> Self {
        self.options.by = Some(Arc::new(by));
        self
    }
}

impl<S, R> Layer<S> for ClientLayer<R> {
    type Service = Client<S, R>;

    fn layer(&self, inner: S) -> Client<S, R> {
        Client { inner, policy: self.policy.clone(), options: self.options.clone() }
    }
}

impl<R> Clone for ClientLayer<R> {
    fn clone(&self) -> Self {
        Self { policy: self.policy.clone(), options: self.options.clone() }
    }
}

impl<R> fmt::Debug for ClientLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientLayer").field("policy", &self.policy.name()).finish_non_exhaustive()
    }
}

// === impl Client ===

impl<S: Clone, R> Clone for Client<S, R> {
    fn clone(&self) -> Self {
        let Self { inner, policy, options } = self;
        Self { inner: inner.clone(), policy: policy.clone(), options: options.clone() }
    }
}

impl<S, R> Service<R> for Client<S, R>
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
        let chosen = self.options.choose(&request);
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
            let caller = chosen.apply(policy.caller()).repeats(repeats).classify(class);
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

impl<S, R> fmt::Debug for Client<S, R> {
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
