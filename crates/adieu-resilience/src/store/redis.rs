//! A store in Redis: one script for each question, which runs where the state is.

use std::fmt;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, RedisError, RedisFuture,
    RedisResult, Script, Value,
};

use super::{
    Force, Forced, News, Probe, Probed, Reply, Report, Settled, SharedStore, Snapshot, Store,
    StoreError, Synced, micros,
};
use crate::breaker::{Ended, Standing};
use crate::rate::{Gcra, Shared, Taken, Wait};
use crate::striped::lock;

const NAME: &str = "redis";
/// What to do about errors of the server.
const ADVICE: [(&str, &str); 6] = [
    (
        "NOAUTH",
        "the server requires a password; write it into the address: redis://:PASSWORD@HOST/",
    ),
    ("WRONGPASS", "check the user and the password in the address: redis://USER:PASSWORD@HOST/"),
    // The client's own text for it.
    (
        "AUTHENTICATIONFAILED",
        "check the user and the password in the address: redis://USER:PASSWORD@HOST/",
    ),
    (
        "NOPERM",
        "permit the user +@scripting and the commands of scripts, or +@all, on the keys ~adieu:*",
    ),
    // From within a script, before Redis 7.2.
    (
        "CAN'T RUN THIS COMMAND",
        "permit the user +@scripting and the commands of scripts, or +@all, on the keys ~adieu:*",
    ),
    ("READONLY", "the server is a replica; use the address of its primary"),
];
/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

pub(super) const TAKE: &str = include_str!("redis/take.lua");
const DOOR: &str = include_str!("redis/door.lua");
pub(super) const SYNC: &str = concat!(
    include_str!("redis/common.lua"),
    include_str!("redis/sync.lua"),
    include_str!("redis/finish.lua")
);
pub(super) const PROBE: &str = concat!(
    include_str!("redis/common.lua"),
    include_str!("redis/probe.lua"),
    include_str!("redis/finish.lua")
);
pub(super) const SETTLE: &str = concat!(
    include_str!("redis/common.lua"),
    include_str!("redis/settle.lua"),
    include_str!("redis/finish.lua")
);
pub(super) const FORCE: &str = concat!(
    include_str!("redis/common.lua"),
    include_str!("redis/force.lua"),
    include_str!("redis/finish.lua")
);

/// Shares policies through a Redis server.
///
/// Every request is one script, which is sent by its hash and loaded if the server does not have
/// it. Times are on the server's clock. The keys of all breakers of a service share a hash tag, and
/// each rate limit has its own, so that a Redis Cluster can spread the limits over its nodes. For a
/// cluster, pass a `redis::cluster_async::ClusterConnection` to [`Redis::new`].
///
/// # Limits
///
/// **A failover may lose the last writes**, because Redis replicates asynchronously. Then a rate limit
/// admits at most one burst more, and a breaker that the fleet has just opened is opened again by the
/// next reports of its replicas.
///
/// **A server that evicts keys** (`maxmemory-policy allkeys-…`) resets limits without a trace. Use
/// `noeviction` or `volatile-…`.
#[derive(Clone)]
pub struct Redis(Arc<dyn Store>);

/// The questions as scripts, by a connection that can be cloned.
pub(super) struct Scripted<C> {
    connection: C,
    /// The same connection, if it can be replaced.
    replaceable: Option<Connection>,
    scripts: Scripts,
}

struct Scripts {
    take: Script,
    sync: Script,
    probe: Script,
    settle: Script,
    force: Script,
}

/// A connection to one server, which can be replaced: a connection whose server has vanished may be
/// silent for ever.
#[derive(Clone)]
struct Connection {
    client: Client,
    /// `None` until the first connection.
    current: Arc<Mutex<Option<MultiplexedConnection>>>,
}

/// Granted, then as text: the wait, how far the state is ahead, and its tolerance, in nanoseconds.
pub(super) type Answer = (u32, String, String, String);
/// The epoch, the number of replicas, whether there is news, whether it is from the start, whether more
/// follows, and the news.
pub(super) type SyncAnswer = (String, u32, u32, u32, u32, Vec<Vec<String>>);

