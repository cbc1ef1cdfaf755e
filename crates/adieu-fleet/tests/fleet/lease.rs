//! Holding a lock: renewing it, losing it, and giving it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use adieu_core::Deadline;
use adieu_fleet::{Lease, Lock, LockSpec, Locks, Loss, Memory, ReleaseError};
use tokio::time::Instant;

use crate::flaky::{Flaky, Mood};
use crate::lock::owner;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn soon() -> Deadline {
    Deadline::after(secs(60))
}

async fn flaky_lease(ttl: u64) -> (Arc<Flaky>, Lock, Lease) {
    let flaky = Arc::new(Flaky::default());
    let spec = LockSpec::new("job").ttl(secs(ttl));
    let lock = Lock::new(Arc::clone(&flaky), spec, &owner("one")).unwrap();
    let lease = lock.try_acquire().await.unwrap();
    (flaky, lock, lease)
}

#[tokio::test(start_paused = true)]
async fn s133_a_lease_is_held_for_as_long_as_there_is_somebody() {
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

// Fails when the lease counts from the answer instead of from the question.
#[tokio::test(start_paused = true)]
async fn s133_the_time_that_an_answer_takes_is_not_ours() {
    for renewed_for in [0, 20] {
        let flaky = Arc::new(Flaky::default());
        let spec = LockSpec::new("job").ttl(secs(10));
        let lock = Lock::new(Arc::clone(&flaky), spec, &owner("one")).unwrap();
        flaky.be(Mood::Slow);
        let lease = lock.try_acquire().await.unwrap();
        tokio::time::sleep(secs(renewed_for)).await;
        assert!(lease.is_held());
        flaky.be(Mood::Silent);
        lease.guard(std::future::pending::<()>()).await.unwrap_err();
        let holder = flaky.memory.query(lease.key()).await.unwrap();
        assert!(holder.is_some(), "still ours when work is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn s133_what_cannot_be_renewed_is_given_up_before_another_can_have_it() {
    for (ttl, mood) in
        [(10, Mood::Silent), (30, Mood::Failing), (10, Mood::Failing), (10, Mood::Mute)]
    {
        let (flaky, lock, lease) = flaky_lease(ttl).await;
        flaky.be(Mood::Good);
        let began = Instant::now();
        let (lost, done) = (lease.lost(), AtomicBool::new(false));
        let work = lease.guard(async {
            lost.cancelled().await;
            let told = began.elapsed();
            done.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
            told
        });
        flaky.be(mood);
        let error = work.await.unwrap_err();
        let (gone, ttl) = (began.elapsed(), secs(ttl));
        assert_eq!(error.loss, Loss::Expired);
        assert!(done.load(Ordering::Relaxed), "it was told before it was dropped");
        if mood != Mood::Mute {
            // Told a fifth before the end, dropped a tenth before it.
            assert!(gone >= ttl.mul_f64(0.9) && gone < ttl.mul_f64(0.9) + secs(1), "{gone:?}");
            let holder = flaky.memory.query(lease.key()).await.unwrap();
            assert!(holder.is_some(), "still ours when work is gone");
        }
        assert!(lease.check().is_err() && !lease.is_held());
        flaky.be(Mood::Good);
        drop(lease);
        assert!(lock.settled(soon()).await);
    }
}

#[tokio::test(start_paused = true)]
async fn s133_a_short_outage_costs_nothing() {
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
async fn s133_when_the_backend_says_no_work_is_dropped_at_once() {
    let (flaky, _lock, lease) = flaky_lease(30).await;
    let began = Instant::now();
    let work = lease.guard(std::future::pending::<()>());
    let stealing = async {
        tokio::time::sleep(secs(1)).await;
        assert!(flaky.memory.release(lease.claim()).await.unwrap().is_held());
    };
    let (work, ()) = tokio::join!(work, stealing);
    assert_eq!(work.unwrap_err().loss, Loss::Refused);
    assert!(began.elapsed() <= Duration::from_millis(12_500), "with the next renewal");
    let error = lease.release(soon()).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn s133_writing_beside_a_lock_that_is_lost_is_refused() {
    let (flaky, _lock, lease) = flaky_lease(30).await;
    lease.mark("progress", "half").await.unwrap();
    assert!(flaky.memory.release(lease.claim()).await.unwrap().is_held());
    assert!(lease.mark("progress", "all").await.is_err());
    assert!(lease.lost().is_cancelled(), "and everybody knows");
    let marker = flaky.memory.marker(lease.key(), "progress").await.unwrap().unwrap();
    assert_eq!(marker.value, "half");
}

// In real time: what is suspended here is the only thread there is.
#[tokio::test]
async fn s134_after_a_suspension_work_does_not_run_again() {
    let spec = LockSpec::new("job").ttl(Duration::from_millis(200));
    let lock = Lock::new(Memory::new(), spec, &owner("one")).unwrap();
    let lease = lock.try_acquire().await.unwrap();
    let polls = AtomicU32::new(0);
    let work = lease.guard(std::future::poll_fn(|cx| {
        if polls.fetch_add(1, Ordering::Relaxed) == 0 {
            // As if the process had been stopped; and work has every reason to be polled after it.
            std::thread::sleep(Duration::from_millis(250));
            cx.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    }));
    assert_eq!(work.await.unwrap_err().loss, Loss::Expired);
    assert_eq!(polls.load(Ordering::Relaxed), 1);
    assert!(lease.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn s135_it_is_released_when_the_last_who_works_under_it_is_gone() {
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
async fn s135_what_is_aborted_is_gone_before_the_lock_is() {
    let (flaky, lock, lease) = flaky_lease(10).await;
    struct Gone(Arc<Flaky>, Lock);
    impl Drop for Gone {
        fn drop(&mut self) {
            // Not awaited: in memory the answer is there when the question is asked.
            let mut asked = self.0.memory.query(self.1.key());
            let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
            let std::task::Poll::Ready(Ok(holder)) = asked.as_mut().poll(cx) else { panic!() };
            assert!(holder.is_some(), "released beneath the work");
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
async fn s135_a_thread_that_works_under_it_holds_it_even_if_nobody_waits() {
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
async fn s135_releasing_is_tried_until_the_lock_would_have_ended() {
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
