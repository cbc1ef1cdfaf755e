//! Work that is done once for a whole fleet.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::Deadline;
use adieu_fleet::{Lock, LockSpec, Locks, Memory, Once, TurnError};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::flaky::{Flaky, Mood};
use crate::lock::owner;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn lock(memory: &Memory, who: &str) -> Lock {
    let spec = LockSpec::new("schema").ttl(secs(10));
    Lock::new(memory.clone(), spec, &owner(who)).unwrap()
}

fn by(seconds: u64) -> Deadline {
    Deadline::after(secs(seconds))
}

#[tokio::test(start_paused = true)]
async fn s144_it_is_done_once_whoever_comes_when() {
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
            assert!(began.elapsed() >= secs(15), "nobody goes on before it is done");
        } else {
            assert!(began.elapsed() < secs(1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s145_what_did_not_come_to_its_end_is_tried_again_with_a_higher_fence_and_told() {
    let memory = Memory::new();
    let told = Mutex::new(Vec::new());
    let tell = |cx: &adieu_fleet::OnceCx| {
        told.lock().unwrap().push((cx.attempt, cx.is_retry(), cx.lease.fence().get()));
    };
    let failed = lock(&memory, "one")
        .once_per_fleet("v1", by(60), |cx| {
            tell(&cx);
            async { Err::<(), _>("no disk") }
        })
        .await;
    assert!(matches!(failed, Err(TurnError::Failed { .. })));
    // As a crash: nothing is released.
    let crashing = lock(&memory, "two");
    let crashed = crashing.once_per_fleet("v1", by(60), |cx| {
        tell(&cx);
        std::mem::forget(cx.lease);
        std::future::pending::<Result<(), String>>()
    });
    assert!(tokio::time::timeout(secs(1), crashed).await.is_err());
    // The keeper of a process that is gone does not renew.
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
            tell(&cx);
            async { Ok::<_, String>(()) }
        })
        .await
        .unwrap();
    assert_eq!(done, Once::Ran(()));
    assert_eq!(*told.lock().unwrap(), [(1, false, 1), (2, true, 2), (3, true, 3)]);
    let marker = memory.marker(crashing.key(), "once:v1").await.unwrap().unwrap();
    assert_eq!((marker.value.as_str(), marker.fence.get()), ("done", 3));
}

#[tokio::test(start_paused = true)]
async fn s145_what_cannot_be_written_down_is_not_done() {
    let flaky = Arc::new(Flaky::default());
    let spec = || LockSpec::new("schema").ttl(secs(10));
    let cut_off = Lock::new(Arc::clone(&flaky), spec(), &owner("one")).unwrap();
    let error = cut_off
        .once_per_fleet("v1", by(60), |_| async {
            flaky.be(Mood::Failing);
            Ok::<_, String>(())
        })
        .await
        .unwrap_err();
    assert!(matches!(error, TurnError::NotMarked { .. }), "{error}");
    let other = Lock::new(flaky.memory.clone(), spec(), &owner("two")).unwrap();
    let again = other
        .once_per_fleet("v1", by(60), |cx| async move { Ok::<_, String>(cx.is_retry()) })
        .await
        .unwrap();
    assert_eq!(again, Once::Ran(true));
}

#[tokio::test(start_paused = true)]
async fn s144_waiting_is_bounded_and_versions_are_names() {
    let memory = Memory::new();
    let _lease = lock(&memory, "one").try_acquire().await.unwrap();
    let step = |_| async { Ok::<_, String>(()) };
    let error = lock(&memory, "two").once_per_fleet("v1", by(20), step).await.unwrap_err();
    assert!(matches!(error, TurnError::NoTurn { .. }), "{error}");
    let error = lock(&memory, "two").once_per_fleet("a b", by(20), step).await.unwrap_err();
    assert!(matches!(error, TurnError::Version { .. }), "{error}");
}
