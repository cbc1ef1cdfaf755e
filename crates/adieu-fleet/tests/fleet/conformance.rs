//! One test suite for all backends: in memory on a paused clock, on real servers in real time.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{Deadline, DeploymentProfile, Lifecycle, Step};
use adieu_fleet::{Attempt, Claim, ClaimStatus, Fence, LockBackend, Memory, OtherReplicas};
use tokio::time::Instant;

use crate::support::{granted, key, lock, owner, refused, secs, shutdown};

type Connecting<'a> = Pin<Box<dyn Future<Output = Arc<dyn LockBackend>> + 'a>>;

/// A backend under test.
struct Backend<'a> {
    /// Connects to it as another replica.
    connect: &'a dyn Fn() -> Connecting<'a>,
    /// The shortest time to live that the backend supports.
    ttl: Duration,
    /// How late the backend may end a lock.
    late: Duration,
}

/// Checks the contract of [`LockBackend`]. `ttl` is the shortest time to live that the backend supports,
/// and `late` how late it may end a lock.
pub(crate) async fn conforms<L: LockBackend>(
    connect: impl AsyncFn() -> L,
    ttl: Duration,
    late: Duration,
) {
    let connect = || -> Connecting<'_> {
        Box::pin(async { Arc::new(connect().await) as Arc<dyn LockBackend> })
    };
    let backend = Backend { connect: &connect, ttl, late };
    let (one, two) = ((backend.connect)().await, (backend.connect)().await);
    one_holder_at_a_time(&backend, &*one, &*two).await;
    only_the_claim_of_the_holder_is_accepted(&backend, &*one, &*two).await;
    fences_only_rise(&backend, &*one, &*two).await;
    a_lock_lasts_for_its_time_to_live(&backend, &*one, &*two).await;
    only_the_holder_writes_markers(&backend, &*one, &*two).await;
    one_of_many_concurrent_attempts_is_granted(&backend).await;
    unusual_names_are_stored(&backend, &*one).await;
    steps_that_share_a_lock_are_each_done(&backend, one, two).await;
}

async fn acquire(locks: &dyn LockBackend, name: &str, replica: &str, ttl: Duration) -> Attempt {
    locks.try_acquire(&key(name), &owner(replica), ttl).await.unwrap()
}

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);

async fn one_holder_at_a_time(_: &Backend<'_>, one: &dyn LockBackend, two: &dyn LockBackend) {
    let claim = granted(acquire(one, "single", "a", LONG).await);
    assert_eq!((claim.key.as_str(), claim.owner.as_str()), ("single", "a"));
    // Not re-entrant: neither for the same connection nor for the same owner.
    let holders = [
        refused(acquire(one, "single", "a", LONG).await),
        refused(acquire(two, "single", "a", LONG).await),
        refused(acquire(two, "single", "b", LONG).await),
    ];
    for holder in holders {
        assert_eq!((holder.owner.as_str(), holder.fence), ("a", claim.fence));
        // A backend that stores milliseconds rounds up.
        let longest = LONG + Duration::from_millis(1);
        assert!(holder.remaining > LONG / 2 && holder.remaining <= longest, "{holder:?}");
    }
    let other = granted(acquire(two, "another", "b", LONG).await);
    assert!(two.release(&other).await.unwrap().is_held());

    assert_eq!(two.query(&key("single")).await.unwrap().unwrap().owner.as_str(), "a");
    assert_eq!(one.release(&claim).await.unwrap(), ClaimStatus::Held);
    assert_eq!(two.query(&key("single")).await.unwrap(), None);
    assert_eq!(two.query(&key("never-locked")).await.unwrap(), None);
    // A second release has no effect.
    assert_eq!(one.release(&claim).await.unwrap(), ClaimStatus::Lost);
    let next = granted(acquire(two, "single", "b", LONG).await);
    assert_eq!(two.release(&next).await.unwrap(), ClaimStatus::Held);
}

