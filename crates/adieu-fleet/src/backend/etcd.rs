//! Locks in etcd: a key with a lease, whose creation is its fence.

use std::fmt;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetOptions, KeyValue, PutOptions, Txn, TxnOp,
    TxnOpResponse,
};

use crate::locks::{Attempt, BackendError, Claim, Fence, Holder, Locks, Marker, Reply, Standing};
use crate::names::{Key, Owner};

/// Locks in etcd.
///
/// A lock is a key that hangs on a lease. Its fence is the revision at which it was created, which
/// rises across the whole cluster and outlives everything. A majority decides, so this is the
/// backend for what must not happen twice.
///
/// etcd counts leases in whole seconds, and has a least time of its own: a lock may last longer
/// there than it was asked to, never shorter. Renewing keeps to the time that the lock was granted
/// for.
///
/// etcd counts by a clock that nobody can set. A cluster that is restored from an older backup has
/// forgotten the revisions since, and grants fences again that were granted before, unless it is told
/// to go on from a higher one (`--bump-revision`).
///
/// **What stays for ever:** nothing of a lock; for each key and each singleton, and each version of
/// what is done once, a key below `adieu/marker/`.
///
/// A write to etcd itself can be guarded by the lock's key, in one transaction:
///
/// ```no_run
/// # use adieu_fleet::{Etcd, Lease};
/// # async fn example(lease: Lease, mut client: adieu_fleet::etcd_client::Client)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// use adieu_fleet::etcd_client::{Compare, CompareOp, Txn, TxnOp};
///
/// let (lock, fence) = (Etcd::lock_key(lease.key()), lease.check()?.as_i64());
/// let txn = Txn::new()
///     .when([Compare::create_revision(lock, CompareOp::Equal, fence)])
///     .and_then([TxnOp::put("reports/7", "42", None)]);
/// if !client.txn(txn).await?.succeeded() {
///     return Err("the lock is somebody else's by now".into());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Etcd {
    client: Client,
}

const NAME: &str = "etcd";
const ACQUIRE: &str = "acquire a lease";
const CONNECT: &str = "connect";
/// How long a cluster may take to answer when a client connects.
const PATIENCE: Duration = Duration::from_secs(5);

// === impl Etcd ===

