//! Locks of sessions: they end with their connection, and so with their process.

mod direct;
mod statements;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adieu_core::adapter::lock;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::Type;
use tokio_postgres::{Config, Socket};

use self::direct::Direct;
use super::connection::{Connector, Param, failed};
use super::read;
use super::shared::SharedConnection;
use crate::lock_backend::{
    Attempt, BackendError, Claim, ClaimStatus, Holder, LockBackend, Marker, Reply,
};
use crate::names::{Key, Owner};

/// Locks in Postgres, as advisory locks of sessions.
///
/// Each lease has its own connection. When a process dies, the server sees its connection close, and
/// the lock is free immediately, not after its time to live. A process that is disconnected or
/// suspended closes nothing, so the server ends a session that has not renewed for the lock's time to
/// live (`idle_session_timeout`).
///
/// A server that is restarted, or that recovers from the crash of one of its processes, has lost
/// its sessions, and clients may not have noticed that yet. Locks that were held then stay held
/// until their time to live has elapsed. Only if a session is ended while its client lives, by an
/// administrator or by the network, is the lock free a moment before the client notices. The fence
/// protects then.
///
/// It needs Postgres 14 or later. Its locks are independent of those of
/// [`Postgres`](crate::Postgres), where fences, durability and permanent rows are described; this
/// backend has a row of `adieu_sessions` for each key in addition.
///
/// **When the server's clock is set**, a lock whose session lives is not affected. Back: a session
/// that does not renew may be ended that much later. After a crash the rest of the time to live is
/// counted by the server's clock.
///
/// # Poolers
///
/// Each lease needs its own session, so this backend does not work behind a pooler that lends
/// sessions for a transaction; use [`Postgres`](crate::Postgres) there. A pooler is detected when a
/// connection is made, because it announces another session than the one that responds, and the
/// connection is refused. That includes PgBouncer with `pool_mode = session`, which would work: the
/// modes cannot be distinguished from outside. A proxy that forwards bytes is not refused.
///
/// A pooler that forwarded the server's announcement would not be detected. Every statement under a
/// lease therefore checks that it runs in the session of the lease; if it does not, the lease is lost.
#[derive(Clone)]
pub struct PostgresSession {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    /// For operations that need no lock.
    connection: SharedConnection,
    held: Mutex<HashMap<i64, Session>>,
    /// A connection without a lock, for the next attempt.
    spare: Mutex<Option<Direct>>,
    next_ticket: AtomicI64,
}

#[derive(Clone)]
struct Session {
    direct: Arc<Direct>,
    claim: Claim,
}

const NAME: &str = "postgres-session";
const ACQUIRE: &str = "acquire a lease";

// === impl PostgresSession ===

impl PostgresSession {
    /// Uses the database of a configuration such as `host=db user=app dbname=app`, without TLS.
    /// Connects with the first request.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub fn new(config: &str) -> Result<Self, BackendError> {
        Ok(Self::on(Connector::parse(NAME, config)?))
    }

    /// Connects to the database of a configuration; see [`PostgresSession::new`].
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, the server does not respond within 5 s or refuses the
    /// connection, the connection goes through a pooler, or the tables are missing and cannot be
    /// created.
    pub async fn connect(config: &str) -> Result<Self, BackendError> {
        let postgres = Self::new(config)?;
        let direct = postgres.shared.direct().await?;
        postgres.shared.keep_for_later(direct);
        Ok(postgres)
    }

    /// Uses a database with a custom configuration and TLS. Connects with the first request.
    ///
    /// `tls` is a connector such as that of tokio-postgres-rustls.
    ///
    /// ```
    /// use adieu_fleet::PostgresSession;
    /// use adieu_fleet::tokio_postgres::{Config, NoTls};
    ///
    /// let mut config = Config::new();
    /// config.host("db").user("app").dbname("app");
    /// let backend = PostgresSession::with_tls(config, NoTls);
    /// # drop(backend);
    /// ```
    pub fn with_tls<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self::on(Connector::new(NAME, config, tls))
    }

    fn on(connector: Connector) -> Self {
        let connection = SharedConnection::new(connector.clone());
        let (held, spare, next_ticket) = (Mutex::default(), Mutex::default(), AtomicI64::new(1));
        Self { shared: Arc::new(Shared { connector, connection, held, spare, next_ticket }) }
    }
}

/// Returns the name under which a lock is stored. It differs from that of a row of the same key.
fn stored(key: &Key) -> String {
    format!("session:{key}")
}

fn as_setting(ttl: Duration) -> String {
    format!("{}ms", ttl.as_nanos().div_ceil(1_000_000))
}

// === impl Shared ===

