//! Locks as rows, on the server's clock. Every operation is one statement.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::Type;
use tokio_postgres::{Config, Row, Socket};

use super::connection::{Connector, Param, failed};
use super::shared::SharedConnection;
use super::{SCHEMA, read};
use crate::lock_backend::{
    Attempt, BackendError, Claim, ClaimStatus, Holder, LockBackend, Marker, Reply,
};
use crate::names::{Key, Owner};

/// Locks in Postgres, as rows of the table `adieu_leases`.
///
/// Times are on the server's clock, every operation is one statement, and nothing depends on the
/// session, so it works behind transaction poolers such as PgBouncer. It uses one connection, and
/// reconnects when that is lost. Grants and markers are on the server's disk before they are
/// acknowledged, also where `synchronous_commit` is off. The primary decides. A replica that takes
/// over without the last commits, and a server that is restored from an older backup, have lost those
/// grants, and grant the same fences again.
///
/// **When the server's clock is set.** Forward: leases end that much earlier, and another replica
/// can acquire the lock before its holder notices, which is at its next renewal. Back: a lease whose
/// holder has died lasts that much longer; a lease that is renewed is not affected. Fences rise in
/// both cases, because they are counted.
///
/// **What stays for ever:** a row of `adieu_leases` for each key, and a row of `adieu_markers` for
/// each singleton and for each version of once-per-fleet work. Delete the rows of a key only when no
/// stored data carries its fences.
///
/// When a clock jumps or a process is suspended, only the fence protects written data:
///
/// ```no_run
/// # use adieu_fleet::Lease;
/// # async fn example(lease: Lease, client: tokio_postgres::Client, total: i64)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let fence = lease.check()?.as_i64();
/// let updated = client
///     .execute(
///         "UPDATE reports SET total = $1, fence = $2 WHERE id = 7 AND fence <= $2",
///         &[&total, &fence],
///     )
///     .await?;
/// if updated == 0 {
///     return Err("a replica with a higher fence has written".into());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Postgres {
    connection: Arc<SharedConnection>,
}

const NAME: &str = "postgres";
const ACQUIRE: &str = "acquire a lease";

// === impl Postgres ===

impl Postgres {
    /// The tables, as SQL. They are created if they are missing and the user has the permission;
    /// otherwise an administrator must create them.
    pub const SCHEMA: &str = SCHEMA;

    /// Uses the database of a configuration such as `host=db user=app dbname=app`, without TLS.
    /// Connects with the first request.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub fn new(config: &str) -> Result<Self, BackendError> {
        Ok(Self::on(Connector::parse(NAME, config)?))
    }

    /// Connects to the database of a configuration; see [`Postgres::new`].
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, the server does not respond within 5 s or refuses the
    /// connection, or the tables are missing and cannot be created.
    pub async fn connect(config: &str) -> Result<Self, BackendError> {
        let postgres = Self::new(config)?;
        postgres.connection.connection().await?;
        Ok(postgres)
    }

    /// Uses a database with a custom configuration and TLS. Connects with the first request.
    ///
    /// `tls` is a connector such as that of tokio-postgres-rustls.
    ///
    /// ```
    /// use adieu_fleet::Postgres;
    /// use adieu_fleet::tokio_postgres::{Config, NoTls};
    ///
    /// let mut config = Config::new();
    /// config.host("db").user("app").dbname("app");
    /// let backend = Postgres::with_tls(config, NoTls);
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
        Self { connection: Arc::new(SharedConnection::new(connector)) }
    }

    async fn execute(
        &self,
        verb: &'static str,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, BackendError> {
        self.connection.query(verb, statement, params).await
    }

    /// Executes a statement whose first parameters are the claim, and which returns a row if the
    /// claim holds its lock.
    async fn execute_as_holder(
        &self,
        verb: &'static str,
        statement: &str,
        claim: &Claim,
        more: &[Param<'_>],
    ) -> Result<ClaimStatus, BackendError> {
        let (key, owner, fence) = (claim.key.as_str(), claim.owner.as_str(), claim.fence.as_i64());
        let mut params: Vec<Param<'_>> =
            vec![(&key, Type::TEXT), (&owner, Type::TEXT), (&fence, Type::INT8)];
        params.extend(more.iter().map(|(value, kind)| (*value, kind.clone())));
        let rows = self.execute(verb, statement, &params).await?;
        Ok(ClaimStatus::held_if(!rows.is_empty()))
    }
}

