//! The admin port: probes, status and commands for the operator.
//!
//! It has a thread and a runtime of its own, so that it answers even when the application's runtime
//! is blocked, and reports what the process is waiting for.

mod answer;
mod caller;
mod connections;
mod json;
mod metrics;
mod pages;
mod process;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use adieu_core::{CustomReason, Shutdown, Signal};
use tokio_util::sync::CancellationToken;

use answer::Answers;
use caller::Token;

use crate::probes::Probes;

/// How long dropping the handle waits for the thread.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The builder of an admin port, which serves probes, status and commands for the operator.
///
/// | request | effect |
/// |---|---|
/// | `GET /readyz`, `/livez`, `/startupz`, `/healthz` | the [`Probes`] |
/// | `GET /shutdown` | as JSON: the identity of the [process](Admin::name), stage, readiness, checks, work in flight, tasks that are waited for, and the report when the shutdown is over |
/// | `GET /shutdown?until=over` | the same, when the shutdown is over, or after 30 seconds |
/// | `GET /metrics` | the metrics below, and those of [`Admin::metrics`] |
/// | `GET /metrics?until=over` | the same, when the shutdown is over, or after 30 seconds |
/// | `POST /shutdown` | shuts down with the reason [`AdminStop`], like SIGTERM; repeated requests escalate, like repeated signals |
/// | `POST /cordon` | makes the process unready, and refuses work after a [lame duck](Shutdown::cordon_gradually) |
/// | `POST /cordon?now=true` | the same without a lame duck |
/// | `POST /uncordon` | reverts a cordon |
/// | `GET /NAME` | as JSON: the status of a part of the process that published it, such as `/cluster` |
/// | `POST /NAME/COMMAND` | a command of that part; `GET /` lists them |
///
/// The default address is `127.0.0.1:8558`. A `POST` request is accepted if it has the
/// [token](Admin::token), or if it comes from this machine and is addressed to it, and neither comes
/// from a web page nor has a header that proxies add.
///
/// A proxy on this machine that adds no header and replaces `Host`, as nginx does by default, cannot
/// be distinguished from a local caller. If a proxy can reach this port, use [`Admin::require_token`].
///
/// These metrics are available from the start of the port to its end, without any set-up:
///
/// | metric | type | labels | meaning |
/// |---|---|---|---|
/// | `adieu_ready` | gauge | | 1 while the process is ready for work |
/// | `adieu_readiness` | gauge | `state` | 1 for the current readiness, 0 for the others |
/// | `adieu_in_flight` | gauge | `gate` | work inside a gate |
/// | `adieu_refused_total` | counter | `gate` | work refused by a gate |
/// | `adieu_cut_off_total` | counter | `gate` | admitted work, such as responses, cut off before its end |
///
/// ```
/// use adieu_http::Admin;
///
/// # fn start(shutdown: &adieu_core::Shutdown) -> Result<(), adieu_http::AdminError> {
/// let admin = Admin::new(shutdown).bind("127.0.0.1:0")?.start()?;
/// println!("admin port: http://{}", admin.local_addr());
/// shutdown.keep_until_exit(admin);
/// # Ok(())
/// # }
/// # start(&adieu_core::Shutdown::new()).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "an admin port does not listen until it is started"]
pub struct Admin {
    addr: SocketAddr,
    answers: Answers,
}

/// An admin port that listens. Dropping it closes the port; [`Shutdown::keep_until_exit`] keeps it
/// open until everything else has ended.
#[derive(Debug)]
#[must_use = "the port is closed when this is dropped"]
pub struct AdminHandle {
    addr: SocketAddr,
    close: CancellationToken,
    closed: Receiver<()>,
}

/// The reason of a shutdown that a `POST /shutdown` to the admin port began.
///
/// Its name, in the log, the report and `reason-overrides`, is `admin-port`. It has the lame duck
/// and the deadline of SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdminStop;