impl Etcd {
    /// Connects to a cluster, such as `["http://127.0.0.1:2379"]`; and again whenever that is lost.
    ///
    /// It reads a key, so a majority of the cluster must be there. For TLS and users make a client
    /// yourself; see [`Etcd::new`].
    ///
    /// # Errors
    ///
    /// If an address is none, no endpoint answers within 5 s, or the cluster refuses to be read.
    pub async fn connect<E: AsRef<str>>(endpoints: &[E]) -> Result<Self, BackendError> {
        let options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2))
            .with_keep_alive(Duration::from_secs(5), Duration::from_secs(5));
        let endpoints: Vec<&str> = endpoints.iter().map(AsRef::as_ref).collect();
        // The client sends each request to any of them, also to one that is down.
        let attempts = 1 + 5 * endpoints.len().saturating_sub(1);
        let client = Client::connect(endpoints, Some(options)).await.map_err(failed(CONNECT))?;
        let etcd = Self::new(client);
        match tokio::time::timeout(PATIENCE, etcd.until_read(attempts)).await {
            Ok(answer) => answer.map(|()| etcd),
            Err(_) => Err(BackendError::no_answer(NAME, CONNECT, PATIENCE)),
        }
    }

    /// Reads something, in this many attempts: the client itself connects when it is first asked.
    async fn until_read(&self, attempts: usize) -> Result<(), BackendError> {
        let mut left = attempts;
        loop {
            let options = GetOptions::new().with_prefix().with_count_only();
            let asked = self.client.kv_client().get("adieu/", Some(options)).await;
            left -= 1;
            match asked.map_err(failed(CONNECT)) {
                Ok(_) => return Ok(()),
                Err(error) if left == 0 || error.is_permanent() => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Locks behind a client of your own.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The key that is there while a lock is held: its value is the owner, and its creation revision
    /// is the fence.
    #[must_use]
    pub fn lock_key(key: &Key) -> String {
        format!("adieu/lock/{key}")
    }

    /// What must be so for a claim to hold.
    fn holds(claim: &Claim) -> [Compare; 2] {
        let lock = Self::lock_key(&claim.key);
        [
            Compare::create_revision(lock.clone(), CompareOp::Equal, claim.fence.as_i64()),
            Compare::value(lock, CompareOp::Equal, claim.owner.as_str()),
        ]
    }

    /// Does something if the claim holds, in one transaction.
    async fn as_holder(
        &self,
        verb: &'static str,
        claim: &Claim,
        then: Vec<TxnOp>,
    ) -> Result<Standing, BackendError> {
        let txn = Txn::new().when(Self::holds(claim)).and_then(then);
        let answer = self.client.kv_client().txn(txn).await.map_err(failed(verb))?;
        Ok(Standing::held_if(answer.succeeded()))
    }

    async fn holder(&self, verb: &'static str, lock: &KeyValue) -> Result<Holder, BackendError> {
        let mut leases = self.client.lease_client();
        let left = leases.time_to_live(lock.lease(), None).await.map_err(failed(verb))?.ttl();
        // Not zero: it is held, if only for a moment.
        let remaining = u64::try_from(left).map_or(Duration::ZERO, Duration::from_secs);
        Ok(Holder {
            owner: Owner::stored(&String::from_utf8_lossy(lock.value())),
            fence: fence(lock.create_revision()),
            remaining: remaining.max(Duration::from_millis(1)),
        })
    }

    async fn acquire(
        &self,
        key: &Key,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Attempt, BackendError> {
        let failed = failed(ACQUIRE);
        let seconds = i64::try_from(ttl.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX);
        let mut leases = self.client.lease_client();
        let lease = leases.grant(seconds, None).await.map_err(failed)?.id();
        let lock = Self::lock_key(key);
        let put =
            TxnOp::put(lock.clone(), owner.as_str(), Some(PutOptions::new().with_lease(lease)));
        let txn = Txn::new()
            .when([Compare::create_revision(lock.clone(), CompareOp::Equal, 0)])
            .and_then([put])
            .or_else([TxnOp::get(lock, None)]);
        let answer = self.client.kv_client().txn(txn).await.map_err(failed)?;
        if answer.succeeded() {
            let revision = answer.header().map_or(0, |header| header.revision());
            let (key, owner) = (key.clone(), owner.clone());
            let claim = Claim { key, owner, fence: fence(revision), ticket: lease };
            return Ok(Attempt::Acquired(claim));
        }
        // If this fails the lease ends by itself: nothing hangs on it.
        let _ = leases.revoke(lease).await;
        for response in answer.op_responses() {
            if let TxnOpResponse::Get(found) = response
                && let [lock] = found.kvs()
            {
                return self.holder(ACQUIRE, lock).await.map(Attempt::Held);
            }
        }
        Err(BackendError::new(NAME, ACQUIRE, "a lock that is there was not found"))
    }

    async fn keep_alive(&self, claim: &Claim) -> Result<Standing, BackendError> {
        const VERB: &str = "renew a lease";
        if self.as_holder(VERB, claim, Vec::new()).await? == Standing::Lost {
            return Ok(Standing::Lost);
        }
        match self.client.lease_client().keep_alive(claim.ticket).await {
            Ok(_) => Ok(Standing::Held),
            Err(etcd_client::Error::LeaseKeepAliveError(why)) if why.contains("not found") => {
                Ok(Standing::Lost)
            }
            Err(error) => Err(failed(VERB)(error)),
        }
    }
}

fn failed(verb: &'static str) -> impl Fn(etcd_client::Error) -> BackendError + Copy {
    move |error| BackendError::permanent_if(is_permanent(&error), NAME, verb, error)
}

/// Whether the same request would fail again: because of who asks, or of what is asked.
fn is_permanent(error: &etcd_client::Error) -> bool {
    use etcd_client::Error::{GRpcStatus, InvalidArgs, InvalidMetadataValue, InvalidUri};
    let is_malformed = matches!(error, InvalidArgs(_) | InvalidMetadataValue(_) | InvalidUri(_));
    // Invalid argument, permission denied, unimplemented, unauthenticated.
    let is_refused = |status: i32| [3, 7, 12, 16].contains(&status);
    is_malformed || matches!(error, GRpcStatus(status) if is_refused(status.code().into()))
}

fn fence(revision: i64) -> Fence {
    Fence::new(u64::try_from(revision).unwrap_or(0))
}

/// No key has a space in it.
fn marker_key(key: &Key, name: &str) -> String {
    format!("adieu/marker/{key} {name}")
}

impl Locks for Etcd {
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
        Box::pin(self.acquire(key, owner, ttl))
    }

    fn renew<'a>(&'a self, claim: &'a Claim, _: Duration) -> Reply<'a, Standing> {
        Box::pin(self.keep_alive(claim))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Standing> {
        Box::pin(async move {
            let delete = TxnOp::delete(Self::lock_key(&claim.key), None);
            let standing = self.as_holder("release a lease", claim, vec![delete]).await?;
            if standing.is_held() {
                // If this fails the lease ends by itself: nothing hangs on it any more.
                let _ = self.client.lease_client().revoke(claim.ticket).await;
            }
            Ok(standing)
        })
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        const VERB: &str = "look at a lease";
        Box::pin(async move {
            let found = self.client.kv_client().get(Self::lock_key(key), None).await;
            match found.map_err(failed(VERB))?.kvs() {
                [lock, ..] => self.holder(VERB, lock).await.map(Some),
                [] => Ok(None),
            }
        })
    }

    fn mark<'a>(&'a self, claim: &'a Claim, name: &'a str, value: &'a str) -> Reply<'a, Standing> {
        Box::pin(async move {
            let value = format!("{} {value}", claim.fence);
            let put = TxnOp::put(marker_key(&claim.key, name), value, None);
            self.as_holder("write a marker", claim, vec![put]).await
        })
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        const VERB: &str = "read a marker";
        Box::pin(async move {
            let found = self.client.kv_client().get(marker_key(key, name), None).await;
            let found = found.map_err(failed(VERB))?;
            let [stored, ..] = found.kvs() else { return Ok(None) };
            let stored = String::from_utf8_lossy(stored.value());
            let marker = stored.split_once(' ').and_then(|(fence, value)| {
                Some(Marker { value: value.to_owned(), fence: Fence::new(fence.parse().ok()?) })
            });
            let problem = || format!("{stored:?} was not written by adieu");
            marker.map(Some).ok_or_else(|| BackendError::new(NAME, VERB, problem()))
        })
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").finish_non_exhaustive()
    }
}
