//! Observing a system: quiescence and the tree.

use std::sync::Arc;
use std::time::Duration;

use adieu_actors::ActorSystem;
use adieu_core::Deadline;
use tokio::sync::Notify;

use crate::frameworks::{Framework, Job, Log, Script};

const LONG: Duration = Duration::from_secs(60);

async fn s170_a_system_is_quiescent_when_no_actor_has_work<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    assert!(system.await_quiescence(Deadline::after(LONG)).await);
    let ping = F::spawn(&system, None, "ping", Script::new(&log)).await.unwrap();
    let pong = F::spawn(&system, None, "pong", Script::new(&log)).await.unwrap();
    fn hop<F: Framework>(left: u32, to: F::Ref, then: F::Ref, log: Log) -> Job {
        Job::new(move || async move {
            tokio::time::sleep(Duration::from_millis(7)).await;
            log.add("hop");
            if left > 0 {
                let job = hop::<F>(left - 1, then.clone(), to.clone(), log);
                assert!(F::send(&to, job).await);
            }
        })
    }
    // There is never more than one message, and most of the time all mailboxes are empty.
    assert!(F::send(&ping, hop::<F>(99, pong.clone(), ping.clone(), log.clone())).await);
    assert!(!system.await_quiescence(Deadline::after(Duration::from_millis(300))).await);
    assert!(system.await_quiescence(Deadline::after(LONG)).await);
    assert_eq!(log.len(), 100);
    let go = Arc::new(Notify::new());
    let released = Arc::clone(&go);
    assert!(F::send(&ping, Job::new(move || async move { released.notified().await })).await);
    assert!(!system.await_quiescence(Deadline::after(LONG)).await);
    go.notify_one();
    assert!(system.await_quiescence(Deadline::after(LONG)).await);
}

async fn s171_the_tree_shows_actors_and_queue_lengths<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let worker = F::spawn(&system, Some(&orders), "worker-3", Script::new(&log)).await.unwrap();
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let job = Job::new(move || {
        begun.notify_one();
        std::future::pending()
    });
    assert!(F::send(&worker, job).await);
    began.notified().await;
    assert!(F::send(&worker, Job::forever()).await);
    assert_eq!(system.tree().to_string(), "shop\n  /user\n    orders\n      worker-3  1 queued\n");
    system.shutdown(Duration::from_secs(1)).await.unwrap();
    assert!(system.tree().nodes.is_empty());
}

on_kameo_and_ractor![s170_a_system_is_quiescent_when_no_actor_has_work];

mod tree {
    use super::s171_the_tree_shows_actors_and_queue_lengths;

    on_all_frameworks![s171_the_tree_shows_actors_and_queue_lengths];
}
