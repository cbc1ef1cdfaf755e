//! Acquiring a lock, with and without waiting.

use std::sync::Arc;
use std::time::Duration;

use adieu_fleet::{AcquireError, Lock, LockBackend, LockSpec, Memory, SpecError};
use tokio::time::Instant;

use crate::flaky::{Flaky, Mood};
use crate::support::{by, lock, owner, secs};

#[tokio::test(start_paused = true)]
async fn s131_try_acquire_reports_the_holder() {
    let memory = Memory::new();
    let lock = |replica| Lock::new(memory.clone(), "job", &owner(replica)).unwrap();
    let (one, two) = (lock("one"), lock("two"));
    let lease = one.try_acquire().await.unwrap();
    let error = two.try_acquire().await.unwrap_err();
    assert_eq!(error.to_string(), "failed to acquire lock job: held by one (fence 1)");
    assert!(one.try_acquire().await.is_err(), "not re-entrant");
    assert_eq!(two.holder().await.unwrap().unwrap().owner, owner("one"));
    lease.release(by(1)).await.unwrap();
    assert_eq!(two.holder().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn s131_acquire_waits_until_the_lock_is_free_or_the_deadline_passes() {
    let memory = Memory::new();
    let lock = |replica| Lock::new(memory.clone(), "job", &owner(replica)).unwrap();
    let lease = lock("one").try_acquire().await.unwrap();
    let began = Instant::now();
    let error = lock("two").acquire(by(7)).await.unwrap_err();
    assert!(matches!(&error, AcquireError::TimedOut { .. }), "{error}");
    assert_eq!(error.to_string(), "timed out acquiring lock job: held by one");
    assert_eq!(began.elapsed().as_secs(), 7);

    let two = lock("two");
    let waiting = two.acquire(by(60));
    let releasing = async {
        tokio::time::sleep(secs(3)).await;
        lease.release(by(1)).await.unwrap();
    };
    let began = Instant::now();
    let (next, ()) = tokio::join!(waiting, releasing);
    let waited = began.elapsed();
    assert!(waited >= secs(3) && waited <= Duration::from_millis(3_200), "{waited:?}");
    assert_eq!(next.unwrap().fence().get(), 2);
}

#[tokio::test(start_paused = true)]
async fn s131_acquire_retries_while_the_backend_is_unreachable() {
    for mood in [Mood::Failing, Mood::Silent] {
        let flaky = Arc::new(Flaky::default());
        let lock = lock(Arc::clone(&flaky), "job", secs(2), "one");
        flaky.be(mood);
        assert!(matches!(lock.try_acquire().await, Err(AcquireError::Backend { .. })));
        let waiting = lock.acquire(by(60));
        let mending = async {
            tokio::time::sleep(secs(10)).await;
            flaky.be(Mood::Good);
        };
        let (lease, ()) = tokio::join!(waiting, mending);
        lease.unwrap().check().unwrap();

        flaky.be(mood);
        let error = lock.acquire(by(5)).await.unwrap_err();
        assert!(matches!(error, AcquireError::TimedOut { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn s131_a_lock_granted_after_its_waiter_has_gone_is_released() {
    let memory = Memory::new();
    let lock = Lock::new(memory.clone(), "job", &owner("one")).unwrap();
    {
        let mut attempt = std::pin::pin!(lock.try_acquire());
        // Polled once, so that the request is sent, and then dropped.
        std::future::poll_fn(|cx| {
            assert!(attempt.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    }
    assert!(lock.settled(by(1)).await);
    assert_eq!(lock.holder().await.unwrap(), None);
    assert_eq!(lock.try_acquire().await.unwrap().fence().get(), 2, "it had been granted");
}

#[tokio::test(start_paused = true)]
async fn s132_an_invalid_spec_is_refused() {
    let lock = |spec: LockSpec| Lock::new(Memory::new(), spec, &owner("one"));
    assert!(matches!(lock("two words".into()), Err(SpecError::Name(_))));
    let spec = LockSpec::new("job");
    assert!(matches!(lock(spec.clone().ttl(Duration::ZERO)), Err(SpecError::Ttl { .. })));
    assert!(matches!(lock(spec.clone().ttl(secs(90_000))), Err(SpecError::Ttl { .. })));
    assert!(matches!(lock(spec.clone().margin(secs(16))), Err(SpecError::Margin { .. })));
    assert!(matches!(lock(spec.clone().retry(Duration::ZERO)), Err(SpecError::Retry { .. })));
    assert!(matches!(lock(spec.clone().margin(Duration::ZERO)), Err(SpecError::Margin { .. })));
    assert!(lock(spec.clone().margin(secs(15))).is_ok());
    assert!(lock(spec.clone().margin(Duration::from_millis(10))).is_ok());
    assert_eq!(
        lock(spec.clone().margin(secs(16))).unwrap_err().to_string(),
        "failed to create lock job: margin 16s is not between 10ms and 15s (half of the time to \
         live)"
    );

    let unfenced = Arc::new(Flaky::default());
    unfenced.be(Mood::Unfenced);
    let refused = Lock::new(Arc::clone(&unfenced), spec.clone().needs_fence(), &owner("one"));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "failed to create lock job: it needs a fence, and backend flaky has none; use another \
         backend"
    );
    let lock = Lock::new(unfenced, spec, &owner("one")).unwrap();
    assert_eq!(lock.try_acquire().await.unwrap().fence().get(), 0);
    assert!(Memory::new().has_fences());
}