/// Why an admin port could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address is invalid.
    #[error("invalid address for the admin port: {addr}; write it like 127.0.0.1:8558")]
    Address {
        /// The address.
        addr: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The address could not be bound.
    #[error("failed to bind the admin port to {addr}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The token is too short to resist guessing.
    #[error("admin token is too short: {len} bytes, at least 16 required")]
    WeakToken {
        /// The length of the token.
        len: usize,
    },
    /// The thread of the port could not be started.
    #[error("failed to start the thread of the admin port")]
    Thread(#[source] io::Error),
    /// The metrics recorder could not be installed.
    #[cfg(feature = "prometheus")]
    #[error("failed to install the metrics recorder; the process may already have one")]
    Metrics(#[source] metrics_exporter_prometheus::BuildError),
}

impl CustomReason for AdminStop {
    fn name(&self) -> &str {
        "admin-port"
    }

    fn signal(&self) -> Option<Signal> {
        Some(Signal::TERM)
    }
}

// === impl Admin ===

impl Admin {
    /// Makes an admin port for this process.
    pub fn new(shutdown: &Shutdown) -> Self {
        let answers = Answers::new(shutdown);
        Self { addr: SocketAddr::from(([127, 0, 0, 1], 8558)), answers }
    }

    /// Sets the name of the service in the responses to `GET /shutdown`, and so in `adieu status`. The
    /// default is the name of the executable.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.answers.process.name = name.into();
        self
    }

    /// Sets the address, instead of `127.0.0.1:8558`.
    ///
    /// # Errors
    ///
    /// If this is not a valid address.
    pub fn bind(mut self, addr: impl ToSocketAddrs + std::fmt::Debug) -> Result<Self, AdminError> {
        let invalid = |source| AdminError::Address { addr: format!("{addr:?}"), source };
        let none = || invalid(io::Error::other("the name resolves to no address"));
        self.addr = addr.to_socket_addrs().map_err(invalid)?.next().ok_or_else(none)?;
        Ok(self)
    }

    /// Accepts callers with `Authorization: Bearer` and this token, from any machine. The token is
    /// compared in constant time.
    ///
    /// # Errors
    ///
    /// If the token is shorter than 16 bytes.
    pub fn token(mut self, token: impl Into<String>) -> Result<Self, AdminError> {
        self.answers.token = Some(Token::new(token.into())?);
        Ok(self)
    }

    /// Requires the token of every caller, including callers on this machine, and also for reading
    /// `/shutdown` and `/metrics`. Probes are answered without it.
    ///
    /// Use this where a proxy on this machine forwards requests: all of them appear to be local. If
    /// no token is set, every caller is refused.
    pub fn require_token(mut self) -> Self {
        self.answers.is_token_required = true;
        self
    }

    /// Answers these probes instead of the default ones.
    pub fn probes(mut self, probes: Probes) -> Self {
        self.answers.probes = probes;
        self
    }

    /// Adds the output of `render`, in the text format of Prometheus, to `/metrics`.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.answers.metrics = Some(Arc::new(render));
        self
    }

    /// Installs a recorder of the `metrics` facade for the whole process, and adds its metrics to
    /// `/metrics`.
    ///
    /// # Errors
    ///
    /// If the process already has a recorder. Pass the output of that one to [`Admin::metrics`].
    #[cfg(feature = "prometheus")]
    pub fn prometheus(self) -> Result<Self, AdminError> {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder();
        let handle = recorder.map_err(AdminError::Metrics)?;
        Ok(self.metrics(move || {
            handle.run_upkeep();
            handle.render()
        }))
    }

    /// Starts the port, on a thread of its own.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, or the thread cannot be started.
    pub fn start(self) -> Result<AdminHandle, AdminError> {
        let Self { addr, mut answers } = self;
        answers.bound = addr.ip();
        let bind = |source| AdminError::Bind { addr, source };
        let listener = std::net::TcpListener::bind(addr).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let addr = listener.local_addr().map_err(bind)?;
        let close = CancellationToken::new();
        let (closing, closed) = sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(AdminError::Thread)?;
        let serve = {
            let close = close.clone();
            move || {
                runtime.block_on(connections::serve(listener, Arc::new(answers), close));
                // Does not wait for threads that are still rendering a response.
                runtime.shutdown_background();
                let _ = closing.send(());
            }
        };
        let thread = std::thread::Builder::new().name("adieu-admin".into());
        thread.spawn(serve).map_err(AdminError::Thread)?;
        Ok(AdminHandle { addr, close, closed })
    }
}

// === impl AdminHandle ===

impl AdminHandle {
    /// Returns the address of the port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        self.close.cancel();
        // Bounded, because the thread may be blocked in code of the application that renders metrics.
        let _ = self.closed.recv_timeout(CLOSE_TIMEOUT);
    }
}
