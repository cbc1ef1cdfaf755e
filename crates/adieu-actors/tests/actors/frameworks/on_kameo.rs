//! An actor of kameo.

use std::ops::ControlFlow;

use adieu_actors::kameo::{Ref, actor, undelivered};
use adieu_actors::{ActorSystem, IntoTermination, Spawn, SpawnError, Termination};
use kameo::Actor;
use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::{ActorStopReason, Infallible, PanicError, SendError};
use kameo::mailbox;
use kameo::message::{BoxMessage, Context, Message};

use super::{Framework, Job, Mixes, Script};

pub(crate) struct Kameo;

pub(crate) struct RunsJobs {
    name: String,
    script: Script,
}

impl Actor for RunsJobs {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(args: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        args.script.starts().await;
        Ok(args)
    }

    async fn on_stop(
        &mut self,
        _: WeakActorRef<Self>,
        _: ActorStopReason,
    ) -> Result<(), Infallible> {
        self.script.stops(&self.name);
        Ok(())
    }

    async fn on_panic(
        &mut self,
        _: WeakActorRef<Self>,
        error: PanicError,
    ) -> Result<ControlFlow<ActorStopReason>, Infallible> {
        Ok(if self.script.continues {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(ActorStopReason::Panicked(error))
        })
    }

    async fn on_undelivered(
        &mut self,
        _: ActorStopReason,
        messages: Vec<BoxMessage<Self>>,
    ) -> Result<(), Infallible> {
        undelivered(&messages);
        Ok(())
    }
}

impl Message<Job> for RunsJobs {
    type Reply = ();

    async fn handle(&mut self, Job(work): Job, _: &mut Context<Self, ()>) {
        work().await;
    }
}

impl Framework for Kameo {
    const HOOK_AFTER_KILL: bool = true;
    const CONTINUES: bool = true;
    type Ref = Ref<RunsJobs>;

    async fn spawn(
        system: &ActorSystem,
        parent: Option<&Self::Ref>,
        name: &str,
        script: Script,
    ) -> Result<Self::Ref, SpawnError> {
        let runs_jobs = Self::unstarted(name, script);
        match parent {
            Some(parent) => parent.spawn(name, runs_jobs).await,
            None => system.spawn(name, runs_jobs).await,
        }
    }

    async fn send(to: &Self::Ref, job: Job) -> bool {
        to.tell(job).await.is_ok()
    }

    async fn ask(to: &Self::Ref, job: Job) -> bool {
        !matches!(to.ask(job).await, Err(SendError::ActorNotRunning(_)))
    }

    fn termination(of: &Self::Ref) -> Termination {
        of.into_termination()
    }

    fn stopped_by(of: &Self::Ref, job: Job) -> Termination {
        of.stopped_by(job)
    }
}

impl Mixes for Kameo {
    fn unstarted(name: &str, script: Script) -> impl Spawn<Ref = Self::Ref> + 'static {
        let room = script.room.unwrap_or(64);
        let runs_jobs = RunsJobs { name: name.to_owned(), script };
        actor::<RunsJobs>(runs_jobs).mailbox(mailbox::bounded(room))
    }

    async fn spawn_below<S: Spawn + 'static>(
        parent: &Self::Ref,
        name: &str,
        actor: S,
    ) -> Result<S::Ref, SpawnError> {
        parent.spawn(name, actor).await
    }
}
