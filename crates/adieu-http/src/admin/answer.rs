//! What the admin port answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adieu_core::{Shutdown, Signal};
use bytes::Bytes;
use http::header::{ALLOW, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::caller::{Token, Verdict, judge};
use crate::probes::{Probes, text, with_type};

/// What the admin port answers.
pub(super) struct Answers {
    shutdown: Shutdown,
    pub(super) probes: Probes,
    pub(super) token: Option<Token>,
    pub(super) metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    /// Said once: whoever tries must not fill the log.
    has_complained: AtomicBool,
}

const INDEX: &str = "\
GET  /readyz /livez /startupz /healthz   probes; ?verbose lists the checks
GET  /shutdown                           what the shutdown is doing, as JSON
GET  /metrics                            if it has been given any
POST /shutdown                           does what SIGTERM does
POST /cordon /uncordon                   no work here for now, and back
";

impl Answers {
    pub(super) fn new(shutdown: &Shutdown) -> Self {
        Self {
            shutdown: shutdown.clone(),
            probes: Probes::new(shutdown),
            token: None,
            metrics: None,
            has_complained: AtomicBool::new(false),
        }
    }

    pub(super) fn answer<B>(&self, request: &Request<B>, from: SocketAddr) -> Response<Bytes> {
        if let Some(probed) = self.probes.answer(request) {
            return probed;
        }
        let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
        match (request.uri().path(), request.method()) {
            ("/", _) if is_get => text(StatusCode::OK, INDEX.into()),
            ("/shutdown", _) if is_get => as_json(StatusCode::OK, &self.status()),
            ("/metrics", _) if is_get => self.metrics(),
            ("/shutdown", &Method::POST) => self.change(request, from, Self::stop),
            ("/cordon", &Method::POST) => self.change(request, from, Self::cordon),
            ("/uncordon", &Method::POST) => self.change(request, from, Self::uncordon),
            ("/shutdown", _) => not_allowed("GET, HEAD, POST"),
            ("/" | "/metrics", _) => not_allowed("GET, HEAD"),
            ("/cordon" | "/uncordon", _) => not_allowed("POST"),
            _ => text(StatusCode::NOT_FOUND, format!("there is no such page; there are\n{INDEX}")),
        }
    }

    fn metrics(&self) -> Response<Bytes> {
        const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
        match &self.metrics {
            Some(render) => with_type(StatusCode::OK, TYPE, render()),
            None => text(StatusCode::NOT_FOUND, "no metrics: see Admin::metrics\n".into()),
        }
    }

    fn status(&self) -> Value {
        // All of these are plain values: turning them into JSON cannot fail.
        let mut status = serde_json::to_value(self.shutdown.status()).unwrap_or_default();
        if let Value::Object(fields) = &mut status {
            fields.insert("readiness".into(), json!(self.shutdown.readiness()));
            fields.insert("checks".into(), json!(self.shutdown.checks()));
            fields.insert("report".into(), json!(self.shutdown.report()));
        }
        status
    }

    /// Lets `change` happen, if the caller may.
    fn change<B>(
        &self,
        request: &Request<B>,
        from: SocketAddr,
        change: impl FnOnce(&Self) -> Response<Bytes>,
    ) -> Response<Bytes> {
        let (path, verdict) =
            (request.uri().path(), judge(self.token.as_ref(), from.ip(), request.headers()));
        let (status, why) = match verdict {
            Verdict::Allowed => {
                tracing::info!(%from, "POST {path} on the admin port");
                return change(self);
            }
            Verdict::WrongToken => (StatusCode::UNAUTHORIZED, "the token is wrong"),
            Verdict::FromElsewhere => {
                (StatusCode::FORBIDDEN, "only from this machine, or with Authorization: Bearer")
            }
            Verdict::FromWebPage => (StatusCode::FORBIDDEN, "not from a web page"),
        };
        if !self.has_complained.swap(true, Ordering::Relaxed) {
            tracing::warn!(%from, "refused POST {path} on the admin port: {why}; said once only");
        }
        let mut response = as_json(status, &json!({ "error": why }));
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    fn stop(&self) -> Response<Bytes> {
        // On its last rung a signal ends the process; a request only hurries it.
        let _ = self.shutdown.receive(Signal::TERM);
        as_json(StatusCode::ACCEPTED, &self.status())
    }

    fn cordon(&self) -> Response<Bytes> {
        self.shutdown.cordon();
        as_json(StatusCode::OK, &self.status())
    }

    fn uncordon(&self) -> Response<Bytes> {
        match self.shutdown.uncordon() {
            true => as_json(StatusCode::OK, &self.status()),
            false => as_json(StatusCode::CONFLICT, &json!({ "error": "the shutdown has begun" })),
        }
    }
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answers").field("token", &self.token).finish_non_exhaustive()
    }
}

fn as_json(status: StatusCode, value: &Value) -> Response<Bytes> {
    with_type(status, "application/json", format!("{value}\n"))
}

fn not_allowed(allowed: &'static str) -> Response<Bytes> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("allowed: {allowed}\n"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
