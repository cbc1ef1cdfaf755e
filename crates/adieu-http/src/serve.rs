//! The server: its builder and its future.
//!
//! [`machine`] decides when the server moves to its next [`Stage`](crate::stage::Stage), [`driver`]
//! accepts, serves and ends connections, and [`phases`] connects the server to the shutdown.

mod accept_queue;
mod driver;
mod machine;
mod phases;
mod roster;
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

use crate::admission::{Admission, RefusalBody};
use crate::app::App;
use crate::connection::{Configure, Streams};
use crate::listener::Listener;
use crate::probes::Probes;

/// Serves `app` on `listener` until the shutdown, and drains it then.
///
/// `app` is any tower service for HTTP requests: an `axum::Router`, tonic's `Routes`, or your own.
/// The server detects automatically whether a client speaks HTTP/1 or HTTP/2.
///
/// ```no_run
/// # async fn start(app: axum::Router, shutdown: adieu_core::Shutdown) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:8080").await?;
/// adieu_http::serve(listener, app, &shutdown).await?;
/// # Ok(())
/// # }
/// ```
///
/// Awaiting the server marks start-up as ended (see [`Shutdown::mark_started`]), serves, and returns when
/// the shutdown has closed the last connection. If the shutdown has already begun, it returns at
/// once. If the shutdown is aborted, it continues to serve, because an aborted shutdown can be
/// resumed.
///
/// The shutdown owns the server, which is a task of the runtime. Dropping the future loses no
/// request; see [`Serve::into_future`].
///
/// In the shutdown, by phase:
///
/// | phase | effect |
/// |---|---|
/// | `before-service-unbind` | The process is not ready, but the server still accepts and serves. Responses carry `Connection: close`, and HTTP/2 clients get GOAWAY, so that clients reconnect elsewhere. |
/// | `service-unbind` | Connections in the kernel's queue are accepted. The listener is closed, then the gate. From here on new requests get 503. |
/// | `service-requests-done` | Admitted requests finish. Event streams end, and WebSockets get a close frame with code 1001. |
/// | `service-stop` | Remaining connections are cancelled, then dropped. |
#[must_use = "a server does nothing until it is awaited"]
pub fn serve<L, S>(listener: L, app: S, shutdown: &Shutdown) -> Serve<L, S> {
    Serve { listener, app, shutdown: shutdown.clone(), options: Options::new() }
}

/// The builder of a server; see [`serve()`].
#[must_use = "a server does nothing until it is awaited"]
pub struct Serve<L, S> {
    listener: L,
    app: S,
    shutdown: Shutdown,
    options: Options,
}

struct Options {
    name: Arc<str>,
    gate: Option<Gate>,
    refusal_status: StatusCode,
    class: Option<DrainClass>,
    probes: Option<Probes>,
    websocket_close_timeout: Duration,
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

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The server's tasks could not be added to the shutdown.
    #[error("failed to add the tasks of server {name} to the shutdown")]
    AddTask {
        /// The name of the server.
        name: Arc<str>,
        /// The cause.
        source: AddTaskError,
    },
}

/// The future of a server; see [`serve()`].
#[must_use = "futures do nothing unless polled"]
pub struct Serving(Pin<Box<dyn Future<Output = Result<(), ServeError>> + Send>>);

// === impl Serve ===

