//! Taking a lock: once, or waiting for it.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::Deadline;
use adieu_fleet::{AcquireError, Lock, LockSpec, Locks, Memory, Owner, SpecError};
use tokio::time::Instant;

use crate::flaky::{Flaky, Mood};

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test(start_paused = true)]
async fn s131_who_does_not_wait_is_told_who_holds_it() {
    let memory = Memory::new();
    let lock = |who| Lock::new(memory.clone(), "job", &owner(who)).unwrap();
    let (one, two) = (lock("one"), lock("two"));
    let lease = one.try_acquire().await.unwrap();
    let error = two.try_acquire().await.unwrap_err();
    assert_eq!(error.to_string(), "failed to acquire lock job: one holds it (fence 1)");
    assert!(one.try_acquire().await.is_err(), "not re-entrant");
    assert_eq!(two.holder().await.unwrap().unwrap().owner, owner("one"));
    lease.release(Deadline::after(secs(1))).await.unwrap();
    assert_eq!(two.holder().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn s131_who_waits_gets_it_when_it_is_free_or_an_error_when_time_is_up() {
    let memory = Memory::new();
    let lock = |who| Lock::new(memory.clone(), "job", &owner(who)).unwrap();
    let lease = lock("one").try_acquire().await.unwrap();
    let began = Instant::now();
    let error = lock("two").acquire(Deadline::after(secs(7))).await.unwrap_err();
    assert!(matches!(&error, AcquireError::TimedOut { .. }), "{error}");
    assert_eq!(error.to_string(), "failed to acquire lock job in time: one holds it");
    assert_eq!(began.elapsed().as_secs(), 7);

    let two = lock("two");
    let waiting = two.acquire(Deadline::after(secs(60)));
    let releasing = async {
        tokio::time::sleep(secs(3)).await;
        lease.release(Deadline::after(secs(1))).await.unwrap();
    };
    let began = Instant::now();
    let (next, ()) = tokio::join!(waiting, releasing);
    let waited = began.elapsed();
    assert!(waited >= secs(3) && waited <= Duration::from_millis(3_200), "{waited:?}");
    assert_eq!(next.unwrap().fence().get(), 2);
}

#[tokio::test(start_paused = true)]
async fn s131_waiting_outlasts_a_backend_that_is_away() {
    for mood in [Mood::Failing, Mood::Silent] {
        let flaky = Arc::new(Flaky::default());
        let spec = LockSpec::new("job").ttl(secs(2));
        let lock = Lock::new(Arc::clone(&flaky), spec, &owner("one")).unwrap();
        flaky.be(mood);
        assert!(matches!(lock.try_acquire().await, Err(AcquireError::Backend { .. })));
        let waiting = lock.acquire(Deadline::after(secs(60)));
        let mending = async {
            tokio::time::sleep(secs(10)).await;
            flaky.be(Mood::Good);
        };
        let (lease, ()) = tokio::join!(waiting, mending);
        lease.unwrap().check().unwrap();

        flaky.be(mood);
        let error = lock.acquire(Deadline::after(secs(5))).await.unwrap_err();
        assert!(matches!(error, AcquireError::TimedOut { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn s131_what_is_granted_to_nobody_is_given_back() {
    let memory = Memory::new();
    let lock = Lock::new(memory.clone(), "job", &owner("one")).unwrap();
    {
        let mut attempt = std::pin::pin!(lock.try_acquire());
        // Polled once: it has been asked for, and nobody waits for the answer.
        std::future::poll_fn(|cx| {
            assert!(attempt.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    }
    assert!(lock.settled(Deadline::after(secs(1))).await);
    assert_eq!(lock.holder().await.unwrap(), None);
    assert_eq!(lock.try_acquire().await.unwrap().fence().get(), 2, "it had been granted");
}

#[tokio::test(start_paused = true)]
async fn s132_a_spec_that_cannot_hold_is_refused_at_assembly() {
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
        "failed to make lock job: its margin is 16s, and must be from 10ms to 15s, half of its time \
         to live"
    );

    let unfenced = Arc::new(Flaky::default());
    unfenced.be(Mood::Unfenced);
    let refused = Lock::new(Arc::clone(&unfenced), spec.clone().needs_fence(), &owner("one"));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "failed to make lock job: it needs a fence, and flaky has none; use another backend"
    );
    let lock = Lock::new(unfenced, spec, &owner("one")).unwrap();
    assert_eq!(lock.try_acquire().await.unwrap().fence().get(), 0);
    assert!(Memory::new().has_fences());
}
