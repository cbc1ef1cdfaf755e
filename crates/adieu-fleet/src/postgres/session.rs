//! Locks of a session: they end with their connection, and so with their process.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::Type;
use tokio_postgres::{Config, NoTls, Socket};

use super::connection::{Connection, Connector, Line, Param};
use super::rows::{fence_of, marker, remaining};
use crate::locks::{Attempt, BackendError, Claim, Fence, Holder, Locks, Marker, Reply, Standing};
use crate::names::{Key, Owner};

/// Locks in Postgres, as advisory locks of sessions.
///
/// Each lease has a connection of its own. When a process dies the server sees its connection
/// close, and the lock is free at once, not after its time to live. A process that is cut off or
/// suspended does not close anything: so the server ends a session that has not renewed for the
/// lock's time to live (`idle_session_timeout`).
///
/// A server that is restarted has forgotten its sessions, and those who had them may not know yet:
/// what was held then is held until its time to live is over. Only when a session is ended while
/// its client lives, by an administrator or by something between the two, is the lock free a moment
/// before the client has seen it; then it is the fence that protects.
///
/// It needs Postgres 14 or later and a connection to the server itself: a pooler that shares
/// sessions breaks it, and [`Postgres`](crate::Postgres) works there. A lease of the one is nothing
/// to the other. For the fence see there, too.
#[derive(Clone)]
pub struct PostgresSession {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    /// For what needs no lock.
    line: Line,
    held: Mutex<HashMap<i64, Session>>,
    /// A connection without a lock, for the next attempt.
    spare: Mutex<Option<Connection>>,
    next: AtomicI64,
}

#[derive(Clone)]
struct Session {
    connection: Arc<Connection>,
    claim: Claim,
}

const NAME: &str = "postgres-session";
const ACQUIRE: &str = "acquire a lease";

/// The number of an advisory lock, from the name under which the lock is stored.
macro_rules! number {
    () => {
        "hashtextextended('adieu:' || $1, 0)"
    };
}

const UNLOCK: &str = concat!(
    "SELECT pg_advisory_unlock(",
    number!(),
    "), set_config('idle_session_timeout', '0', false)"
);

// === impl PostgresSession ===

impl PostgresSession {
    /// Locks in the database that `config` names, such as `host=db user=app dbname=app`, without
    /// TLS. It connects when first asked.
    ///
    /// # Errors
    ///
    /// If that is no configuration.
    pub fn new(config: &str) -> Result<Self, BackendError> {
        let config = config
            .parse()
            .map_err(|error| BackendError::new(NAME, "read its configuration", error))?;
        Ok(Self::with_tls(config, NoTls))
    }

    /// Locks in a database, with a configuration and TLS of your own.
    pub fn with_tls<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let connector = Connector::new(config, tls);
        let line = Line::new(connector.clone());
        let (held, spare, next) = (Mutex::default(), Mutex::default(), AtomicI64::new(1));
        Self { shared: Arc::new(Shared { connector, line, held, spare, next }) }
    }
}

/// Under which name a lock is stored: not that of a row of the same key.
fn stored(key: &Key) -> String {
    format!("session:{key}")
}

fn as_setting(ttl: Duration) -> String {
    format!("{}ms", ttl.as_nanos().div_ceil(1_000_000))
}

