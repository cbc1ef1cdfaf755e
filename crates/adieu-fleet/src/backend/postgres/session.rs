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

use super::connection::{Connection, Connector, Line, Param, failed};
use super::pooler::announced_session;
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
/// A server that is restarted, or that recovers from the crash of one of its processes, has forgotten
/// its sessions, and the clients may not know yet: what was held then is held until its time to live
/// is over. Only when a session is ended while its client lives, by an administrator or by something
/// between the two, is the lock free a moment before the client has seen it; then it is the fence
/// that protects.
///
/// It needs Postgres 14 or later. A lease of this backend is nothing to
/// [`Postgres`](crate::Postgres). For the fence, durability, and what stays for ever see there; this
/// backend has a row of `adieu_sessions` for each key in addition.
///
/// **When the server's clock is set**, nothing happens to a lock whose session lives. Back: a session
/// that does not renew may be ended that much later. After a crash the rest of the time to live is
/// counted by the server's clock.
///
/// # Poolers
///
/// It needs a session of its own for each lease, so it does not work behind a pooler that lends
/// sessions for a transaction: there, use [`Postgres`](crate::Postgres). A pooler is recognised when
/// a connection is made, because it announces another session than the one that answers, and is
/// refused. That includes PgBouncer with `pool_mode = session`, which would work: from outside the
/// modes look the same. A proxy that passes bytes on is not refused.
///
/// A pooler that passed on the server's own announcement would not be recognised so. Every statement
/// under a lease therefore checks that it runs in the session that the lease was granted to; if it
/// does not, the lease is lost.
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
    spare: Mutex<Option<Direct>>,
    next: AtomicI64,
}

/// A connection to the server itself, and the number of its session.
struct Direct {
    connection: Connection,
    session: i32,
}