async fn only_the_claim_of_the_holder_is_accepted(
    _: &Backend<'_>,
    one: &dyn LockBackend,
    two: &dyn LockBackend,
) {
    let old = granted(acquire(one, "owned", "a", LONG).await);
    assert!(one.release(&old).await.unwrap().is_held());
    // The same owner holds the lock again, but an old claim of it does not.
    let claim = granted(acquire(one, "owned", "a", LONG).await);
    let stranger = Claim { owner: owner("b"), ..claim.clone() };
    for (locks, wrong) in [(one, &old), (two, &old), (two, &stranger)] {
        assert_eq!(locks.renew(wrong, LONG).await.unwrap(), ClaimStatus::Lost);
        assert_eq!(locks.mark(wrong, "m", "stolen").await.unwrap(), ClaimStatus::Lost);
        assert_eq!(locks.release(wrong).await.unwrap(), ClaimStatus::Lost);
    }
    assert_eq!(one.marker(&key("owned"), "m").await.unwrap(), None);
    assert_eq!(one.renew(&claim, LONG).await.unwrap(), ClaimStatus::Held);
    assert_eq!(one.release(&claim).await.unwrap(), ClaimStatus::Held);
    assert_eq!(one.renew(&claim, LONG).await.unwrap(), ClaimStatus::Lost, "released");
    assert_eq!(one.query(&key("owned")).await.unwrap(), None);
}

async fn fences_only_rise(backend: &Backend<'_>, one: &dyn LockBackend, two: &dyn LockBackend) {
    let mut last = Fence::NONE;
    for round in 0..4 {
        let claim = granted(acquire(one, "fenced", "a", backend.ttl).await);
        assert!(claim.fence > last, "{:?} after {last:?}", claim.fence);
        last = claim.fence;
        assert!(one.renew(&claim, backend.ttl).await.unwrap().is_held());
        assert_eq!(two.query(&key("fenced")).await.unwrap().unwrap().fence, last, "renewed");
        if round % 2 == 0 {
            assert!(one.release(&claim).await.unwrap().is_held());
        } else {
            let next = until_granted(backend, two, "fenced").await;
            assert!(next.fence > last, "expired");
            last = next.fence;
            assert_eq!(one.renew(&claim, backend.ttl).await.unwrap(), ClaimStatus::Lost);
            assert!(two.release(&next).await.unwrap().is_held());
        }
    }
}

