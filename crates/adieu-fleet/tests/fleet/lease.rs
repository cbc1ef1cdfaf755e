//! Leases: renewing, losing and releasing them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use adieu_core::Deadline;
use adieu_fleet::{Lease, Lock, LockBackend, LossCause, Memory, ReleaseError};
use tokio::time::Instant;

use crate::flaky::{Flaky, Mood};
use crate::support::{by, lock, secs};

fn soon() -> Deadline {
    by(60)
}

async fn flaky_lease(ttl: u64) -> (Arc<Flaky>, Lock, Lease) {
    let flaky = Arc::new(Flaky::default());
    let lock = lock(Arc::clone(&flaky), "job", secs(ttl), "one");
    let lease = lock.try_acquire().await.unwrap();
    (flaky, lock, lease)
}

#[tokio::test(start_paused = true)]
async fn s133_a_lease_is_renewed_while_a_handle_exists() {
    let (flaky, lock, lease) = flaky_lease(10).await;
    for _ in 0..20 {
        tokio::time::sleep(secs(9)).await;
        assert_eq!(lease.check().unwrap().get(), 1);
        assert!(lock.try_acquire().await.is_err());
        let left = flaky.memory.query(lease.key()).await.unwrap().unwrap().remaining;
        assert!(left >= Duration::from_millis(5_800), "renewed too seldom: {left:?}");
    }
    lease.release(soon()).await.unwrap();
    assert_eq!(lock.holder().await.unwrap(), None);
}

