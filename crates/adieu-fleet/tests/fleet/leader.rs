//! Leadership: one replica at a time leads.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::{Phase, Reason, Shutdown};
use adieu_fleet::{LeadError, Lock, LockBackend, Memory, Term};
use adieu_testkit::timeline::Timeline;

use crate::flaky::{Flaky, Mood};
use crate::support::{self, by, owner, secs};

fn shutdown() -> Shutdown {
    let shutdown = support::shutdown();
    shutdown.mark_started();
    shutdown
}

fn lock(locks: impl LockBackend, replica: &str) -> Lock {
    support::lock(locks, "sweeper", secs(10), replica)
}

/// Leads until the term must end, and then needs one more second.
fn orderly(timeline: Timeline, replica: &'static str) -> impl Fn(Term) -> Leading + Send + Sync {
    move |term| {
        let timeline = timeline.clone();
        Box::pin(async move {
            let span = timeline.start(format!("{replica} leads with fence {}", term.fence()));
            term.stopped().await;
            tokio::time::sleep(secs(1)).await;
            span.over();
        })
    }
}

type Leading = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[tokio::test(start_paused = true)]
async fn s146_at_shutdown_work_is_stopped_then_the_lock_released_then_another_leads() {
    let (memory, timeline) = (Memory::new(), Timeline::new());
    let (first, second) = (shutdown(), shutdown());
    let one = lock(memory.clone(), "one");
    let leading = one.lead(&first, orderly(timeline.clone(), "one")).unwrap();
    assert_eq!(leading.until_leading().await.get(), 1);
    let two = lock(memory.clone(), "two");
    let waiting = two.lead(&second, orderly(timeline.clone(), "two")).unwrap();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(waiting.leading(), None);
    assert!(second.readiness().is_ready(), "a replica that does not lead is ready as well");

    let report = first.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(leading.leading(), None);
    assert_eq!(waiting.until_leading().await.get(), 2);
    let report = second.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(one.holder().await.unwrap(), None);
    let text = timeline.to_string();
    // Without the times, because the pauses between attempts are random.
    let what = |line: &str| line[line.find("one ").or(line.find("two ")).unwrap()..].to_owned();
    assert_eq!(
        text.lines().map(what).collect::<Vec<_>>(),
        [
            "one leads with fence 1 started",
            "one leads with fence 1 over",
            "two leads with fence 2 started",
            "two leads with fence 2 over",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn s146_after_a_hard_stop_the_lock_is_released() {
    let memory = Memory::new();
    let shutdown = shutdown();
    let one = lock(memory.clone(), "one");
    let leading = one.lead(&shutdown, |_| std::future::pending::<()>()).unwrap();
    leading.until_leading().await;
    let report = shutdown.run_from(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, Reason::Unknown).unwrap();
    let report = report.await.unwrap();
    assert_eq!(leading.leading(), None);
    assert_eq!(one.holder().await.unwrap(), None, "{report}");
}

#[tokio::test(start_paused = true)]
async fn s1415_a_leader_that_loses_its_lease_is_cancelled_and_campaigns_again() {
    let flaky = Arc::new(Flaky::default());
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let one = lock(Arc::clone(&flaky), "one");
    let work = {
        let timeline = timeline.clone();
        move |term: Term| {
            let span = timeline.start(format!("term {}", term.fence()));
            async move {
                let _span = span;
                std::future::pending::<()>().await;
            }
        }
    };
    let leading = one.lead(&shutdown, work).unwrap();
    assert_eq!(leading.until_leading().await.get(), 1);
    flaky.be(Mood::Failing);
    tokio::time::sleep(secs(20)).await;
    assert_eq!(leading.leading(), None);
    assert_eq!(timeline.to_string().lines().count(), 2, "{timeline}");
    flaky.be(Mood::Good);
    assert_eq!(leading.until_leading().await.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn s1416_after_a_resignation_another_replica_leads_first() {
    let (memory, timeline) = (Memory::new(), Timeline::new());
    let (first, second) = (shutdown(), shutdown());
    let one = lock(memory.clone(), "one").lead(&first, orderly(timeline.clone(), "one")).unwrap();
    one.until_leading().await;
    let two = lock(memory.clone(), "two").lead(&second, orderly(timeline.clone(), "two")).unwrap();
    tokio::time::sleep(secs(1)).await;
    one.resign().await;
    assert_eq!(one.leading(), None);
    assert_eq!(two.until_leading().await.get(), 2);
    two.resign().await;
    assert_eq!(one.until_leading().await.get(), 3);
}

// On several threads, a subscriber can call `resign` at the instant at which the term begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1416_a_new_leader_can_resign_immediately() {
    let memory = Memory::new();
    let shutdown = shutdown();
    for n in 0..500 {
        let lock = Lock::new(memory.clone(), format!("sweeper-{n}"), &owner("one")).unwrap();
        let leading = lock.lead(&shutdown, |term: Term| async move { term.stopped().await });
        let leading = leading.unwrap();
        leading.until_leading().await;
        tokio::time::timeout(secs(20), leading.resign()).await.unwrap();
        assert_eq!(leading.leading(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn s1417_a_leader_that_fails_or_panics_resigns_and_campaigns_after_a_pause() {
    let memory = Memory::new();
    let shutdown = shutdown();
    let one = lock(memory.clone(), "one");
    let leading = one
        .lead(&shutdown, |term: Term| async move {
            match term.fence().get() {
                1 => Err("no disk"),
                2 => panic!("no memory"),
                _ => {
                    term.stopped().await;
                    Ok(())
                }
            }
        })
        .unwrap();
    let mut last = leading.until_leading().await;
    while last.get() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        last = leading.until_leading().await;
    }
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    assert!(one.settled(by(1)).await);
}

#[tokio::test(start_paused = true)]
async fn s147_readiness_that_depends_on_leadership_is_refused() {
    for name in ["sweeper", "lead sweeper"] {
        let shutdown = shutdown();
        let _promise = shutdown.add_promise(name);
        let error = lock(Memory::new(), "one").lead(&shutdown, |_| async {}).unwrap_err();
        assert!(matches!(error, LeadError::ReadinessNeedsLeadership { .. }));
        assert!(error.to_string().contains("Let every replica be ready"), "{error}");
    }
    let shutdown = shutdown();
    shutdown.add_check("database").mark_ready();
    lock(Memory::new(), "one").lead(&shutdown, |_| async {}).unwrap();
}
