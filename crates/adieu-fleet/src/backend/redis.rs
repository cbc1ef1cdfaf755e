//! Locks in Redis: scripts that run where the lock is stored, one for each thing that can be asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind};

use crate::locks::{Attempt, BackendError, Claim, Fence, Holder, Locks, Marker, Reply, Standing};
use crate::names::{Key, Owner};

/// Locks in Redis.
///
/// Every question is one script, sent by its hash and loaded when the server does not know it. Times
/// are the server's. The keys of a lock, `adieu:{key}:lock`, `:fence` and `:markers`, share a hash
/// tag, so that they are in one slot of a Redis Cluster; for a cluster, give [`Redis::new`] a
/// `redis::cluster_async::ClusterConnection`.
///
/// # What it does not promise
///
/// **One node decides, and it may forget.** Redis replicates asynchronously: when a replica takes
/// over, locks that were granted in the last moment are gone there, and somebody else may get them
/// while they are held. The same is true of a server that is restarted and has not written each
/// change to its disk (`appendfsync always`). Use it where two at a time are a waste and not a
/// disaster.
///
/// **A fence may fall after a failover.** A fence is one more than the last one that the server
/// remembers, or its time in microseconds, whichever is higher. So fences rise when the server has
/// lost all its data, and when a replica takes over that has every write, whatever its clock says. A
/// replica that lacks the last writes and whose clock is behind grants fences again that are lower
/// than those it does not know of. What must refuse a stale writer even then needs
/// [`Postgres`](crate::Postgres) or `Etcd`.
///
/// **When the server's clock is set.** Forward: leases end that much earlier, and another replica can
/// have the lock while its holder has not yet noticed, which is at its next renewal. Back: a lease
/// whose holder has died lasts that much longer; one that is renewed is not affected. Fences rise in
/// both cases, as long as the server remembers the last one.
///
/// **What stays for ever:** for each key `adieu:{key}:fence`, and `adieu:{key}:markers` with one field
/// for each singleton, and each version of what is done once. They do not expire. A server that
/// evicts such keys (`maxmemory-policy allkeys-…`) forgets what was done.
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

/// What a script says about the lock: whether it is free, or else its value and time to live.
type Answer = (i64, String, i64);

const NAME: &str = "redis";
const VERB_ACQUIRE: &str = "acquire a lease";
const VERB_CONNECT: &str = "connect";
/// How long a server may take to answer when a client connects.
const PATIENCE: Duration = Duration::from_secs(5);

// === impl Redis ===

impl Redis {
    /// Connects to a server, such as `redis://127.0.0.1/`; and again whenever that is lost.
    ///
    /// For other settings make a `ConnectionManager` yourself; see [`Redis::new`].
    ///
    /// # Errors
    ///
    /// If the address is none, nobody answers there within 5 s, or the password is wrong.
    pub async fn connect(url: &str) -> Result<Self, BackendError> {
        let failed = failed(VERB_CONNECT);
        let config = ConnectionManagerConfig::new()
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(500))
            .set_connection_timeout(Some(Duration::from_secs(2)))
            .set_response_timeout(Some(Duration::from_secs(2)));
        let client = redis::Client::open(url).map_err(failed)?;
        let connecting = ConnectionManager::new_with_config(client, config);
        let connection = tokio::time::timeout(PATIENCE, connecting)
            .await
            .map_err(|_| BackendError::no_answer(NAME, VERB_CONNECT, PATIENCE))?
            .map_err(failed)?;
        Ok(Self::new(connection))
    }
}

impl<C> Redis<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    /// Locks behind a connection that can be shared, and that connects again by itself.
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

    async fn ask<T: FromRedisValue>(
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

    async fn ask_standing(
        &self,
        verb: &'static str,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<Standing, BackendError> {
        let done: i64 = self.ask(verb, script, keys, args).await?;
        Ok(Standing::held_if(done == 1))
    }
}

/// Turns an error of the client or the server into one of the backend.
fn failed(verb: &'static str) -> impl Fn(RedisError) -> BackendError + Copy {
    move |error| BackendError::permanent_if(is_permanent(&error), NAME, verb, error)
}

/// Whether the same request would fail again: a wrong address or password, a permission that is
/// missing, or a key that something else has written.
fn is_permanent(error: &RedisError) -> bool {
    let by_kind = matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::Server(ServerErrorKind::NoPerm)
    );
    by_kind || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "WRONGTYPE"))
}

/// One of the keys of a lock. The braces are the hash tag.
fn key_of(key: &Key, what: &str) -> String {
    format!("adieu:{{{key}}}:{what}")
}

/// What the lock must be for this claim to hold.
fn value_of(claim: &Claim) -> String {
    format!("{} {}", claim.fence, claim.owner)
}

fn millis(ttl: Duration) -> String {
    ttl.as_nanos().div_ceil(1_000_000).to_string()
}

/// A fence, and what is written behind it.
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
    // Not zero: it is held, if only for less than a millisecond.
    let remaining = Duration::from_millis(u64::try_from(remaining).unwrap_or(0).max(1));
    Ok(Holder { owner: Owner::stored(owner), fence, remaining })
}

impl<C> Locks for Redis<C>
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
            let answer = self.ask(VERB_ACQUIRE, &self.scripts.acquire, &keys, &args).await;
            let (granted, value, remaining): Answer = answer?;
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

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, Standing> {
        Box::pin(async move {
            let keys = [&*key_of(&claim.key, "lock")];
            let args = [&*value_of(claim), &millis(ttl)];
            self.ask_standing("renew a lease", &self.scripts.renew, &keys, &args).await
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Standing> {
        Box::pin(async move {
            let keys = [&*key_of(&claim.key, "lock")];
            let args = [&*value_of(claim)];
            self.ask_standing("release a lease", &self.scripts.release, &keys, &args).await
        })
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        const VERB: &str = "look at a lease";
        Box::pin(async move {
            let keys = [&*key_of(key, "lock")];
            let answer = self.ask(VERB, &self.scripts.query, &keys, &[]).await;
            let (free, value, remaining): Answer = answer?;
            (free == 0).then(|| holder(VERB, &value, remaining)).transpose()
        })
    }

    fn mark<'a>(&'a self, claim: &'a Claim, name: &'a str, value: &'a str) -> Reply<'a, Standing> {
        Box::pin(async move {
            let keys = [&*key_of(&claim.key, "lock"), &key_of(&claim.key, "markers")];
            let args = [&*value_of(claim), name, &claim.fence.to_string(), value];
            self.ask_standing("write a marker", &self.scripts.mark, &keys, &args).await
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