// Fails if the lease counts from the response.
#[tokio::test(start_paused = true)]
async fn s1407_a_lease_counts_from_the_request_not_from_the_response() {
    for renewed_for in [0, 20] {
        let flaky = Arc::new(Flaky::default());
        let lock = lock(Arc::clone(&flaky), "job", secs(10), "one");
        flaky.be(Mood::Slow);
        let lease = lock.try_acquire().await.unwrap();
        tokio::time::sleep(secs(renewed_for)).await;
        assert!(lease.is_held());
        flaky.be(Mood::Silent);
        lease.guard(std::future::pending::<()>()).await.unwrap_err();
        let holder = flaky.memory.query(lease.key()).await.unwrap();
        assert!(holder.is_some(), "still held when the work is dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn s1406_a_lease_that_cannot_be_renewed_is_given_up_before_it_expires() {
    for (ttl, mood) in
        [(10, Mood::Silent), (30, Mood::Failing), (10, Mood::Failing), (10, Mood::Mute)]
    {
        let (flaky, lock, lease) = flaky_lease(ttl).await;
        flaky.be(Mood::Good);
        let began = Instant::now();
        let (lost, done) = (lease.lost(), AtomicBool::new(false));
        let work = lease.guard(async {
            lost.cancelled().await;
            let cancelled = began.elapsed();
            done.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
            cancelled
        });
        flaky.be(mood);
        let error = work.await.unwrap_err();
        let (gone, ttl) = (began.elapsed(), secs(ttl));
        assert_eq!(error.loss, LossCause::Expired);
        assert!(done.load(Ordering::Relaxed), "`lost` fires before the work is dropped");
        if mood != Mood::Mute {
            // Cancelled a fifth before the end, dropped a tenth before it.
            assert!(gone >= ttl.mul_f64(0.9) && gone < ttl.mul_f64(0.9) + secs(1), "{gone:?}");
            let holder = flaky.memory.query(lease.key()).await.unwrap();
            assert!(holder.is_some(), "still held when the work is dropped");
        }
        assert!(lease.check().is_err() && !lease.is_held());
        flaky.be(Mood::Good);
        drop(lease);
        assert!(lock.settled(soon()).await);
    }
}

#[tokio::test(start_paused = true)]
async fn s133_a_short_outage_does_not_lose_the_lease() {
    let (flaky, _lock, lease) = flaky_lease(10).await;
    let work = lease.guard(tokio::time::sleep(secs(60)));
    let faults = async {
        for mood in [Mood::Silent, Mood::Failing, Mood::Mute] {
            flaky.be(mood);
            tokio::time::sleep(secs(3)).await;
            flaky.be(Mood::Good);
            tokio::time::sleep(secs(6)).await;
        }
    };
    let (work, ()) = tokio::join!(work, faults);
    work.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s1408_work_is_dropped_when_the_backend_refuses_a_renewal() {
    let (flaky, _lock, lease) = flaky_lease(30).await;
    let began = Instant::now();
    let work = lease.guard(std::future::pending::<()>());
    let stealing = async {
        tokio::time::sleep(secs(1)).await;
        assert!(flaky.memory.release(lease.claim()).await.unwrap().is_held());
    };
    let (work, ()) = tokio::join!(work, stealing);
    assert_eq!(work.unwrap_err().loss, LossCause::Refused);
    assert!(began.elapsed() <= Duration::from_millis(12_500), "with the next renewal");
    let error = lease.release(soon()).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn s1408_a_marker_under_a_lost_lease_is_refused() {
    let (flaky, _lock, lease) = flaky_lease(30).await;
    lease.mark("progress", "half").await.unwrap();
    assert!(flaky.memory.release(lease.claim()).await.unwrap().is_held());
    assert!(lease.mark("progress", "all").await.is_err());
    assert!(lease.lost().is_cancelled(), "the loss is recorded");
    let marker = flaky.memory.marker(lease.key(), "progress").await.unwrap().unwrap();
    assert_eq!(marker.value, "half");
}

// In real time, because the test suspends its only thread.
#[tokio::test]
async fn s134_after_a_suspension_work_does_not_run_again() {
    let lock = lock(Memory::new(), "job", Duration::from_millis(200), "one");
    let lease = lock.try_acquire().await.unwrap();
    let polls = AtomicU32::new(0);
    let work = lease.guard(std::future::poll_fn(|cx| {
        if polls.fetch_add(1, Ordering::Relaxed) == 0 {
            // As if the process had been stopped. The work is woken, so it would be polled again.
            std::thread::sleep(Duration::from_millis(250));
            cx.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    }));
    assert_eq!(work.await.unwrap_err().loss, LossCause::Expired);
    assert_eq!(polls.load(Ordering::Relaxed), 1);
    assert!(lease.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn s135_a_lock_is_released_when_its_last_worker_has_ended() {
    let (flaky, lock, lease) = flaky_lease(10).await;
    let mut workers = tokio::task::JoinSet::new();
    for seconds in [5, 25] {
        let lease = lease.clone();
        workers.spawn(async move {
            lease.guard(tokio::time::sleep(secs(seconds))).await.unwrap();
        });
    }
    let error = lease.clone().release(Deadline::after(secs(20))).await.unwrap_err();
    assert!(matches!(error, ReleaseError::TimedOut { .. }), "{error}");
    assert!(flaky.memory.query(lock.key()).await.unwrap().is_some());
    let began = Instant::now();
    lease.release(soon()).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 5);
    assert_eq!(flaky.memory.query(lock.key()).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn s135_aborted_work_is_dropped_before_the_lock_is_released() {
    let (flaky, lock, lease) = flaky_lease(10).await;
    struct Gone(Arc<Flaky>, Lock);
    impl Drop for Gone {
        fn drop(&mut self) {
            // Not awaited, because in memory the response is immediate.
            let mut query = self.0.memory.query(self.1.key());
            let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
            let std::task::Poll::Ready(Ok(holder)) = query.as_mut().poll(cx) else { panic!() };
            assert!(holder.is_some(), "released before the work was dropped");
        }
    }
    let mut workers = tokio::task::JoinSet::new();
    workers.spawn({
        let gone = Gone(Arc::clone(&flaky), lock.clone());
        async move {
            let work = async {
                let _gone = gone;
                std::future::pending::<()>().await;
            };
            lease.guard(work).await
        }
    });
    tokio::time::sleep(secs(1)).await;
    workers.abort_all();
    assert!(workers.join_next().await.unwrap().unwrap_err().is_cancelled());
    assert!(lock.settled(soon()).await);
    assert_eq!(flaky.memory.query(lock.key()).await.unwrap(), None);
}

#[tokio::test]
async fn s135_a_blocking_thread_holds_the_lease_after_its_waiter_has_gone() {
    let (_, lock, lease) = flaky_lease(10).await;
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let waited = tokio::time::timeout(
        Duration::from_millis(50),
        lease.guard_blocking(move |lease| {
            let _ = ends.recv();
            lease.is_held()
        }),
    );
    assert!(waited.await.is_err());
    drop(lease);
    assert!(!lock.settled(Deadline::after(Duration::from_millis(50))).await);
    assert!(lock.holder().await.unwrap().is_some());
    end.send(()).unwrap();
    assert!(lock.settled(soon()).await);
    assert_eq!(lock.holder().await.unwrap(), None);

    let lease = lock.try_acquire().await.unwrap();
    assert!(lease.guard_blocking(|lease| lease.is_held()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn s135_releasing_is_retried_until_the_lock_would_have_expired() {
    let (flaky, lock, lease) = flaky_lease(10).await;
    flaky.be(Mood::Failing);
    let releasing = lease.release(soon());
    let mending = async {
        tokio::time::sleep(secs(4)).await;
        flaky.be(Mood::Good);
    };
    let (released, ()) = tokio::join!(releasing, mending);
    released.unwrap();

    let lease = lock.try_acquire().await.unwrap();
    flaky.be(Mood::Failing);
    let error = lease.release(soon()).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Backend { .. }), "{error}");
    assert!(lock.settled(soon()).await);
}
