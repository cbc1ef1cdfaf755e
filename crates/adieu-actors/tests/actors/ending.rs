//! How actors end without a drain, and actors that continue after a panic.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_actors::kameo::{Ref, actor};
use adieu_actors::{ActorSystem, Ended, NodeEnding};
use kameo::Actor;
use kameo::actor::{ActorRef, Spawn as _, WeakActorRef};
use kameo::error::{ActorStopReason, Infallible, PanicError};
use kameo::mailbox;
use kameo::message::{Context, Message};
use kameo::supervision::SupervisionStrategy;
use ractor::{ActorProcessingErr, SupervisionEvent};

use crate::frameworks::{Framework, Job, Kameo, Log, Mixes, Ractor, Script};

const LONG: Duration = Duration::from_secs(60);

type KameoRef = <Kameo as Framework>::Ref;

/// Panics after a second.
fn panics_later() -> Job {
    Job::new(|| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        panic!("on purpose");
    })
}

/// Sends a line for the log to another actor after a second.
fn forwards(to: &KameoRef, log: &Log, text: &'static str) -> Job {
    let (to, log) = (to.clone(), log.clone());
    Job::new(move || async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(Kameo::send(&to, Job::log(&log, text)).await, "refused");
    })
}

#[tokio::test(start_paused = true)]
async fn s1740_an_actor_that_continues_after_a_panic_in_a_drain_finishes_its_work() {
    for has_child in [false, true] {
        let (system, log) = (ActorSystem::new("shop"), Log::default());
        let script = || Script { continues: true, ..Script::new(&log) };
        let front = Kameo::spawn(&system, None, "front", script()).await.unwrap();
        let back = Kameo::spawn(&system, None, "back", script()).await.unwrap();
        let child = match has_child {
            true => Some(Kameo::spawn(&system, Some(&front), "child", script()).await.unwrap()),
            false => None,
        };
        assert!(Kameo::send(&front, panics_later()).await);
        assert!(Kameo::send(&front, forwards(&back, &log, "one")).await);
        assert!(Kameo::send(&front, panics_later()).await);
        assert!(Kameo::send(&front, forwards(&back, &log, "two")).await);
        let report = system.shutdown(LONG).await.unwrap();
        let lines = log.lines();
        assert_eq!(lines[..2], ["one", "two"], "{lines:?}; {report}");
        let at = |line: &str| lines.iter().position(|other| other == line);
        assert!(!has_child || at("child stops") < at("front stops"), "{lines:?}");
        // The messages whose handlers panicked.
        assert_eq!((report.dead_letters(), system.dead_letter_count()), (2, 2), "{report}");
        let front = report.node("/user/front").unwrap();
        assert_eq!((front.ending(), front.drained()), (&NodeEnding::Drained, Some(2)), "{report}");
        drop(child);
    }
}

#[tokio::test(start_paused = true)]
async fn s1740_the_children_of_an_actor_that_continues_after_a_panic_are_not_stopped() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let script = || Script { continues: true, ..Script::new(&log) };
    let parent = Kameo::spawn(&system, None, "parent", script()).await.unwrap();
    let child = Kameo::spawn(&system, Some(&parent), "child", script()).await.unwrap();
    assert!(Kameo::send(&parent, panics_later()).await);
    assert!(Kameo::send(&parent, forwards(&child, &log, "child works")).await);
    tokio::time::sleep(LONG).await;
    assert_eq!(log.lines(), ["child works"]);
    assert!(Kameo::spawn(&system, Some(&parent), "other", script()).await.is_ok());
    assert!(system.shutdown(LONG).await.unwrap().is_clean());
}

/// An actor whose `on_panic` takes a second, and then sends a job to another actor.
struct Recovers {
    to: KameoRef,
    log: Log,
}

struct Panic;

impl Actor for Recovers {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(args: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(args)
    }

    async fn on_panic(
        &mut self,
        _: WeakActorRef<Self>,
        _: PanicError,
    ) -> Result<ControlFlow<ActorStopReason>, Infallible> {
        self.log.add("recovers");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let is_accepted = Kameo::send(&self.to, Job::log(&self.log, "told")).await;
        self.log.add(format!("recovered: {is_accepted}"));
        Ok(ControlFlow::Continue(()))
    }
}

