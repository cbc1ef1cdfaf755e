//! Connections to Postgres, made again when they are lost.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row, Socket};
use tokio_util::sync::CancellationToken;

use super::SCHEMA;
use crate::locks::BackendError;

/// A parameter of a statement, with its type: so that statements need not be prepared, which
/// transaction poolers do not forward.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

type Driving = Pin<Box<dyn Future<Output = ()> + Send>>;
type Connecting =
    Pin<Box<dyn Future<Output = Result<(Client, Driving), tokio_postgres::Error>> + Send>>;

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector {
    connect: Arc<dyn Fn() -> Connecting + Send + Sync>,
    patience: Duration,
}

/// How long a server may take to be there and to let us in, unless the configuration says otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection, and the task that moves its bytes, which ends with it.
pub(super) struct Connection {
    pub(super) client: Client,
    /// Fires when it is over.
    pub(super) closed: CancellationToken,
    _driving: JoinSet<()>,
}

/// One connection that all share, and that is replaced when it is lost.
pub(super) struct Line {
    connector: Connector,
    current: Mutex<Option<Arc<Connection>>>,
    connecting: tokio::sync::Mutex<()>,
}

/// Hangs up when a question has not been answered: the next one is asked on a new connection.
struct HangUp<'a> {
    line: &'a Line,
    connection: Arc<Connection>,
    is_answered: bool,
}

/// Turns an error of the client or the server into one of the backend.
pub(super) fn failed(
    backend: &'static str,
    verb: &'static str,
) -> impl Fn(tokio_postgres::Error) -> BackendError + Copy {
    move |error| BackendError::permanent_if(is_permanent(&error), backend, verb, error)
}

/// Whether the same request would fail again: the server or the client refuses it, whenever it comes.
#[must_use]
pub fn is_permanent(error: &tokio_postgres::Error) -> bool {
    match error.code().map(|code| code.code()) {
        // No such database; no schema to make tables in; a feature that this server does not have.
        Some("3D000" | "3F000" | "0A000") => true,
        // Who may not log in; what may not be done, and what is not there to do it with.
        Some(code) => code.starts_with("28") || code.starts_with("42"),
        // The client does not say in another way that a password is missing, or a method of
        // authentication unknown.
        None => {
            let text = error.to_string();
            ["invalid configuration", "authentication error"]
                .iter()
                .any(|permanent| text.starts_with(permanent))
        }
    }
}

// === impl Connector ===

impl Connector {
    pub(super) fn new<T>(mut config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        // Without these, a server that is gone is waited for until the kernel gives up.
        let patience = *config.get_connect_timeout().unwrap_or(&PATIENCE);
        // They are tried one after another.
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX).max(1);
        config.connect_timeout(patience);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(10));
        }
        let connect = move || -> Connecting {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                let driving = async move {
                    // Whoever asks next is told.
                    let _ = connection.await;
                };
                Ok((client, Box::pin(driving) as Driving))
            })
        };
        Self { connect: Arc::new(connect), patience: patience.saturating_mul(hosts) }
    }

    pub(super) async fn connect(&self, backend: &'static str) -> Result<Connection, BackendError> {
        const VERB: &str = "connect";
        // The client bounds only the connection itself, not what is said on it.
        let (client, driving) = tokio::time::timeout(self.patience, (self.connect)())
            .await
            .map_err(|_| BackendError::no_answer(backend, VERB, self.patience))?
            .map_err(failed(backend, VERB))?;
        let (mut set, closed) = (JoinSet::new(), CancellationToken::new());
        let fired_when_dropped = closed.clone().drop_guard();
        set.spawn(async move {
            driving.await;
            drop(fired_when_dropped);
        });
        Ok(Connection { client, closed, _driving: set })
    }
}

// === impl Connection ===

impl Connection {
    pub(super) async fn query(
        &self,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.client.query_typed(statement, params).await
    }

    /// Makes the tables, if they are not there.
    pub(super) async fn prepare(&self, backend: &'static str) -> Result<(), BackendError> {
        self.make_tables().await.map_err(failed(backend, "make its tables"))
    }

    async fn make_tables(&self) -> Result<(), tokio_postgres::Error> {
        let there = "SELECT to_regclass('adieu_leases') IS NOT NULL \
                     AND to_regclass('adieu_sessions') IS NOT NULL \
                     AND to_regclass('adieu_markers') IS NOT NULL";
        let rows = self.query(there, &[]).await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            return Ok(());
        }
        // One message is one transaction. Without the lock, two who come at once collide.
        self.client
            .batch_execute(&format!("SELECT pg_advisory_xact_lock(4713301984022); {SCHEMA}"))
            .await
    }
}

// === impl Line ===

impl Line {
    pub(super) fn new(connector: Connector) -> Self {
        let (current, connecting) = (Mutex::new(None), tokio::sync::Mutex::new(()));
        Self { connector, current, connecting }
    }

    fn current(&self) -> Option<Arc<Connection>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone().filter(|connection| !connection.client.is_closed())
    }

    /// The connection, made if it is not there.
    pub(super) async fn connection(
        &self,
        backend: &'static str,
    ) -> Result<Arc<Connection>, BackendError> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        // One at a time: the others find what it has made.
        let _turn = self.connecting.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let connection = Arc::new(self.connector.connect(backend).await?);
        connection.prepare(backend).await?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }

    pub(super) async fn query(
        &self,
        backend: &'static str,
        verb: &'static str,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, BackendError> {
        let connection = self.connection(backend).await?;
        let mut hang_up = HangUp { line: self, connection, is_answered: false };
        let answer = hang_up.connection.query(statement, params).await;
        hang_up.is_answered = answer.as_ref().map_or_else(|error| error.code().is_some(), |_| true);
        answer.map_err(failed(backend, verb))
    }
}

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // Also when who asked did not wait: then nobody knows whether anybody is there.
        let mut current = self.line.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|it| Arc::ptr_eq(it, &self.connection)) {
            *current = None;
        }
    }
}
