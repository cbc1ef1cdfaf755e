//! Serves an application until its shutdown, and through it.
//!
//! [`machine`] decides how far the server is, [`driver`] accepts, serves and ends connections;
//! every connection follows the [`Stage`].

mod app;
mod closing;
mod cuts;
mod driver;
mod machine;
mod roster;
mod stage;
#[cfg(feature = "tls")]
mod tls;

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::{AddTaskError, DrainClass, Gate, Shutdown};
use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderValue;
use hyper_util::server::conn::auto::Builder;

pub use app::{App, BoxError};
pub(crate) use cuts::{Cuts, Why};
pub(crate) use stage::{Now, Stage};

use crate::connection::Streams;
use crate::layer::{Door, RefusalBody};
use crate::listener::Listener;
use crate::probes::Probes;

/// Serves `app` on `listener` until the shutdown, and drains it there.
///
/// `app` is any tower service of HTTP requests: an `axum::Router`, tonic's `Routes`, or your own.
/// HTTP/1 and HTTP/2 are told apart by themselves.
///
/// ```no_run
/// # async fn start(app: axum::Router, shutdown: adieu_core::Shutdown) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:8080").await?;
/// adieu_http::serve(listener, app, &shutdown).await?;
/// # Ok(())
/// # }
/// ```
///
/// Awaiting it serves, says that start-up has ended (see [`Shutdown::started`]), and returns when
/// the shutdown has closed the last connection; at once if the shutdown has already begun. If the
/// shutdown is aborted it goes on, because an aborted shutdown can be resumed. What happens then, by phase:
///
/// | phase | what |
/// |---|---|
/// | `before-service-unbind` | Not ready any more, still accepting and serving. Answers say `Connection: close` or GOAWAY, so that connections wind down by being used. |
/// | `service-unbind` | What the kernel has queued is accepted, the listener is closed, then the gate. From here on requests get 503. |
/// | `service-requests-done` | Requests that got in finish. Event streams end, WebSockets are told 1001. |
/// | `service-stop` | What is left is cancelled, then dropped. |
#[must_use = "nothing is served until it is awaited"]
pub fn serve<L, S>(listener: L, app: S, shutdown: &Shutdown) -> Serve<L, S> {
    Serve { listener, app, shutdown: shutdown.clone(), options: Options::new() }
}

/// A server that is to be; see [`serve()`].
#[must_use = "nothing is served until it is awaited"]
pub struct Serve<L, S> {
    listener: L,
    app: S,
    shutdown: Shutdown,
    options: Options,
}

struct Options {
    name: Arc<str>,
    gate: Option<Gate>,
    status: StatusCode,
    class: Option<DrainClass>,
    probes: Option<Probes>,
    goodbye: Duration,
    stall_timeout: Duration,
    hard_stop: Duration,
    max_connections: usize,
    refusal_body: Option<RefusalBody>,
    configure: Configure,
    #[cfg(feature = "axum")]
    connect_info: bool,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsAcceptor>,
}

pub(crate) type Configure = Arc<dyn Fn(&mut Builder<Streams>) + Send + Sync>;

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Its tasks could not be added to the shutdown.
    #[error("failed to serve {name}")]
    AddTask {
        /// Which server.
        name: Arc<str>,
        /// Why not.
        source: AddTaskError,
    },
}

/// The future of a server; see [`serve()`].
#[must_use = "futures do nothing unless polled"]
pub struct Serving(Pin<Box<dyn Future<Output = Result<(), ServeError>> + Send>>);

// === impl Serve ===

