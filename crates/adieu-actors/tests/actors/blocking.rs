//! Actors that block their threads. In real time, because blocked threads do not see a paused clock.

use std::sync::Arc;
use std::time::Duration;

use adieu_actors::{ActorSystem, NodeEnding};
use tokio::sync::Notify;

use crate::frameworks::{Framework, Job, Kameo, Log, Ractor, Script};

async fn an_actor_that_blocks_its_thread_delays_only_itself<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let blocks = F::spawn(&system, None, "blocks", Script::new(&log)).await.unwrap();
    let good = F::spawn(&system, None, "good", Script::new(&log)).await.unwrap();
    let (release, until) = std::sync::mpsc::channel::<()>();
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let job = Job::new(move || async move {
        begun.notify_one();
        let _ = until.recv();
    });
    assert!(F::send(&blocks, job).await);
    began.notified().await;
    for _ in 0..10 {
        assert!(F::send(&good, Job::log(&log, "good")).await);
    }
    let report = system.shutdown(Duration::from_millis(50)).await.unwrap();
    drop(release);
    assert_eq!(report.node("/user/blocks").unwrap().ending(), &NodeEnding::Abandoned);
    assert_eq!(report.node("/user/good").unwrap().ending(), &NodeEnding::Drained);
    assert_eq!(report.nodes.last().unwrap().path().name(), "blocks");
    assert_eq!(log.lines().iter().filter(|line| *line == "good").count(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s172_an_actor_of_kameo_that_blocks_its_thread_delays_only_itself() {
    an_actor_that_blocks_its_thread_delays_only_itself::<Kameo>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s172_an_actor_of_ractor_that_blocks_its_thread_delays_only_itself() {
    an_actor_that_blocks_its_thread_delays_only_itself::<Ractor>().await;
}

#[test]
fn s353_the_deadline_holds_when_all_worker_threads_are_blocked() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (release, until) = std::sync::mpsc::channel::<()>();
    let until = Arc::new(std::sync::Mutex::new(until));
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let report = runtime.block_on(async {
        for name in ["one", "two"] {
            let actor = Kameo::spawn(&system, None, name, Script::new(&log)).await.unwrap();
            let (blocked, is_blocked) = tokio::sync::oneshot::channel();
            let until = Arc::clone(&until);
            let job = Job::new(move || async move {
                let _ = blocked.send(());
                // The second actor waits for the lock.
                let _ = until.lock().unwrap().recv();
            });
            assert!(Kameo::send(&actor, job).await);
            is_blocked.await.unwrap();
            std::mem::forget(actor);
        }
        system.shutdown(Duration::from_millis(300)).await.unwrap()
    });
    drop(release);
    assert!(report.nodes.iter().all(|node| node.ending() == &NodeEnding::Abandoned), "{report}");
    // The timeout and the grace.
    assert!(report.took < Duration::from_secs(3), "{report}");
    runtime.shutdown_background();
}