impl Message<Panic> for Recovers {
    type Reply = ();

    async fn handle(&mut self, _: Panic, _: &mut Context<Self, ()>) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        panic!("on purpose");
    }
}

#[tokio::test(start_paused = true)]
async fn s1691_an_actor_has_work_while_it_recovers_from_a_panic() {
    for mailbox in [mailbox::bounded(8), mailbox::unbounded()] {
        let (system, log) = (ActorSystem::new("shop"), Log::default());
        let to = Kameo::spawn(&system, None, "to", Script::new(&log)).await.unwrap();
        let recovers = Recovers { to, log: log.clone() };
        let recovers = actor::<Recovers>(recovers).mailbox(mailbox);
        let recovers = system.spawn("recovers", recovers).await.unwrap();
        recovers.tell(Panic).await.unwrap();
        while log.len() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let report = system.shutdown(LONG).await.unwrap();
        let lines = log.lines();
        assert!(lines.contains(&"recovered: true".to_owned()), "{lines:?}; {report}");
        assert!(lines.contains(&"told".to_owned()), "{lines:?}; {report}");
        assert!(report.is_clean(), "{report}");
    }
}

/// Ends a parent in one way, and checks that its children had finished their work and stopped before.
async fn children_stop_first<C: Mixes>(how: &str, end: impl AsyncFnOnce(&KameoRef)) {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let script = || Script::new(&log);
    let parent = Kameo::spawn(&system, None, "parent", script()).await.unwrap();
    let child = C::unstarted("child", script());
    let child = Kameo::spawn_below(&parent, "child", child).await.unwrap();
    let leaf = C::spawn(&system, Some(&child), "leaf", script()).await.unwrap();
    let (works, inner) = (log.clone(), leaf.clone());
    let work = Job::new(move || async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(C::send(&inner, Job::log(&works, "leaf works")).await);
    });
    assert!(C::send(&child, work).await);
    let node = parent.node();
    end(&parent).await;
    let kept = Some(parent).filter(|_| how != "panics"); // A panic is enough.
    node.terminated().await;
    drop(kept);
    let expected = ["leaf works", "leaf stops", "child stops", "parent stops"];
    assert_eq!(log.lines(), expected, "{how}");
    assert!(system.tree().nodes.is_empty(), "{how}: {}", system.tree());
    assert_eq!(system.dead_letter_count(), u64::from(how == "panics"), "{how}");
    drop(leaf);
}

async fn s341_children_of_an_actor_of_kameo_that_ends_stop_first<C: Mixes>() {
    children_stop_first::<C>("panics", async |parent| {
        assert!(Kameo::send(parent, panics_later()).await);
    })
    .await;
    children_stop_first::<C>("is killed", async |parent| parent.actor_ref().kill()).await;
    children_stop_first::<C>("is stopped", async |parent| {
        parent.actor_ref().stop_gracefully().await.unwrap();
    })
    .await;
}

// kameo does not wait for supervised actors then, so the order of the hooks is not certain.
async fn s1694_children_of_an_actor_of_kameo_without_references_are_stopped<C: Mixes>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = Kameo::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let child = C::unstarted("child", Script::new(&log));
    let child = Kameo::spawn_below(&parent, "child", child).await.unwrap();
    assert!(C::send(&child, Job::log(&log, "child works")).await);
    drop(parent);
    let stopped = async {
        while !system.tree().nodes.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, stopped).await.expect("both stop");
    let mut lines = log.lines();
    lines.sort();
    assert_eq!(lines, ["child stops", "child works", "parent stops"]);
    drop(child);
}

on_all_actors![
    s341_children_of_an_actor_of_kameo_that_ends_stop_first,
    s1694_children_of_an_actor_of_kameo_without_references_are_stopped,
];

/// Stops itself when it receives a message.
struct StopsItself(Log);

impl Actor for StopsItself {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(args: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(args)
    }

    async fn on_stop(
        &mut self,
        _: WeakActorRef<Self>,
        _: ActorStopReason,
    ) -> Result<(), Infallible> {
        self.0.add("parent stops");
        Ok(())
    }
}

impl Message<()> for StopsItself {
    type Reply = ();

