//! A table in etcd.

mod changes;
mod connector;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{ConnectOptions, Error, GetOptions};

use self::changes::EtcdChanges;
use self::connector::{Connector, Plain, code, failed, is_compacted, is_denied, is_not_applied};
use self::wire::{prefix_end, record, revision_of, session_of, transaction};
use super::{
    Changes, Commit, Committed, Record, Reply, Revision, Session, SessionId, Snapshot, Standing,
    Store, StoreError,
};

const NAME: &str = "etcd";
const CONNECT: &str = "connect";
const KEEP: &str = "keep a session";
const LOAD: &str = "load a table";
const WATCH: &str = "watch a table";

/// How long the members may take to answer when a client connects.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many records are read at a time.
const PAGE: i64 = 500;

/// The limit of a page that holds everything.
const NO_LIMIT: i64 = 0;

/// The longest answer that is accepted. A watch that catches up receives up to a thousand
/// revisions in one.
const LONGEST_ANSWER: usize = 256 * 1024 * 1024;

/// A table in etcd, for clusters of several machines.
///
/// A revision is etcd's own, a session is a lease, and a commit is one transaction. A majority of
/// the members decides, so the table survives the loss of a minority.
///
/// One member is used at a time. If it cannot be reached, does not answer, or has no leader, the
/// next request goes to the next endpoint, over a new connection.
///
/// # Versions
///
/// Use 3.4.31, 3.5.13, 3.6 or later in production. With earlier versions, such as the 3.4.23 of
/// Debian 12, a leading member whose disk or processor stalls may end sessions before their time
/// ([etcd 15247](https://github.com/etcd-io/etcd/issues/15247)). The tests run on 3.4.23 and 3.7.
///
/// # For operators
///
/// - Compact the history (`--auto-compaction-retention`): without it the database grows to its
///   quota, and etcd then refuses all commits. A watch whose changes were compacted reports
///   [`Update::Compacted`](super::Update::Compacted).
/// - After a restore from a backup, revisions are lower, and so are fences, which are revisions.
///   Restore with `--bump-revision` and `--mark-compacted`. A watch that finds the revision lower
///   than before is refused.
/// - The shortest time to live is one and a half election time-outs in whole seconds: 2 s by
///   default. Sessions last whole seconds, and end up to half a second late.
#[derive(Clone)]
pub struct Etcd {
    connector: Arc<Connector>,
    shortest_ttl: Duration,
}

// === impl Etcd ===

impl Etcd {
    /// Connects to a cluster, such as `["http://127.0.0.1:2379"]`, without user and TLS.
    ///
    /// # Errors
    ///
    /// If an address is not valid, no member answers within 5 s, the members have no majority, or
    /// authentication is required.
    pub async fn connect<E: AsRef<str>>(endpoints: &[E]) -> Result<Self, StoreError> {
        Self::connect_with(endpoints, ConnectOptions::new()).await
    }

    /// As [`Etcd::connect`], with a user, TLS and time-outs.
    ///
    /// The store sets some options itself: each request requires a leader, an expired token is
    /// replaced, and a silent connection is tested at a fixed interval.
    ///
    /// # Errors
    ///
    /// As [`Etcd::connect`], and if user or password are wrong.
    pub async fn connect_with<E: AsRef<str>>(
        endpoints: &[E],
        options: ConnectOptions,
    ) -> Result<Self, StoreError> {
        let endpoints: Vec<String> = endpoints.iter().map(|it| it.as_ref().to_owned()).collect();
        if endpoints.is_empty() {
            return Err(StoreError::refused(NAME, CONNECT, "the list of endpoints is empty"));
        }
        let (attempts, named) = (endpoints.len(), endpoints.join(", "));
        let mut etcd = Self {
            connector: Arc::new(Connector::new(endpoints, options)),
            shortest_ttl: Duration::from_secs(1),
        };
        let learning = async {
            let mut left = attempts;
            loop {
                left -= 1;
                match Box::pin(etcd.learn_shortest_ttl()).await {
                    Err(error) if left > 0 && error.may_pass() => {}
                    learned => return learned,
                }
            }
        };
        let unreachable = |why: &dyn fmt::Display| {
            StoreError::unavailable(NAME, CONNECT, format!("{named}: {why}"))
        };
        let learned = tokio::time::timeout(PATIENCE, learning).await;
        let learned =
            learned.map_err(|_| unreachable(&format!("no answer within {PATIENCE:?}")))?;
        etcd.shortest_ttl = learned.map_err(|error| match &error {
            StoreError::Unavailable { source, .. } => unreachable(source),
            StoreError::Unknown { .. }
            | StoreError::Refused { .. }
            | StoreError::NoSession { .. }
            | StoreError::TtlTooShort { .. } => error,
        })?;
        Ok(etcd)
    }

    /// Returns the shortest time to live of the server, which is what it grants if less is
    /// requested. That takes a majority, and a user if there is authentication.
    async fn learn_shortest_ttl(&self) -> Result<Duration, StoreError> {
        let granted = self.connector.request(async |client| {
            let options = GetOptions::new().with_prefix().with_count_only();
            let read = client.kv_client().get("adieu/cluster/", Some(options)).await;
            // A user that may read only one cluster is known all the same.
            read.map(drop).or_else(|error| is_denied(&error).then_some(()).ok_or(error))?;
            let mut leases = client.lease_client();
            let granted = leases.grant(1, None).await?;
            leases.revoke(granted.id()).await?;
            Ok(granted.ttl())
        });
        granted.await.map(seconds).map_err(failed(CONNECT))
    }