async fn until_granted(backend: &Backend<'_>, locks: &dyn LockBackend, name: &str) -> Claim {
    let give_up = Instant::now() + backend.ttl + backend.late + Duration::from_secs(10);
    loop {
        if let Attempt::Acquired(claim) = acquire(locks, name, "next", backend.ttl).await {
            return claim;
        }
        assert!(Instant::now() < give_up, "{name} does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn a_lock_lasts_for_its_time_to_live(
    backend: &Backend<'_>,
    one: &dyn LockBackend,
    two: &dyn LockBackend,
) {
    let claim = granted(acquire(one, "timed", "a", backend.ttl).await);
    tokio::time::sleep(backend.ttl / 2).await;
    let renewed_at = Instant::now();
    assert!(one.renew(&claim, backend.ttl).await.unwrap().is_held());
    let holder = two.query(&key("timed")).await.unwrap().unwrap();
    // Some backends count in whole seconds.
    let most = backend.ttl + Duration::from_secs(1);
    assert!(!holder.remaining.is_zero() && holder.remaining <= most, "{holder:?}");
    let next = until_granted(backend, two, "timed").await;
    let lasted = renewed_at.elapsed();
    // The server renewed the lock after this instant.
    assert!(lasted >= backend.ttl, "ended after {lasted:?}");
    for _ in 0..2 {
        assert_eq!(one.renew(&claim, backend.ttl).await.unwrap(), ClaimStatus::Lost);
        assert_eq!(one.release(&claim).await.unwrap(), ClaimStatus::Lost);
        assert_eq!(one.mark(&claim, "m", "late").await.unwrap(), ClaimStatus::Lost);
    }
    assert_eq!(two.query(&key("timed")).await.unwrap().unwrap().fence, next.fence);
    assert!(two.release(&next).await.unwrap().is_held());
}

async fn only_the_holder_writes_markers(
    _: &Backend<'_>,
    one: &dyn LockBackend,
    two: &dyn LockBackend,
) {
    let marked = key("marked");
    assert_eq!(two.marker(&marked, "v1").await.unwrap(), None);
    let claim = granted(acquire(one, "marked", "a", LONG).await);
    let value = "two words\nand a line with ümlauts, 'quotes' and \\";
    assert!(one.mark(&claim, "v1", "begun").await.unwrap().is_held());
    assert!(one.mark(&claim, "v1", value).await.unwrap().is_held());
    assert!(one.mark(&claim, "v2", "").await.unwrap().is_held());
    let marker = two.marker(&marked, "v1").await.unwrap().unwrap();
    assert_eq!((marker.value.as_str(), marker.fence), (value, claim.fence));
    assert_eq!(two.marker(&marked, "v2").await.unwrap().unwrap().value, "");
    assert_eq!(two.marker(&key("marked-not"), "v1").await.unwrap(), None);
    assert!(one.release(&claim).await.unwrap().is_held());
    // Markers stay when the lock is released, and the next holder can overwrite them.
    let next = granted(acquire(two, "marked", "b", LONG).await);
    assert_eq!(two.marker(&marked, "v1").await.unwrap().unwrap().value, value);
    assert!(two.mark(&next, "v1", "new").await.unwrap().is_held());
    let marker = one.marker(&marked, "v1").await.unwrap().unwrap();
    assert_eq!((marker.value.as_str(), marker.fence), ("new", next.fence));
    assert!(two.release(&next).await.unwrap().is_held());
}

async fn one_of_many_concurrent_attempts_is_granted(backend: &Backend<'_>) {
    let mut tasks = tokio::task::JoinSet::new();
    for replica in 0..12 {
        let locks = (backend.connect)().await;
        tasks.spawn(async move {
            let attempt = acquire(&*locks, "contended", &format!("r{replica}"), LONG).await;
            (locks, attempt)
        });
    }
    let mut granted = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        if let (locks, Attempt::Acquired(claim)) = ended.unwrap() {
            granted.push((locks, claim));
        }
    }
    let [(locks, claim)] = &granted[..] else { panic!("{} holders", granted.len()) };
    assert!(locks.release(claim).await.unwrap().is_held());
}

async fn unusual_names_are_stored(_: &Backend<'_>, one: &dyn LockBackend) {
    let long = ["n".repeat(200), "/".repeat(200)];
    for name in ["a/b", "a:b", "a.b", "..", "größe", "%2e", "x'y", "*", &long[0], &long[1]] {
        let claim = granted(acquire(one, name, "o'w\\n%er", LONG).await);
        let holder = refused(acquire(one, name, "b", LONG).await);
        assert_eq!(holder.owner.as_str(), "o'w\\n%er");
        assert!(one.mark(&claim, name, "x").await.unwrap().is_held());
        assert_eq!(one.marker(&key(name), name).await.unwrap().unwrap().value, "x");
        assert!(one.release(&claim).await.unwrap().is_held(), "{name}");
    }
}

/// Promise S230, on every backend.
async fn steps_that_share_a_lock_are_each_done(
    backend: &Backend<'_>,
    one: Arc<dyn LockBackend>,
    two: Arc<dyn LockBackend>,
) {
    for others in [OtherReplicas::Wait, OtherReplicas::Skip] {
        let done: Arc<Mutex<BTreeSet<&str>>> = Arc::default();
        let start = async |locks: &Arc<dyn LockBackend>, replica: &str| {
            let mut builder = Lifecycle::builder().profile(DeploymentProfile::Fleet);
            let ttl = backend.ttl.max(2 * SHORT);
            let lock = lock(Arc::clone(locks), "shared-by-steps", ttl, replica);
            for id in ["an index", "größe\n(2)"] {
                let done = Arc::clone(&done);
                let step = Step::new(id).start(async move |_| {
                    tokio::time::sleep(SHORT).await;
                    done.lock().unwrap().insert(id);
                });
                builder = builder.step(lock.singleton_step(step, others, LONG));
            }
            builder.build().unwrap().start(&shutdown()).await.unwrap();
            assert!(lock.settled(Deadline::after(LONG)).await);
        };
        tokio::join!(start(&one, "a"), start(&two, "b"));
        assert_eq!(done.lock().unwrap().len(), 2, "{others:?}: {done:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s130_memory_conforms() {
    let memory = Memory::new();
    conforms(async || memory.clone(), secs(5), Duration::ZERO).await;
}