impl Shared {
    fn held(&self) -> MutexGuard<'_, HashMap<i64, Session>> {
        lock(&self.held)
    }

    /// Returns the session of this claim, if this process has it and it has not ended.
    fn session(&self, claim: &Claim) -> Option<Session> {
        let session = self.held().get(&claim.ticket).cloned()?;
        (session.claim == *claim && !session.direct.is_closed()).then_some(session)
    }

    /// Returns a connection without a lock. Connects if there is none.
    async fn direct(&self) -> Result<Direct, BackendError> {
        let spare = lock(&self.spare).take();
        if let Some(spare) = spare.filter(|spare| !spare.is_closed()) {
            return Ok(spare);
        }
        let direct = Direct::new(self.connector.connect().await?).await?;
        direct.connection.prepare().await?;
        Ok(direct)
    }

    fn keep_for_later(&self, direct: Direct) {
        *lock(&self.spare) = Some(direct);
    }

    /// Executes a statement in the session of the claim; see [`statements`]. The claim is lost if the
    /// session has ended.
    async fn execute_as_holder(
        &self,
        verb: &'static str,
        statement: &str,
        claim: &Claim,
        more: &[Param<'_>],
    ) -> Result<ClaimStatus, BackendError> {
        let Some(session) = self.session(claim) else {
            self.held().retain(|_, session| !session.direct.is_closed());
            return Ok(ClaimStatus::Lost);
        };
        let (key, owner, fence) = (stored(&claim.key), claim.owner.as_str(), claim.fence.as_i64());
        let direct = &*session.direct;
        let mut params: Vec<Param<'_>> = vec![
            (&key, Type::TEXT),
            (&owner, Type::TEXT),
            (&fence, Type::INT8),
            (&direct.session, Type::INT4),
        ];
        params.extend(more.iter().map(|(value, kind)| (*value, kind.clone())));
        match direct.connection.query(statement, &params).await {
            Ok(rows) if rows.is_empty() => {
                self.held().remove(&claim.ticket);
                Ok(ClaimStatus::Lost)
            }
            Ok(_) => Ok(ClaimStatus::Held),
            Err(error) if direct.has_ended(&error) => {
                self.held().remove(&claim.ticket);
                Ok(ClaimStatus::Lost)
            }
            Err(error) => Err(failed(NAME, verb)(error)),
        }
    }

    async fn holder(&self, key: &Key) -> Result<Option<Holder>, BackendError> {
        const VERB: &str = "query a lease";
        let params: [Param<'_>; 1] = [(&stored(key), Type::TEXT)];
        let rows = self.connection.query(VERB, statements::HOLDER, &params).await?;
        rows.first().map(read::holder).transpose().map_err(failed(NAME, VERB))
    }

    async fn try_acquire(
        &self,
        key: &Key,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Attempt, BackendError> {
        let failed = failed(NAME, ACQUIRE);
        let (stored, setting) = (stored(key), as_setting(ttl));
        let direct = self.direct().await?;
        let Direct { connection, session } = &direct;
        let params: [Param<'_>; 2] = [(&stored, Type::TEXT), (&setting, Type::TEXT)];
        let rows = connection.query(statements::LOCK, &params).await.map_err(failed)?;
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
        let rows = connection.query(statements::RECORD, &params).await.map_err(failed)?;
        let fence = rows.first().map(|row| read::fence(row, 0)).transpose().map_err(failed)?;
        let Some(fence) = fence else {
            let params: [Param<'_>; 1] = [(&stored, Type::TEXT)];
            connection.query(statements::UNLOCK, &params).await.map_err(failed)?;
            self.keep_for_later(direct);
            return self.refused(key).await;
        };
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let claim = Claim { key: key.clone(), owner: owner.clone(), fence, ticket };
        let session = Session { direct: Arc::new(direct), claim: claim.clone() };
        let mut held = self.held();
        // Sessions that ended without another request.
        held.retain(|_, session| !session.direct.is_closed());
        held.insert(ticket, session);
        Ok(Attempt::Acquired(claim))
    }

    /// Returns the holder of a lock that was refused, if it still has one.
    async fn refused(&self, key: &Key) -> Result<Attempt, BackendError> {
        let holder = self.holder(key).await?;
        Ok(Attempt::Held(holder.unwrap_or_else(read::unknown_holder)))
    }

    async fn release(&self, claim: &Claim) -> Result<ClaimStatus, BackendError> {
        let standing =
            self.execute_as_holder("release a lease", statements::RELEASE, claim, &[]).await?;
        if !standing.is_held() {
            return Ok(standing);
        }
        let Some(session) = self.held().remove(&claim.ticket) else { return Ok(ClaimStatus::Lost) };
        // If this fails or is cancelled, the connection is dropped, and the lock with it.
        let params: [Param<'_>; 1] = [(&stored(&claim.key), Type::TEXT)];
        let unlocked = session.direct.connection.query(statements::UNLOCK, &params).await;
        if unlocked.is_ok()
            && let Some(direct) = Arc::into_inner(session.direct)
        {
            self.keep_for_later(direct);
        }
        Ok(ClaimStatus::Held)
    }
}

impl LockBackend for PostgresSession {
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

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, ClaimStatus> {
        Box::pin(async move {
            let setting = as_setting(ttl);
            let more: [Param<'_>; 2] = [(&ttl.as_secs_f64(), Type::FLOAT8), (&setting, Type::TEXT)];
            self.shared.execute_as_holder("renew a lease", statements::RENEW, claim, &more).await
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, ClaimStatus> {
        Box::pin(self.shared.release(claim))
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        Box::pin(self.shared.holder(key))
    }

    fn mark<'a>(
        &'a self,
        claim: &'a Claim,
        name: &'a str,
        value: &'a str,
    ) -> Reply<'a, ClaimStatus> {
        // Executed in the session that has the lock: if the session has ended, this fails.
        Box::pin(async move {
            let more: [Param<'_>; 2] = [(&name, Type::TEXT), (&value, Type::TEXT)];
            self.shared.execute_as_holder("write a marker", statements::MARK, claim, &more).await
        })
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        let Shared { connection, .. } = &*self.shared;
        Box::pin(async move { read::marker(NAME, connection, &stored(key), name).await })
    }

    fn ended<'a>(&'a self, claim: &'a Claim) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let session = self.shared.session(claim);
        let closed = session.map(|session| session.direct.connection.closed.clone());
        Box::pin(async move {
            // Holds the token only: a reference to the connection would keep it open.
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
