//! A server that is restarted, and a server that cannot be reached.

use std::sync::Arc;
use std::time::Duration;

use adieu_fleet::{Lease, Lock, LockBackend, LockSpec, LossCause};
use adieu_testkit::proxy::Proxy;

use crate::history::{Log, What, assert_sound, machine_time};
use crate::stage::{Kind, Stage};
use crate::support::{by, owner};

fn lock(locks: &Arc<dyn LockBackend>, replica: &str, ttl: Duration) -> Lock {
    let spec = LockSpec::new("job").ttl(ttl).retry(Duration::from_millis(50)).needs_fence();
    Lock::new(Arc::clone(locks), spec, &owner(replica)).unwrap()
}

/// Writes under a lease until it is lost.
async fn write(lease: &Lease, lock: &Lock, log: &Log) {
    let fence = lease.fence().get();
    loop {
        let checked = machine_time();
        if lease.check().is_err() {
            return;
        }
        log.note(checked, fence, What::Believed);
        let sent = machine_time();
        let marked = lock.locks().mark(lease.claim(), "written", "").await;
        if let Ok(standing) = marked {
            let by = machine_time();
            let what = if standing.is_held() { What::Accepted { by } } else { What::Refused };
            log.note(sent, fence, what);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn accepted(log: &Log) -> usize {
    let is_accepted = |what| matches!(what, What::Accepted { .. });
    log.events().iter().filter(|event| is_accepted(event.what)).count()
}

async fn until_accepted(log: &Log) {
    let before = accepted(log);
    let written = async {
        while accepted(log) < before + 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), written).await.unwrap();
}

async fn restarted(kind: Kind) {
    let mut stage = Stage::new(kind);
    let ttl = Duration::from_secs(6);
    let (log, place) = (Log::memory(), stage.place());
    let one = lock(&kind.connect(&place).await, "one", ttl);
    let two = lock(&kind.connect(&place).await, "two", ttl);
    let lease = one.acquire(by(10)).await.unwrap();
    log.note(machine_time(), lease.fence().get(), What::Held);
    let mut running = tokio::task::JoinSet::new();
    running.spawn({
        let (lease, one, log) = (lease.clone(), one.clone(), log.clone());
        async move {
            let _ = lease.guard(write(&lease, &one, &log)).await;
        }
    });
    until_accepted(&log).await;
    let valid_until = tokio::time::Instant::now() + lease.remaining();
    // Blocks this thread. The server must end with the thread that started it, so it stays here.
    let server = stage.server.as_mut().unwrap();
    server.kill();
    server.start();
    if kind == Kind::Session {
        // Its session has ended, and so has the lease. The lock stays held until it would have
        // expired.
        running.join_next().await.unwrap().unwrap();
        assert_eq!(lease.check().unwrap_err().loss, LossCause::Refused);
    } else {
        until_accepted(&log).await;
        assert_eq!(
            lease.check().unwrap(),
            lease.fence(),
            "the outage was shorter than the time to live"
        );
        assert!(two.acquire(by(1)).await.is_err());
        running.shutdown().await;
        lease.clone().release(by(0)).await.unwrap_err();
    }
    let old = lease.fence();
    drop(lease);
    let next = two.acquire(by(30)).await.unwrap();
    log.note(machine_time(), next.fence().get(), What::Held);
    if kind == Kind::Session {
        assert!(tokio::time::Instant::now() >= valid_until, "its holder may not have noticed yet");
    }
    assert!(next.fence() > old);
    next.mark("written", "by two").await.unwrap();
    next.release(by(10)).await.unwrap();
    assert_sound(&log.events());
}

async fn unreachable(kind: Kind) {
    let stage = Stage::new(kind);
    let ttl = Duration::from_secs(2);
    let proxy = Proxy::new(stage.address().unwrap()).await;
    let log = Log::memory();
    let one = lock(&kind.connect(&proxy.port().to_string()).await, "one", ttl);
    let two = lock(&kind.connect(&stage.place()).await, "two", ttl);
    let lease = one.acquire(by(10)).await.unwrap();
    log.note(machine_time(), lease.fence().get(), What::Held);
    let mut running = tokio::task::JoinSet::new();
    running.spawn({
        let (lease, one, log) = (lease.clone(), one.clone(), log.clone());
        async move { lease.guard(write(&lease, &one, &log)).await.unwrap_err().loss }
    });
    until_accepted(&log).await;
    proxy.cut();
    let cut = tokio::time::Instant::now();
    assert_eq!(running.join_next().await.unwrap().unwrap(), LossCause::Expired);
    assert!(cut.elapsed() < ttl, "cancelled after {:?}", cut.elapsed());
    let next = two.acquire(by(10)).await.unwrap();
    log.note(machine_time(), next.fence().get(), What::Held);
    assert!(next.fence() > lease.fence());
    until_written(&next, &two, &log).await;
    tokio::time::sleep_until(cut + Duration::from_secs(5)).await;
    proxy.mend();
    // The old claim is no longer accepted.
    let sent = machine_time();
    let standing = loop {
        if let Ok(standing) = one.locks().mark(lease.claim(), "written", "late").await {
            break standing;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(!standing.is_held());
    log.note(sent, lease.fence().get(), What::Refused);
    drop(lease);
    assert!(next.is_held());
    next.release(by(10)).await.unwrap();
    let again = one.acquire(by(10)).await.unwrap();
    log.note(machine_time(), again.fence().get(), What::Held);
    assert_sound(&log.events());
}

async fn until_written(lease: &Lease, lock: &Lock, log: &Log) {
    tokio::select! {
        () = until_accepted(log) => {}
        () = write(lease, lock, log) => panic!("lost"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s150_redis_is_restarted() {
    restarted(Kind::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s151_redis_is_unreachable() {
    unreachable(Kind::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s150_postgres_is_restarted_with_rows() {
    restarted(Kind::Rows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s151_postgres_is_unreachable_with_rows() {
    unreachable(Kind::Rows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s150_postgres_is_restarted_with_sessions() {
    restarted(Kind::Session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s151_postgres_is_unreachable_with_sessions() {
    unreachable(Kind::Session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s150_etcd_is_restarted() {
    restarted(Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s151_etcd_is_unreachable() {
    unreachable(Kind::Etcd).await;
}
