//! Everything that was accepted is handled, or is a dead letter that the report counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use adieu_actors::kameo::{Ref, actor};
use adieu_actors::{ActorSystem, NodeEnding, NodePath, SpawnError};
use adieu_core::{Config, Reason, Shutdown};
use kameo::Actor;
use kameo::actor::ActorRef;
use kameo::message::{Context, Message};
use tokio::sync::Notify;

use crate::frameworks::{Framework, Job, Kameo, Log, Plain, Ractor, Script};

const LONG: Duration = Duration::from_secs(60);

fn shutdown() -> Shutdown {
    let config = Config::for_tests().terminate_actor_system(true);
    Shutdown::configured(config.run_by_actor_system_terminate(true)).unwrap()
}

/// A system whose handle was dropped is drained all the same: the shutdown owns it.
async fn s240_a_system_without_a_handle_is_drained<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let orders = {
        let system = ActorSystem::on(&shutdown, "shop").unwrap();
        F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap()
    };
    for number in 0..20 {
        let log = log.clone();
        let job = Job::new(move || async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            log.add(format!("{number}"));
        });
        assert!(F::send(&orders, job).await);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let mut expected: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    expected.push("orders stops".into());
    assert_eq!(log.lines(), expected);
}

/// What accepted work sends to siblings, to its parent and to its children is handled.
async fn s241_what_accepted_work_sends_is_handled<F: Framework>() {
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
                let done = Job::say(&log, format!("{number}"));
                assert!(F::send(&c, done).await, "to another top");
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

/// An actor that is refused a message because of the deadline makes the drain unclean, and there is
/// one number of dead letters.
async fn s242_refused_messages_make_the_drain_unclean<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let slow = F::spawn(&system, None, "slow", Script::new(&log)).await.unwrap();
    let other = F::spawn(&system, None, "other", Script::new(&log)).await.unwrap();
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let job = Job::new(move || async move {
        begun.notify_one();
        // After the last call, before the deadline.
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

/// Accepted work may need another actor.
async fn s243_accepted_work_can_spawn_a_child<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let (inside, above, said) = (system.clone(), parent.clone(), log.clone());
    let job = Job::new(move || async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let child = F::spawn(&inside, Some(&above), "child", Script::new(&said)).await.unwrap();
        assert!(F::send(&child, Job::say(&said, "child works")).await);
        let top = F::spawn(&inside, None, "top", Script::new(&said)).await.err().unwrap();
        assert!(matches!(top, SpawnError::Terminating { .. }), "{top}");
    });
    assert!(F::send(&parent, job).await);
    let report = system.shutdown(LONG).await.unwrap();
    assert_eq!(log.lines(), ["child works", "child stops", "parent stops"]);
    assert!(report.is_clean() && report.nodes.len() == 2, "{report}");
}

/// Nothing is spawned below an actor that has ended, and nothing is left behind by a stop.
async fn s244_nothing_is_spawned_below_an_actor_that_has_ended<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let path = NodePath::user().child("parent").unwrap();
    assert!(system.stop(&path, LONG).await.unwrap().is_clean());
    let late = F::spawn(&system, Some(&parent), "late", Script::new(&log)).await.err().unwrap();
    assert!(matches!(late, SpawnError::ParentStopped { .. }), "{late}");
    assert!(late.to_string().starts_with("/user/parent/late was not spawned: /user/parent has"));
    assert!(system.tree().nodes.is_empty());
}

/// The children of an actor that is stuck stop as they should, before it is killed.
async fn s245_children_of_a_stuck_actor_run_their_stop_hooks<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let child = F::spawn(&system, Some(&parent), "child", Script::new(&log)).await.unwrap();
    let leaf = F::spawn(&system, Some(&child), "leaf", Script::new(&log)).await.unwrap();
    assert!(F::send(&parent, Job::forever()).await);
    let report = system.shutdown(Duration::from_secs(2)).await.unwrap();
    assert_eq!(log.lines()[..2], ["leaf stops", "child stops"]);
    assert_eq!(log.lines().len(), if F::HOOK_AFTER_KILL { 3 } else { 2 });
    assert_eq!(report.unclean().count(), 1, "{report}");
    assert_eq!(report.node("/user/parent").unwrap().ending(), &NodeEnding::Killed);
    drop((child, leaf));
}

