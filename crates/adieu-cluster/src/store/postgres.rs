//! A table in Postgres.

mod changes;
mod connector;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::Type;
use tokio_postgres::{Config, Error, NoTls, Row, Socket};

use self::changes::PostgresChanges;
use self::connector::{Connector, Failure, Param};
use super::commit::{Compare, PutSession};
use super::error::BoxError;
use super::{
    Changes, Commit, Committed, Record, Reply, Revision, Session, SessionId, Snapshot, Standing,
    Store, StoreError, Write,
};

const NAME: &str = "postgres";
const CONNECT: &str = "connect";

/// The tables and functions of the store. They are created if they are missing.
const SCHEMA: &str = include_str!("postgres/schema.sql");

/// A table in Postgres, for clusters that have a database and no etcd.
///
/// A commit is one call of a function in the database, which locks the table's row of
/// `adieu_cluster_tables`. So commits have one order, and a process that is suspended during a commit
/// holds no lock. A commit is on the server's disk before it is answered, even if
/// `synchronous_commit` is off. Readers are woken by notifications, and also poll every second.
///
/// The store has one connection, and replaces it when it is lost. Connecting through a pooler such as
/// PgBouncer is refused, because a pooler does not forward notifications.
///
/// The tables and functions in `store/postgres/schema.sql` are created when they are missing, which
/// needs the permission to create them.
///
/// # What it is not for
///
/// - More than about a thousand commits in a second: they wait for each other.
/// - A server whose replica may take over without the last commits: that replica does not have the
///   current owners of shards. Use synchronous replication, or etcd.
///
/// # When the server's clock is set
///
/// Sessions are measured by the server's time of day. If the clock is set forward, sessions end
/// that much earlier, and their nodes do not notice it. If it is set back, sessions of dead
/// processes last that much longer. Let the clock be slewed, not set.
#[derive(Clone)]
pub struct Postgres {
    connector: Arc<Connector>,
}

// === impl Postgres ===

impl Postgres {
    /// Connects to the database that `config` names, such as `host=db user=app dbname=app`, without
    /// TLS. Clusters that share a database use different tables.
    ///
    /// # Errors
    ///
    /// If the configuration is not valid, the server does not answer within 5 s or refuses the
    /// connection, there is a pooler in between, or something is missing in the database and cannot
    /// be created.
    pub async fn connect(config: &str, table: &str) -> Result<Self, StoreError> {
        let config = config.parse();
        let config =
            config.map_err(|error| StoreError::refused(NAME, "read its configuration", error))?;
        Self::connect_with(config, NoTls, table).await
    }