/// The answer of a script was not written by adieu, or by another version of it.
#[derive(Debug, thiserror::Error)]
#[error(
    "unexpected reply {0:?} from a script: check that all replicas run the same version of adieu"
)]
pub(super) struct Unreadable(Vec<String>);

// === impl Redis ===

impl Redis {
    /// Connects to a server, such as `redis://127.0.0.1/`, and connects again whenever the server does
    /// not answer.
    ///
    /// A process that must start also while the server is away uses [`Redis::open`].
    ///
    /// # Errors
    ///
    /// If the address is invalid, the server does not answer within 2 s, it requires another user or
    /// password, or it is a replica, on which nothing can be written.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let client = Client::open(url).map_err(failed_by_redis("connect"))?;
        let mut current = connect(&client).await.map_err(failed_by_redis("connect"))?;
        // A server that requires a password accepts a connection without one, and then nothing else.
        let script = Script::new(DOOR);
        let invocation = script.prepare_invoke();
        let asking = invocation.invoke_async::<u32>(&mut current);
        let answer = tokio::time::timeout(CONNECT_WITHIN, asking).await;
        answer.map_err(failed("connect"))?.map_err(failed_by_redis("connect"))?;
        Ok(Self::replaceable(client, Some(current)))
    }

    /// Uses a server, such as `redis://127.0.0.1/`, that need not answer yet.
    ///
    /// The loop of the policies connects. Until it has, the store is away, and the policies decide
    /// alone: a server that is away at start-up keeps no process from starting.
    ///
    /// # Errors
    ///
    /// If the address is invalid.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Ok(Self::replaceable(Client::open(url).map_err(failed_by_redis("connect"))?, None))
    }

    fn replaceable(client: Client, current: Option<MultiplexedConnection>) -> Self {
        let connection = Connection { client, current: Arc::new(Mutex::new(current)) };
        let replaceable = Some(connection.clone());
        Self(Arc::new(Scripted { replaceable, ..Scripted::new(connection) }))
    }

    /// Uses a connection that can be shared and that connects again automatically.
    pub fn new(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Self {
        Self(Arc::new(Scripted::new(connection)))
    }
}

impl From<Redis> for SharedStore {
    fn from(redis: Redis) -> Self {
        Self(redis.0)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

// === impl Scripted ===

impl<C> Scripted<C> {
    pub(super) fn new(connection: C) -> Self {
        let scripts = Scripts {
            take: Script::new(TAKE),
            sync: Script::new(SYNC),
            probe: Script::new(PROBE),
            settle: Script::new(SETTLE),
            force: Script::new(FORCE),
        };
        Self { connection, replaceable: None, scripts }
    }
}

impl<C> Scripted<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    async fn run<T: FromRedisValue>(
        &self,
        verb: &'static str,
        script: &Script,
        keys: &[String],
        args: &[String],
    ) -> Result<T, StoreError> {
        let mut invocation = script.prepare_invoke();
        keys.iter().for_each(|key| {
            invocation.key(key);
        });
        args.iter().for_each(|arg| {
            invocation.arg(arg);
        });
        invocation.invoke_async(&mut self.connection.clone()).await.map_err(failed_by_redis(verb))
    }
}

impl<C> Store for Scripted<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn take<'a>(&'a self, key: &'a str, limit: Gcra, wanted: u32) -> Reply<'a, Taken> {
        Box::pin(async move {
            let (interval, tolerance) = limit.figures();
            let args = [interval, tolerance, wanted.into()].map(|number| number.to_string());
            let verb = "take permits";
            let answer: Answer =
                self.run(verb, &self.scripts.take, &[key.to_owned()], &args).await?;
            read(answer, 0).map_err(failed(verb))
        })
    }