/// The children of an actor that panics in a drain are drained with their messages, before its own
/// stop hook.
async fn s246_children_of_an_actor_that_panics_are_drained_first<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let child = F::spawn(&system, Some(&parent), "child", Script::new(&log)).await.unwrap();
    let said = log.clone();
    let slow = Job::new(move || async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        said.add("child works");
    });
    assert!(F::send(&child, slow).await);
    assert!(F::send(&parent, Job::new(|| async { panic!("on purpose") })).await);
    let report = system.shutdown(LONG).await.unwrap();
    assert_eq!(log.lines()[..2], ["child works", "child stops"], "{report}");
    assert_eq!(report.node("/user/parent/child").unwrap().ending(), &NodeEnding::Drained);
    let parent = report.node("/user/parent").unwrap();
    assert!(matches!(parent.ending(), NodeEnding::Failed { .. }), "{report}");
}

/// A stop whose future is dropped goes on, in order.
async fn s247_a_stop_that_is_dropped_goes_on<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = F::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let child = F::spawn(&system, Some(&parent), "child", Script::new(&log)).await.unwrap();
    assert!(F::send(&child, Job::new(|| tokio::time::sleep(Duration::from_secs(2)))).await);
    let path = NodePath::user().child("parent").unwrap();
    let stopping = tokio::time::timeout(Duration::from_secs(1), system.stop(&path, LONG)).await;
    assert!(stopping.is_err());
    assert!(system.shutdown(LONG).await.unwrap().is_clean());
    assert_eq!(log.lines(), ["child stops", "parent stops"]);
}

