//! In whose name code runs: tasks that an actor spawns, and messages through the frameworks' own
//! references.

use std::time::Duration;

use adieu_actors::kameo::actor;
use adieu_actors::{ActorSystem, Identity};
use adieu_core::{Config, Reason, Shutdown};
use kameo::Actor;
use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::{ActorStopReason, Infallible, PanicError};
use kameo::message::{Context, Message};

use crate::frameworks::{Framework, Job, Kameo, Log, Script};

fn shutdown() -> Shutdown {
    Shutdown::configured(Config::for_tests().terminate_actor_system(true)).unwrap()
}

/// A job that spawns a task, which sends a job to another actor. It awaits the task, or not.
fn spawning<F: Framework>(to: &F::Ref, log: &Log, is_awaited: bool) -> Job {
    let (to, log) = (to.clone(), log.clone());
    Job::new(move || async move {
        let me = Identity::current().expect("an actor runs");
        let task = tokio::spawn(me.scope(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(F::send(&to, Job::log(&log, "done")).await);
        }));
        if is_awaited {
            task.await.unwrap();
        }
    })
}

async fn s444_tasks_in_the_name_of_an_actor_can_send_during_a_drain<F: Framework>() {
    for is_awaited in [true, false] {
        let (shutdown, log) = (shutdown(), Log::default());
        let system = ActorSystem::on(&shutdown, "shop").unwrap();
        let (quiet, back) = (Log::default(), Log::default());
        let front = F::spawn(&system, None, "front", Script::new(&quiet)).await.unwrap();
        let to = F::spawn(&system, None, "back", Script::new(&back)).await.unwrap();
        for _ in 0..20 {
            assert!(F::send(&front, spawning::<F>(&to, &log, is_awaited)).await);
        }
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(log.len(), 20);
    }
}

on_all_actors![s444_tasks_in_the_name_of_an_actor_can_send_during_a_drain];

#[tokio::test]
async fn s444_a_blocking_task_in_the_name_of_an_actor_can_send_during_a_drain() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let script = || Script::new(&log);
    let front = Kameo::spawn(&system, None, "front", script()).await.unwrap();
    let back = Kameo::spawn(&system, None, "back", script()).await.unwrap();
    for _ in 0..5 {
        let (back, log) = (back.clone(), log.clone());
        let job = Job::new(move || async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let me = Identity::current().expect("an actor runs");
            let send = move || back.tell(Job::log(&log, "done")).blocking_send().is_ok();
            assert!(tokio::task::spawn_blocking(move || me.run(send)).await.unwrap());
        });
        assert!(Kameo::send(&front, job).await);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(log.len(), 5 + 2);
    assert!(Identity::current().is_none(), "no actor runs here");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s445_the_first_message_through_kameo_is_finished_with_all_that_it_causes() {
    for _ in 0..40 {
        let (shutdown, log) = (shutdown(), Log::default());
        let system = ActorSystem::on(&shutdown, "shop").unwrap();
        let script = || Script::new(&Log::default());
        let front = Kameo::spawn(&system, None, "front", script()).await.unwrap();
        let back = Kameo::spawn(&system, None, "back", script()).await.unwrap();
        for _ in 0..4 {
            tokio::spawn(async { std::thread::sleep(Duration::from_millis(5)) });
        }
        for _ in 0..10 {
            let (to, log) = (back.clone(), log.clone());
            let job = Job::new(move || async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Kameo::send(&to, Job::log(&log, "done")).await;
            });
            front.actor_ref().tell(job).await.unwrap();
        }
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        assert_eq!(log.len(), 10, "{report}");
        assert!(report.is_clean(), "{report}");
    }
}

/// Continues after a panic.
struct Continues;

struct Number(u32);

impl Actor for Continues {
    type Args = ();
    type Error = Infallible;

    async fn on_start((): (), _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(Self)
    }

    async fn on_panic(
        &mut self,
        _: WeakActorRef<Self>,
        _: PanicError,
    ) -> Result<std::ops::ControlFlow<ActorStopReason>, Infallible> {
        Ok(std::ops::ControlFlow::Continue(()))
    }
}

impl Message<Number> for Continues {
    type Reply = u32;

    async fn handle(&mut self, Number(number): Number, _: &mut Context<Self, u32>) -> u32 {
        assert_ne!(number, 0, "on purpose");
        number
    }
}

#[tokio::test(start_paused = true)]
async fn s442_a_panic_before_the_shutdown_does_not_fail_it() {
    let shutdown = shutdown();
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let continues = system.spawn("continues", actor::<Continues>(())).await.unwrap();
    continues.tell(Number(0)).await.unwrap();
    for number in 1..10 {
        assert_eq!(continues.ask(Number(number)).await.unwrap(), number);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let report = system.terminated().await;
    assert_eq!((report.dead_letters(), system.dead_letter_count()), (0, 1), "{report}");
}