    fn sync<'a>(&'a self, service: &'a str, report: &'a Report) -> Reply<'a, Synced> {
        Box::pin(async move {
            let verb = "share breakers";
            let (keys, args) = sync_request(service, report);
            let answer: SyncAnswer = self.run(verb, &self.scripts.sync, &keys, &args).await?;
            read_synced(answer).map_err(failed(verb))
        })
    }

    fn probe<'a>(&'a self, service: &'a str, probe: &'a Probe) -> Reply<'a, Probed> {
        Box::pin(async move {
            let (verb, args) = ("request a probe", probe_args(probe));
            let keys = state_keys(service);
            let answer: Vec<String> = self.run(verb, &self.scripts.probe, &keys, &args).await?;
            read_probed(answer).map_err(failed(verb))
        })
    }

    fn settle<'a>(&'a self, service: &'a str, settled: &'a Settled) -> Reply<'a, Option<Standing>> {
        Box::pin(async move {
            let (verb, args) = ("return a probe", settle_args(settled));
            let keys = state_keys(service);
            let answer: Vec<String> = self.run(verb, &self.scripts.settle, &keys, &args).await?;
            read_standing(&answer).map_err(failed(verb))
        })
    }

    fn force<'a>(&'a self, service: &'a str, force: &'a Force) -> Reply<'a, ()> {
        Box::pin(async move {
            let (keys, args) = (state_keys(service), force_args(force));
            let verb =
                if force.time.is_zero() { "release a policy" } else { "force a policy open" };
            self.run(verb, &self.scripts.force, &keys, &args).await
        })
    }

    fn reconnect(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            let Some(connection) = &self.replaceable else { return Ok(()) };
            let next = connect(&connection.client).await.map_err(failed_by_redis("connect"))?;
            *lock(&connection.current) = Some(next);
            Ok(())
        })
    }

    fn is_connected(&self) -> bool {
        let connection = self.replaceable.as_ref();
        connection.is_none_or(|connection| lock(&connection.current).is_some())
    }
}

// === impl Connection ===

impl Connection {
    fn current(&self) -> RedisResult<MultiplexedConnection> {
        let not_connected = || RedisError::from(std::io::Error::from(ErrorKind::NotConnected));
        lock(&self.current).clone().ok_or_else(not_connected)
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move { self.current()?.req_packed_command(cmd).await })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move { self.current()?.req_packed_commands(cmd, offset, count).await })
    }

    fn get_db(&self) -> i64 {
        self.current().map_or(0, |current| current.get_db())
    }
}

async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    // No time limit on answers: the driver has a shorter one for each question.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_WITHIN))
        .set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}

fn key_of(service: &str, what: &str) -> String {
    format!("adieu:{{{service}}}:r2:{what}")
}

/// Returns the keys that every script of breakers has.
pub(super) fn state_keys(service: &str) -> Vec<String> {
    ["epoch", "state", "changes", "forgotten"].map(|what| key_of(service, what)).into()
}

pub(super) fn sync_request(service: &str, report: &Report) -> (Vec<String>, Vec<String>) {
    let Report { replica, is_leaving, epoch, forces, snapshots } = report;
    let mut keys = state_keys(service);
    keys.push(key_of(service, "who"));
    let is_leaving = u8::from(*is_leaving);
    let mut args = vec![replica.to_string(), is_leaving.to_string(), epoch.to_string()];
    args.push(forces.len().to_string());
    for (policy, Forced { left, by }) in forces {
        args.extend([policy.to_string(), micros(*left).to_string(), by.clone()]);
    }
    for snapshot in snapshots {
        let Snapshot { breaker, generation, calls, failures, is_open, terms, spread } = snapshot;
        keys.push(key_of(service, &format!("b:{breaker}")));
        args.extend([
            breaker.to_string(),
            generation.to_string(),
            calls.to_string(),
            failures.to_string(),
            u8::from(*is_open).to_string(),
            terms.calls.to_string(),
            terms.ratio.to_string(),
            terms.witnesses.to_string(),
            micros(terms.opens_for).to_string(),
            micros(terms.at_most).to_string(),
            spread.to_string(),
        ]);
    }
    (keys, args)
}

pub(super) fn probe_args(probe: &Probe) -> Vec<String> {
    let Probe { breaker, id, terms } = probe;
    let (probes, lease) = (terms.probes.to_string(), micros(terms.lease).to_string());
    vec![breaker.to_string(), id.to_string(), probes, lease]
}

