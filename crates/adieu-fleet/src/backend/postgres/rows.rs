//! Locks as rows, with the server's time: every question is one statement.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::Type;
use tokio_postgres::{Config, NoTls, Row, Socket};

use super::SCHEMA;
use super::connection::{Connector, Line, Param, failed};
use crate::locks::{Attempt, BackendError, Claim, Fence, Holder, Locks, Marker, Reply, Standing};
use crate::names::{Key, Owner};

/// Locks in Postgres, as rows of the table `adieu_leases`.
///
/// Times are the server's, every question is one statement, and nothing depends on the session: it
/// works behind transaction poolers such as PgBouncer. It has one connection, and makes a new one
/// when that is lost. A grant and a marker are on the server's disk before they are acknowledged,
/// also where `synchronous_commit` is off. The primary decides; a replica that takes over without
/// the last commits, and a server that is restored from an older backup, have forgotten them, and
/// grant fences again that were granted before.
///
/// **When the server's clock is set.** Forward: leases end that much earlier, and another replica
/// can have the lock while its holder has not yet noticed, which is at its next renewal. Back: a
/// lease whose holder has died lasts that much longer; one that is renewed is not affected. Fences
/// rise in both cases, because they are counted.
///
/// **What stays for ever:** a row of `adieu_leases` for each key, and a row of `adieu_markers` for
/// each singleton, and each version of what is done once. Delete a key's rows only when nothing
/// remembers its fences.
///
/// Whenever a clock jumps or a process is suspended, it is the fence that protects what is written:
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
///     return Err("somebody with a higher fence has been here".into());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Postgres {
    line: Arc<Line>,
}

const NAME: &str = "postgres";
const ACQUIRE: &str = "acquire a lease";

// === impl Postgres ===

impl Postgres {
    /// What it needs. Made when it is not there, if the user may do that; else it is for whoever
    /// may.
    pub const SCHEMA: &str = SCHEMA;

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

    /// As [`Postgres::new`], and connects at once.
    ///
    /// # Errors
    ///
    /// If that is no configuration, the server does not answer within 5 s or refuses the connection,
    /// or the tables are missing and cannot be made.
    pub async fn connect(config: &str) -> Result<Self, BackendError> {
        let postgres = Self::new(config)?;
        postgres.line.connection(NAME).await?;
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
        Self { line: Arc::new(Line::new(Connector::new(config, tls))) }
    }

    async fn ask(
        &self,
        verb: &'static str,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, BackendError> {
        self.line.query(NAME, verb, statement, params).await
    }

    async fn ask_standing(
        &self,
        verb: &'static str,
        statement: &str,
        claim: &Claim,
        more: &[Param<'_>],
    ) -> Result<Standing, BackendError> {
        let (key, owner, fence) = (claim.key.as_str(), claim.owner.as_str(), claim.fence.as_i64());
        let mut params: Vec<Param<'_>> =
            vec![(&key, Type::TEXT), (&owner, Type::TEXT), (&fence, Type::INT8)];
        params.extend(more.iter().map(|(value, kind)| (*value, kind.clone())));
        let rows = self.ask(verb, statement, &params).await?;
        Ok(Standing::held_if(!rows.is_empty()))
    }
}

pub(super) fn fence_of(row: &Row, column: usize) -> Result<Fence, tokio_postgres::Error> {
    let fence: i64 = row.try_get(column)?;
    Ok(Fence::new(u64::try_from(fence).unwrap_or(0)))
}

pub(super) fn remaining(seconds: f64) -> Duration {
    // Not zero: it is held, if only for a moment.
    Duration::try_from_secs_f64(seconds).unwrap_or_default().max(Duration::from_millis(1))
}

fn holder(row: &Row) -> Result<Holder, tokio_postgres::Error> {
    let owner = Owner::stored(row.try_get(0)?);
    Ok(Holder { owner, fence: fence_of(row, 1)?, remaining: remaining(row.try_get(2)?) })
}

impl Locks for Postgres {
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
        // Who waits for the row sees it as it is then, and the time as it is then.
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
            let rows = self.ask(ACQUIRE, STATEMENT, &params).await?;
            match rows.first() {
                Some(row) if row.try_get(3).map_err(failed)? => {
                    let fence = fence_of(row, 1).map_err(failed)?;
                    let (key, owner) = (key.clone(), owner.clone());
                    Ok(Attempt::Acquired(Claim { key, owner, fence, ticket: 0 }))
                }
                Some(row) if row.try_get::<_, Option<&str>>(0).map_err(failed)?.is_some() => {
                    Ok(Attempt::Held(holder(row).map_err(failed)?))
                }
                // Somebody was faster than us; what we have seen is how it was before.
                Some(_) | None => Ok(Attempt::Held(self.query(key).await?.unwrap_or_else(unknown))),
            }
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, Standing> {
        const STATEMENT: &str = concat!(
            "UPDATE adieu_leases SET expires_at = clock_timestamp() + make_interval(secs => $4)
             WHERE key = $1 AND owner = $2 AND fence = $3 AND expires_at > clock_timestamp()
             RETURNING ",
            durable!()
        );
        Box::pin(async move {
            let more: [Param<'_>; 1] = [(&ttl.as_secs_f64(), Type::FLOAT8)];
            self.ask_standing("renew a lease", STATEMENT, claim, &more).await
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Standing> {
        const STATEMENT: &str = "
            UPDATE adieu_leases SET owner = NULL
            WHERE key = $1 AND owner = $2 AND fence = $3 AND expires_at > clock_timestamp()
            RETURNING fence";
        Box::pin(self.ask_standing("release a lease", STATEMENT, claim, &[]))
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        const VERB: &str = "look at a lease";
        const STATEMENT: &str = "
            SELECT owner, fence, extract(epoch FROM expires_at - clock_timestamp())::float8
            FROM adieu_leases
            WHERE key = $1 AND owner IS NOT NULL AND expires_at > clock_timestamp()";
        Box::pin(async move {
            let rows = self.ask(VERB, STATEMENT, &[(&key.as_str(), Type::TEXT)]).await?;
            let holder = rows.first().map(holder).transpose();
            holder.map_err(failed(NAME, VERB))
        })
    }

    fn mark<'a>(&'a self, claim: &'a Claim, name: &'a str, value: &'a str) -> Reply<'a, Standing> {
        // The row is locked until the marker is there, so nobody takes it over in between.
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
            self.ask_standing("write a marker", STATEMENT, claim, &more).await
        })
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        Box::pin(async move { marker(&self.line, NAME, key.as_str(), name).await })
    }
}

/// Who got it in the same moment, and has given it back since.
fn unknown() -> Holder {
    let owner = Owner::stored("somebody");
    Holder { owner, fence: Fence::NONE, remaining: Duration::from_millis(1) }
}

pub(super) async fn marker(
    line: &Line,
    backend: &'static str,
    key: &str,
    name: &str,
) -> Result<Option<Marker>, BackendError> {
    const VERB: &str = "read a marker";
    const STATEMENT: &str = "SELECT value, fence FROM adieu_markers WHERE key = $1 AND name = $2";
    let params: [Param<'_>; 2] = [(&key, Type::TEXT), (&name, Type::TEXT)];
    let rows = line.query(backend, VERB, STATEMENT, &params).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let read = || Ok(Marker { value: row.try_get(0)?, fence: fence_of(row, 1)? });
    read().map(Some).map_err(failed(backend, VERB))
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}
