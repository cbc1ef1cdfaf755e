//! Every message that was accepted is handled, or is a dead letter that the report counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use adieu_actors::kameo::{Ref, actor};
use adieu_actors::{ActorSystem, NodeEnding};
use kameo::Actor;
use kameo::actor::ActorRef;
use kameo::error::SendError;
use kameo::message::{Context, Message};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::frameworks::{Framework, Job, Kameo, Log, Script};

const LONG: Duration = Duration::from_secs(60);

async fn s241_messages_that_accepted_work_sends_are_handled<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let script = || Script { room: Some(100), ..Script::new(&log) };
    let parent = F::spawn(&system, None, "parent", script()).await.unwrap();
    let a = F::spawn(&system, Some(&parent), "a", script()).await.unwrap();
    let b = F::spawn(&system, Some(&parent), "b", script()).await.unwrap();
    let c = F::spawn(&system, None, "c", script()).await.unwrap();
    for number in 0..50 {
        let (b, parent, c, log) = (b.clone(), parent.clone(), c.clone(), log.clone());
        let job = Job::new(move || async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let to_parent = Job::new(move || async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let done = Job::log(&log, format!("{number}"));
                assert!(F::send(&c, done).await, "to an actor elsewhere in the tree");
            });
            let to_sibling = Job::new(move || async move {
                assert!(F::send(&parent, to_parent).await, "to its parent");
            });
            assert!(F::send(&b, to_sibling).await, "to a sibling");
        });
        assert!(F::send(&a, job).await);
    }
    let report = system.shutdown(LONG).await.unwrap();
    let lines = log.lines();
    for number in 0..50 {
        assert!(lines.contains(&number.to_string()), "{number} is missing: {lines:?}");
    }
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.dead_letters(), system.dead_letter_count()), (0, 0));
    assert_eq!(report.drained(), 200, "{report}");
}

async fn s242_refused_messages_make_the_drain_unclean<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let slow = F::spawn(&system, None, "slow", Script::new(&log)).await.unwrap();
    let other = F::spawn(&system, None, "other", Script::new(&log)).await.unwrap();
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let job = Job::new(move || async move {
        begun.notify_one();
        // After three quarters of the time, before the deadline.
        tokio::time::sleep(Duration::from_millis(9_500)).await;
        assert!(!F::send(&other, Job::forever()).await);
    });
    assert!(F::send(&slow, job).await);
    began.notified().await;
    let report = system.shutdown(Duration::from_secs(10)).await.unwrap();
    assert!(report.nodes.iter().all(|node| node.ending() == &NodeEnding::Drained), "{report}");
    assert!(!report.is_clean(), "{report}");
    assert_eq!((report.dead_letters(), system.dead_letter_count()), (1, 1), "{report}");
    assert!(report.to_string().contains("/user/other drained, 1 dead letters"), "{report}");
}

on_kameo_and_ractor![
    s241_messages_that_accepted_work_sends_are_handled,
    s242_refused_messages_make_the_drain_unclean,
];

/// An actor that counts its messages, without hooks for undelivered ones.
#[derive(Actor, Default)]
struct Counts {
    handled: Arc<AtomicU64>,
    forwards_to: Option<ActorRef<Counts>>,
}

#[derive(Debug)]
struct One;

struct Wait;

impl Message<One> for Counts {
    type Reply = ();

    async fn handle(&mut self, _: One, _: &mut Context<Self, ()>) {
        self.handled.fetch_add(1, Ordering::SeqCst);
        if let Some(to) = &self.forwards_to {
            tokio::task::yield_now().await;
            assert!(to.tell(One).await.is_ok(), "refused");
        }
    }
}

impl Message<Wait> for Counts {
    type Reply = ();

