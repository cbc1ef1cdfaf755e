//! What is remembered of a request after it has been given away.

use std::fmt;

use adieu_core::DrainClass;
use http::header::{CONTENT_TYPE, HeaderMap, UPGRADE};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;

/// What is remembered of a request: what to call it, and in which tongue to answer.
#[derive(Clone, Debug)]
pub(crate) struct About {
    method: Method,
    // Not the whole address: this is copied about with every request.
    path: Option<PathAndQuery>,
    is_http2: bool,
    is_grpc: bool,
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

// === impl About ===

impl About {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let method = request.method().clone();
        // Looking for a header costs more than all else here, and gRPC is always a POST.
        let is_grpc = method == Method::POST && is_grpc(request.headers());
        let is_http2 = request.version() >= Version::HTTP_2;
        Self { method, path: request.uri().path_and_query().cloned(), is_http2, is_grpc }
    }

    fn path(&self) -> &str {
        self.path.as_ref().map_or("*", PathAndQuery::path)
    }

    pub(crate) fn is_grpc(&self) -> bool {
        self.is_grpc
    }

    /// Whether the gate need not be asked.
    pub(crate) fn asks_for_health(&self) -> bool {
        self.is_grpc && self.path().starts_with(HEALTH)
    }

    /// Whether `Connection: close` means anything in this version of HTTP.
    pub(crate) fn has_connection_header(&self) -> bool {
        !self.is_http2
    }

    /// How this response will end. `class` is what the route says.
    pub(crate) fn kind_of<B: Body>(
        &self,
        response: &Response<B>,
        class: Option<DrainClass>,
    ) -> Kind {
        let connects = self.method == Method::CONNECT && response.status().is_success();
        // With HTTP/2 it is a stream that is upgraded, and its body lives as long.
        if !self.is_http2 && connects || response.status() == StatusCode::SWITCHING_PROTOCOLS {
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

    fn usual_class<B>(&self, response: &Response<B>, is_stream: bool) -> DrainClass {
        let streams_events = is_stream && has_type(response.headers(), b"text/event-stream");
        if streams_events || self.asks_for_health() {
            DrainClass::CloseNow
        } else {
            DrainClass::Finish
        }
    }
}

/// How it is called where it is waited for.
impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The path alone: a query may hold what does not belong into a log.
        write!(f, "{} {}", self.method, self.path())
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