impl LockBackend for Postgres {
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
        // A statement that waits for the row then sees the new row, and the time of that instant.
        const STATEMENT: &str = concat!(
            "WITH granted AS (
                INSERT INTO adieu_leases AS lease (key, owner, fence, expires_at)
                VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3))
                ON CONFLICT (key) DO UPDATE
                SET owner = $2, fence = lease.fence + 1,
                    expires_at = clock_timestamp() + make_interval(secs => $3)
                WHERE lease.owner IS NULL OR lease.expires_at <= clock_timestamp()
                RETURNING fence, ",
            durable!(),
            " AS durable
            )
            SELECT $2, fence, $3, true, durable FROM granted
            UNION ALL
            SELECT owner, fence, extract(epoch FROM expires_at - clock_timestamp())::float8,
                   false, NULL
            FROM adieu_leases WHERE key = $1 AND NOT EXISTS (SELECT FROM granted)"
        );
        Box::pin(async move {
            let params: [Param<'_>; 3] = [
                (&key.as_str(), Type::TEXT),
                (&owner.as_str(), Type::TEXT),
                (&ttl.as_secs_f64(), Type::FLOAT8),
            ];
            let failed = failed(NAME, ACQUIRE);
            let rows = self.execute(ACQUIRE, STATEMENT, &params).await?;
            match rows.first() {
                Some(row) if row.try_get(3).map_err(failed)? => {
                    let fence = read::fence(row, 1).map_err(failed)?;
                    let (key, owner) = (key.clone(), owner.clone());
                    Ok(Attempt::Acquired(Claim { key, owner, fence, ticket: 0 }))
                }
                Some(row) if row.try_get::<_, Option<&str>>(0).map_err(failed)?.is_some() => {
                    Ok(Attempt::Held(read::holder(row).map_err(failed)?))
                }
                // Another replica acquired the lock first; the row is from before that.
                Some(_) | None => {
                    let holder = self.query(key).await?;
                    Ok(Attempt::Held(holder.unwrap_or_else(read::unknown_holder)))
                }
            }
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, ClaimStatus> {
        const STATEMENT: &str = concat!(
            "UPDATE adieu_leases SET expires_at = clock_timestamp() + make_interval(secs => $4)
             WHERE key = $1 AND owner = $2 AND fence = $3 AND expires_at > clock_timestamp()
             RETURNING ",
            durable!()
        );
        Box::pin(async move {
            let more: [Param<'_>; 1] = [(&ttl.as_secs_f64(), Type::FLOAT8)];
            self.execute_as_holder("renew a lease", STATEMENT, claim, &more).await
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, ClaimStatus> {
        const STATEMENT: &str = "
            UPDATE adieu_leases SET owner = NULL
            WHERE key = $1 AND owner = $2 AND fence = $3 AND expires_at > clock_timestamp()
            RETURNING fence";
        Box::pin(self.execute_as_holder("release a lease", STATEMENT, claim, &[]))
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        const VERB: &str = "query a lease";
        const STATEMENT: &str = "
            SELECT owner, fence, extract(epoch FROM expires_at - clock_timestamp())::float8
            FROM adieu_leases
            WHERE key = $1 AND owner IS NOT NULL AND expires_at > clock_timestamp()";
        Box::pin(async move {
            let params: [Param<'_>; 1] = [(&key.as_str(), Type::TEXT)];
            let rows = self.execute(VERB, STATEMENT, &params).await?;
            rows.first().map(read::holder).transpose().map_err(failed(NAME, VERB))
        })
    }

    fn mark<'a>(
        &'a self,
        claim: &'a Claim,
        name: &'a str,
        value: &'a str,
    ) -> Reply<'a, ClaimStatus> {
        // The row stays locked until the marker is written, so the lock cannot change hands between.
        const STATEMENT: &str = concat!(
            "INSERT INTO adieu_markers (key, name, value, fence)
             SELECT key, $4, $5, fence FROM adieu_leases
             WHERE key = $1 AND owner = $2 AND fence = $3 AND expires_at > clock_timestamp()
             FOR SHARE
             ON CONFLICT (key, name) DO UPDATE SET value = excluded.value, fence = excluded.fence
             RETURNING ",
            durable!()
        );
        Box::pin(async move {
            let more: [Param<'_>; 2] = [(&name, Type::TEXT), (&value, Type::TEXT)];
            self.execute_as_holder("write a marker", STATEMENT, claim, &more).await
        })
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        Box::pin(read::marker(NAME, &self.connection, key.as_str(), name))
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}
