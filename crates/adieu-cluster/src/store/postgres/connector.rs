//! The connection to a server, made again when it is lost.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::Short;
use adieu_core::adapter::lock;
use adieu_fleet::adapter::{announced_session, is_permanent};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Error, Row, Socket};

use super::{CONNECT, NAME, SCHEMA};
use crate::store::StoreError;

/// How long a server may take to accept a connection, unless the configuration sets another time.
const CONNECTING: Duration = Duration::from_secs(5);

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A parameter of a statement, with its type: so the statement needs no preparation.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

type Connecting = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>;

pub(super) struct Connection {
    client: Client,
    /// Counts the notifications of commits. It ends with the connection.
    notified: watch::Receiver<u64>,
    /// Moves the bytes, and ends when this is dropped.
    _driving: JoinSet<()>,
}

pub(super) struct Connector {
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    /// How long connecting may take.
    patience: Duration,
    pub(super) table: String,
    current: Mutex<Option<Arc<Connection>>>,
    /// One caller connects, and the others use its connection.
    connecting: tokio::sync::Mutex<()>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The connection was refused, or does not fit. Nothing was sent on it.
    #[error(transparent)]
    NotSent(StoreError),
    #[error(transparent)]
    Sent(Error),
    #[error("no answer within {PATIENCE:?}")]
    Silence,
}

/// Gives the connection up when a request has not been answered, also if its future was dropped:
/// otherwise the next request would wait on the same dead connection.
struct Asked<'a> {
    connector: &'a Connector,
    connection: Arc<Connection>,
    is_answered: bool,
}

// === impl Connector ===

