//! How a refusal is said: to HTTP clients, and to gRPC clients.

use std::time::Duration;

use adieu_core::Draining;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use super::about::Manner;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// gRPC's UNAVAILABLE: nothing was done, try elsewhere.
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");
const DRAINING: HeaderValue = HeaderValue::from_static(Draining::CODE);

/// A response that says [`Draining`]: 503 with `Retry-After`, `Connection: close` and a small JSON
/// body.
///
/// For handlers that enter gates by themselves; with the feature `axum` it is an `IntoResponse`,
/// with `tonic` it becomes a `Status`.
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
    /// Says it with 429 instead of 503.
    #[must_use]
    pub fn too_many_requests(self) -> Self {
        self.with_status(StatusCode::TOO_MANY_REQUESTS)
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The refusal as a response to a request of HTTP/1.
    #[must_use]
    pub fn to_response<B: From<String>>(&self) -> Response<B> {
        let mut response = self.plain().map(B::from);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    /// The refusal as HTTP/1.1 has it on the wire.
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
        response
    }

    fn grpc(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, UNAVAILABLE);
        headers.insert(GRPC_MESSAGE, DRAINING);
        let after = u64::try_from(self.draining.retry_after().as_millis()).unwrap_or(u64::MAX);
        headers.insert(GRPC_PUSHBACK, HeaderValue::from(after));
        response
    }

    /// The refusal as the request expects it.
    pub(crate) fn into_response(self, manner: Manner) -> Response<Bytes> {
        if manner.is_grpc() {
            return self.grpc();
        }
        let mut response = self.plain().map(Bytes::from);
        manner.close_connection(&mut response);
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

/// The trailers of a gRPC response that is broken off.
pub(crate) fn grpc_trailers() -> http::HeaderMap {
    let mut trailers = http::HeaderMap::with_capacity(2);
    trailers.insert(GRPC_STATUS, UNAVAILABLE);
    trailers.insert(GRPC_MESSAGE, DRAINING);
    trailers
}

/// `Retry-After` knows whole seconds only: rounded up, so that nobody comes too early.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
