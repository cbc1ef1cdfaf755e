//! Plain tasks with a mailbox.

use std::time::Duration;

use adieu_actors::task::{Inbox, task};
use adieu_actors::{ActorSystem, NodeEnding};

use crate::frameworks::Log;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn s250_a_task_with_a_mailbox_is_drained() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let (first, second) = (log.clone(), log.clone());
    let last = task(64, async move |mut inbox: Inbox<u32>| {
        while let Some(number) = inbox.recv().await {
            tokio::time::sleep(Duration::from_millis(3)).await;
            second.add(format!("{number}"));
        }
        second.add("last stops");
    });
    let last = system.spawn("last", last).await.unwrap();
    let forwards = task(64, async move |mut inbox: Inbox<u32>| {
        while let Some(number) = inbox.recv().await {
            tokio::time::sleep(Duration::from_millis(7)).await;
            last.send(number).await?;
        }
        first.add("first stops");
        Ok::<_, adieu_actors::task::SendError<u32>>(())
    });
    let forwards = system.spawn("first", forwards).await.unwrap();
    for number in 0..20 {
        forwards.send(number).await.unwrap();
    }
    let report = system.shutdown(LONG).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.drained(), log.len()), (40, 22));
    let late = forwards.send(99).await.unwrap_err();
    assert_eq!((late.message, system.dead_letter_count()), (99, 1));
}

#[tokio::test(start_paused = true)]
async fn s250_unprocessed_messages_of_a_killed_task_are_counted() {
    let system = ActorSystem::new("shop");
    let stuck = task(4, async |mut inbox: Inbox<u32>| {
        inbox.recv().await;
        inbox.recv().await;
        std::future::pending::<()>().await;
    });
    let stuck = system.spawn("stuck", stuck).await.unwrap();
    for number in 0..5 {
        stuck.send(number).await.unwrap();
    }
    let report = system.shutdown(Duration::from_secs(1)).await.unwrap();
    let node = report.node("/user/stuck").unwrap();
    assert_eq!(node.ending(), &NodeEnding::Killed);
    assert_eq!(node.dead_letters(), Some(4), "three queued, one in the handler: {report}");
}