/// Whether the session is over, and its lock with it.
fn is_over(connection: &Connection, error: &tokio_postgres::Error) -> bool {
    let ended_by_server = error.code().is_some_and(|code| {
        // idle_session_timeout; and the administrator, a crash, or a restart.
        ["57P05", "57P01", "57P02", "57P03"].contains(&code.code())
    });
    connection.client.is_closed() || error.is_closed() || ended_by_server
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, HashMap<i64, Session>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that holds this claim, if it is ours and still there.
    fn session(&self, claim: &Claim) -> Option<Session> {
        let session = self.held().get(&claim.ticket).cloned()?;
        (session.claim == *claim && !session.connection.client.is_closed()).then_some(session)
    }

    async fn connection(&self) -> Result<Connection, BackendError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(spare) = spare.filter(|spare| !spare.client.is_closed()) {
            return Ok(spare);
        }
        let connection = self.connector.connect(NAME).await?;
        connection
            .prepare()
            .await
            .map_err(|error| BackendError::new(NAME, "make its tables", error))?;
        Ok(connection)
    }

    fn keep_for_later(&self, connection: Connection) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }

    /// Asks on the session of the claim. It is lost when the session is.
    async fn ask(
        &self,
        verb: &'static str,
        statement: &str,
        claim: &Claim,
        more: &[Param<'_>],
    ) -> Result<Standing, BackendError> {
        let Some(session) = self.session(claim) else {
            self.held().retain(|_, session| !session.connection.client.is_closed());
            return Ok(Standing::Lost);
        };
        let (key, owner, fence) = (stored(&claim.key), claim.owner.as_str(), claim.fence.as_i64());
        let mut params: Vec<Param<'_>> =
            vec![(&key, Type::TEXT), (&owner, Type::TEXT), (&fence, Type::INT8)];
        params.extend(more.iter().map(|(value, kind)| (*value, kind.clone())));
        match session.connection.query(statement, &params).await {
            Ok(rows) if rows.is_empty() => {
                self.held().remove(&claim.ticket);
                Ok(Standing::Lost)
            }
            Ok(_) => Ok(Standing::Held),
            Err(error) if is_over(&session.connection, &error) => {
                self.held().remove(&claim.ticket);
                Ok(Standing::Lost)
            }
            Err(error) => Err(BackendError::new(NAME, verb, error)),
        }
    }

    async fn holder(&self, key: &Key) -> Result<Option<Holder>, BackendError> {
        const VERB: &str = "look at a lease";
        const STATEMENT: &str = concat!(
            "SELECT owner, fence, extract(epoch FROM expires_at - clock_timestamp())::float8
             FROM adieu_leases, (SELECT ",
            number!(),
            " AS number) AS lock
             WHERE key = $1 AND (
                 (owner IS NOT NULL AND expires_at > clock_timestamp()
                  AND server_started IS DISTINCT FROM pg_postmaster_start_time())
                 OR EXISTS (SELECT FROM pg_locks
                 WHERE locktype = 'advisory' AND granted AND objsubid = 1
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                 AND classid::int8 = (number >> 32) & 4294967295
                 AND objid::int8 = number & 4294967295))"
        );
        let rows = self.line.query(NAME, VERB, STATEMENT, &[(&stored(key), Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let read = || {
            // Who has the lock and has not written his name yet is somebody, too.
            let owner: Option<&str> = row.try_get(0)?;
            let owner = Owner::stored(owner.unwrap_or("somebody"));
            Ok(Holder { owner, fence: fence_of(row, 1)?, remaining: remaining(row.try_get(2)?) })
        };
        read()
            .map(Some)
            .map_err(|error: tokio_postgres::Error| BackendError::new(NAME, VERB, error))
    }

    async fn try_acquire(
        &self,
        key: &Key,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Attempt, BackendError> {
        // In one step: a session never has the lock without an end to it.
        const LOCK: &str = concat!(
            "SELECT set_config('idle_session_timeout', CASE WHEN pg_try_advisory_lock(",
            number!(),
            ") THEN $2 ELSE '0' END, false)"
        );
        // Under the lock, so nobody else is at it; except who had it when the server was restarted,
        // and may not know yet.
        const SIGN: &str = "
            INSERT INTO adieu_leases AS lease (key, owner, fence, expires_at, server_started)
            VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3),
                    pg_postmaster_start_time())
            ON CONFLICT (key) DO UPDATE
            SET owner = excluded.owner, fence = lease.fence + 1,
                expires_at = excluded.expires_at, server_started = excluded.server_started
            WHERE lease.owner IS NULL OR lease.expires_at <= clock_timestamp()
                OR lease.server_started = pg_postmaster_start_time()
            RETURNING fence";
        let failed = |error| BackendError::new(NAME, ACQUIRE, error);
        let (stored, setting) = (stored(key), as_setting(ttl));
        let connection = self.connection().await?;
        let params: [Param<'_>; 2] = [(&stored, Type::TEXT), (&setting, Type::TEXT)];
        let rows = connection.query(LOCK, &params).await.map_err(failed)?;
        let is_locked = rows.first().is_some_and(|row| row.get::<_, &str>(0) != "0");
        if !is_locked {
            self.keep_for_later(connection);
            return self.refused(key).await;
        }
        let params: [Param<'_>; 3] = [
            (&stored, Type::TEXT),
            (&owner.as_str(), Type::TEXT),
            (&ttl.as_secs_f64(), Type::FLOAT8),
        ];
        let rows = connection.query(SIGN, &params).await.map_err(failed)?;
        let fence = rows.first().map(|row| fence_of(row, 0)).transpose().map_err(failed)?;
        let Some(fence) = fence else {
            let params: [Param<'_>; 1] = [(&stored, Type::TEXT)];
            connection.query(UNLOCK, &params).await.map_err(failed)?;
            self.keep_for_later(connection);
            return self.refused(key).await;
        };
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let claim = Claim { key: key.clone(), owner: owner.clone(), fence, ticket };
        let session = Session { connection: Arc::new(connection), claim: claim.clone() };
        let mut held = self.held();
        // Those that were lost, and never asked about again.
        held.retain(|_, session| !session.connection.client.is_closed());
        held.insert(ticket, session);
        Ok(Attempt::Acquired(claim))
    }

    /// Who is in the way, if that can still be said.
    async fn refused(&self, key: &Key) -> Result<Attempt, BackendError> {
        let holder = self.holder(key).await?;
        Ok(Attempt::Held(holder.unwrap_or_else(|| Holder {
            owner: Owner::stored("somebody"),
            fence: Fence::NONE,
            remaining: Duration::from_millis(1),
        })))
    }

    async fn release(&self, claim: &Claim) -> Result<Standing, BackendError> {
        const STATEMENT: &str = "
            UPDATE adieu_leases SET owner = NULL WHERE key = $1 AND owner = $2 AND fence = $3
            RETURNING fence";
        let standing = self.ask("release a lease", STATEMENT, claim, &[]).await?;
        if !standing.is_held() {
            return Ok(standing);
        }
        let Some(session) = self.held().remove(&claim.ticket) else { return Ok(Standing::Lost) };
        // If this fails, or is not waited for, the connection is dropped, and the lock with it.
        let params: [Param<'_>; 1] = [(&stored(&claim.key), Type::TEXT)];
        let unlocked = session.connection.query(UNLOCK, &params).await;
        if unlocked.is_ok()
            && let Some(connection) = Arc::into_inner(session.connection)
        {
            self.keep_for_later(connection);
        }
        Ok(Standing::Held)
    }
}

impl Locks for PostgresSession {
    fn name(&self) -> &'static str {
        NAME
    }

    fn has_fences(&self) -> bool {
        true
    }

    fn try_acquire<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        ttl: Duration,
    ) -> Reply<'a, Attempt> {
        Box::pin(self.shared.try_acquire(key, owner, ttl))
    }

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, Standing> {
        const STATEMENT: &str = "
            UPDATE adieu_leases SET expires_at = clock_timestamp() + make_interval(secs => $4)
            WHERE key = $1 AND owner = $2 AND fence = $3
            RETURNING set_config('idle_session_timeout', $5, false)";
        Box::pin(async move {
            let setting = as_setting(ttl);
            let more: [Param<'_>; 2] = [(&ttl.as_secs_f64(), Type::FLOAT8), (&setting, Type::TEXT)];
            self.shared.ask("renew a lease", STATEMENT, claim, &more).await
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Standing> {
        Box::pin(self.shared.release(claim))
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        Box::pin(self.shared.holder(key))
    }

    fn mark<'a>(&'a self, claim: &'a Claim, name: &'a str, value: &'a str) -> Reply<'a, Standing> {
        // Asked on the session that has the lock: when that is over, so is the asking.
        const STATEMENT: &str = "
            INSERT INTO adieu_markers (key, name, value, fence)
            SELECT key, $4, $5, fence FROM adieu_leases
            WHERE key = $1 AND owner = $2 AND fence = $3
            FOR SHARE
            ON CONFLICT (key, name) DO UPDATE SET value = excluded.value, fence = excluded.fence
            RETURNING fence";
        Box::pin(async move {
            let more: [Param<'_>; 2] = [(&name, Type::TEXT), (&value, Type::TEXT)];
            self.shared.ask("write a marker", STATEMENT, claim, &more).await
        })
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        Box::pin(async move { marker(&self.shared.line, NAME, &stored(key), name).await })
    }

    fn ended<'a>(&'a self, claim: &'a Claim) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let closed = self.shared.session(claim).map(|session| session.connection.closed.clone());
        Box::pin(async move {
            // Without the connection itself: its last owner decides when it is over.
            if let Some(closed) = closed {
                closed.cancelled().await;
            }
        })
    }
}

impl fmt::Debug for PostgresSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSession").finish_non_exhaustive()
    }
}