#[derive(Clone)]
struct Session {
    direct: Arc<Direct>,
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

/// Whether the server has run without a crash since a lease was granted, so that a lock which is
/// free was given up: the same start of the server, and a row that a crash would have removed.
macro_rules! is_remembered {
    ($lease:literal) => {
        concat!(
            "(",
            $lease,
            ".server_started IS NOT DISTINCT FROM pg_postmaster_start_time() AND EXISTS (
                 SELECT FROM adieu_sessions
                 WHERE adieu_sessions.key = ",
            $lease,
            ".key AND adieu_sessions.fence = ",
            $lease,
            ".fence))"
        )
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
            .map_err(|error| BackendError::permanent(NAME, "read its configuration", error))?;
        Ok(Self::with_tls(config, NoTls))
    }

    /// As [`PostgresSession::new`], and connects at once.
    ///
    /// # Errors
    ///
    /// If that is no configuration, the server does not answer within 5 s or refuses the connection,
    /// there is a pooler in between, or the tables are missing and cannot be made.
    pub async fn connect(config: &str) -> Result<Self, BackendError> {
        let postgres = Self::new(config)?;
        let direct = postgres.shared.connection().await?;
        postgres.shared.keep_for_later(direct);
        Ok(postgres)
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

// === impl Direct ===

impl Direct {
    /// Takes on a connection if nothing but a wire is between it and the server.
    async fn new(connection: Connection) -> Result<Self, BackendError> {
        const VERB: &str = "connect";
        let announced = announced_session(&connection.client).await;
        let rows = connection.query("SELECT pg_backend_pid()", &[]).await;
        let rows = rows.map_err(failed(NAME, VERB))?;
        let session = rows.first().map(|row| row.try_get::<_, i32>(0)).transpose();
        match session.map_err(failed(NAME, VERB))? {
            Some(session) if announced == Some(session) => Ok(Self { connection, session }),
            answered => {
                let number = |number: Option<i32>| number.map_or("none".into(), |n| n.to_string());
                let problem = format!(
                    "there is a pooler in between: session {} was announced, session {} answers. \
                     Connect to the server itself, or use `Postgres`, which works behind poolers",
                    number(announced),
                    number(answered)
                );
                Err(BackendError::permanent(NAME, VERB, problem))
            }
        }
    }
}

// === impl Session ===

impl Session {
    fn is_closed(&self) -> bool {
        self.direct.connection.client.is_closed()
    }
}

// === impl Shared ===

impl Shared {
    fn held(&self) -> MutexGuard<'_, HashMap<i64, Session>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that holds this claim, if it is ours and still there.
    fn session(&self, claim: &Claim) -> Option<Session> {
        let session = self.held().get(&claim.ticket).cloned()?;
        (session.claim == *claim && !session.is_closed()).then_some(session)
    }

    async fn connection(&self) -> Result<Direct, BackendError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(spare) = spare.filter(|spare| !spare.connection.client.is_closed()) {
            return Ok(spare);
        }
        let direct = Direct::new(self.connector.connect(NAME).await?).await?;
        direct.connection.prepare(NAME).await?;
        Ok(direct)
    }

    fn keep_for_later(&self, direct: Direct) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(direct);
    }

    /// Asks on the session of the claim, whose number is the fourth parameter. The claim is lost when
    /// the session is.
    async fn ask(
        &self,
        verb: &'static str,
        statement: &str,
        claim: &Claim,
        more: &[Param<'_>],
    ) -> Result<Standing, BackendError> {
        let Some(session) = self.session(claim) else {
            self.held().retain(|_, session| !session.is_closed());
            return Ok(Standing::Lost);
        };
        let (key, owner, fence) = (stored(&claim.key), claim.owner.as_str(), claim.fence.as_i64());
        let Direct { connection, session } = &*session.direct;
        let mut params: Vec<Param<'_>> = vec![
            (&key, Type::TEXT),
            (&owner, Type::TEXT),
            (&fence, Type::INT8),
            (session, Type::INT4),
        ];
        params.extend(more.iter().map(|(value, kind)| (*value, kind.clone())));
        match connection.query(statement, &params).await {
            Ok(rows) if rows.is_empty() => {
                self.held().remove(&claim.ticket);
                Ok(Standing::Lost)
            }
            Ok(_) => Ok(Standing::Held),
            Err(error) if is_over(connection, &error) => {
                self.held().remove(&claim.ticket);
                Ok(Standing::Lost)
            }
            Err(error) => Err(failed(NAME, verb)(error)),
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
                 (owner IS NOT NULL AND expires_at > clock_timestamp() AND NOT ",
            is_remembered!("adieu_leases"),
            ")
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
        read().map(Some).map_err(failed(NAME, VERB))
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
        // Under the lock, so nobody else is at it; except who had it when the server crashed, and
        // may not know yet.
        const SIGN: &str = concat!(
            "WITH signed AS (
                INSERT INTO adieu_leases AS lease (key, owner, fence, expires_at, server_started)
                SELECT $1, $2, 1, clock_timestamp() + make_interval(secs => $3),
                       pg_postmaster_start_time()
                WHERE pg_backend_pid() = $4
                ON CONFLICT (key) DO UPDATE
                SET owner = excluded.owner, fence = lease.fence + 1,
                    expires_at = excluded.expires_at, server_started = excluded.server_started
                WHERE lease.owner IS NULL OR lease.expires_at <= clock_timestamp() OR ",
            is_remembered!("lease"),
            " RETURNING key, fence, ",
            durable!(),
            " AS durable
            ), remembered AS (
                INSERT INTO adieu_sessions (key, fence) SELECT key, fence FROM signed
                ON CONFLICT (key) DO UPDATE SET fence = excluded.fence
            )
            SELECT fence, durable FROM signed"
        );
        let failed = failed(NAME, ACQUIRE);
        let (stored, setting) = (stored(key), as_setting(ttl));
        let direct = self.connection().await?;
        let Direct { connection, session } = &direct;
        let params: [Param<'_>; 2] = [(&stored, Type::TEXT), (&setting, Type::TEXT)];
        let rows = connection.query(LOCK, &params).await.map_err(failed)?;
        let is_locked = rows.first().is_some_and(|row| row.get::<_, &str>(0) != "0");
        if !is_locked {
            self.keep_for_later(direct);
            return self.refused(key).await;
        }
        let params: [Param<'_>; 4] = [
            (&stored, Type::TEXT),
            (&owner.as_str(), Type::TEXT),
            (&ttl.as_secs_f64(), Type::FLOAT8),
            (session, Type::INT4),
        ];
        let rows = connection.query(SIGN, &params).await.map_err(failed)?;
        let fence = rows.first().map(|row| fence_of(row, 0)).transpose().map_err(failed)?;
        let Some(fence) = fence else {
            let params: [Param<'_>; 1] = [(&stored, Type::TEXT)];
            connection.query(UNLOCK, &params).await.map_err(failed)?;
            self.keep_for_later(direct);
            return self.refused(key).await;
        };
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let claim = Claim { key: key.clone(), owner: owner.clone(), fence, ticket };
        let session = Session { direct: Arc::new(direct), claim: claim.clone() };
        let mut held = self.held();
        // Those that were lost, and never asked about again.
        held.retain(|_, session| !session.is_closed());
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
            UPDATE adieu_leases SET owner = NULL
            WHERE key = $1 AND owner = $2 AND fence = $3 AND pg_backend_pid() = $4
            RETURNING fence";
        let standing = self.ask("release a lease", STATEMENT, claim, &[]).await?;
        if !standing.is_held() {
            return Ok(standing);
        }
        let Some(session) = self.held().remove(&claim.ticket) else { return Ok(Standing::Lost) };
        // If this fails, or is not waited for, the connection is dropped, and the lock with it.
        let params: [Param<'_>; 1] = [(&stored(&claim.key), Type::TEXT)];
        let unlocked = session.direct.connection.query(UNLOCK, &params).await;
        if unlocked.is_ok()
            && let Some(direct) = Arc::into_inner(session.direct)
        {
            self.keep_for_later(direct);
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
        const STATEMENT: &str = concat!(
            "UPDATE adieu_leases SET expires_at = clock_timestamp() + make_interval(secs => $5)
             WHERE key = $1 AND owner = $2 AND fence = $3 AND pg_backend_pid() = $4
             RETURNING set_config('idle_session_timeout', $6, false), ",
            durable!()
        );
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
        const STATEMENT: &str = concat!(
            "INSERT INTO adieu_markers (key, name, value, fence)
             SELECT key, $5, $6, fence FROM adieu_leases
             WHERE key = $1 AND owner = $2 AND fence = $3 AND pg_backend_pid() = $4
             FOR SHARE
             ON CONFLICT (key, name) DO UPDATE SET value = excluded.value, fence = excluded.fence
             RETURNING ",
            durable!()
        );
        Box::pin(async move {
            let more: [Param<'_>; 2] = [(&name, Type::TEXT), (&value, Type::TEXT)];
            self.shared.ask("write a marker", STATEMENT, claim, &more).await
        })
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        Box::pin(async move { marker(&self.shared.line, NAME, &stored(key), name).await })
    }

    fn ended<'a>(&'a self, claim: &'a Claim) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let session = self.shared.session(claim);
        let closed = session.map(|session| session.direct.connection.closed.clone());
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
