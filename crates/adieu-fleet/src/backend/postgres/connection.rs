//! Single connections to Postgres.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row, Socket};
use tokio_util::sync::CancellationToken;

use super::SCHEMA;
use crate::lock_backend::BackendError;

/// A parameter of a statement with its type. Typed statements need not be prepared, which
/// transaction poolers do not support.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

type Driving = Pin<Box<dyn Future<Output = ()> + Send>>;
type Connecting =
    Pin<Box<dyn Future<Output = Result<(Client, Driving), tokio_postgres::Error>> + Send>>;

/// Makes connections for one of the backends.
#[derive(Clone)]
pub(super) struct Connector {
    /// The name of the backend, for errors.
    pub(super) backend: &'static str,
    connect: Arc<dyn Fn() -> Connecting + Send + Sync>,
    timeout: Duration,
}

/// How long connecting and logging in may take, unless the configuration sets another time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT: &str = "connect";

/// A connection, and the task that transfers its data, which ends with it.
pub(super) struct Connection {
    pub(super) client: Client,
    /// Cancelled when the connection has ended.
    pub(super) closed: CancellationToken,
    backend: &'static str,
    _driving: JoinSet<()>,
}

/// Converts an error of the client or the server.
pub(super) fn failed(
    backend: &'static str,
    verb: &'static str,
) -> impl Fn(tokio_postgres::Error) -> BackendError + Copy {
    move |error| BackendError::permanent_if(is_permanent(&error), backend, verb, error)
}

/// Returns whether the same request would fail again.
#[must_use]
pub fn is_permanent(error: &tokio_postgres::Error) -> bool {
    match error.code().map(|code| code.code()) {
        // The database or the schema for the tables does not exist, or the server lacks a feature.
        Some("3D000" | "3F000" | "0A000") => true,
        // The login is refused, a permission is missing, or an object does not exist.
        Some(code) => code.starts_with("28") || code.starts_with("42"),
        // The client has no other way to report a missing password or an unknown authentication
        // method.
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
    /// Makes connections without TLS, with a configuration such as
    /// `host=db user=app dbname=app`.
    pub(super) fn parse(backend: &'static str, config: &str) -> Result<Self, BackendError> {
        let config = config
            .parse()
            .map_err(|error| BackendError::permanent(backend, "read its configuration", error))?;
        Ok(Self::new(backend, config, NoTls))
    }

    pub(super) fn new<T>(backend: &'static str, mut config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        // Without these timeouts, a request to a lost server waits until the kernel gives up.
        let timeout = *config.get_connect_timeout().unwrap_or(&CONNECT_TIMEOUT);
        // Hosts are tried one after another.
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX).max(1);
        config.connect_timeout(timeout);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(10));
        }
        let connect = move || -> Connecting {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                let driving = async move {
                    // The next request reports the error.
                    let _ = connection.await;
                };
                Ok((client, Box::pin(driving) as Driving))
            })
        };
        Self { backend, connect: Arc::new(connect), timeout: timeout.saturating_mul(hosts) }
    }

    pub(super) async fn connect(&self) -> Result<Connection, BackendError> {
        let backend = self.backend;
        // The client's own timeout covers the TCP connection, not the login.
        let (client, driving) = tokio::time::timeout(self.timeout, (self.connect)())
            .await
            .map_err(|_| BackendError::no_response(backend, CONNECT, self.timeout))?
            .map_err(failed(backend, CONNECT))?;
        let (mut set, closed) = (JoinSet::new(), CancellationToken::new());
        let cancelled_when_dropped = closed.clone().drop_guard();
        set.spawn(async move {
            driving.await;
            drop(cancelled_when_dropped);
        });
        Ok(Connection { client, closed, backend, _driving: set })
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

    /// Creates the tables if they are missing.
    pub(super) async fn prepare(&self) -> Result<(), BackendError> {
        self.create_tables().await.map_err(failed(self.backend, "create its tables"))
    }

    async fn create_tables(&self) -> Result<(), tokio_postgres::Error> {
        let exist = "SELECT to_regclass('adieu_leases') IS NOT NULL \
                     AND to_regclass('adieu_sessions') IS NOT NULL \
                     AND to_regclass('adieu_markers') IS NOT NULL";
        let rows = self.query(exist, &[]).await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            return Ok(());
        }
        // One message is one transaction. Without the lock, concurrent `CREATE TABLE` statements
        // can collide.
        self.client
            .batch_execute(&format!("SELECT pg_advisory_xact_lock(4713301984022); {SCHEMA}"))
            .await
    }
}
