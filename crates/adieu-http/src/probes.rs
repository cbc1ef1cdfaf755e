//! Probes for readiness, liveness and start-up, over HTTP.

use std::borrow::Cow;
use std::fmt::Write as _;

use adieu_core::{Check, CheckState, Readiness, Shutdown};
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};

/// Answers `/readyz`, `/livez`, `/startupz` and `/healthz`.
///
/// | path | answers |
/// |---|---|
/// | `/readyz`, `/healthz` | 200 `ready`, or 503 with the [`Readiness`]: `starting`, `unavailable`, `cordoned`, `draining`, `stopping` |
/// | `/livez` | 200 `alive`, through the whole drain: the platform must not kill a process because it drains |
/// | `/startupz` | 503 `starting` until start-up has ended, then 200 `started` |
///
/// With `?verbose` the response lists every check, in the format of the Kubernetes API server.
///
/// A probe that opens a new connection fails when the listener has been closed. Point liveness
/// probes at the [admin port](crate::Admin), which answers until the process ends.
///
/// [`Serve::probes`](crate::Serve::probes) adds the probes to the port of the application, where
/// they are answered even when the gate is closed. The admin port always has them.
#[derive(Clone, Debug)]
pub struct Probes {
    shutdown: Shutdown,
    ready: Cow<'static, str>,
    health: Cow<'static, str>,
    live: Cow<'static, str>,
    startup: Cow<'static, str>,
}

// === impl Probes ===

impl Probes {
    /// Makes the probes of this process, on their default paths.
    #[must_use]
    pub fn new(shutdown: &Shutdown) -> Self {
        Self {
            shutdown: shutdown.clone(),
            ready: "/readyz".into(),
            health: "/healthz".into(),
            live: "/livez".into(),
            startup: "/startupz".into(),
        }
    }

    /// Replaces the path `/readyz`.
    #[must_use]
    pub fn ready_at(mut self, path: impl Into<Cow<'static, str>>) -> Self {
        self.ready = path.into();
        self
    }

    /// Replaces the path `/healthz`, which answers like `/readyz`.
    #[must_use]
    pub fn health_at(mut self, path: impl Into<Cow<'static, str>>) -> Self {
        self.health = path.into();
        self
    }

    /// Replaces the path `/livez`.
    #[must_use]
    pub fn live_at(mut self, path: impl Into<Cow<'static, str>>) -> Self {
        self.live = path.into();
        self
    }

    /// Replaces the path `/startupz`.
    #[must_use]
    pub fn startup_at(mut self, path: impl Into<Cow<'static, str>>) -> Self {
        self.startup = path.into();
        self
    }

    /// Returns the response if this request is for one of the probes.
    #[must_use]
    pub fn answer<B>(&self, request: &Request<B>) -> Option<Response<Bytes>> {
        let path = request.uri().path();
        let (status, word) = if path == self.ready || path == self.health {
            self.readiness()
        } else if path == self.live {
            (StatusCode::OK, Cow::Borrowed("alive"))
        } else if path == self.startup {
            self.startup()
        } else {
            return None;
        };
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return Some(not_allowed());
        }
        let is_verbose = request.uri().query().is_some_and(|query| {
            query.split('&').any(|key| key == "verbose" || key.starts_with("verbose="))
        });
        let body = if is_verbose { self.verbose(path, status, &word) } else { word.into_owned() };
        Some(text(status, body))
    }

    fn readiness(&self) -> (StatusCode, Cow<'static, str>) {
        let readiness = self.shutdown.readiness();
        let status =
            if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, Cow::Owned(readiness.to_string()))
    }

    fn startup(&self) -> (StatusCode, Cow<'static, str>) {
        let readiness = self.shutdown.readiness();
        // While a check fails before start-up has ended, the platform must not proceed to the other
        // probes.
        let has_failed = readiness == Readiness::Unavailable && !self.shutdown.has_started();
        if readiness == Readiness::Starting || has_failed {
            (StatusCode::SERVICE_UNAVAILABLE, Cow::Borrowed("starting"))
        } else {
            (StatusCode::OK, Cow::Borrowed("started"))
        }
    }

    fn verbose(&self, path: &str, status: StatusCode, outcome: &str) -> String {
        let mut lines = String::new();
        for Check { name, state, detail, .. } in self.shutdown.checks() {
            let (sign, word) = match state {
                CheckState::Ready => ('+', "ok"),
                CheckState::Pending => ('-', "pending"),
                CheckState::Failed | _ => ('-', "failed"),
            };
            let reason = detail.map_or_else(String::new, |reason| format!(": {reason}"));
            let _ = writeln!(lines, "[{sign}]{name} {word}{reason}");
        }
        let is_draining =
            matches!(self.shutdown.readiness(), Readiness::Draining | Readiness::Stopping);
        let (sign, word) = if is_draining { ('-', "draining") } else { ('+', "ok") };
        let _ = writeln!(lines, "[{sign}]shutdown {word}");
        let verdict = if status.is_success() { "passed" } else { "failed" };
        let _ = writeln!(lines, "{} check {verdict}: {outcome}", path.trim_start_matches('/'));
        lines
    }
}

pub(crate) fn text(status: StatusCode, body: String) -> Response<Bytes> {
    with_type(status, "text/plain; charset=utf-8", body)
}

pub(crate) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    body: String,
) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn not_allowed() -> Response<Bytes> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "allowed: GET, HEAD\n".into());
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}
