//! What is remembered of a request after it has been given away.

use std::fmt;

use adieu_core::DrainClass;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, UPGRADE};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;

/// What a request is called in logs and reports.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    method: Method,
    // Not the whole address: this is copied about with every request.
    path: Option<PathAndQuery>,
}

/// What has to be known of a request to answer it in its own way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    version: Version,
    body: ExpectedBody,
    is_grpc: bool,
    asks_for_health: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedBody {
    /// As the response says.
    Usual,
    /// `HEAD`: none, whatever the response says.
    None,
    /// `CONNECT`: if it succeeds, the connection is handed over.
    Tunnel,
}

/// What a response turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The connection is handed over to another protocol.
    Upgrade { is_websocket: bool },
    /// A body, to be ended in this way. Of a stream it is not known how long it will be.
    Body { class: DrainClass, is_stream: bool },
}

/// Questions about our health are answered for as long as we can.
const HEALTH: &str = "/grpc.health.v1.Health/";

// === impl Name ===

impl Name {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path_and_query().cloned();
        Self { method: request.method().clone(), path }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The path alone: a query may hold what does not belong into a log.
        let path = self.path.as_ref().map_or("*", PathAndQuery::path);
        write!(f, "{} {path}", self.method)
    }
}

// === impl Manner ===

impl Manner {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let method = request.method();
        // Looking for a header costs more than all else here, and gRPC is always a POST.
        let is_grpc = method == Method::POST && is_grpc(request.headers());
        let asks_for_health = is_grpc && request.uri().path().starts_with(HEALTH);
        let body = match *method {
            Method::HEAD => ExpectedBody::None,
            Method::CONNECT => ExpectedBody::Tunnel,
            _ => ExpectedBody::Usual,
        };
        Self { version: request.version(), body, is_grpc, asks_for_health }
    }

    pub(crate) fn is_grpc(self) -> bool {
        self.is_grpc
    }

    /// Whether the gate need not be asked.
    pub(crate) fn asks_for_health(self) -> bool {
        self.asks_for_health
    }

    fn is_http2(self) -> bool {
        self.version >= Version::HTTP_2
    }

    /// Makes the connection close after this response.
    pub(crate) fn close_connection<B>(self, response: &mut Response<B>) {
        if self.is_http2() {
            return; // Its connections have no such header.
        }
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        self.keep_close(response);
    }

    /// Keeps hyper from adding `keep-alive` to a response that says `close`, for a client of
    /// HTTP/1.0 that asked for it.
    pub(crate) fn keep_close<B>(self, response: &mut Response<B>) {
        let says_close = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"close");
        if self.version == Version::HTTP_10
            && response.headers().get(CONNECTION).is_some_and(says_close)
        {
            *response.version_mut() = Version::HTTP_10;
        }
    }

    /// Whether only the end of the connection will tell the client where this body ends.
    pub(crate) fn ends_by_close<B: Body>(self, response: &Response<B>) -> bool {
        self.version < Version::HTTP_11
            && self.body == ExpectedBody::Usual
            && response.body().size_hint().exact().is_none()
            && !response.headers().contains_key(CONTENT_LENGTH)
    }

    /// How this response will end. `class` is what the route says.
    pub(crate) fn kind_of<B: Body>(
        self,
        response: &Response<B>,
        class: Option<DrainClass>,
    ) -> Kind {
        let connects = self.body == ExpectedBody::Tunnel && response.status().is_success();
        // With HTTP/2 it is a stream that is upgraded, and its body lives as long.
        if !self.is_http2() && connects || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let is_websocket = response
                .headers()
                .get(UPGRADE)
                .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
            return Kind::Upgrade { is_websocket };
        }
        let is_stream = response.body().size_hint().exact().is_none();
        let said = response.extensions().get::<DrainClass>().copied().or(class);
        let class = said.unwrap_or_else(|| self.usual_class(response, is_stream));
        Kind::Body { class, is_stream }
    }

    fn usual_class<B>(self, response: &Response<B>, is_stream: bool) -> DrainClass {
        let streams_events = is_stream && has_type(response.headers(), b"text/event-stream");
        if streams_events || self.asks_for_health {
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
