//! What the admin port answers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use adieu_core::{Shutdown, Signal};
use bytes::Bytes;
use http::header::{ALLOW, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::caller::{Token, Verdict, is_rebound, judge, knows_token};
use super::process::Process;
use super::{AdminStop, metrics};
use crate::probes::{Probes, text, with_type};

/// What the admin port answers.
pub(super) struct Answers {
    shutdown: Shutdown,
    pub(super) process: Process,
    pub(super) probes: Probes,
    pub(super) token: Option<Token>,
    /// Not even this machine is let in without it.
    pub(super) only_token: bool,
    pub(super) metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    /// Cordons in their lame duck. They end with the port.
    cordoning: Mutex<JoinSet<()>>,
    /// Said once: whoever tries must not fill the log.
    has_complained: AtomicBool,
}

/// How long the user's code may take to answer.
const MOST: Duration = Duration::from_secs(5);

/// How long the end of the shutdown is waited for. Less than a connection may last.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

const INDEX: &str = "\
GET  /readyz /livez /startupz /healthz   probes; ?verbose lists the checks
GET  /shutdown                           what the shutdown is doing, as JSON; ?until=over waits for its end
GET  /metrics                            in the text format of Prometheus; ?until=over waits for the end
POST /shutdown                           does what SIGTERM does
POST /cordon                             not ready, and after a lame duck no work here; ?now=true refuses at once
POST /uncordon                           takes a cordon back
";

impl Answers {
    pub(super) fn new(shutdown: &Shutdown) -> Self {
        Self {
            shutdown: shutdown.clone(),
            process: Process::current(),
            probes: Probes::new(shutdown),
            token: None,
            only_token: false,
            metrics: None,
            cordoning: Mutex::default(),
            has_complained: AtomicBool::new(false),
        }
    }

    /// Answers. What runs the user's code, such as what describes a task, runs on another thread,
    /// and for a limited time: a probe must be answered whatever that does.
    pub(super) async fn answer<B>(
        self: Arc<Self>,
        request: Request<B>,
        from: SocketAddr,
    ) -> Response<Bytes> {
        if let Some(probed) = self.probes.answer(&request) {
            return probed;
        }
        let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
        match (request.uri().path(), request.method()) {
            ("/", _) if is_get => text(StatusCode::OK, INDEX.into()),
            ("/shutdown" | "/metrics", _) if is_get && is_rebound(from.ip(), request.headers()) => {
                as_json(StatusCode::FORBIDDEN, &json!({ "error": "not under this name" }))
            }
            ("/shutdown" | "/metrics", _) if is_get && !self.may_read(&request) => {
                unauthorized("only with Authorization: Bearer")
            }
            ("/shutdown", _) if is_get => {
                if asks_for(&request, "until=over") {
                    // When it is over the process may be gone before anybody asks again.
                    let _ = tokio::time::timeout(LONGEST_WAIT, self.shutdown.completed()).await;
                }
                aside(move || self.status()).await
            }
            ("/metrics", _) if is_get => {
                if asks_for(&request, "until=over") {
                    let _ = tokio::time::timeout(LONGEST_WAIT, self.shutdown.completed()).await;
                }
                aside(move || self.metrics()).await
            }
            ("/shutdown", &Method::POST) => self.change(&request, from, Self::stop),
            ("/cordon", &Method::POST) if asks_for(&request, "now=true") => {
                self.change(&request, from, Self::cordon_now)
            }
            ("/cordon", &Method::POST) => self.change(&request, from, Self::cordon),
            ("/uncordon", &Method::POST) => self.change(&request, from, Self::uncordon),
            ("/shutdown", _) => not_allowed("GET, HEAD, POST"),
            ("/" | "/metrics", _) => not_allowed("GET, HEAD"),
            ("/cordon" | "/uncordon", _) => not_allowed("POST"),
            _ => text(StatusCode::NOT_FOUND, format!("there is no such page; there are\n{INDEX}")),
        }
    }

    fn metrics(&self) -> Response<Bytes> {
        const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
        let mut text = metrics::render(&self.shutdown);
        if let Some(render) = &self.metrics {
            text += &render();
        }
        with_type(StatusCode::OK, TYPE, text)
    }

    fn status(&self) -> Response<Bytes> {
        // All of these are plain values: turning them into JSON cannot fail.
        let mut status = serde_json::to_value(self.shutdown.status()).unwrap_or_default();
        if let Value::Object(fields) = &mut status {
            fields.insert("process".into(), self.process.view());
            fields.insert("readiness".into(), json!(self.shutdown.readiness()));
            fields.insert("checks".into(), json!(self.shutdown.checks()));
            let gates = self.shutdown.gates();
            let inside: Vec<_> = gates.iter().map(|gate| (gate.name(), gate.in_flight())).collect();
            let sum: usize = inside.iter().map(|(_, in_flight)| in_flight).sum();
            let gate = |(name, in_flight)| json!({ "name": name, "in_flight": in_flight });
            fields.insert("admitting".into(), json!(self.shutdown.is_admitting()));
            fields.insert("in_flight".into(), json!(sum));
            fields.insert("gates".into(), inside.into_iter().map(gate).collect());
            fields.insert("report".into(), json!(self.shutdown.report()));
        }
        as_json(StatusCode::OK, &status)
    }

    /// How it stands after a change.
    fn stands(&self, status: StatusCode) -> Response<Bytes> {
        let (stage, reason) = (self.shutdown.stage(), self.shutdown.reason());
        let reason = reason.map(|reason| reason.to_string());
        let readiness = self.shutdown.readiness();
        let admitting = self.shutdown.is_admitting();
        let stands = json!({
            "stage": stage, "reason": reason, "readiness": readiness, "admitting": admitting,
        });
        as_json(status, &stands)
    }

    /// Whether a caller may read what is not for everybody.
    fn may_read<B>(&self, request: &Request<B>) -> bool {
        !self.only_token || knows_token(self.token.as_ref(), request.headers()) == Some(true)
    }

    /// Lets `change` happen, if the caller may.
    fn change<B>(
        &self,
        request: &Request<B>,
        from: SocketAddr,
        change: impl FnOnce(&Self) -> Response<Bytes>,
    ) -> Response<Bytes> {
        let path = request.uri().path();
        let verdict = judge(self.token.as_ref(), self.only_token, from.ip(), request.headers());
        let (status, why) = match verdict {
            Verdict::Allowed => {
                self.shutdown.say(format!("admin port            POST {path} from {from}"));
                return change(self);
            }
            Verdict::WrongToken => (StatusCode::UNAUTHORIZED, "the token is wrong"),
            Verdict::FromElsewhere => {
                (StatusCode::FORBIDDEN, "only from this machine, or with Authorization: Bearer")
            }
            Verdict::NoToken => (StatusCode::UNAUTHORIZED, "only with Authorization: Bearer"),
            Verdict::FromWebPage => (StatusCode::FORBIDDEN, "not from a web page"),
            Verdict::FromProxy => {
                (StatusCode::FORBIDDEN, "not through a proxy without Authorization: Bearer")
            }
        };
        if !self.has_complained.swap(true, Ordering::Relaxed) {
            let line = format!("admin port            refused POST {path} from {from}: {why}");
            self.shutdown.warn(line + "; said once");
        }
        match status {
            StatusCode::UNAUTHORIZED => unauthorized(why),
            _ => as_json(status, &json!({ "error": why })),
        }
    }

    fn stop(&self) -> Response<Bytes> {
        // The first reason wins, so this changes nothing in a shutdown that has begun.
        drop(self.shutdown.run(AdminStop));
        // From here on the ladder is that of SIGTERM. On its last rung a signal ends the process; a
        // request only makes the shutdown more urgent.
        let _ = self.shutdown.receive(Signal::TERM);
        self.stands(StatusCode::ACCEPTED)
    }

    /// Not ready at once; refuses when routers have moved away.
    fn cordon(&self) -> Response<Bytes> {
        let mut cordoning = Box::pin(self.shutdown.cordon_gradually());
        let mut context = Context::from_waker(Waker::noop());
        if cordoning.as_mut().poll(&mut context).is_pending() {
            let mut tasks = self.cordoning.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            // Only a task of the port's own runtime gets here.
            tasks.spawn(async move {
                cordoning.await;
            });
        }
        self.stands(StatusCode::OK)
    }

    fn cordon_now(&self) -> Response<Bytes> {
        self.shutdown.cordon();
        self.stands(StatusCode::OK)
    }

    fn uncordon(&self) -> Response<Bytes> {
        match self.shutdown.uncordon() {
            true => self.stands(StatusCode::OK),
            false => as_json(StatusCode::CONFLICT, &json!({ "error": "the shutdown has begun" })),
        }
    }
}

/// Whether this is in the query.
fn asks_for<B>(request: &Request<B>, wanted: &str) -> bool {
    let query = request.uri().query();
    query.is_some_and(|query| query.split('&').any(|part| part == wanted))
}

fn unauthorized(why: &str) -> Response<Bytes> {
    let mut response = as_json(StatusCode::UNAUTHORIZED, &json!({ "error": why }));
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Makes an answer on another thread.
async fn aside(make: impl FnOnce() -> Response<Bytes> + Send + 'static) -> Response<Bytes> {
    match tokio::time::timeout(MOST, tokio::task::spawn_blocking(make)).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => text(StatusCode::INTERNAL_SERVER_ERROR, "it panicked when asked\n".into()),
        Err(_) => text(StatusCode::GATEWAY_TIMEOUT, "it does not answer\n".into()),
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
