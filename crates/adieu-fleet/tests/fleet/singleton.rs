//! Work that one replica does at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use adieu_core::adapter::error_text;
use adieu_fleet::{Lock, Memory, OtherReplicas, Turn, TurnError};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::flaky::{Flaky, Mood};
use crate::support::{self, by, owner, secs};

fn lock(memory: &Memory, replica: &str) -> Lock {
    support::lock(memory.clone(), "indexes", secs(10), replica)
}

#[tokio::test(start_paused = true)]
async fn s142_one_replica_runs_the_work_and_the_others_wait() {
    let (memory, runs) = (Memory::new(), Arc::new(AtomicU32::new(0)));
    for round in 1..=2 {
        let mut replicas = JoinSet::new();
        let began = Instant::now();
        for replica in 0..20 {
            let (lock, runs) = (lock(&memory, &format!("r{replica}")), Arc::clone(&runs));
            replicas.spawn(async move {
                lock.singleton(OtherReplicas::Wait, by(60), |_| async {
                    tokio::time::sleep(secs(25)).await; // longer than the time to live
                    Ok::<_, String>(runs.fetch_add(1, Ordering::Relaxed))
                })
                .await
                .unwrap()
            });
        }
        let turns = replicas.join_all().await;
        assert!(began.elapsed() >= secs(25), "no replica continues before the work is done");
        assert_eq!(turns.iter().filter(|turn| matches!(turn, Turn::Ran(_))).count(), 1);
        assert_eq!(turns.iter().filter(|turn| **turn == Turn::Waited).count(), 19);
        // Replicas that arrive after the end run the work again.
        assert_eq!(runs.load(Ordering::Relaxed), round);
    }
}

#[tokio::test(start_paused = true)]
async fn s142_a_replica_can_skip_the_work_instead_of_waiting() {
    let memory = Memory::new();
    let lease = lock(&memory, "one").try_acquire().await.unwrap();
    let skipped = lock(&memory, "two")
        .singleton(OtherReplicas::Skip, by(60), |_| async { Ok::<_, String>(()) })
        .await
        .unwrap();
    let Turn::Skipped(holder) = skipped else { panic!("{skipped:?}") };
    assert_eq!((holder.owner, holder.fence), (owner("one"), lease.fence()));
}

#[tokio::test(start_paused = true)]
async fn s142_waiting_is_bounded() {
    let memory = Memory::new();
    let _lease = lock(&memory, "one").try_acquire().await.unwrap();
    let began = Instant::now();
    let error = lock(&memory, "two")
        .singleton(OtherReplicas::Wait, by(30), |_| async { Ok::<_, String>(()) })
        .await
        .unwrap_err();
    assert_eq!(began.elapsed().as_secs(), 30);
    let text = error_text(&error);
    assert!(text.contains("timed out acquiring lock indexes: held by one"), "{text}");

    // Also while the backend cannot be reached.
    for mood in [Mood::Silent, Mood::Failing] {
        let flaky = Arc::new(Flaky::default());
        let lock = Lock::new(Arc::clone(&flaky), "indexes", &owner("one")).unwrap();
        flaky.be(mood);
        let began = Instant::now();
        let error = lock
            .singleton(OtherReplicas::Wait, by(40), |_| async { Ok::<_, String>(()) })
            .await
            .unwrap_err();
        assert!(matches!(error, TurnError::NoTurn { .. }), "{error}");
        assert_eq!(began.elapsed().as_secs(), 40, "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s143_another_replica_takes_over_after_a_failure_a_panic_or_an_abort() {
    let (memory, runs) = (Memory::new(), Arc::new(AtomicU32::new(0)));
    let mut replicas = JoinSet::new();
    let mut aborted = None;
    for replica in 0..6 {
        let (lock, runs) = (lock(&memory, &format!("r{replica}")), Arc::clone(&runs));
        let handle = replicas.spawn(async move {
            lock.singleton(OtherReplicas::Wait, by(60), |_| async move {
                let run = runs.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(secs(1)).await;
                match run {
                    0 => std::future::pending().await,
                    1 => Err("no disk"),
                    2 => panic!("no memory"),
                    run => Ok(run),
                }
            })
            .await
        });
        if replica == 0 {
            tokio::time::sleep(secs(1)).await;
            aborted = Some(handle);
        }
    }
    tokio::time::sleep(secs(2)).await;
    aborted.unwrap().abort();
    let (mut ran, mut waited, mut failed, mut panicked, mut gone) = (0, 0, 0, 0, 0);
    while let Some(ended) = replicas.join_next().await {
        match ended {
            Ok(Ok(Turn::Ran(run))) => {
                assert_eq!(run, 3);
                ran += 1;
            }
            Ok(Ok(Turn::Waited)) => waited += 1,
            Ok(Err(error)) => {
                assert_eq!(error_text(&error), "work under lock indexes failed: no disk");
                failed += 1;
            }
            Err(error) if error.is_panic() => panicked += 1,
            Err(_) => gone += 1,
            Ok(Ok(Turn::Skipped(_))) => panic!(),
        }
    }
    assert_eq!((ran, waited, failed, panicked, gone), (1, 2, 1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn s143_a_disconnected_replica_is_cancelled_before_another_takes_over() {
    let flaky = Arc::new(Flaky::default());
    let disconnected = support::lock(Arc::clone(&flaky), "indexes", secs(10), "one");
    let other = lock(&flaky.memory, "two");
    let began = Instant::now();
    let first = async {
        let error = disconnected
            .singleton(OtherReplicas::Wait, by(60), |_| async {
                flaky.be(Mood::Silent);
                std::future::pending::<Result<(), String>>().await
            })
            .await
            .unwrap_err();
        assert!(matches!(error, TurnError::Lost { .. }), "{error}");
    };
    let cancelled = AtomicU32::new(0);
    let first = async {
        first.await;
        cancelled.store(1, Ordering::Relaxed);
    };
    let second = async {
        tokio::time::sleep(secs(1)).await;
        other
            .singleton(OtherReplicas::Wait, by(60), |lease| {
                assert_eq!(lease.fence().get(), 2);
                async { Ok::<_, String>(began.elapsed()) }
            })
            .await
            .unwrap()
    };
    let ((), second) = tokio::join!(first, second);
    let Turn::Ran(at) = second else { panic!("{second:?}") };
    assert!(at >= secs(10), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn s142_a_backend_without_fences_is_refused() {
    let flaky = Arc::new(Flaky::default());
    flaky.be(Mood::Unfenced);
    let lock = Lock::new(flaky, "indexes", &owner("one")).unwrap();
    let error = lock.singleton(OtherReplicas::Wait, by(1), |_| async { Ok::<_, String>(()) }).await;
    assert!(matches!(error, Err(TurnError::Unfenced { .. })));
    let error = lock.once_per_fleet("v1", by(1), |_| async { Ok::<_, String>(()) }).await;
    assert!(matches!(error, Err(TurnError::Unfenced { .. })));
}