    async fn open_session(&self, ttl: Duration) -> Result<Session, StoreError> {
        let shortest = self.shortest_ttl;
        if ttl < shortest {
            return Err(StoreError::TtlTooShort { store: NAME, ttl, shortest });
        }
        let whole = i64::try_from(ttl.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX);
        let granted =
            self.connector.request(async |client| client.lease_client().grant(whole, None).await);
        let granted = granted.await.map_err(failed("open a session"))?;
        Ok(Session { id: SessionId::new(granted.id()), ttl: seconds(granted.ttl()) })
    }

    async fn keep_session(&self, session: SessionId) -> Result<Standing, StoreError> {
        // One stream for each request, so that an answer never belongs to an earlier one.
        let kept = self
            .connector
            .request(async |client| client.lease_client().keep_alive(session.get()).await);
        match kept.await {
            Ok(_) => Ok(Standing::Kept),
            Err(Error::LeaseKeepAliveError(problem)) if problem.contains("not found") => {
                Ok(Standing::Ended)
            }
            Err(error) => Err(failed(KEEP)(error)),
        }
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        let revoked = self
            .connector
            .request(async |client| client.lease_client().revoke(session.get()).await);
        match revoked.await {
            Err(error) if code(&error) != Some(NOT_FOUND) => Err(failed("close a session")(error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Reads all records, in pages of one revision. The error may be that it was compacted.
    async fn read_all(
        &self,
        prefix: &str,
        page: i64,
    ) -> Result<Result<Snapshot, StoreError>, Error> {
        let mut records: Vec<Record> = Vec::new();
        let mut revision = None;
        loop {
            let from = match records.last() {
                Some(last) => format!("{}\0", last.key),
                None if prefix.is_empty() => "\0".to_owned(),
                None => prefix.to_owned(),
            };
            let options = GetOptions::new()
                .with_range(prefix_end(prefix))
                .with_limit(page)
                .with_revision(revision.unwrap_or(0));
            let page = self.connector.request(async |client| {
                let mut records = client.kv_client().max_decoding_message_size(LONGEST_ANSWER);
                records.get(from, Some(options)).await
            });
            let page = page.await?;
            let at = *revision.get_or_insert_with(|| page.header().map_or(0, |it| it.revision()));
            for found in page.kvs() {
                match record(found) {
                    Ok(record) => records.push(record),
                    Err(problem) => return Ok(Err(StoreError::refused(NAME, LOAD, problem))),
                }
            }
            if !page.more() {
                return Ok(Ok(Snapshot { revision: revision_of(at), records }));
            }
        }
    }

    async fn load_table(&self, prefix: &str) -> Result<Snapshot, StoreError> {
        let read = match self.read_all(prefix, PAGE).await {
            // Read everything in one page then, so that no compaction can come between two pages.
            Err(error) if is_compacted(&error) => self.read_all(prefix, NO_LIMIT).await,
            read => read,
        };
        read.map_err(failed(LOAD))?
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<EtcdChanges, StoreError> {
        // If its token has expired, a watch gets only the error that it is not permitted. A read of
        // the same records replaces the token, and shows whether there is a majority.
        let watched = self.connector.request(async |client| {
            let options = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
            let read = client.kv_client().get(prefix, Some(options)).await?;
            let now = revision_of(read.header().map_or(0, |header| header.revision()));
            if now < after {
                return Ok(Err(now));
            }
            EtcdChanges::open(client, prefix, after).await.map(Ok)
        });
        watched.await.map_err(failed(WATCH))?.map_err(|now| {
            let problem = format!(
                "the revision is {now}, and was {after} before: etcd was restored from a backup \
                 without --bump-revision; restart every process that uses the table"
            );
            StoreError::refused(NAME, WATCH, problem)
        })
    }

    async fn commit_once(&self, commit: &Commit) -> Result<Committed, StoreError> {
        commit.check(NAME)?;
        let sent = self
            .connector
            .request(async |client| client.kv_client().txn(transaction(commit)).await);
        match sent.await {
            Ok(answer) if answer.succeeded() => {
                let revision = answer.header().map_or(0, |header| header.revision());
                Ok(Committed::Done(revision_of(revision)))
            }
            Ok(_) => Ok(Committed::Conflict),
            Err(error) if !is_not_applied(&error) => Err(StoreError::unknown(NAME, Plain(error))),
            Err(error) => match session_of(commit).filter(|_| code(&error) == Some(NOT_FOUND)) {
                Some(session) => Err(StoreError::NoSession { store: NAME, session }),
                None => Err(failed("commit")(error)),
            },
        }
    }
}

/// A code of gRPC.
const NOT_FOUND: i32 = 5;

fn seconds(whole: i64) -> Duration {
    Duration::from_secs(u64::try_from(whole).unwrap_or(0))
}

impl Store for Etcd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn shortest_ttl(&self) -> Duration {
        self.shortest_ttl
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
        Box::pin(async move {
            let changes = self.watch(prefix, after).await?;
            Ok(Box::new(changes) as Box<dyn Changes>)
        })
    }

    fn commit<'a>(&'a self, commit: &'a Commit) -> Reply<'a, Committed> {
        Box::pin(self.commit_once(commit))
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("shortest_ttl", &self.shortest_ttl).finish_non_exhaustive()
    }
}
