//! Work that is done once for a whole fleet.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use adieu_fleet::{Lock, LockBackend, Memory, Once, TurnError};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::flaky::{Flaky, Mood};
use crate::support::{self, by, secs};

fn lock(memory: &Memory, replica: &str) -> Lock {
    support::lock(memory.clone(), "schema", secs(10), replica)
}

#[tokio::test(start_paused = true)]
async fn s144_work_is_done_once_whenever_replicas_arrive() {
    let (memory, runs) = (Memory::new(), Arc::new(AtomicU32::new(0)));
    for (round, version) in ["v1", "v1", "v2", "v1", "v2"].into_iter().enumerate() {
        let mut replicas = JoinSet::new();
        let began = Instant::now();
        let before = runs.load(Ordering::Relaxed);
        for replica in 0..20 {
            let (lock, runs) = (lock(&memory, &format!("r{replica}")), Arc::clone(&runs));
            replicas.spawn(async move {
                lock.once_per_fleet(version, by(60), |cx| async move {
                    assert!(!cx.is_retry());
                    tokio::time::sleep(secs(15)).await;
                    Ok::<_, String>(runs.fetch_add(1, Ordering::Relaxed))
                })
                .await
                .unwrap()
            });
        }
        let ends = replicas.join_all().await;
        let ran = ends.iter().filter(|end| matches!(end, Once::Ran(_))).count();
        let is_new = round == 0 || round == 2;
        assert_eq!(ran, usize::from(is_new), "{version} in round {round}");
        assert_eq!(runs.load(Ordering::Relaxed) - before, u32::from(is_new));
        if is_new {
            assert!(began.elapsed() >= secs(15), "no replica continues before the work is done");
        } else {
            assert!(began.elapsed() < secs(1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s145_incomplete_work_is_retried_with_a_higher_fence_and_attempt() {
    let memory = Memory::new();
    let attempts = Mutex::new(Vec::new());
    let note = |cx: &adieu_fleet::OnceCx| {
        attempts.lock().unwrap().push((cx.attempt, cx.is_retry(), cx.lease.fence().get()));
    };
    let failed = lock(&memory, "one")
        .once_per_fleet("v1", by(60), |cx| {
            note(&cx);
            async { Err::<(), _>("no disk") }
        })
        .await;
    assert!(matches!(failed, Err(TurnError::Failed { .. })));
    // As in a crash, nothing is released.
    let crashing = lock(&memory, "two");
    let crashed = crashing.once_per_fleet("v1", by(60), |cx| {
        note(&cx);
        std::mem::forget(cx.lease);
        std::future::pending::<Result<(), String>>()
    });
    assert!(tokio::time::timeout(secs(1), crashed).await.is_err());
    // A process that has crashed does not renew.
    let slot = memory.query(crashing.key()).await.unwrap().unwrap();
    let claim = adieu_fleet::Claim {
        key: crashing.key().clone(),
        owner: slot.owner,
        fence: slot.fence,
        ticket: 0,
    };
    assert!(memory.release(&claim).await.unwrap().is_held());
    let done = lock(&memory, "three")
        .once_per_fleet("v1", by(60), |cx| {
            note(&cx);
            async { Ok::<_, String>(()) }
        })
        .await
        .unwrap();
    assert_eq!(done, Once::Ran(()));
    assert_eq!(*attempts.lock().unwrap(), [(1, false, 1), (2, true, 2), (3, true, 3)]);
    let marker = memory.marker(crashing.key(), "once:v1").await.unwrap().unwrap();
    assert_eq!((marker.value.as_str(), marker.fence.get()), ("done", 3));
}

#[tokio::test(start_paused = true)]
async fn s145_work_without_a_marker_does_not_count_as_done() {
    let flaky = Arc::new(Flaky::default());
    let error = support::lock(Arc::clone(&flaky), "schema", secs(10), "one")
        .once_per_fleet("v1", by(60), |_| async {
            flaky.be(Mood::Failing);
            Ok::<_, String>(())
        })
        .await
        .unwrap_err();
    assert!(matches!(error, TurnError::NotMarked { .. }), "{error}");
    let again = lock(&flaky.memory, "two")
        .once_per_fleet("v1", by(60), |cx| async move { Ok::<_, String>(cx.is_retry()) })
        .await
        .unwrap();
    assert_eq!(again, Once::Ran(true));
}

#[tokio::test(start_paused = true)]
async fn s144_waiting_is_bounded_and_an_invalid_version_is_refused() {
    let memory = Memory::new();
    let _lease = lock(&memory, "one").try_acquire().await.unwrap();
    let step = |_| async { Ok::<_, String>(()) };
    let error = lock(&memory, "two").once_per_fleet("v1", by(20), step).await.unwrap_err();
    assert!(matches!(error, TurnError::NoTurn { .. }), "{error}");
    let error = lock(&memory, "two").once_per_fleet("a b", by(20), step).await.unwrap_err();
    assert!(matches!(error, TurnError::Version { .. }), "{error}");
}
