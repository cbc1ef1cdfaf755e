//! The responses of the admin port.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use adieu_core::Shutdown;
use adieu_core::adapter::{self, Command, Metrics, NamedPage, lock, log};
use bytes::Bytes;
use http::header::{ALLOW, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use tracing::{info, warn};

use super::caller::{Token, Verdict, authorize, has_token, rebound_name};
use super::json::as_json;
use super::pages::Calls;
use super::process::Process;
use super::{AdminStop, metrics};
use crate::probes::{Probes, text, with_type};

/// The responses of the admin port, and their settings.
pub(super) struct Answers {
    shutdown: Shutdown,
    pub(super) process: Process,
    pub(super) probes: Probes,
    pub(super) token: Option<Token>,
    /// Callers on this machine need the token, too.
    pub(super) is_token_required: bool,
    /// The address that the port is bound to.
    pub(super) bound: IpAddr,
    pub(super) metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    calls: Arc<Calls>,
    /// Cordons whose lame duck has not ended. They are aborted when the port closes.
    cordoning: Mutex<JoinSet<()>>,
    /// A refusal is logged once, so that a caller cannot fill the log.
    has_warned: AtomicBool,
}

/// Why a caller gets something else than it has requested.
type Refusal = Box<Response<Bytes>>;

/// How long the application's code may take to describe a task or to render metrics.
const RENDER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long `?until=over` waits. Less than a connection may last.
const MAX_WAIT: Duration = Duration::from_secs(30);

const INDEX: &str = "\
GET  /readyz /livez /startupz /healthz   probes; ?verbose lists the checks
GET  /shutdown                           status of the shutdown as JSON; ?until=over waits for its end
GET  /metrics                            metrics in the text format of Prometheus; ?until=over waits for the end
POST /shutdown                           shuts down, like SIGTERM
POST /cordon                             makes the process unready and refuses work after a lame duck; ?now=true refuses at once
POST /uncordon                           reverts a cordon
";

impl Answers {
    pub(super) fn new(shutdown: &Shutdown) -> Self {
        Self {
            shutdown: shutdown.clone(),
            process: Process::current(),
            probes: Probes::new(shutdown),
            token: None,
            is_token_required: false,
            metrics: None,
            calls: Arc::default(),
            bound: IpAddr::from([127, 0, 0, 1]),
            cordoning: Mutex::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Answers a request. Code of the application, such as the description of a task, runs on another
    /// thread and for a limited time, because it must not delay a probe.
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
            ("/", _) if is_get => text(StatusCode::OK, self.index()),
            ("/shutdown" | "/metrics", _) if is_get && !self.may_read(&request, from) => {
                self.refuse_reader(&request, from)
            }
            ("/shutdown", _) if is_get => {
                if has_query(&request, "until=over") {
                    // The process may have exited before the client could poll again.
                    let _ = tokio::time::timeout(MAX_WAIT, self.shutdown.completed()).await;
                }
                on_other_thread(move || self.status()).await
            }
            ("/metrics", _) if is_get => {
                if has_query(&request, "until=over") {
                    let _ = tokio::time::timeout(MAX_WAIT, self.shutdown.completed()).await;
                }
                let more = self.calls.metrics(adapter::pages(&self.shutdown)).await;
                on_other_thread(move || self.metrics(&more)).await
            }
            ("/shutdown", &Method::POST) => self.change(&request, from, Self::stop),
            ("/cordon", &Method::POST) if has_query(&request, "now=true") => {
                self.change(&request, from, Self::cordon_now)
            }
            ("/cordon", &Method::POST) => self.change(&request, from, Self::cordon),
            ("/uncordon", &Method::POST) => self.change(&request, from, Self::uncordon),
            ("/shutdown", _) => not_allowed("GET, HEAD, POST"),
            ("/" | "/metrics", _) => not_allowed("GET, HEAD"),
            ("/cordon" | "/uncordon", _) => not_allowed("POST"),
            _ => match self.find_page(&request, from) {
                Ok((page, None)) => self.calls.status(page).await,
                Ok((page, Some(command))) => self.calls.command(page, command).await,
                Err(refusal) => *refusal,
            },
        }
    }

    /// Returns the page that a request is for, and the command if the request is one.
    fn find_page<B>(
        &self,
        request: &Request<B>,
        from: SocketAddr,
    ) -> Result<(NamedPage, Option<Command>), Refusal> {
        let not_found =
            || Box::new(text(StatusCode::NOT_FOUND, format!("not found; {}", self.index())));
        let path = request.uri().path().strip_prefix('/').ok_or_else(not_found)?;
        let (name, command) = match path.split_once('/') {
            Some((name, command)) => (name, Some(command)),
            None => (path, None),
        };
        let mut pages = adapter::pages(&self.shutdown).into_iter();
        let page = pages.find(|(page, _)| **page == *name).ok_or_else(not_found)?;
        match (command, request.method()) {
            (None, &Method::GET | &Method::HEAD) if self.may_read(request, from) => {
                Ok((page, None))
            }
            (None, &Method::GET | &Method::HEAD) => Err(self.refuse_reader(request, from).into()),
            (None, _) => Err(not_allowed("GET, HEAD").into()),
            (Some(command), _) if page.1.commands().iter().all(|(name, _)| *name != command) => {
                Err(not_found())
            }
            (Some(command), &Method::POST) => {
                self.authorize(request, from)?;
                Ok((page, Some(Command::new(command, request.uri().query()))))
            }
            (Some(_), _) => Err(not_allowed("POST").into()),
        }
    }

    /// Lists the endpoints.
    fn index(&self) -> String {
        let mut index = format!("available:\n{INDEX}");
        for (name, page) in adapter::pages(&self.shutdown) {
            let _ = writeln!(index, "GET  {:<35} status of {name} as JSON", format!("/{name}"));
            for (command, effect) in page.commands() {
                let _ = writeln!(index, "POST {:<35} {effect}", format!("/{name}/{command}"));
            }
        }
        index
    }

    fn metrics(&self, more: &Metrics) -> Response<Bytes> {
        const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
        let mut text = Metrics::default();
        metrics::render(&self.shutdown, &mut text);
        text.append(&more.to_string());
        if let Some(render) = &self.metrics {
            match std::panic::catch_unwind(AssertUnwindSafe(|| render())) {
                Ok(more) => text.append(&more),
                // The built-in metrics are needed most when the application fails.
                Err(_) => text.append("# the application's metrics failed: panicked"),
            }
        }
        with_type(StatusCode::OK, TYPE, text.to_string())
    }

    fn status(&self) -> Response<Bytes> {
        // These are plain values, whose conversion to JSON cannot fail.
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

    /// Returns the state of the process after a change.
    fn state(&self, status: StatusCode) -> Response<Bytes> {
        let (stage, reason) = (self.shutdown.stage(), self.shutdown.reason());
        let reason = reason.map(|reason| reason.to_string());
        let readiness = self.shutdown.readiness();
        let admitting = self.shutdown.is_admitting();
        let state = json!({
            "stage": stage, "reason": reason, "readiness": readiness, "admitting": admitting,
        });
        as_json(status, &state)
    }

    /// Returns whether a caller may read the state of the process.
    fn may_read<B>(&self, request: &Request<B>, from: SocketAddr) -> bool {
        let headers = request.headers();
        rebound_name(from.ip(), headers).is_none()
            && (!self.is_token_required || has_token(self.token.as_ref(), headers) == Some(true))
    }

    fn refuse_reader<B>(&self, request: &Request<B>, from: SocketAddr) -> Response<Bytes> {
        let Some(name) = rebound_name(from.ip(), request.headers()) else {
            return unauthorized("Authorization: Bearer is required");
        };
        let error = format!(
            "the Host header {name:.253} is not an address of this machine; use its address"
        );
        as_json(StatusCode::FORBIDDEN, &json!({ "error": error }))
    }

    /// Runs `change` if the caller is authorised.
    fn change<B>(
        &self,
        request: &Request<B>,
        from: SocketAddr,
        change: impl FnOnce(&Self) -> Response<Bytes>,
    ) -> Response<Bytes> {
        match self.authorize(request, from) {
            Ok(()) => change(self),
            Err(refusal) => *refusal,
        }
    }

    /// Returns a refusal unless the caller may change the process.
    fn authorize<B>(&self, request: &Request<B>, from: SocketAddr) -> Result<(), Refusal> {
        let path = request.uri().path();
        let (token, headers) = (self.token.as_ref(), request.headers());
        let verdict = authorize(token, self.is_token_required, from.ip(), self.bound, headers);
        let (status, reason) = match verdict {
            Verdict::Allowed => {
                let path = request.uri().path_and_query().map_or(path, |path| path.as_str());
                let path = path.to_owned();
                log(&self.shutdown, move || info!(method = "POST", path, %from, "admin request"));
                return Ok(());
            }
            Verdict::WrongToken => (StatusCode::UNAUTHORIZED, "the token is wrong"),
            Verdict::Remote => (
                StatusCode::FORBIDDEN,
                "allowed only from this machine, or with Authorization: Bearer",
            ),
            Verdict::NoToken => (StatusCode::UNAUTHORIZED, "Authorization: Bearer is required"),
            Verdict::FromWebPage => (StatusCode::FORBIDDEN, "not allowed from a web page"),
            Verdict::FromProxy => {
                (StatusCode::FORBIDDEN, "through a proxy, Authorization: Bearer is required")
            }
        };
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let path = path.to_owned();
            log(&self.shutdown, move || {
                warn!(method = "POST", path, %from, reason, "admin request refused; logged once");
            });
        }
        Err(Box::new(match status {
            StatusCode::UNAUTHORIZED => unauthorized(reason),
            _ => as_json(status, &json!({ "error": reason })),
        }))
    }

    fn stop(&self) -> Response<Bytes> {
        // The first reason wins, so this changes nothing in a shutdown that has begun.
        drop(self.shutdown.run(AdminStop));
        // A repeated signal can end the process. A request does not.
        adapter::receive_request(&self.shutdown, "admin-port");
        self.state(StatusCode::ACCEPTED)
    }

    /// Makes the process unready at once. Work is refused after the lame duck.
    fn cordon(&self) -> Response<Bytes> {
        let mut cordoning = Box::pin(self.shutdown.cordon_gradually());
        let mut context = Context::from_waker(Waker::noop());
        if cordoning.as_mut().poll(&mut context).is_pending() {
            let mut tasks = lock(&self.cordoning);
            while tasks.try_join_next().is_some() {}
            // Called only on the port's own runtime, so `spawn` cannot panic.
            tasks.spawn(async move {
                cordoning.await;
            });
        }
        self.state(StatusCode::OK)
    }

    fn cordon_now(&self) -> Response<Bytes> {
        self.shutdown.cordon();
        self.state(StatusCode::OK)
    }

    fn uncordon(&self) -> Response<Bytes> {
        match self.shutdown.uncordon() {
            true => self.state(StatusCode::OK),
            false => as_json(StatusCode::CONFLICT, &json!({ "error": "the shutdown has begun" })),
        }
    }
}

/// Returns whether the query contains this parameter.
fn has_query<B>(request: &Request<B>, wanted: &str) -> bool {
    let query = request.uri().query();
    query.is_some_and(|query| query.split('&').any(|part| part == wanted))
}

fn unauthorized(reason: &str) -> Response<Bytes> {
    let mut response = as_json(StatusCode::UNAUTHORIZED, &json!({ "error": reason }));
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Renders a response on another thread.
async fn on_other_thread(
    render: impl FnOnce() -> Response<Bytes> + Send + 'static,
) -> Response<Bytes> {
    match tokio::time::timeout(RENDER_TIMEOUT, tokio::task::spawn_blocking(render)).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            text(StatusCode::INTERNAL_SERVER_ERROR, "rendering the answer panicked\n".into())
        }
        Err(_) => text(StatusCode::GATEWAY_TIMEOUT, "rendering the answer took too long\n".into()),
    }
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answers").field("token", &self.token).finish_non_exhaustive()
    }
}

fn not_allowed(allowed: &'static str) -> Response<Bytes> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("allowed: {allowed}\n"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
