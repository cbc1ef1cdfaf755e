//! Locks in Redis: one script, which runs on the server, for each operation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind};

use crate::lock_backend::{
    Attempt, BackendError, Claim, ClaimStatus, Fence, Holder, LockBackend, Marker, Reply,
};
use crate::names::{Key, Owner};

/// Locks in Redis.
///
/// Every operation is one script, which is sent by its hash and loaded if the server does not have
/// it. Times are on the server's clock. The keys of a lock, `adieu:{key}:lock`, `:fence` and
/// `:markers`, share a hash tag, so that they are in one slot of a Redis Cluster. For a cluster,
/// pass a `redis::cluster_async::ClusterConnection` to [`Redis::new`].
///
/// # Limits
///
/// **One node decides, and it can lose data.** Redis replicates asynchronously: when a replica takes
/// over, the most recent grants are missing there, and another replica of the service may acquire a
/// lock that is still held. The same applies to a server that is restarted and has not written each
/// change to its disk (`appendfsync always`). Use Redis where two holders at a time are a waste and
/// not a disaster.
///
/// **A fence may fall after a failover.** A fence is the last one that the server has stored plus
/// one, or the server's time in microseconds, whichever is higher. So fences rise when the server
/// has lost all its data, and when a replica takes over that has every write, whatever its clock
/// shows. A replica that lacks the last writes and whose clock is behind grants fences that are
/// lower than those that it does not have. If stale writers must be rejected even then, use
/// [`Postgres`](crate::Postgres) or `Etcd`.
///
/// **When the server's clock is set.** Forward: leases end that much earlier, and another replica
/// can acquire the lock before its holder notices, which is at its next renewal. Back: a lease
/// whose holder has died lasts that much longer; a lease that is renewed is not affected. Fences
/// rise in both cases, as long as the server has the last one.
///
/// **What stays for ever:** for each key `adieu:{key}:fence`, and `adieu:{key}:markers` with one field
/// for each singleton and for each version of once-per-fleet work. They do not expire. A server that
/// evicts such keys (`maxmemory-policy allkeys-…`) loses the record of completed work.
#[derive(Clone)]
pub struct Redis<C = ConnectionManager> {
    connection: C,
    scripts: Arc<Scripts>,
}

struct Scripts {
    acquire: Script,
    renew: Script,
    release: Script,
    query: Script,
    mark: Script,
}

/// The response of a script: whether the lock is free or was granted, its value, and its time to
/// live.
type Response = (i64, String, i64);

const NAME: &str = "redis";
const VERB_ACQUIRE: &str = "acquire a lease";
const VERB_CONNECT: &str = "connect";
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

// === impl Redis ===

impl Redis {
    /// Connects to a server, such as `redis://127.0.0.1/`, and reconnects whenever the connection is
    /// lost.
    ///
    /// For other settings create a `ConnectionManager` and use [`Redis::new`].
    ///
    /// # Errors
    ///
    /// If the address is invalid, the server does not respond within 5 s, or the password is wrong.
    pub async fn connect(url: &str) -> Result<Self, BackendError> {
        let failed = failed(VERB_CONNECT);
        let config = ConnectionManagerConfig::new()
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(500))
            .set_connection_timeout(Some(Duration::from_secs(2)))
            .set_response_timeout(Some(Duration::from_secs(2)));
        let client = redis::Client::open(url).map_err(failed)?;
        let connecting = ConnectionManager::new_with_config(client, config);
        let connection = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| BackendError::no_response(NAME, VERB_CONNECT, CONNECT_TIMEOUT))?
            .map_err(failed)?;
        Ok(Self::new(connection))
    }
}

impl<C> Redis<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    /// Uses a connection that can be shared and that reconnects automatically.
    pub fn new(connection: C) -> Self {
        let scripts = Scripts {
            acquire: Script::new(include_str!("redis/acquire.lua")),
            renew: Script::new(include_str!("redis/renew.lua")),
            release: Script::new(include_str!("redis/release.lua")),
            query: Script::new(include_str!("redis/query.lua")),
            mark: Script::new(include_str!("redis/mark.lua")),
        };
        Self { connection, scripts: Arc::new(scripts) }
    }

    async fn run<T: FromRedisValue>(
        &self,
        verb: &'static str,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<T, BackendError> {
        let mut invocation = script.prepare_invoke();
        for key in keys {
            invocation.key(*key);
        }
        for arg in args {
            invocation.arg(*arg);
        }
        invocation.invoke_async(&mut self.connection.clone()).await.map_err(failed(verb))
    }

    async fn run_as_holder(
        &self,
        verb: &'static str,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<ClaimStatus, BackendError> {
        let done: i64 = self.run(verb, script, keys, args).await?;
        Ok(ClaimStatus::held_if(done == 1))
    }
}

