//! The layer for servers: refusals become responses, before the handler.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use adieu_core::Deadline;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::options::Options;
use super::{REFUSED, meaning};
use crate::bulkhead::Criticality;
use crate::classify::Class;
use crate::policy::Policy;
use crate::refused::{CallError, Code};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The code of a request that was cut off. It may have been processed.
const TIMED_OUT: &str = "timed-out";

/// A tower layer that sends requests through a [`Policy`]; see [`Policy::layer`].
///
/// A request that the rate limit refuses gets 429, one that is refused otherwise or times out gets 503,
/// both with `Retry-After` and a small JSON body with the code. A gRPC call gets `RESOURCE_EXHAUSTED` or
/// `UNAVAILABLE`. A request is never repeated.
///
/// The slot of a bulkhead is held until the head of the response.
#[derive(Clone)]
pub struct PolicyLayer {
    policy: Policy,
    options: Options<Parts>,
}

/// The service that [`PolicyLayer`] makes.
#[derive(Clone)]
pub struct PolicyService<S> {
    inner: S,
    layer: PolicyLayer,
}

// === impl Policy ===

impl Policy {
    /// Returns the policy as a layer for a server.
    ///
    /// ```
    /// # use adieu_core::Shutdown;
    /// # use adieu_resilience::{Policy, Rate};
    /// use axum::Router;
    /// use axum::routing::post;
    ///
    /// # async fn charge() {}
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let shutdown = Shutdown::new();
    /// let checkout = Policy::new("checkout").rate(Rate::per_second(100)).start(&shutdown)?;
    /// let tenant = |request: &http::request::Parts| {
    ///     Some(request.headers.get("x-tenant")?.to_str().ok()?.to_owned())
    /// };
    /// let app: Router = Router::new().route("/charge", post(charge)).layer(checkout.layer().key(tenant));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn layer(&self) -> PolicyLayer {
        PolicyLayer { policy: self.clone(), options: Options::default() }
    }
}

// === impl PolicyLayer ===

impl PolicyLayer {
    /// Uses the state of the key that this function returns; see [`Caller::key`](crate::Caller::key).
    #[must_use]
    pub fn key(mut self, key: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.options.key = Some(Arc::new(key));
        self
    }

    /// Gives each request the criticality that this function returns; see
    /// [`Caller::criticality`](crate::Caller::criticality).
    #[must_use]
    pub fn criticality(
        mut self,
        criticality: impl Fn(&Parts) -> Criticality + Send + Sync + 'static,
    ) -> Self {
        self.options.criticality = Some(Arc::new(criticality));
        self
    }

    /// Ends each request by the deadline that this function returns; see
    /// [`Caller::by`](crate::Caller::by).
    #[must_use]
    pub fn by(mut self, by: impl Fn(&Parts) -> Option<Deadline> + Send + Sync + 'static) -> Self {
        self.options.by = Some(Arc::new(by));
        self
    }
}

impl<S> Layer<S> for PolicyLayer {
    type Service = PolicyService<S>;

    fn layer(&self, inner: S) -> PolicyService<S> {
        PolicyService { inner, layer: self.clone() }
    }
}

impl fmt::Debug for PolicyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyLayer").field("policy", &self.policy.name()).finish_non_exhaustive()
    }
}

// === impl PolicyService ===

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for PolicyService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    ReqBody: Send + 'static,
    ResBody: From<String> + Send,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let clone = self.inner.clone();
        // The one that was polled until it was ready is the one that is called.
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let PolicyLayer { policy, options } = self.layer.clone();
        let (parts, body) = request.into_parts();
        let is_grpc = is_grpc(&parts.headers);
        let chosen = options.choose(&parts);
        let mut request = Some(Request::from_parts(parts, body));
        Box::pin(async move {
            let caller = chosen.apply(policy.caller());
            let class = |result: &Result<Response<ResBody>, S::Error>| match result {
                Ok(response) => meaning::of_response(response.status(), response.headers()),
                Err(_) => Class::sick(),
            };
            let call = caller.not_repeatable().classify(class).call(|_| {
                let request = request.take().expect("a call that is never repeated is made once");
                inner.call(request)
            });
            match call.await {
                Ok(response) => Ok(response),
                Err(CallError::Failed(error)) => Err(error),
                Err(CallError::Refused(refused)) => {
                    let status = match refused.code() {
                        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
                        Code::Full
                        | Code::Shed
                        | Code::Open
                        | Code::ForcedOpen
                        | Code::Throttled
                        | Code::Deadline
                        | Code::StoreAway => StatusCode::SERVICE_UNAVAILABLE,
                    };
                    let code = refused.code().as_str();
                    let mut response = answer(status, code, refused.retry_after(), is_grpc);
                    response.headers_mut().insert(REFUSED, HeaderValue::from_static(code));
                    Ok(response)
                }
                Err(CallError::TimedOut { .. }) => {
                    let status = StatusCode::SERVICE_UNAVAILABLE;
                    Ok(answer(status, TIMED_OUT, Duration::from_secs(1), is_grpc))
                }
            }
        })
    }
}

impl<S> fmt::Debug for PolicyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyService").field("layer", &self.layer).finish_non_exhaustive()
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

fn answer<B: From<String>>(
    status: StatusCode,
    code: &'static str,
    retry_after: Duration,
    is_grpc: bool,
) -> Response<B> {
    let millis = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
    if is_grpc {
        // RESOURCE_EXHAUSTED and UNAVAILABLE.
        let grpc = if status == StatusCode::TOO_MANY_REQUESTS { "8" } else { "14" };
        let mut response = Response::new(B::from(String::new()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from_static(grpc));
        headers.insert(GRPC_MESSAGE, HeaderValue::from_static(code));
        headers.insert(GRPC_PUSHBACK, HeaderValue::from(millis));
        return response;
    }
    let body = format!(r#"{{"error":"{code}","retry_after_ms":{millis}}}"#);
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // In whole seconds, rounded up, so that no client retries too early.
    headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1_000)));
    response
}
