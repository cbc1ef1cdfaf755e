//! The end of the guardian begins the shutdown: messages that it leaves behind are in the report.

use std::sync::Arc;
use std::time::Duration;

use adieu_actors::ractor::actor;
use adieu_actors::task::{Inbox, task};
use adieu_actors::{ActorSystem, Delivery, NodeEnding, NodePath};
use adieu_core::{Config, Shutdown};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::Semaphore;

use crate::frameworks::{Framework, Job, Log, Ractor, Script};

const LONG: Duration = Duration::from_secs(60);
const QUEUED: u64 = 30;

fn shutdown() -> Shutdown {
    let config = Config::for_tests().terminate_actor_system(true);
    Shutdown::configured(config.run_by_actor_system_terminate(true)).unwrap()
}

fn guardian_path() -> NodePath {
    NodePath::user().child("guardian").unwrap()
}

/// Checks that the report contains this many messages of the guardian.
async fn check_report(shutdown: &Shutdown, system: &ActorSystem, lost: u64) {
    let report = shutdown.completed().await.unwrap();
    assert!(!report.is_clean(), "{report}");
    let drained = system.terminated().await;
    let guardian = drained.node("/user/guardian").expect("it is in the report");
    assert_eq!(guardian.ending(), &NodeEnding::EndedEarly, "{drained}");
    assert_eq!((drained.dead_letters(), system.dead_letter_count()), (lost, lost), "{drained}");
}

/// An actor of kameo that stops when the gate is closed.
#[derive(kameo::Actor)]
struct StopsItself;

struct Stop(Arc<Semaphore>);

impl kameo::message::Message<Stop> for StopsItself {
    type Reply = ();

    async fn handle(&mut self, Stop(gate): Stop, cx: &mut kameo::message::Context<Self, ()>) {
        drop(gate.acquire().await);
        cx.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn s800_a_guardian_of_kameo_stops_with_messages() {
    let shutdown = shutdown();
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let guardian = adieu_actors::kameo::actor::<StopsItself>(StopsItself);
    let guardian = system.spawn("guardian", guardian).await.unwrap();
    system.set_guardian(&guardian_path());
    let gate = Arc::new(Semaphore::new(0));
    for _ in 0..=QUEUED {
        guardian.tell(Stop(Arc::clone(&gate))).await.unwrap();
    }
    gate.close();
    check_report(&shutdown, &system, QUEUED).await;
}

#[tokio::test(start_paused = true)]
async fn s800_a_guardian_of_ractor_stops_with_letters() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let guardian = Ractor::spawn(&system, None, "guardian", Script::new(&log)).await.unwrap();
    system.set_guardian(&guardian_path());
    let me = guardian.clone();
    let stop = Job::new(move || async move { me.actor_ref().stop(None) });
    assert!(Ractor::send(&guardian, stop).await);
    for _ in 0..QUEUED {
        assert!(Ractor::send(&guardian, Job::log(&log, "processed")).await);
    }
    check_report(&shutdown, &system, QUEUED).await;
    assert_eq!(log.lines(), ["guardian stops"]);
}

async fn s800_guardian_panics<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let script = Script { room: Some(100), ..Script::new(&log) };
    let guardian = F::spawn(&system, None, "guardian", script).await.unwrap();
    system.set_guardian(&guardian_path());
    assert!(F::send(&guardian, Job::new(|| async { panic!("on purpose") })).await);
    for _ in 0..QUEUED {
        assert!(F::send(&guardian, Job::log(&log, "processed")).await);
    }
    check_report(&shutdown, &system, QUEUED + 1).await;
}

on_all_actors![s800_guardian_panics];

#[tokio::test(start_paused = true)]
async fn s800_a_task_that_is_the_guardian_returns_with_messages() {
    let shutdown = shutdown();
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let guardian = task(100, async |mut inbox: Inbox<u64>| {
        inbox.recv().await.map(Delivery::done);
    });
    let guardian = system.spawn("guardian", guardian).await.unwrap();
    system.set_guardian(&guardian_path());
    for number in 0..=QUEUED {
        guardian.send(number).await.unwrap();
    }
    check_report(&shutdown, &system, QUEUED).await;
}

/// An actor of ractor whose messages are not letters.
struct Plain;

impl Actor for Plain {
    type Msg = Option<Arc<Semaphore>>;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Self::Msg>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        gate: Self::Msg,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let Some(gate) = gate {
            drop(gate.acquire().await);
            myself.stop(None);
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s800_a_guardian_of_ractor_stops_with_plain_messages() {
    let shutdown = shutdown();
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let guardian = system.spawn("guardian", actor(Plain, ())).await.unwrap();
    system.set_guardian(&guardian_path());
    let gate = Arc::new(Semaphore::new(0));
    guardian.send(Some(Arc::clone(&gate))).unwrap();
    for _ in 0..QUEUED {
        guardian.send(None).unwrap();
    }
    gate.close();
    check_report(&shutdown, &system, QUEUED).await;
}

#[tokio::test(start_paused = true)]
async fn s801_an_actor_of_ractor_that_stops_itself_in_a_drain_leaves_messages_behind() {
    let system = ActorSystem::new("shop");
    let stops = system.spawn("stops", actor(Plain, ())).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    stops.send(Some(Arc::clone(&gate))).unwrap();
    for _ in 0..QUEUED {
        stops.send(None).unwrap();
    }
    let (report, ()) = tokio::join!(system.shutdown(LONG), async {
        tokio::task::yield_now().await;
        gate.close();
    });
    let report = report.unwrap();
    assert!(!report.is_clean(), "{report}");
    assert_eq!((report.dead_letters(), system.dead_letter_count()), (QUEUED, QUEUED), "{report}");
    assert!(stops.send(None).is_err());
    assert_eq!(system.dead_letter_count(), QUEUED + 1, "a refused message is counted once");
}