impl<L, S> Serve<L, S> {
    /// Sets the name of the server in logs, in the report and among the checks. `http` by default.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Admits requests through this gate, which other work may share. The server registers it to be
    /// drained.
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.options.gate = Some(gate.clone());
        self
    }

    /// Answers these probes, even when the gate is closed.
    pub fn probes(mut self, probes: Probes) -> Self {
        self.options.probes = Some(probes);
        self
    }

    /// Refuses with 429 instead of 503.
    pub fn too_many_requests(mut self) -> Self {
        self.options.refusal_status = StatusCode::TOO_MANY_REQUESTS;
        self
    }

    /// Refuses with this body instead of the JSON body. The refusal of a gRPC call does not change.
    pub fn refusal_body(mut self, content_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        self.options.refusal_body = Some(RefusalBody { content_type, bytes: body.into() });
        self
    }

    /// Limits the number of open connections. Further clients wait in the kernel's queue. Unlimited
    /// by default.
    ///
    /// When the listener closes, the connections in the queue are accepted beyond this limit.
    pub fn max_connections(mut self, most: usize) -> Self {
        self.options.max_connections = most;
        self
    }

    /// Sets how responses end when the gate drains, unless the response sets its own class; see
    /// [`GateLayer`](crate::GateLayer).
    pub fn class(mut self, class: DrainClass) -> Self {
        self.options.class = Some(class);
        self
    }

    /// Sets how long the closing handshake of a WebSocket may take. Two seconds by default. Then the
    /// client is disconnected. The handler can finish its work until the window has elapsed.
    pub fn websocket_close_timeout(mut self, most: Duration) -> Self {
        self.options.websocket_close_timeout = most;
        self
    }

    /// Sets after how long a client that acknowledges nothing of its response is disconnected, when
    /// all other work is done. One minute by default.
    ///
    /// A shorter time lets a client that does not read delay the shutdown less. But the kernel of a
    /// client that reads slowly makes room in steps of megabytes: at 500 kB/s it acknowledges
    /// nothing for up to 16 s, and keeps its response only if this time is longer. A client that
    /// acknowledges more bytes keeps its connection until the window has elapsed.
    ///
    /// On Linux, a client whose kernel answers neither probes nor retransmissions for five seconds
    /// is disconnected sooner, because it is gone. Linux reports this and acknowledgements for TCP
    /// connections. On other platforms, and where netlink sockets are not permitted, bytes count as
    /// acknowledged when the kernel has taken them.
    pub fn stall_timeout(mut self, most: Duration) -> Self {
        self.options.stall_timeout = most;
        self
    }

    /// Sets how long after their cancellation connections are dropped. One second by default, and
    /// at most half of the phase's time.
    pub fn hard_stop(mut self, most: Duration) -> Self {
        self.options.hard_stop = most;
        self
    }

    /// Limits how long a client may take to send the head of an HTTP/1 request. Unlimited by default,
    /// because such a client does not delay the drain.
    pub fn header_read_timeout(self, most: Duration) -> Self {
        self.configure(move |builder| {
            builder.http1().timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(most);
        })
    }

    /// Limits the head of an HTTP/1 request: the number of headers, and the number of bytes, which
    /// is at least 8,192. A request with a longer head gets 431. hyper's defaults are 100 headers
    /// and about 400 kB.
    pub fn http1_max_head(self, headers: usize, bytes: usize) -> Self {
        self.configure(move |builder| {
            builder.http1().max_headers(headers).max_buf_size(bytes.max(8_192));
        })
    }

    /// Sets whether HTTP/1 clients that close their side of the connection after the request are
    /// answered. Off by default: the client is then considered gone, and its request is dropped. During the
    /// drain the report names such a request, because a client that still waits looks the same.
    pub fn http1_half_close(self, is_answered: bool) -> Self {
        self.configure(move |builder| {
            builder.http1().half_close(is_answered);
        })
    }

    /// Limits how many requests an HTTP/2 client may have open on one connection. hyper's default is
    /// 200.
    pub fn http2_max_concurrent_streams(self, most: u32) -> Self {
        self.configure(move |builder| {
            builder.http2().max_concurrent_streams(most);
        })
    }

    /// Limits the headers of an HTTP/2 request, in bytes. hyper's default is 16 kB.
    pub fn http2_max_header_list_size(self, most: u32) -> Self {
        self.configure(move |builder| {
            builder.http2().max_header_list_size(most);
        })
    }

    /// Pings HTTP/2 clients at this interval, and closes the connection of a client that does not
    /// answer within `timeout`.
    pub fn http2_keep_alive(self, interval: Duration, timeout: Duration) -> Self {
        self.configure(move |builder| {
            let mut http2 = builder.http2();
            http2.timer(hyper_util::rt::TokioTimer::new());
            http2.keep_alive_interval(interval).keep_alive_timeout(timeout);
        })
    }

    /// Adds a setting for each connection.
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

    /// Serves TLS. If the configuration names no ALPN protocols, HTTP/2 and HTTP/1.1 are offered.
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
    /// No request is lost if the future is dropped, because it only waits: the server is a task of
    /// the runtime, which the shutdown joins. During a shutdown, dropping the future changes
    /// nothing. Before it, the process becomes unavailable, and the server closes its listener,
    /// finishes the requests on its open connections and ends. A shutdown that begins meanwhile
    /// waits for that.
    fn into_future(self) -> Serving {
        // Added here, not in the first poll: of several servers that are started together, none
        // must make the process ready before the others listen.
        let check = self.shutdown.add_check(Arc::clone(&self.options.name));
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
            refusal_status: StatusCode::SERVICE_UNAVAILABLE,
            class: None,
            probes: None,
            websocket_close_timeout: Duration::from_secs(2),
            stall_timeout: Duration::from_secs(60),
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

    fn admission(&self) -> Admission {
        let gate = self.gate.clone().unwrap_or_else(|| Gate::new(Arc::clone(&self.name)));
        let refusal_body = self.refusal_body.clone();
        let refusal_status = self.refusal_status;
        Admission { refusal_status, class: self.class, refusal_body, ..Admission::new(gate) }
    }
}