pub(super) fn settle_args(settled: &Settled) -> Vec<String> {
    let Settled { probe: Probe { breaker, id, terms }, generation, ended, spread } = settled;
    let ended = match ended {
        Ended::Succeeded => "succeeded",
        Ended::Failed => "failed",
        Ended::Neutral => "neutral",
    };
    vec![
        breaker.to_string(),
        id.to_string(),
        generation.to_string(),
        ended.to_owned(),
        terms.closes_after.to_string(),
        micros(terms.opens_for).to_string(),
        micros(terms.at_most).to_string(),
        spread.to_string(),
    ]
}

pub(super) fn force_args(force: &Force) -> Vec<String> {
    let Force { policy, time, by } = force;
    vec![policy.to_string(), micros(*time).to_string(), by.clone()]
}

/// Reads an answer. The time of the state counts from `now`.
pub(super) fn read(answer: Answer, now: u64) -> Result<Taken, std::num::ParseIntError> {
    let (granted, wait, ahead, tolerance) = answer;
    let (ahead, tolerance): (u64, u64) = (ahead.parse()?, tolerance.parse()?);
    let state = (ahead > 0).then_some(Shared { time: now + ahead, tolerance });
    Ok(Taken { granted, wait: Wait(wait.parse()?), state })
}

pub(super) fn read_synced(answer: SyncAnswer) -> Result<Synced, Unreadable> {
    let (epoch, replicas, has_news, is_from_start, has_more, lines) = answer;
    let (is_from_start, has_more) = (is_from_start == 1, has_more == 1);
    let mut news = News { is_from_start, has_more, ..News::default() };
    for line in &lines {
        let unreadable = || Unreadable(line.clone());
        let (field, said) = line.split_first().ok_or_else(unreadable)?;
        match field.split_at_checked(2) {
            Some(("b:", breaker)) => {
                let standing = read_standing(said)?.ok_or_else(unreadable)?;
                news.breakers.push((breaker.to_owned(), standing));
            }
            Some(("f:", policy)) => {
                let [left, by] = said else { return Err(unreadable()) };
                let left = duration(left).ok_or_else(unreadable)?;
                news.forces.push((policy.to_owned(), Forced { left, by: by.clone() }));
            }
            _ => return Err(unreadable()),
        }
    }
    let epoch = epoch.parse().map_err(|_| Unreadable(vec![epoch.clone()]))?;
    Ok(Synced { epoch, replicas, news: (has_news == 1).then_some(news) })
}

pub(super) fn read_probed(answer: Vec<String>) -> Result<Probed, Unreadable> {
    let words: Vec<_> = answer.iter().map(String::as_str).collect();
    let probed = match words[..] {
        ["granted", generation] => {
            generation.parse().ok().map(|generation| Probed::Granted { generation })
        }
        ["busy", wait] => duration(wait).map(Probed::Busy),
        ["standing", ..] => Some(Probed::Standing(read_standing(&answer[1..])?)),
        _ => None,
    };
    probed.ok_or(Unreadable(answer))
}

pub(super) fn read_standing(words: &[String]) -> Result<Option<Standing>, Unreadable> {
    read_open_or_closed(words).ok_or_else(|| Unreadable(words.to_vec()))
}

fn read_open_or_closed(words: &[String]) -> Option<Option<Standing>> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    Some(match words[..] {
        [] => None,
        ["closed", generation] => Some(Standing::Closed { generation: generation.parse().ok()? }),
        ["open", generation, left, reopenings] => Some(Standing::Open {
            generation: generation.parse().ok()?,
            left: duration(left)?,
            reopenings: reopenings.parse().ok()?,
        }),
        _ => return None,
    })
}

fn duration(micros: &str) -> Option<Duration> {
    micros.parse().ok().map(Duration::from_micros)
}

fn failed<E>(verb: &'static str) -> impl FnOnce(E) -> StoreError
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |source| StoreError { store: NAME, verb, advice: None, source: Box::new(source) }
}

fn failed_by_redis(verb: &'static str) -> impl FnOnce(RedisError) -> StoreError {
    move |source| {
        let text = source.to_string().to_uppercase();
        let advice = ADVICE.iter().find(|(code, _)| text.contains(code));
        let advice = advice.map(|(_, advice)| *advice);
        StoreError { store: NAME, verb, advice, source: Box::new(source) }
    }
}
