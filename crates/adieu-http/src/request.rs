//! The facts about a request that are needed after it has been handed to the application.

use std::fmt;

use adieu_core::DrainClass;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, UPGRADE};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;

/// The name of a request in logs and reports: its method and path.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    method: Method,
    // Not the whole URI: the name is moved with every request.
    path: Option<PathAndQuery>,
}

/// The facts that decide the form of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestInfo {
    version: Version,
    body: ExpectedBody,
    is_grpc: bool,
    is_health_check: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedBody {
    /// The response decides.
    Usual,
    /// `HEAD`: no body, regardless of the response's headers.
    None,
    /// `CONNECT`: a successful response hands the connection over.
    Tunnel,
}

/// The kind of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// The connection is handed over to another protocol.
    Upgrade { is_websocket: bool },
    /// A body that ends according to its class. The length of a stream is unknown.
    Body { class: DrainClass, is_stream: bool },
}

/// The path of gRPC health checks, which are answered even when the gate is closed.
const GRPC_HEALTH: &str = "/grpc.health.v1.Health/";

// === impl Name ===

impl Name {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path_and_query().cloned();
        Self { method: request.method().clone(), path }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The path alone: a query may hold secrets, which must not be logged.
        let path = self.path.as_ref().map_or("*", PathAndQuery::path);
        write!(f, "{} {path}", self.method)
    }
}

// === impl RequestInfo ===

impl RequestInfo {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let method = request.method();
        // Looking up a header costs more than everything else here, and gRPC is always a POST.
        let is_grpc = method == Method::POST && is_grpc(request.headers());
        let is_health_check = is_grpc && request.uri().path().starts_with(GRPC_HEALTH);
        let body = match *method {
            Method::HEAD => ExpectedBody::None,
            Method::CONNECT => ExpectedBody::Tunnel,
            _ => ExpectedBody::Usual,
        };
        Self { version: request.version(), body, is_grpc, is_health_check }
    }

    pub(crate) fn is_grpc(self) -> bool {
        self.is_grpc
    }

    /// Returns whether the request is a gRPC health check, which needs no pass.
    pub(crate) fn is_health_check(self) -> bool {
        self.is_health_check
    }

    fn is_http2(self) -> bool {
        self.version >= Version::HTTP_2
    }

    /// Adds `Connection: close` to the response, except with HTTP/2, which has no such header.
    pub(crate) fn close_connection<B>(self, response: &mut Response<B>) {
        if self.is_http2() {
            return;
        }
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        self.keep_close(response);
    }

    /// Prevents hyper from adding `keep-alive` to a response that has `Connection: close`, when an
    /// HTTP/1.0 client asked for `keep-alive`.
    pub(crate) fn keep_close<B>(self, response: &mut Response<B>) {
        let is_close = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"close");
        if self.version == Version::HTTP_10
            && response.headers().get(CONNECTION).is_some_and(is_close)
        {
            *response.version_mut() = Version::HTTP_10;
        }
    }

    /// Returns whether only the end of the connection marks the end of this body for the client.
    pub(crate) fn ends_by_close<B: Body>(self, response: &Response<B>) -> bool {
        self.version < Version::HTTP_11
            && self.body == ExpectedBody::Usual
            && response.body().size_hint().exact().is_none()
            && !response.headers().contains_key(CONTENT_LENGTH)
    }

    /// Returns how this response will end.
    ///
    /// A class in the response's extensions takes precedence over `class`, the one of its route.
    pub(crate) fn response_kind<B: Body>(
        self,
        response: &Response<B>,
        class: Option<DrainClass>,
    ) -> ResponseKind {
        let connects = self.body == ExpectedBody::Tunnel && response.status().is_success();
        // With HTTP/2 a stream is upgraded, not the connection, and the stream's body lives as long.
        if !self.is_http2() && connects || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let is_websocket = response
                .headers()
                .get(UPGRADE)
                .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
            return ResponseKind::Upgrade { is_websocket };
        }
        let is_stream = response.body().size_hint().exact().is_none();
        let chosen = response.extensions().get::<DrainClass>().copied().or(class);
        let class = chosen.unwrap_or_else(|| self.default_class(response, is_stream));
        ResponseKind::Body { class, is_stream }
    }

    fn default_class<B>(self, response: &Response<B>, is_stream: bool) -> DrainClass {
        let is_event_stream = is_stream && has_type(response.headers(), b"text/event-stream");
        if is_event_stream || self.is_health_check {
            DrainClass::CloseNow
        } else {
            DrainClass::Finish
        }
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    has_type(headers, b"application/grpc")
}

fn has_type(headers: &HeaderMap, wanted: &[u8]) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().get(..wanted.len()).is_some_and(|has| has.eq_ignore_ascii_case(wanted))
    })
}