    async fn handle(&mut self, _: Wait, _: &mut Context<Self, ()>) {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn s248_tracked_messages_of_a_killed_actor_are_counted_without_a_hook() {
    let system = ActorSystem::new("shop");
    let handled = Arc::new(AtomicU64::new(0));
    let args = Counts { handled: Arc::clone(&handled), forwards_to: None };
    let orders = system.spawn("orders", actor::<Counts>(args)).await.unwrap();
    orders.tell(One).await.unwrap();
    orders.tell(Wait).await.unwrap();
    for _ in 0..10 {
        orders.tell(One).await.unwrap();
    }
    let report = system.shutdown(Duration::from_secs(1)).await.unwrap();
    let node = report.node("/user/orders").unwrap();
    assert_eq!(node.ending(), &NodeEnding::Killed);
    // Ten queued messages, and the one that was being processed.
    assert_eq!((node.drained(), node.dead_letters()), (Some(1), Some(11)), "{report}");
    assert_eq!((handled.load(Ordering::SeqCst), system.dead_letter_count()), (1, 11));
    assert!(orders.ask(One).await.is_err());
    assert!(orders.tell(One).try_send().is_err());
    assert_eq!(system.dead_letter_count(), 13, "refused messages are counted, too");
}

#[tokio::test(start_paused = true)]
async fn s241_untracked_messages_that_accepted_work_sends_are_handled() {
    let system = ActorSystem::new("shop");
    let handled = Arc::new(AtomicU64::new(0));
    let counts = |to| Counts { handled: Arc::clone(&handled), forwards_to: to };
    let b = system.spawn("b", actor::<Counts>(counts(None))).await.unwrap();
    let args = counts(Some(b.actor_ref().clone()));
    let a = system.spawn("a", actor::<Counts>(args)).await.unwrap();
    for _ in 0..50 {
        a.actor_ref().tell(One).await.unwrap();
    }
    let report = system.shutdown(LONG).await.unwrap();
    assert_eq!(handled.load(Ordering::SeqCst), 100);
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s249_an_accepted_message_is_handled_or_a_dead_letter() {
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..60 {
        let system = ActorSystem::new("shop");
        let handled = Arc::new(AtomicU64::new(0));
        let args = Counts { handled: Arc::clone(&handled), forwards_to: None };
        let orders = system.spawn("orders", actor::<Counts>(args)).await.unwrap();
        let is_killed = round % 3 == 0;
        if is_killed {
            orders.tell(Wait).await.unwrap();
        }
        let go = Arc::new(AtomicBool::new(false));
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let (orders, go): (Ref<Counts>, _) = (orders.clone(), Arc::clone(&go));
                tokio::spawn(async move {
                    let (mut accepted, mut refused) = (0_u64, 0_u64);
                    while refused < 3 {
                        match orders.tell(One).await {
                            Ok(()) => accepted += 1,
                            Err(_) => refused += 1,
                        }
                        go.store(true, Ordering::Relaxed);
                    }
                    (accepted, refused)
                })
            })
            .collect();
        while !go.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        let timeout = if is_killed { Duration::ZERO } else { LONG };
        let report = system.shutdown(timeout).await.unwrap();
        let (mut sent, mut late) = (u64::from(is_killed), 0);
        for sender in senders {
            let (accepted, refused) = sender.await.unwrap();
            sent += accepted;
            late += refused;
        }
        let handled = handled.load(Ordering::SeqCst);
        let dead = system.dead_letter_count() - late;
        assert_eq!(sent, handled + dead, "round {round}: {report}");
        assert!(is_killed || dead == 0, "round {round}: {dead} lost; {report}");
        accepted += sent;
        refused += late;
    }
    assert!(accepted > 1000 && refused == 60 * 12, "{accepted} {refused}");
}

#[tokio::test(start_paused = true)]
async fn s252_is_current_is_true_only_inside_the_actor() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let a = Kameo::spawn(&system, None, "a", Script::new(&log)).await.unwrap();
    let b = Kameo::spawn(&system, None, "b", Script::new(&log)).await.unwrap();
    let (me, other, inner) = (a.clone(), b.clone(), log.clone());
    let job = Job::new(move || async move {
        tokio::task::yield_now().await;
        inner.add(format!("{} {}", me.is_current(), other.is_current()));
    });
    assert!(Kameo::send(&a, job).await);
    assert!(system.shutdown(LONG).await.unwrap().is_clean());
    assert!(!a.is_current());
    assert_eq!(log.lines()[0], "true false");
}

#[tokio::test(start_paused = true)]
async fn requests_to_an_actor_of_kameo_can_have_timeouts() {
    let system = ActorSystem::new("shop");
    let (second, began) = (Duration::from_secs(1), Instant::now());
    let orders = system.spawn("orders", actor::<Counts>(Counts::default())).await.unwrap();
    orders.tell(Wait).await.unwrap();
    let late = orders.ask(One).reply_timeout(second).await;
    assert!(matches!(late, Err(SendError::Timeout(None))), "the message was sent: {late:?}");
    assert_eq!(began.elapsed(), second);
    while orders.tell(One).try_send().is_ok() {}
    let full = orders.tell(One).mailbox_timeout(second).await;
    assert!(matches!(full, Err(SendError::Timeout(Some(One)))), "{full:?}");
    let full = orders.ask(One).mailbox_timeout(second).reply_timeout(60 * second).await;
    assert!(matches!(full, Err(SendError::Timeout(Some(One)))), "{full:?}");
    assert_eq!(began.elapsed(), 3 * second);
}
