//! Readiness and liveness, as the paths that platforms ask for.

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
/// | `/livez` | 200 `alive`, through the whole drain: a process that is draining must not be killed for it |
/// | `/startupz` | 200 `started` from when start-up has ended, 503 `starting` before |
///
/// With `?verbose` the answer lists every check, in the manner of the Kubernetes API server.
///
/// A probe that opens a connection of its own is refused when the listener has been closed. So ask
/// for liveness on the admin port, which is up to the end.
///
/// Give them to [`Serve::probes`](crate::Serve::probes) to have them on the port of the
/// application, where they are answered also when the gate is closed; the [admin
/// port](crate::Admin) has them by itself.
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
    /// The probes of this process, on the usual paths.
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

    /// Another path for `/readyz`.
    #[must_use]
    pub fn ready_at(mut self, path: impl Into<Cow<'static, str>>) -> Self {
        self.ready = path.into();
        self
    }

    /// Another path for `/healthz`, which answers as `/readyz` does.
    #[must_use]
    pub fn health_at(mut self, path: impl Into<Cow<'static, str>>) -> Self {
        self.health = path.into();
        self
    }

    /// Another path for `/livez`.
    #[must_use]
    pub fn live_at(mut self, path: impl Into<Cow<'static, str>>) -> Self {
        self.live = path.into();
        self
    }

    /// Another path for `/startupz`.
    #[must_use]
    pub fn startup_at(mut self, path: impl Into<Cow<'static, str>>) -> Self {
        self.startup = path.into();
        self
    }

    /// The answer, if this request is for one of the probes.
    #[must_use]
    pub fn answer<B>(&self, request: &Request<B>) -> Option<Response<Bytes>> {
        let path = request.uri().path();
        let (status, says) = if path == self.ready || path == self.health {
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
        let body = if is_verbose { self.verbose(path, status, &says) } else { says.into_owned() };
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
        // What failed before it was ever there is no reason to go on to the other probes.
        let has_failed = readiness == Readiness::Unavailable && !self.shutdown.has_started();
        if readiness == Readiness::Starting || has_failed {
            (StatusCode::SERVICE_UNAVAILABLE, Cow::Borrowed("starting"))
        } else {
            (StatusCode::OK, Cow::Borrowed("started"))
        }
    }

    fn verbose(&self, path: &str, status: StatusCode, says: &str) -> String {
        let mut lines = String::new();
        for Check { name, state, detail, .. } in self.shutdown.checks() {
            let (sign, word) = match state {
                CheckState::Ready => ('+', "ok"),
                CheckState::Pending => ('-', "pending"),
                CheckState::Failed | _ => ('-', "failed"),
            };
            let why = detail.map_or_else(String::new, |why| format!(": {why}"));
            let _ = writeln!(lines, "[{sign}]{name} {word}{why}");
        }
        let is_draining =
            matches!(self.shutdown.readiness(), Readiness::Draining | Readiness::Stopping);
        let (sign, word) = if is_draining { ('-', "draining") } else { ('+', "ok") };
        let _ = writeln!(lines, "[{sign}]shutdown {word}");
        let verdict = if status.is_success() { "passed" } else { "failed" };
        let _ = writeln!(lines, "{} check {verdict}: {says}", path.trim_start_matches('/'));
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
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "ask with GET\n".into());
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}
