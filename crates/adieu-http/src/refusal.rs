//! The response that refuses a request, for HTTP and for gRPC clients.

use std::time::Duration;

use adieu_core::Draining;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::request::RequestInfo;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Marks a response to a request that was not processed, so that clients of adieu can repeat it even if
/// it is not idempotent.
const REFUSED: HeaderName = HeaderName::from_static("adieu-refused");

/// gRPC's UNAVAILABLE: the call was not processed and can be retried on another server.
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");
const DRAINING: HeaderValue = HeaderValue::from_static(Draining::CODE);

/// The response to a request that a gate refuses with [`Draining`]: 503 with `Retry-After`,
/// `Connection: close` and a small JSON body.
///
/// Handlers that enter gates of their own return it. With the feature `axum` it implements
/// `IntoResponse`; with the feature `tonic` it converts into a `Status`.
///
/// ```
/// # use adieu_core::Gate;
/// use adieu_http::Refusal;
///
/// # let gate = Gate::new("exports");
/// # gate.close();
/// let refused = gate.enter().map_err(Refusal::from).unwrap_err();
/// let response: http::Response<String> = refused.to_response();
/// assert_eq!(response.status(), 503);
/// assert_eq!(response.body(), r#"{"error":"draining","retry_after_ms":1000}"#);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    draining: Draining,
    status: StatusCode,
}

// === impl Refusal ===

impl Refusal {
    /// Refuses with 429 instead of 503.
    #[must_use]
    pub fn too_many_requests(self) -> Self {
        self.with_status(StatusCode::TOO_MANY_REQUESTS)
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Returns the refusal as the response to an HTTP/1 request.
    #[must_use]
    pub fn to_response<B: From<String>>(&self) -> Response<B> {
        let mut response = self.plain().map(B::from);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    /// Returns the refusal as the bytes of an HTTP/1.1 response.
    pub(crate) fn to_text(self) -> String {
        let response = self.to_response::<String>();
        let (status, body) = (response.status(), response.body());
        let mut text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in response.headers() {
            text += &format!("{name}: {}\r\n", value.to_str().unwrap_or_default());
        }
        text + "\r\n" + body
    }

    fn plain(self) -> Response<String> {
        let after = self.draining.retry_after();
        let body =
            format!(r#"{{"error":"{}","retry_after_ms":{}}}"#, Draining::CODE, after.as_millis());
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        headers.insert(REFUSED, DRAINING);
        response
    }

    fn grpc(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, UNAVAILABLE);
        headers.insert(GRPC_MESSAGE, DRAINING);
        headers.insert(REFUSED, DRAINING);
        let after = u64::try_from(self.draining.retry_after().as_millis()).unwrap_or(u64::MAX);
        headers.insert(GRPC_PUSHBACK, HeaderValue::from(after));
        response
    }

    /// Returns the refusal in the form that this request expects.
    pub(crate) fn into_response(self, request: RequestInfo) -> Response<Bytes> {
        if request.is_grpc() {
            return self.grpc();
        }
        let mut response = self.plain().map(Bytes::from);
        request.close_connection(&mut response);
        response
    }
}

impl From<Draining> for Refusal {
    fn from(draining: Draining) -> Self {
        Self { draining, status: StatusCode::SERVICE_UNAVAILABLE }
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        self.to_response()
    }
}

#[cfg(feature = "tonic")]
impl From<Refusal> for tonic::Status {
    fn from(refusal: Refusal) -> Self {
        Self::unavailable(refusal.draining.to_string())
    }
}

/// Returns the trailers that end a gRPC response which is cut.
pub(crate) fn grpc_trailers() -> http::HeaderMap {
    let mut trailers = http::HeaderMap::with_capacity(2);
    trailers.insert(GRPC_STATUS, UNAVAILABLE);
    trailers.insert(GRPC_MESSAGE, DRAINING);
    trailers
}

/// Rounds up to whole seconds, the unit of `Retry-After`, so that no client retries too early.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
