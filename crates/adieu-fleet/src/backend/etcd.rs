//! Locks in etcd: keys with leases. The creation revision of a key is its fence.

use std::fmt;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetOptions, KeyValue, PutOptions, Txn, TxnOp,
    TxnOpResponse,
};

use crate::lock_backend::{
    Attempt, BackendError, Claim, ClaimStatus, Fence, Holder, LockBackend, Marker, Reply,
};
use crate::names::{Key, Owner};

/// Locks in etcd.
///
/// A lock is a key that is attached to a lease. Its fence is the revision at which the key was
/// created, which rises across the whole cluster. A majority decides, so use this backend for work
/// that must not be done twice.
///
/// etcd counts leases in whole seconds and has a minimum time to live: a lock may last longer than
/// requested, never shorter. Renewing extends the lock by the time to live of its grant.
///
/// etcd measures time by a clock that cannot be set. A cluster that is restored from an older backup
/// has lost later revisions, and grants fences a second time, unless it is started with a higher
/// revision (`--bump-revision`).
///
/// **What stays for ever:** nothing of a lock; a key below `adieu/marker/` for each singleton and for
/// each version of once-per-fleet work.
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
///     return Err("another replica holds the lock now".into());
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
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

// === impl Etcd ===

impl Etcd {
    /// Connects to a cluster, such as `["http://127.0.0.1:2379"]`, and reconnects whenever the
    /// connection is lost.
    ///
    /// Reads a key, so a majority of the cluster must be reachable. For TLS and users create a client
    /// and use [`Etcd::new`].
    ///
    /// # Errors
    ///
    /// If an address is invalid, no endpoint responds within 5 s, or reading is refused.
    pub async fn connect<E: AsRef<str>>(endpoints: &[E]) -> Result<Self, BackendError> {
        let options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2))
            .with_keep_alive(Duration::from_secs(5), Duration::from_secs(5));
        let endpoints: Vec<&str> = endpoints.iter().map(AsRef::as_ref).collect();
        // The client sends each request to any endpoint, also to one that is down.
        let attempts = 1 + 5 * endpoints.len().saturating_sub(1);
        let client = Client::connect(endpoints, Some(options)).await.map_err(failed(CONNECT))?;
        let etcd = Self::new(client);
        match tokio::time::timeout(CONNECT_TIMEOUT, etcd.until_read(attempts)).await {
            Ok(read) => read.map(|()| etcd),
            Err(_) => Err(BackendError::no_response(NAME, CONNECT, CONNECT_TIMEOUT)),
        }
    }

    /// Reads a key, in at most this many attempts. The client connects with its first request.
    async fn until_read(&self, attempts: usize) -> Result<(), BackendError> {
        let mut left = attempts;
        loop {
            let options = GetOptions::new().with_prefix().with_count_only();
            let read = self.client.kv_client().get("adieu/", Some(options)).await;
            left -= 1;
            match read.map_err(failed(CONNECT)) {
                Ok(_) => return Ok(()),
                Err(error) if left == 0 || error.is_permanent() => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Uses this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the etcd key that exists while a lock is held. Its value is the owner, and its
    /// creation revision is the fence.
    #[must_use]
    pub fn lock_key(key: &Key) -> String {
        format!("adieu/lock/{key}")
    }

    /// Returns the conditions under which a claim holds its lock.
    fn holds(claim: &Claim) -> [Compare; 2] {
        let lock = Self::lock_key(&claim.key);
        [
            Compare::create_revision(lock.clone(), CompareOp::Equal, claim.fence.as_i64()),
            Compare::value(lock, CompareOp::Equal, claim.owner.as_str()),
        ]
    }

    /// Executes operations if the claim holds its lock, in one transaction.
    async fn as_holder(
        &self,
        verb: &'static str,
        claim: &Claim,
        then: Vec<TxnOp>,
    ) -> Result<ClaimStatus, BackendError> {
        let txn = Txn::new().when(Self::holds(claim)).and_then(then);
        let response = self.client.kv_client().txn(txn).await.map_err(failed(verb))?;
        Ok(ClaimStatus::held_if(response.succeeded()))
    }

    async fn holder(&self, verb: &'static str, lock: &KeyValue) -> Result<Holder, BackendError> {
        let mut leases = self.client.lease_client();
        let left = leases.time_to_live(lock.lease(), None).await.map_err(failed(verb))?.ttl();
        // Not zero, because the lock is held.
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
        let response = self.client.kv_client().txn(txn).await.map_err(failed)?;
        if response.succeeded() {
            let revision = response.header().map_or(0, |header| header.revision());
            let (key, owner) = (key.clone(), owner.clone());
            let claim = Claim { key, owner, fence: fence(revision), ticket: lease };
            return Ok(Attempt::Acquired(claim));
        }
        // If this fails, the lease expires; no key is attached to it.
        let _ = leases.revoke(lease).await;
        for operation in response.op_responses() {
            if let TxnOpResponse::Get(found) = operation
                && let [lock] = found.kvs()
            {
                return self.holder(ACQUIRE, lock).await.map(Attempt::Held);
            }
        }
        Err(BackendError::new(
            NAME,
            ACQUIRE,
            "the transaction did not return the lock that it found",
        ))
    }

    async fn keep_alive(&self, claim: &Claim) -> Result<ClaimStatus, BackendError> {
        const VERB: &str = "renew a lease";
        if self.as_holder(VERB, claim, Vec::new()).await? == ClaimStatus::Lost {
            return Ok(ClaimStatus::Lost);
        }
        match self.client.lease_client().keep_alive(claim.ticket).await {
            Ok(_) => Ok(ClaimStatus::Held),
            Err(etcd_client::Error::LeaseKeepAliveError(text)) if text.contains("not found") => {
                Ok(ClaimStatus::Lost)
            }
            Err(error) => Err(failed(VERB)(error)),
        }
    }
}

fn failed(verb: &'static str) -> impl Fn(etcd_client::Error) -> BackendError + Copy {
    move |error| BackendError::permanent_if(is_permanent(&error), NAME, verb, error)
}

/// Returns whether the same request would fail again, because of its credentials or its content.
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

/// A key contains no space, so the name begins after the first one.
fn marker_key(key: &Key, name: &str) -> String {
    format!("adieu/marker/{key} {name}")
}

impl LockBackend for Etcd {
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

    fn renew<'a>(&'a self, claim: &'a Claim, _: Duration) -> Reply<'a, ClaimStatus> {
        Box::pin(self.keep_alive(claim))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, ClaimStatus> {
        Box::pin(async move {
            let delete = TxnOp::delete(Self::lock_key(&claim.key), None);
            let standing = self.as_holder("release a lease", claim, vec![delete]).await?;
            if standing.is_held() {
                // If this fails, the lease expires; no key is attached to it.
                let _ = self.client.lease_client().revoke(claim.ticket).await;
            }
            Ok(standing)
        })
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        const VERB: &str = "query a lease";
        Box::pin(async move {
            let found = self.client.kv_client().get(Self::lock_key(key), None).await;
            match found.map_err(failed(VERB))?.kvs() {
                [lock, ..] => self.holder(VERB, lock).await.map(Some),
                [] => Ok(None),
            }
        })
    }

    fn mark<'a>(
        &'a self,
        claim: &'a Claim,
        name: &'a str,
        value: &'a str,
    ) -> Reply<'a, ClaimStatus> {
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
