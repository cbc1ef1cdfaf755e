//! A port for probes, status and the operator, on a thread and a runtime of its own.
//!
//! It is up first and down last, and answers also when the application's runtime is stuck: a
//! process that hangs can be asked what it hangs on.

mod answer;
mod caller;
mod connections;
mod metrics;
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
const GOODBYE: Duration = Duration::from_millis(500);

/// A port for probes, status and the operator.
///
/// | request | what |
/// |---|---|
/// | `GET /readyz`, `/livez`, `/startupz`, `/healthz` | the [`Probes`] |
/// | `GET /shutdown` | as JSON: which [process](Admin::name) it is, stage, readiness, checks, how many are in flight, what is waited for, and the report when it is over |
/// | `GET /shutdown?until=over` | the same, when it is over, or after half a minute |
/// | `GET /metrics` | the metrics below, and what [`Admin::metrics`] gives |
/// | `GET /metrics?until=over` | the same, when the shutdown is over, or after half a minute |
/// | `POST /shutdown` | does what SIGTERM does, with the reason [`AdminStop`]; asked again, it is in more of a hurry |
/// | `POST /cordon` | not ready from now on, and after a [lame duck](Shutdown::cordon_gradually) no work is admitted |
/// | `POST /cordon?now=true` | the same without a lame duck |
/// | `POST /uncordon` | takes a cordon back |
///
/// It listens on `127.0.0.1:8558` if nothing else is said. What changes something is refused unless
/// it comes from this machine, and neither from a web page nor through a proxy, or has the
/// [token](Admin::token).
///
/// These metrics are there from the start until the port is closed, without any set-up:
///
/// | metric | type | labels | meaning |
/// |---|---|---|---|
/// | `adieu_ready` | gauge | | 1 while work should be sent here |
/// | `adieu_readiness` | gauge | `state` | 1 for the current readiness, 0 for the others |
/// | `adieu_in_flight` | gauge | `gate` | work inside a gate |
/// | `adieu_refused_total` | counter | `gate` | work that a gate has refused |
/// | `adieu_cut_off_total` | counter | `gate` | admitted work, such as answers, cut off before its end |
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
#[must_use = "it does not listen until it is started"]
pub struct Admin {
    addr: SocketAddr,
    answers: Answers,
}

/// An admin port that listens. Dropping it closes the port; [`Shutdown::keep_until_exit`] keeps it
/// until everything else is over.
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

/// Why there is no admin port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address is none.
    #[error("failed to understand the address {addr:?} of the admin port, such as 127.0.0.1:8558")]
    Address {
        /// What was given.
        addr: String,
        /// Why it is none.
        #[source]
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("failed to listen on {addr} for the admin port")]
    Bind {
        /// Where.
        addr: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A token that anybody could guess.
    #[error("failed to take the token of the admin port: it has {len} bytes, 16 are the least")]
    WeakToken {
        /// How long it was.
        len: usize,
    },
    /// Its thread could not be started.
    #[error("failed to start the thread of the admin port")]
    Thread(#[source] io::Error),
    /// The recorder of metrics could not be installed.
    #[cfg(feature = "prometheus")]
    #[error("failed to install the recorder of metrics")]
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
    /// An admin port of this process.
    pub fn new(shutdown: &Shutdown) -> Self {
        let answers = Answers::new(shutdown);
        Self { addr: SocketAddr::from(([127, 0, 0, 1], 8558)), answers }
    }

    /// Names the service in what `GET /shutdown` answers, and so in `adieu status`. Without it, the
    /// service has the name of its executable.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.answers.process.name = name.into();
        self
    }

    /// Listens here instead of on `127.0.0.1:8558`.
    ///
    /// # Errors
    ///
    /// If this is no address.
    pub fn bind(mut self, addr: impl ToSocketAddrs + std::fmt::Debug) -> Result<Self, AdminError> {
        let wrong = |source| AdminError::Address { addr: format!("{addr:?}"), source };
        let none = || wrong(io::Error::other("it stands for no address"));
        self.addr = addr.to_socket_addrs().map_err(wrong)?.next().ok_or_else(none)?;
        Ok(self)
    }

    /// Lets in whoever has `Authorization: Bearer` and this token, wherever they come from.
    ///
    /// # Errors
    ///
    /// If it is shorter than 16 bytes.
    pub fn token(mut self, token: impl Into<String>) -> Result<Self, AdminError> {
        self.answers.token = Some(Token::new(token.into())?);
        Ok(self)
    }

    /// Requires the token of every caller, also of those on this machine, and also to read
    /// `/shutdown` and `/metrics`: where a proxy on this machine speaks for others, everybody seems
    /// to come from here. Probes are answered without it.
    ///
    /// If no token is set, nobody is let in.
    pub fn require_token(mut self) -> Self {
        self.answers.only_token = true;
        self
    }

    /// Answers these probes instead of the usual ones.
    pub fn probes(mut self, probes: Probes) -> Self {
        self.answers.probes = probes;
        self
    }

    /// Adds this to `/metrics`, in the text format of Prometheus.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.answers.metrics = Some(Arc::new(render));
        self
    }

    /// Installs a recorder of the `metrics` facade for the whole process, and adds what it has
    /// recorded to `/metrics`.
    ///
    /// # Errors
    ///
    /// If there is a recorder already: then show that one, with [`Admin::metrics`].
    #[cfg(feature = "prometheus")]
    pub fn prometheus(self) -> Result<Self, AdminError> {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder();
        let handle = recorder.map_err(AdminError::Metrics)?;
        Ok(self.metrics(move || {
            handle.run_upkeep();
            handle.render()
        }))
    }

    /// Listens, on a thread of its own.
    ///
    /// # Errors
    ///
    /// If the address cannot be listened on, or the thread not be started.
    pub fn start(self) -> Result<AdminHandle, AdminError> {
        let Self { addr, answers } = self;
        let bind = |source| AdminError::Bind { addr, source };
        let listener = std::net::TcpListener::bind(addr).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let addr = listener.local_addr().map_err(bind)?;
        let close = CancellationToken::new();
        let (tell, closed) = sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(AdminError::Thread)?;
        let serve = {
            let close = close.clone();
            move || {
                runtime.block_on(connections::serve(listener, Arc::new(answers), close));
                // Whoever is still making an answer is not waited for.
                runtime.shutdown_background();
                let _ = tell.send(());
            }
        };
        let thread = std::thread::Builder::new().name("adieu-admin".into());
        thread.spawn(serve).map_err(AdminError::Thread)?;
        Ok(AdminHandle { addr, close, closed })
    }
}

// === impl AdminHandle ===

impl AdminHandle {
    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        self.close.cancel();
        // The thread may be in somebody's code that renders metrics; that is no reason to hang.
        let _ = self.closed.recv_timeout(GOODBYE);
    }
}
