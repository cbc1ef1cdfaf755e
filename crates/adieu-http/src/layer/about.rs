//! What is remembered of a request after it has been given away.

use std::fmt;

use adieu_core::DrainClass;
use http::header::{CONTENT_TYPE, HeaderMap, UPGRADE};
use http::{Method, Request, Response, StatusCode, Uri, Version};

/// What is remembered of a request: what to call it, and in which tongue to answer.
#[derive(Clone, Debug)]
pub(crate) struct About {
    method: Method,
    uri: Uri,
    version: Version,
    is_grpc: bool,
}

/// What a response turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The connection is handed over to another protocol.
    Upgrade { is_websocket: bool },
    /// A body, to be ended in this way.
    Body(DrainClass),
}

/// Questions about our health are answered for as long as we can.
const HEALTH: &str = "/grpc.health.v1.Health/";

// === impl About ===

impl About {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            is_grpc: is_grpc(request.headers()),
        }
    }

    pub(crate) fn is_grpc(&self) -> bool {
        self.is_grpc
    }

    /// Whether the gate need not be asked.
    pub(crate) fn asks_for_health(&self) -> bool {
        self.is_grpc && self.uri.path().starts_with(HEALTH)
    }

    /// Whether `Connection: close` means anything in this version of HTTP.
    pub(crate) fn has_connection_header(&self) -> bool {
        self.version < Version::HTTP_2
    }

    /// How this response will end. `class` is what the route says.
    pub(crate) fn kind_of<B>(&self, response: &Response<B>, class: Option<DrainClass>) -> Kind {
        let connects = self.method == Method::CONNECT && response.status().is_success();
        if connects || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let is_websocket = response
                .headers()
                .get(UPGRADE)
                .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
            return Kind::Upgrade { is_websocket };
        }
        let said = response.extensions().get::<DrainClass>().copied();
        Kind::Body(said.or(class).unwrap_or_else(|| self.usual_class(response.headers())))
    }

    fn usual_class(&self, headers: &HeaderMap) -> DrainClass {
        let streams_events = has_type(headers, b"text/event-stream");
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
        write!(f, "{} {}", self.method, self.uri.path())
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