impl<L, S> Serve<L, S> {
    /// What it is called in logs, in the report and among the checks. `http` if nothing else is
    /// said.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Admits requests through this gate, which others may enter, too. The server has it drained.
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.options.gate = Some(gate.clone());
        self
    }

    /// Answers these probes, also when the gate is closed.
    pub fn probes(mut self, probes: Probes) -> Self {
        self.options.probes = Some(probes);
        self
    }

    /// Refuses with 429 instead of 503.
    pub fn too_many_requests(mut self) -> Self {
        self.options.status = StatusCode::TOO_MANY_REQUESTS;
        self
    }

    /// Refuses with this body instead of the usual JSON. gRPC calls get their status as ever.
    pub fn refusal_body(mut self, content_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        self.options.refusal_body = Some(RefusalBody { content_type, body: body.into() });
        self
    }

    /// Accepts no more than this many connections at a time; others wait in the kernel's queue.
    /// Without limit by default.
    ///
    /// When the listener closes, what is queued is accepted beyond this limit.
    pub fn max_connections(mut self, most: usize) -> Self {
        self.options.max_connections = most;
        self
    }

    /// How responses end when the gate is drained, unless they say so themselves; see
    /// [`GateLayer`](crate::GateLayer).
    pub fn class(mut self, class: DrainClass) -> Self {
        self.options.class = Some(class);
        self
    }

    /// Sets how long the closing handshake of a WebSocket may take. Two seconds by default.
    pub fn goodbye(mut self, most: Duration) -> Self {
        self.options.goodbye = most;
        self
    }

    /// Sets how long a client may acknowledge nothing of its answer when all other work is done.
    /// Five seconds by default, and half of the time that is left at most.
    ///
    /// A client that acknowledges more keeps its answer until the window is over. Linux tells what
    /// has been acknowledged on TCP connections; elsewhere, and where netlink sockets are forbidden,
    /// what the kernel has taken counts.
    pub fn stall_timeout(mut self, most: Duration) -> Self {
        self.options.stall_timeout = most;
        self
    }

    /// How long connections have from when they are cancelled until they are dropped. A second
    /// if nothing else is said, and half of its phase at most.
    pub fn hard_stop(mut self, most: Duration) -> Self {
        self.options.hard_stop = most;
        self
    }

    /// How long a client may take to send the head of a request of HTTP/1. Without limit if
    /// nothing else is said, as such a client does not hold up the drain.
    pub fn header_read_timeout(self, most: Duration) -> Self {
        self.configure(move |builder| {
            builder.http1().timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(most);
        })
    }

    /// Limits the heads of requests of HTTP/1: how many headers, and how many bytes, which are at
    /// least 8,192. A longer one gets 431. hyper's defaults are 100 headers and about 400 kB.
    pub fn http1_max_head(self, headers: usize, bytes: usize) -> Self {
        self.configure(move |builder| {
            builder.http1().max_headers(headers).max_buf_size(bytes.max(8_192));
        })
    }

    /// Answers also clients of HTTP/1 that close their side of the connection after the request.
    /// Off by default: then such a client counts as gone, and its request is dropped.
    pub fn http1_half_close(self, answers: bool) -> Self {
        self.configure(move |builder| {
            builder.http1().half_close(answers);
        })
    }

    /// Limits how many requests a client of HTTP/2 may have open on one connection. hyper's default
    /// is 200.
    pub fn http2_max_concurrent_streams(self, most: u32) -> Self {
        self.configure(move |builder| {
            builder.http2().max_concurrent_streams(most);
        })
    }

    /// Limits the headers of a request of HTTP/2, in bytes. hyper's default is 16 kB.
    pub fn http2_max_header_list_size(self, most: u32) -> Self {
        self.configure(move |builder| {
            builder.http2().max_header_list_size(most);
        })
    }

    /// Pings clients of HTTP/2 at this interval, and closes the connection of one that does not
    /// answer within `timeout`.
    pub fn http2_keep_alive(self, interval: Duration, timeout: Duration) -> Self {
        self.configure(move |builder| {
            let mut http2 = builder.http2();
            http2.timer(hyper_util::rt::TokioTimer::new());
            http2.keep_alive_interval(interval).keep_alive_timeout(timeout);
        })
    }

    /// Adds to what is set for each connection.
    fn configure(mut self, more: impl Fn(&mut Builder<Streams>) + Send + Sync + 'static) -> Self {
        let before = self.options.configure;
        self.options.configure = Arc::new(move |builder| {
            before(builder);
            more(builder);
        });
        self
    }

    /// Gives handlers axum's `ConnectInfo` with the peer's address.
    #[cfg(feature = "axum")]
    pub fn connect_info(mut self) -> Self {
        self.options.connect_info = true;
        self
    }

    /// Speaks TLS. If the configuration names no protocols, HTTP/2 and HTTP/1.1 are offered.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: tokio_rustls::rustls::ServerConfig) -> Self {
        let mut config = config;
        if config.alpn_protocols.is_empty() {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        self.options.tls = Some(Arc::new(config).into());
        self
    }
}

impl<L: Listener, S: App> IntoFuture for Serve<L, S> {
    type Output = Result<(), ServeError>;
    type IntoFuture = Serving;

    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future closes the listener and drops every connection.
    fn into_future(self) -> Serving {
        // Here, not when it is first polled: of several servers that are started together, none
        // makes the process ready before the others.
        let check = self.shutdown.check(Arc::clone(&self.options.name));
        Serving(Box::pin(driver::run(self, check)))
    }
}

impl<L, S> Debug for Serve<L, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serve").field("name", &self.options.name).finish_non_exhaustive()
    }
}

// === impl Serving ===

impl Future for Serving {
    type Output = Result<(), ServeError>;

    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

// === impl Options ===

impl Options {
    fn new() -> Self {
        Self {
            name: "http".into(),
            gate: None,
            status: StatusCode::SERVICE_UNAVAILABLE,
            class: None,
            probes: None,
            goodbye: Duration::from_secs(2),
            stall_timeout: Duration::from_secs(5),
            hard_stop: Duration::from_secs(1),
            max_connections: usize::MAX,
            refusal_body: None,
            configure: Arc::new(|_| {}),
            #[cfg(feature = "axum")]
            connect_info: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    fn door(&self) -> Door {
        let gate = self.gate.clone().unwrap_or_else(|| Gate::new(Arc::clone(&self.name)));
        let refusal_body = self.refusal_body.clone();
        Door { status: self.status, class: self.class, refusal_body, ..Door::new(gate) }
    }
}