impl Connector {
    pub(super) fn new<T>(mut config: Config, tls: T, table: String) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let patience = *config.get_connect_timeout().unwrap_or(&CONNECTING);
        // Hosts are tried one after another.
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX).max(1);
        config.connect_timeout(patience);
        let ours = table.clone();
        let connect = move || -> Connecting {
            let (config, tls, table) = (config.clone(), tls.clone(), ours.clone());
            Box::pin(async move {
                let (client, mut connection) = config.connect(tls).await?;
                let (count, notified) = watch::channel(0);
                let mut driving = JoinSet::new();
                driving.spawn(async move {
                    // An error ends the connection, and so fails the requests on it.
                    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                        if matches!(&message, AsyncMessage::Notification(it) if it.payload() == table)
                        {
                            count.send_modify(|count| *count += 1);
                        }
                    }
                });
                Ok(Connection { client, notified, _driving: driving })
            })
        };
        Self {
            connect: Box::new(connect),
            patience: patience.saturating_mul(hosts),
            table,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the connection, made if there is none.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, StoreError> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let _turn = self.connecting.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let connecting = Box::pin(async {
            let connection = (self.connect)().await.map_err(failed(CONNECT))?;
            connection.refuse_pooler().await?;
            connection.prepare(&self.table).await.map_err(failed("create its tables"))?;
            Ok(connection)
        });
        let connected = tokio::time::timeout(self.patience, connecting).await.map_err(|_| {
            let problem = format!("no answer within {}", Short(self.patience));
            StoreError::unavailable(NAME, CONNECT, problem)
        })?;
        let connection = Arc::new(connected?);
        *self.lock() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn current(&self) -> Option<Arc<Connection>> {
        self.lock().clone().filter(|connection| !connection.client.is_closed())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Connection>>> {
        lock(&self.current)
    }

    /// Sends one statement.
    pub(super) async fn request(
        &self,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failure> {
        let connection = self.connection().await.map_err(Failure::NotSent)?;
        let mut asked = Asked { connector: self, connection, is_answered: false };
        let sent = asked.connection.client.query_typed(statement, params);
        let answer = match tokio::time::timeout(PATIENCE, sent).await {
            Ok(answer) => answer.map_err(Failure::Sent),
            Err(_) => Err(Failure::Silence),
        };
        asked.is_answered = answer.as_ref().map_or_else(Failure::is_rolled_back, |_| true);
        answer
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut current = self.connector.lock();
        let is_ours = current.as_ref().is_some_and(|it| Arc::ptr_eq(it, &self.connection));
        if !self.is_answered && is_ours {
            *current = None;
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Returns a count of the notifications that have arrived. It fails when the connection ends.
    pub(super) fn notified(&self) -> watch::Receiver<u64> {
        self.notified.clone()
    }

    /// A pooler gives each statement another session, and notifications arrive at none of ours.
    async fn refuse_pooler(&self) -> Result<(), StoreError> {
        let announced = announced_session(&self.client).await;
        let row = self.client.query_typed("SELECT pg_backend_pid()", &[]).await;
        let row = row.map_err(failed(CONNECT))?;
        let answers: Option<i32> = row.first().map(|row| row.get(0));
        if announced.is_some() && announced == answers {
            return Ok(());
        }
        let number = |number: Option<i32>| number.map_or("none".into(), |n| n.to_string());
        let problem = format!(
            "there is a pooler in between: session {} was announced, session {} answers. Connect to \
             the server itself",
            number(announced),
            number(answers)
        );
        Err(StoreError::refused(NAME, CONNECT, problem))
    }

    /// Prepares the session, and creates missing tables and functions.
    async fn prepare(&self, table: &str) -> Result<(), Error> {
        // A commit must be on the disk before it is answered, and must see the commits that were
        // applied while it waited for its turn.
        let session = "SELECT set_config('default_transaction_isolation', 'read committed', false), \
                       CASE current_setting('synchronous_commit') WHEN 'off' THEN \
                       set_config('synchronous_commit', 'local', false) END";
        self.client.query_typed(session, &[]).await?;
        let there = "SELECT to_regproc('adieu_cluster_compact_1') IS NOT NULL";
        let rows = self.client.query_typed(there, &[]).await?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            // One message is one transaction. Without the lock, two that create at once collide.
            let create = format!("SELECT pg_advisory_xact_lock(4713301984023); {SCHEMA}");
            self.client.batch_execute(&create).await?;
        }
        let create = "INSERT INTO adieu_cluster_tables (name) VALUES ($1) ON CONFLICT DO NOTHING";
        self.client.query_typed(create, &[(&table, Type::TEXT)]).await?;
        self.client.batch_execute("LISTEN adieu_cluster").await
    }
}

// --- what errors mean ---

pub(super) fn failed(verb: &'static str) -> impl Fn(Error) -> StoreError + Copy {
    move |error| {
        if is_permanent(&error) {
            StoreError::refused(NAME, verb, error)
        } else {
            StoreError::unavailable(NAME, verb, error)
        }
    }
}

// === impl Failure ===

impl Failure {
    pub(super) fn of(self, verb: &'static str) -> StoreError {
        match self {
            Self::NotSent(error) => error,
            Self::Sent(error) => failed(verb)(error),
            Self::Silence => StoreError::unavailable(NAME, verb, Self::Silence),
        }
    }

    /// Returns the error of a commit.
    pub(super) fn of_commit(self) -> StoreError {
        if matches!(self, Self::NotSent(_)) || self.is_rolled_back() {
            self.of("commit")
        } else {
            StoreError::unknown(NAME, self)
        }
    }

    /// Returns whether the server has answered, and has rolled the transaction back.
    fn is_rolled_back(&self) -> bool {
        match self {
            Self::Sent(error) => error.code().is_some_and(|code| is_rollback(code.code())),
            Self::NotSent(_) | Self::Silence => false,
        }
    }
}

/// Returns whether a server that answers with this state has rolled the transaction back. One that
/// is being stopped may have committed, and so may one that waited for a replica.
fn is_rollback(state: &str) -> bool {
    !["08", "57"].iter().any(|class| state.starts_with(class)) && state != "40003"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_a_server_that_stops_leaves_the_outcome_of_a_commit_unknown() {
        assert!(is_rollback("40001"), "a transaction that must be repeated");
        assert!(is_rollback("42501"), "no permission");
        assert!(!is_rollback("57P01"), "stopped by the administrator");
        assert!(!is_rollback("08006"), "connection failure");
        assert!(!is_rollback("40003"), "completion unknown");
    }
}