    async fn handle(&mut self, (): (), cx: &mut Context<Self, ()>) {
        cx.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn s341_children_of_an_actor_of_kameo_that_stops_itself_stop_first() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = actor::<StopsItself>(StopsItself(log.clone()));
    let parent: Ref<StopsItself> = system.spawn("parent", parent).await.unwrap();
    let child = parent.spawn("child", Kameo::unstarted("child", Script::new(&log))).await.unwrap();
    parent.tell(()).await.unwrap();
    assert_eq!(parent.terminated().await, Ended::Stopped);
    assert_eq!(log.lines(), ["child stops", "parent stops"]);
    drop(child);
}

#[tokio::test(start_paused = true)]
async fn s341_the_wait_for_a_stuck_child_is_bounded() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = Kameo::spawn(&system, None, "parent", Script::new(&log)).await.unwrap();
    let child = Kameo::spawn(&system, Some(&parent), "child", Script::new(&log)).await.unwrap();
    assert!(Kameo::send(&child, Job::forever()).await);
    parent.actor_ref().kill();
    let ended = tokio::time::timeout(LONG, parent.terminated()).await;
    assert_eq!(ended, Ok(Ended::Killed));
    assert_eq!(log.lines(), ["child stops", "parent stops"]);
}

/// An actor of kameo that restarts all actors that it supervises if one fails.
struct RestartsAll;

impl Actor for RestartsAll {
    type Args = ();
    type Error = Infallible;

    async fn on_start((): (), _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(Self)
    }

    fn supervision_strategy() -> SupervisionStrategy {
        SupervisionStrategy::OneForAll
    }
}

/// Counts its starts, and fails when it receives a message.
struct Fragile;

impl Actor for Fragile {
    type Args = Arc<AtomicUsize>;
    type Error = Infallible;

    async fn on_start(starts: Self::Args, _: ActorRef<Self>) -> Result<Self, Infallible> {
        starts.fetch_add(1, Ordering::SeqCst);
        Ok(Self)
    }
}

impl Message<()> for Fragile {
    type Reply = ();

    async fn handle(&mut self, (): (), _: &mut Context<Self, ()>) {
        panic!("on purpose");
    }
}

#[tokio::test(start_paused = true)]
async fn s1692_a_restart_of_supervised_actors_does_not_stop_the_children() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = system.spawn("parent", actor::<RestartsAll>(())).await.unwrap();
    let child = parent.spawn("child", Kameo::unstarted("child", Script::new(&log))).await.unwrap();
    let starts = Arc::new(AtomicUsize::new(0));
    let fragile = Fragile::supervise(parent.actor_ref(), Arc::clone(&starts)).spawn().await;
    for failures in 1..=3 {
        fragile.wait_for_startup().await;
        fragile.tell(()).await.unwrap();
        while starts.load(Ordering::SeqCst) <= failures {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(Kameo::send(&child, Job::log(&log, "child works")).await);
    let node = parent.node();
    parent.actor_ref().stop_gracefully().await.unwrap();
    assert_eq!(node.terminated().await, Ended::Stopped);
    assert_eq!(log.lines(), ["child works", "child stops"]);
}

/// An actor of ractor that fails when an actor that it supervises has failed.
struct FailsWithChild;

impl ractor::Actor for FailsWithChild {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ractor::ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ractor::ActorRef<()>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        assert!(!matches!(event, SupervisionEvent::ActorFailed(..)), "with its child");
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s246_children_of_an_actor_that_fails_because_of_a_child_are_drained() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let parent = adieu_actors::ractor::actor(FailsWithChild, ());
    let parent = system.spawn("parent", parent).await.unwrap();
    let failing = Ractor::unstarted("failing", Script::new(&log));
    let failing = parent.spawn("failing", failing).await.unwrap();
    let healthy = Ractor::unstarted("healthy", Script::new(&log));
    let healthy = parent.spawn("healthy", healthy).await.unwrap();
    let inner = log.clone();
    let work = Job::new(move || async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        inner.add("healthy works");
    });
    assert!(Ractor::send(&healthy, work).await);
    assert!(Ractor::send(&failing, panics_later()).await);
    let ended = parent.terminated().await;
    assert_eq!(ended, Ended::Failed { error: "with its child".into() });
    assert_eq!(log.lines(), ["healthy works", "healthy stops"]);
}