/// Converts an error of the client or the server.
fn failed(verb: &'static str) -> impl Fn(RedisError) -> BackendError + Copy {
    move |error| BackendError::permanent_if(is_permanent(&error), NAME, verb, error)
}

/// Returns whether the same request would fail again: a wrong address or password, a missing
/// permission, or a key that another program has written.
fn is_permanent(error: &RedisError) -> bool {
    let by_kind = matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::Server(ServerErrorKind::NoPerm)
    );
    by_kind || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "WRONGTYPE"))
}

/// Returns one of the keys of a lock. The braces mark the hash tag.
fn key_of(key: &Key, what: &str) -> String {
    format!("adieu:{{{key}}}:{what}")
}

/// Returns the value that the lock has while the claim holds it.
fn value_of(claim: &Claim) -> String {
    format!("{} {}", claim.fence, claim.owner)
}

fn millis(ttl: Duration) -> String {
    ttl.as_nanos().div_ceil(1_000_000).to_string()
}

/// Parses a stored value: a fence, a space, and the rest.
fn parse<'a>(verb: &'static str, value: &'a str) -> Result<(Fence, &'a str), BackendError> {
    value
        .split_once(' ')
        .and_then(|(fence, rest)| Some((Fence::new(fence.parse().ok()?), rest)))
        .ok_or_else(|| {
            let problem = format!("{value:?} was not written by adieu");
            BackendError::new(NAME, verb, problem)
        })
}

fn holder(verb: &'static str, value: &str, remaining: i64) -> Result<Holder, BackendError> {
    let (fence, owner) = parse(verb, value)?;
    // Not zero, because the lock is held.
    let remaining = Duration::from_millis(u64::try_from(remaining).unwrap_or(0).max(1));
    Ok(Holder { owner: Owner::stored(owner), fence, remaining })
}

impl<C> LockBackend for Redis<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
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
        Box::pin(async move {
            let keys = [&*key_of(key, "lock"), &key_of(key, "fence")];
            let args = [owner.as_str(), &millis(ttl)];
            let response = self.run(VERB_ACQUIRE, &self.scripts.acquire, &keys, &args).await;
            let (granted, value, remaining): Response = response?;
            if granted == 0 {
                return holder(VERB_ACQUIRE, &value, remaining).map(Attempt::Held);
            }
            let fence = value
                .parse()
                .map(Fence::new)
                .map_err(|error| BackendError::new(NAME, VERB_ACQUIRE, error))?;
            let (key, owner) = (key.clone(), owner.clone());
            Ok(Attempt::Acquired(Claim { key, owner, fence, ticket: 0 }))
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, ClaimStatus> {
        Box::pin(async move {
            let keys = [&*key_of(&claim.key, "lock")];
            let args = [&*value_of(claim), &millis(ttl)];
            self.run_as_holder("renew a lease", &self.scripts.renew, &keys, &args).await
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, ClaimStatus> {
        Box::pin(async move {
            let keys = [&*key_of(&claim.key, "lock")];
            let args = [&*value_of(claim)];
            self.run_as_holder("release a lease", &self.scripts.release, &keys, &args).await
        })
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        const VERB: &str = "query a lease";
        Box::pin(async move {
            let keys = [&*key_of(key, "lock")];
            let response = self.run(VERB, &self.scripts.query, &keys, &[]).await;
            let (free, value, remaining): Response = response?;
            (free == 0).then(|| holder(VERB, &value, remaining)).transpose()
        })
    }

    fn mark<'a>(
        &'a self,
        claim: &'a Claim,
        name: &'a str,
        value: &'a str,
    ) -> Reply<'a, ClaimStatus> {
        Box::pin(async move {
            let keys = [&*key_of(&claim.key, "lock"), &key_of(&claim.key, "markers")];
            let args = [&*value_of(claim), name, &claim.fence.to_string(), value];
            self.run_as_holder("write a marker", &self.scripts.mark, &keys, &args).await
        })
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        const VERB: &str = "read a marker";
        Box::pin(async move {
            let stored: Option<String> = redis::cmd("HGET")
                .arg(key_of(key, "markers"))
                .arg(name)
                .query_async(&mut self.connection.clone())
                .await
                .map_err(failed(VERB))?;
            let Some(stored) = stored else { return Ok(None) };
            let (fence, value) = parse(VERB, &stored)?;
            Ok(Some(Marker { value: value.to_owned(), fence }))
        })
    }
}

impl<C> fmt::Debug for Redis<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}