    /// As [`Postgres::connect`], with a configuration and TLS.
    ///
    /// # Errors
    ///
    /// As [`Postgres::connect`].
    pub async fn connect_with<T>(config: Config, tls: T, table: &str) -> Result<Self, StoreError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        if table.is_empty() {
            return Err(StoreError::refused(NAME, CONNECT, "the name of the table is empty"));
        }
        let connector = Connector::new(config, tls, table.to_owned());
        connector.connection().await?;
        Ok(Self { connector: Arc::new(connector) })
    }

    /// Deletes the history, so that every reader that is behind must load the table. The store
    /// does so itself: it keeps the changes of the last 4,096 revisions.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or refuses.
    pub async fn compact(&self) -> Result<(), StoreError> {
        self.call("SELECT adieu_cluster_compact_1($1)", &[], "compact a table").await.map(drop)
    }

    /// Sends a statement whose first parameter is the table.
    async fn call(
        &self,
        statement: &str,
        params: &[Param<'_>],
        verb: &'static str,
    ) -> Result<Vec<Row>, StoreError> {
        self.send(statement, params).await.map_err(|failure| failure.of(verb))
    }

    async fn send(&self, statement: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        let mut all: Vec<Param<'_>> = vec![(&self.connector.table, Type::TEXT)];
        all.extend(params.iter().map(|(value, kind)| (*value, kind.clone())));
        self.connector.request(statement, &all).await
    }

    async fn expire(&self, verb: &'static str) -> Result<(), StoreError> {
        self.call("SELECT adieu_cluster_expire_1($1)", &[], verb).await.map(drop)
    }

    async fn open_session(&self, ttl: Duration) -> Result<Session, StoreError> {
        const VERB: &str = "open a session";
        const OPEN: &str = "
            INSERT INTO adieu_cluster_sessions (table_name, ttl, ends_at)
            VALUES ($1, make_interval(secs => $2), clock_timestamp() + make_interval(secs => $2))
            RETURNING id";
        let shortest = self.shortest_ttl();
        if ttl < shortest {
            return Err(StoreError::TtlTooShort { store: NAME, ttl, shortest });
        }
        let rows = self.call(OPEN, &[(&ttl.as_secs_f64(), Type::FLOAT8)], VERB).await?;
        let id = || Ok(SessionId::new(one(&rows)?.try_get(0)?));
        id().map(|id| Session { id, ttl }).map_err(unreadable(VERB))
    }

    async fn keep_session(&self, session: SessionId) -> Result<Standing, StoreError> {
        const VERB: &str = "keep a session";
        // Without the lock of the table: a session that is being ended makes this wait, and then
        // its row is gone.
        const KEEP: &str = "
            UPDATE adieu_cluster_sessions SET ends_at = clock_timestamp() + ttl
            WHERE table_name = $1 AND id = $2 AND ends_at > clock_timestamp()
            RETURNING id";
        let kept = self.call(KEEP, &[(&session.get(), Type::INT8)], VERB).await?;
        if !kept.is_empty() {
            return Ok(Standing::Kept);
        }
        self.expire(VERB).await?;
        Ok(Standing::Ended)
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        const CLOSE: &str = "SELECT adieu_cluster_close_1($1, $2)";
        self.call(CLOSE, &[(&session.get(), Type::INT8)], "close a session").await.map(drop)
    }

    async fn load_table(&self, prefix: &str) -> Result<Snapshot, StoreError> {
        const VERB: &str = "load a table";
        // One statement sees one revision. Without records, its one row has no key.
        const LOAD: &str = "
            SELECT record.key, record.value, record.created, record.changed, record.session,
                   this.revision
            FROM adieu_cluster_tables AS this
            LEFT JOIN adieu_cluster_records AS record
                ON record.table_name = this.name AND starts_with(record.key, $2)
            WHERE this.name = $1 ORDER BY record.key";
        self.expire(VERB).await?;
        let rows = self.call(LOAD, &[(&prefix, Type::TEXT)], VERB).await?;
        let read = || {
            let revision = revision_of(one(&rows)?.try_get(5)?);
            let is_record = |row: &&Row| !matches!(row.try_get::<_, Option<&str>>(0), Ok(None));
            let records: Result<_, Error> = rows.iter().filter(is_record).map(record).collect();
            Ok(Snapshot { revision, records: records? })
        };
        read().map_err(unreadable(VERB))
    }

    async fn commit_once(&self, commit: &Commit) -> Result<Committed, StoreError> {
        const COMMIT: &str =
            "SELECT outcome, number FROM adieu_cluster_commit_1($1, $2::jsonb, $3::jsonb)";
        commit.check(NAME)?;
        let compares: Value = commit.compares.iter().map(compare).collect();
        let writes: Value = commit.writes.iter().map(write).collect();
        let (compares, writes) = (compares.to_string(), writes.to_string());
        let params: [Param<'_>; 2] = [(&compares, Type::TEXT), (&writes, Type::TEXT)];
        let rows = self.send(COMMIT, &params).await.map_err(Failure::of_commit)?;
        let read = || -> Result<(&str, Option<i64>), BoxError> {
            let row = one(&rows)?;
            Ok((row.try_get(0)?, row.try_get(1)?))
        };
        match read().map_err(|error| StoreError::unknown(NAME, error))? {
            ("done", Some(revision)) => Ok(Committed::Done(revision_of(revision))),
            ("no session", Some(session)) => {
                Err(StoreError::NoSession { store: NAME, session: SessionId::new(session) })
            }
            ("conflict", _) => Ok(Committed::Conflict),
            (other, _) => Err(StoreError::unknown(NAME, format!("the outcome is {other:?}"))),
        }
    }
}

fn revision_of(revision: i64) -> Revision {
    Revision::new(u64::try_from(revision).unwrap_or(0))
}

/// No revision of the server is that high.
fn number_of(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}

fn one(rows: &[Row]) -> Result<&Row, BoxError> {
    rows.first().ok_or_else(|| "the table's row of adieu_cluster_tables is gone".into())
}

fn unreadable(verb: &'static str) -> impl Fn(BoxError) -> StoreError + Copy {
    move |error| StoreError::refused(NAME, verb, error)
}

/// Reads a record from the first five columns.
fn record(row: &Row) -> Result<Record, Error> {
    Ok(Record {
        key: row.try_get::<_, &str>(0)?.into(),
        value: row.try_get::<_, &str>(1)?.into(),
        created: revision_of(row.try_get(2)?),
        changed: revision_of(row.try_get(3)?),
        session: row.try_get::<_, Option<i64>>(4)?.map(SessionId::new),
    })
}

fn compare(compare: &Compare) -> Value {
    let (kind, at) = match compare {
        Compare::Absent(_) => ("absent", None),
        Compare::CreatedAt(_, at) => ("created", Some(*at)),
        Compare::NotCreatedAt(_, at) => ("not created", Some(*at)),
        Compare::Unchanged(_, at) => ("unchanged", Some(*at)),
    };
    json!({ "key": compare.key(), "kind": kind, "at": at.map(number_of) })
}

fn write(write: &Write) -> Value {
    match write {
        Write::Put { key, value, session: PutSession::Under(session) } => {
            json!({ "key": key, "value": value, "session": session })
        }
        Write::Put { key, value, session: PutSession::None | PutSession::Keep } => {
            json!({ "key": key, "value": value })
        }
        Write::Delete { key } => json!({ "key": key }),
    }
}

impl Store for Postgres {
    fn name(&self) -> &'static str {
        NAME
    }

    fn shortest_ttl(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn open(&self, ttl: Duration) -> Reply<'_, Session> {
        Box::pin(self.open_session(ttl))
    }

    fn keep<'a>(&'a self, session: &'a Session) -> Reply<'a, Standing> {
        Box::pin(self.keep_session(session.id))
    }

    fn close<'a>(&'a self, session: &'a Session) -> Reply<'a, ()> {
        Box::pin(self.close_session(session.id))
    }

    fn load<'a>(&'a self, prefix: &'a str) -> Reply<'a, Snapshot> {
        Box::pin(self.load_table(prefix))
    }

    fn changes<'a>(&'a self, prefix: &'a str, after: Revision) -> Reply<'a, Box<dyn Changes>> {
        let changes = PostgresChanges::new(self.clone(), prefix, after);
        Box::pin(std::future::ready(Ok(Box::new(changes) as Box<dyn Changes>)))
    }

    fn commit<'a>(&'a self, commit: &'a Commit) -> Reply<'a, Committed> {
        Box::pin(self.commit_once(commit))
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("table", &self.connector.table).finish_non_exhaustive()
    }
}
