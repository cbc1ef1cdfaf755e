//! Plain tasks with a mailbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use adieu_actors::task::{Inbox, Mailbox, task};
use adieu_actors::{ActorSystem, Around, Delivery, NodeEnding, Spawn};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::frameworks::Log;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn s250_a_task_with_a_mailbox_is_drained() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let (first, second) = (log.clone(), log.clone());
    let last = task(64, async move |mut inbox: Inbox<u32>| {
        while let Some(delivery) = inbox.recv().await {
            let number = *delivery;
            tokio::time::sleep(Duration::from_millis(3)).await;
            second.add(format!("{number}"));
            delivery.done();
        }
        second.add("last stops");
    });
    let last = system.spawn("last", last).await.unwrap();
    let forwards = task(64, async move |mut inbox: Inbox<u32>| {
        while let Some(delivery) = inbox.recv().await {
            let number = *delivery;
            tokio::time::sleep(Duration::from_millis(7)).await;
            last.send(number).await?;
            delivery.done();
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
        let first = inbox.recv().await.map(Delivery::done);
        let second = inbox.recv().await;
        std::future::pending::<()>().await;
        drop((first, second));
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

/// A task that processes all its messages at once: each takes a while, and then causes another one.
fn concurrent(to: Mailbox<u32>) -> impl Spawn<Ref = Mailbox<u32>> {
    task(64, async move |mut inbox: Inbox<u32>| {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(()) = running.next() => {}
                received = inbox.recv() => match received {
                    Some(number) => running.push(number.process(async |number| {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        assert!(to.send(number).await.is_ok(), "{number} was refused");
                    })),
                    None => break,
                },
            }
        }
        while running.next().await.is_some() {}
    })
}

#[tokio::test(start_paused = true)]
async fn s806_messages_that_a_task_processes_at_once_can_send_until_they_are_done() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let inner = log.clone();
    let last = task(64, async move |mut inbox: Inbox<u32>| {
        while let Some(number) = inbox.recv().await {
            inner.add(format!("{}", number.done()));
        }
    });
    let last = system.spawn("last", last).await.unwrap();
    let first = system.spawn("first", concurrent(last.clone())).await.unwrap();
    for number in 0..20 {
        first.send(number).await.unwrap();
    }
    let report = system.shutdown(LONG).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.drained(), log.len()), (40, 20), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s806_messages_that_a_task_was_processing_when_it_was_killed_are_dead_letters() {
    let system = ActorSystem::new("shop");
    let stuck = task(64, async |mut inbox: Inbox<u32>| {
        let mut running = FuturesUnordered::new();
        while let Some(number) = inbox.recv().await {
            running.push(number.process(async |_| std::future::pending::<()>().await));
        }
        while running.next().await.is_some() {}
    });
    let stuck = system.spawn("stuck", stuck).await.unwrap();
    for number in 0..20 {
        stuck.send(number).await.unwrap();
    }
    let report = system.shutdown(Duration::from_secs(1)).await.unwrap();
    let node = report.node("/user/stuck").unwrap();
    assert_eq!(node.ending(), &NodeEnding::Killed, "{report}");
    assert_eq!((node.drained(), node.dead_letters()), (Some(0), Some(20)), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s806_a_body_that_returns_with_unprocessed_deliveries_is_not_clean() {
    let system = ActorSystem::new("shop");
    let forgets = task(64, async |mut inbox: Inbox<u32>| {
        let mut received = Vec::new();
        while let Some(number) = inbox.recv().await {
            received.push(number);
            if received.len() == 5 {
                for number in received.drain(..2) {
                    number.done();
                }
                return;
            }
        }
    });
    let forgets = system.spawn("forgets", forgets).await.unwrap();
    for number in 0..5 {
        forgets.send(number).await.unwrap();
    }
    let report = system.shutdown(LONG).await.unwrap();
    assert!(!report.is_clean(), "{report}");
    assert_eq!((report.dead_letters(), system.dead_letter_count()), (3, 3), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s443_a_task_lives_as_long_as_its_deliveries() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let inner = log.clone();
    let hands_over = task(64, async move |mut inbox: Inbox<u32>| {
        while let Some(number) = inbox.recv().await {
            let log = inner.clone();
            tokio::spawn(number.process(async move |number| {
                tokio::time::sleep(Duration::from_secs(1)).await;
                log.add(number.to_string());
            }));
        }
    });
    let hands_over = system.spawn("hands-over", hands_over).await.unwrap();
    for number in 0..20 {
        hands_over.send(number).await.unwrap();
    }
    let report = system.shutdown(LONG).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.drained(), log.len()), (20, 20), "{report}");
}

/// Lets the code of an actor run as long as it is open.
#[derive(Debug)]
struct Barrier {
    is_open: AtomicBool,
    polls: AtomicUsize,
}

impl Around for Barrier {
    fn poll(&self, poll: &mut dyn FnMut()) {
        self.polls.fetch_add(1, Ordering::Relaxed);
        if self.is_open.load(Ordering::Relaxed) {
            poll();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s1472_a_task_runs_only_if_the_code_around_it_allows_that() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let barrier = Arc::new(Barrier { is_open: AtomicBool::new(true), polls: AtomicUsize::new(0) });
    let seen = log.clone();
    let orders = task(8, async move |mut inbox: Inbox<u32>| {
        while let Some(delivery) = inbox.recv().await {
            seen.add(format!("{}", *delivery));
            delivery.done();
        }
    });
    let orders = system.spawn_around("orders", orders, Arc::clone(&barrier) as _).await.unwrap();
    orders.send(1).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(log.lines(), ["1"]);
    barrier.is_open.store(false, Ordering::Relaxed);
    let polls = barrier.polls.load(Ordering::Relaxed);
    orders.send(2).await.unwrap();
    let report = system.shutdown(Duration::from_secs(1)).await.unwrap();
    assert!(barrier.polls.load(Ordering::Relaxed) > polls, "it was woken");
    assert_eq!(log.lines(), ["1"], "it did not run");
    // It was killed all the same, and its message is counted.
    assert_eq!(report.nodes[0].ending(), &NodeEnding::Killed, "{report}");
    assert_eq!(system.dead_letter_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn s1829_a_loop_of_refused_messages_yields_to_other_tasks() {
    let system = ActorSystem::new("shop");
    let ends = task(1, async |_: Inbox<u32>| {});
    let ended = system.spawn("ends", ends).await.unwrap();
    ended.terminated().await;
    let sent = AtomicUsize::new(0);
    let refused = async {
        while sent.fetch_add(1, Ordering::Relaxed) < 100_000 {
            assert!(ended.send(1).await.is_err());
        }
    };
    tokio::select! {
        biased;
        () = refused => {}
        () = std::future::ready(()) => {}
    }
    let sent = sent.load(Ordering::Relaxed);
    assert!((1..1_000).contains(&sent), "{sent} messages without a yield");
}
