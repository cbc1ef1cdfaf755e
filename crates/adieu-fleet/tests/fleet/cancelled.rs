//! Futures that are dropped before they end: no grant stays behind.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use adieu_core::{Deadline, Reason};
use adieu_fleet::{Lease, Lock, LockBackend, Memory, OtherReplicas};

use crate::flaky::{Flaky, Mood};
use crate::support::{by, lock, owner, secs, shutdown};

type Job<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The name of a case, and its future, given the lock, and a lease if the case needs one.
type Case = (&'static str, fn(&Lock, Option<Lease>) -> Job<'static>);

/// More polls than any of these futures needs.
const MANY: usize = 400;

fn soon() -> Deadline {
    by(60)
}

async fn work() -> Result<(), String> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(())
}

const CASES: [Case; 5] = [
    ("try_acquire", |lock, _| {
        let lock = lock.clone();
        Box::pin(async move { drop(lock.try_acquire().await) })
    }),
    ("acquire", |lock, _| {
        let lock = lock.clone();
        Box::pin(async move { drop(lock.acquire(soon()).await) })
    }),
    ("singleton", |lock, _| {
        let lock = lock.clone();
        Box::pin(async move { drop(lock.singleton(OtherReplicas::Wait, soon(), |_| work()).await) })
    }),
    ("singleton or skip", |lock, _| {
        let lock = lock.clone();
        Box::pin(async move { drop(lock.singleton(OtherReplicas::Skip, soon(), |_| work()).await) })
    }),
    ("once_per_fleet", |lock, _| {
        let lock = lock.clone();
        Box::pin(async move { drop(lock.once_per_fleet("v1", soon(), |_| work()).await) })
    }),
];

const HOLDING: [Case; 6] = [
    ("release", |_, lease| Box::pin(async move { drop(lease.unwrap().release(soon()).await) })),
    ("mark", |_, lease| {
        Box::pin(async move { drop(lease.unwrap().mark("progress", "half").await) })
    }),
    ("guard", |_, lease| Box::pin(async move { drop(lease.unwrap().guard(work()).await) })),
    ("renewal", |_, lease| {
        Box::pin(async move {
            let _lease = lease;
            tokio::time::sleep(Duration::from_secs(1)).await;
        })
    }),
    ("acquire while held", |lock, lease| {
        let lock = lock.clone();
        Box::pin(async move {
            let released = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                drop(lease);
            };
            let (_, ()) = tokio::join!(lock.acquire(soon()), released);
        })
    }),
    ("singleton while held", |lock, lease| {
        let lock = lock.clone();
        Box::pin(async move {
            let released = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                drop(lease);
            };
            let (_, ()) =
                tokio::join!(lock.singleton(OtherReplicas::Wait, soon(), |_| work()), released);
        })
    }),
];

/// When the future is dropped: right after a poll, or when the response that it waits for has
/// arrived.
#[derive(Clone, Copy, Debug)]
enum Dropped {
    AtOnce,
    AfterTheResponse,
}

/// Polls the future this many times, lets other tasks run in between, and drops it. Returns whether
/// it had ended.
async fn polled(mut job: Job<'_>, polls: usize, dropped: Dropped) -> bool {
    for _ in 0..polls {
        let poll = std::future::poll_fn(|cx| Poll::Ready(job.as_mut().poll(cx))).await;
        if poll.is_ready() {
            return true;
        }
        tokio::time::advance(Duration::from_millis(5)).await;
    }
    if let Dropped::AfterTheResponse = dropped {
        // With a paused clock this returns when no other task can run.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(job);
    false
}

async fn check((name, make): Case, is_holding: bool) {
    for dropped in [Dropped::AtOnce, Dropped::AfterTheResponse] {
        let mut granted = 0;
        for polls in 0..=MANY {
            let flaky = Arc::new(Flaky::default());
            let lock = lock(Arc::clone(&flaky), "job", secs(2), "one");
            flaky.be(Mood::Stepwise);
            let lease = if is_holding { Some(lock.try_acquire().await.unwrap()) } else { None };
            let has_ended = polled(make(&lock, lease), polls, dropped).await;
            assert!(lock.settled(soon()).await, "{name}: not settled after {polls} polls");
            let holder = flaky.memory.query(lock.key()).await.unwrap();
            assert_eq!(holder, None, "{name}: still held after {polls} polls, {dropped:?}");
            flaky.be(Mood::Good);
            granted += lock.try_acquire().await.unwrap().fence().get() - 1;
            assert!(lock.settled(soon()).await);
            if has_ended {
                break;
            }
            assert!(polls < MANY, "{name} does not end");
        }
        assert!(granted > 0, "{name}: nothing was ever granted");
    }
}

#[tokio::test(start_paused = true)]
async fn s231_a_future_that_is_dropped_after_any_number_of_polls_leaves_no_grant() {
    for case in CASES {
        check(case, false).await;
    }
    for case in HOLDING {
        check(case, true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn s231_a_campaign_that_is_shut_down_at_any_moment_leaves_no_grant() {
    let mut led = 0;
    for millis in 0..60 {
        let flaky = Arc::new(Flaky::default());
        let lock = lock(Arc::clone(&flaky), "sweeper", secs(2), "one");
        flaky.be(Mood::Stepwise);
        let shutdown = shutdown();
        let leadership = lock.lead(&shutdown, |term| async move { term.stopped().await }).unwrap();
        for _ in 0..millis {
            tokio::task::yield_now().await;
        }
        led += u64::from(leadership.leading().is_some());
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(flaky.memory.query(lock.key()).await.unwrap(), None, "after {millis} turns");
    }
    assert!(led > 0 && led < 60, "led {led} times");
}

#[tokio::test(start_paused = true)]
async fn s231_a_resignation_takes_effect_when_it_is_called() {
    let lock = Lock::new(Memory::new(), "sweeper", &owner("one")).unwrap();
    let shutdown = shutdown();
    let leadership = lock.lead(&shutdown, |term| async move { term.stopped().await }).unwrap();
    let first = leadership.until_leading().await;
    // The future is never polled.
    drop(leadership.resign());
    let resigned = async {
        while leadership.leading() == Some(first) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(secs(10), resigned).await.unwrap();
    shutdown.run(Reason::Unknown).await.unwrap();
}

/// On several threads a response can arrive at the instant at which its waiter is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s231_thousands_of_cancelled_attempts_leave_no_grant() {
    let memory = Memory::new();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..4 {
        let memory = memory.clone();
        tasks.spawn(async move {
            let lock = Lock::new(memory.clone(), format!("job-{task}"), &owner("one")).unwrap();
            for round in 0..2_500 {
                let impatience = async {
                    for _ in 0..round % 8 {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::select! {
                    biased;
                    () = impatience => {}
                    lease = lock.try_acquire() => drop(lease),
                }
                assert!(lock.settled(soon()).await, "not settled in round {round}");
                let holder = memory.query(lock.key()).await.unwrap();
                assert_eq!(holder, None, "still held in round {round}");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}