macro_rules! for_every_framework {
    ($($test:ident),* $(,)?) => {
        mod on_kameo { $(#[tokio::test(start_paused = true)] async fn $test() { super::$test::<super::Kameo>().await })* }
        mod on_ractor { $(#[tokio::test(start_paused = true)] async fn $test() { super::$test::<super::Ractor>().await })* }
    };
}

for_every_framework!(
    s240_a_system_without_a_handle_is_drained,
    s241_what_accepted_work_sends_is_handled,
    s242_refused_messages_make_the_drain_unclean,
    s243_accepted_work_can_spawn_a_child,
    s244_nothing_is_spawned_below_an_actor_that_has_ended,
    s245_children_of_a_stuck_actor_run_their_stop_hooks,
    s246_children_of_an_actor_that_panics_are_drained_first,
    s247_a_stop_that_is_dropped_goes_on,
);

/// An actor that does nothing special, as most are.
#[derive(Actor, Default)]
struct Counts {
    handled: Arc<AtomicU64>,
    forwards_to: Option<ActorRef<Counts>>,
}

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
async fn s248_a_killed_actor_of_kameo_counts_its_dead_letters_without_help() {
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
    // Ten that were waiting, and the one that it was handling.
    assert_eq!((node.drained(), node.dead_letters()), (Some(1), Some(11)), "{report}");
    assert_eq!((handled.load(Ordering::SeqCst), system.dead_letter_count()), (1, 11));
    assert!(orders.ask(One).await.is_err());
    assert!(orders.tell(One).try_send().is_err());
    assert_eq!(system.dead_letter_count(), 13, "what comes late is counted, too");
}

/// Through kameo's own references, which adieu does not see.
#[tokio::test(start_paused = true)]
async fn s241_messages_through_references_of_kameo_are_handled_too() {
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

/// Accepted is handled or a dead letter, exactly, however senders, drain and kill race.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s249_accepted_is_handled_or_a_dead_letter() {
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

/// A ready-made node takes part like the actors of a framework.
#[tokio::test(start_paused = true)]
async fn s240_the_drain_of_the_plain_actors_of_tests_still_ends() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let plain = Plain::spawn(&system, None, "plain", Script::new(&log)).await.unwrap();
    assert!(Plain::send(&plain, Job::say(&log, "works")).await);
    assert!(system.shutdown(LONG).await.unwrap().is_clean());
    assert_eq!(log.lines(), ["works", "plain stops"]);
}

mod tasks {
    use adieu_actors::task::{Inbox, task};

    use super::*;

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
    async fn s250_a_task_that_is_killed_counts_what_it_leaves_behind() {
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
        assert_eq!(node.dead_letters(), Some(4), "three that waited, and one: {report}");
    }
}

/// `terminate` limits the actors' time, and no other phase.
#[tokio::test(start_paused = true)]
async fn s174_terminating_the_system_shortens_no_other_phase() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let stuck = Plain::spawn(&system, None, "stuck", Script::new(&log)).await.unwrap();
    assert!(Plain::send(&stuck, Job::forever()).await);
    let said = log.clone();
    let slow = async move |_| {
        tokio::time::sleep(Duration::from_secs(4)).await;
        said.add("slow is done");
    };
    shutdown.add_task(adieu_core::Phase::SERVICE_STOP, "slow", slow).unwrap();
    let report = system.terminate(Duration::from_secs(1)).await.unwrap();
    assert_eq!(log.lines(), ["slow is done", "stuck stops"]);
    assert!(report.took < Duration::from_millis(1100), "{report}");
    let report = shutdown.completed().await.unwrap();
    assert!(report.took >= Duration::from_secs(5), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s176_a_system_alone_ends_with_its_guardian() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let guardian = Kameo::spawn(&system, None, "guardian", Script::new(&log)).await.unwrap();
    let orders = Kameo::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let path = NodePath::user().child("guardian").unwrap();
    system.guardian(&path);
    system.stop(&path, LONG).await.unwrap();
    // Nothing but the system itself drives the drain.
    tokio::time::timeout(LONG, orders.terminated()).await.expect("it ends");
    assert_eq!(log.lines(), ["guardian stops", "orders stops"]);
    assert!(system.terminated().await.is_clean());
    drop(guardian);
}

#[tokio::test(start_paused = true)]
async fn s251_system_actors_stop_after_the_others() {
    let system = ActorSystem::new("shop");
    let log = Log::default();
    let said = log.clone();
    let store =
        adieu_actors::task::task(8, async move |mut inbox: adieu_actors::task::Inbox<&str>| {
            while let Some(line) = inbox.recv().await {
                said.add(line);
            }
            said.add("store stops");
        });
    let store = system.spawn_system_actor("store", store).await.unwrap();
    assert_eq!(store.path().as_str(), "/system/store");
    let orders = Kameo::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let to = store.clone();
    let job = Job::new(move || async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        to.send("stored").await.unwrap();
    });
    assert!(Kameo::send(&orders, job).await);
    let report = system.shutdown(LONG).await.unwrap();
    assert!(report.is_clean() && report.nodes.len() == 2, "{report}");
    assert_eq!(log.lines(), ["stored", "orders stops", "store stops"]);
}

/// The task of the last phase owns the system, and the system does not own the shutdown.
#[tokio::test]
async fn s240_a_shutdown_that_never_runs_is_dropped_with_its_handles() {
    let shutdown = shutdown();
    let weak = shutdown.downgrade();
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    drop(shutdown);
    assert!(weak.upgrade().is_some(), "the system keeps it");
    drop(system);
    assert!(weak.upgrade().is_none());
}

/// Inside an actor its own reference knows that.
#[tokio::test(start_paused = true)]
async fn s252_a_reference_knows_whether_its_actor_runs() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let a = Kameo::spawn(&system, None, "a", Script::new(&log)).await.unwrap();
    let b = Kameo::spawn(&system, None, "b", Script::new(&log)).await.unwrap();
    let (me, other, said) = (a.clone(), b.clone(), log.clone());
    let job = Job::new(move || async move {
        tokio::task::yield_now().await;
        said.add(format!("{} {}", me.is_current(), other.is_current()));
    });
    assert!(Kameo::send(&a, job).await);
    assert!(system.shutdown(LONG).await.unwrap().is_clean());
    assert!(!a.is_current());
    assert_eq!(log.lines()[0], "true false");
}

/// A drain that is awaited outside the runtime's workers keeps its deadline when all of these are
/// blocked.
#[test]
fn s172_a_deadline_holds_when_all_workers_are_blocked() {
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
                // The second one waits for the lock.
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
    // And the grace.
    assert!(report.took < Duration::from_secs(3), "{report}");
    runtime.shutdown_background();
}
