use adieu_actors::kameo::{Ref, actor, undelivered};
use adieu_actors::{ActorSystem, IntoTermination, SpawnError, Termination};
use kameo::Actor;
use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::{ActorStopReason, Infallible};
use kameo::mailbox;
use kameo::message::{BoxMessage, Context, Message};

use super::{Framework, Job, Script};

pub(crate) struct Kameo;

pub(crate) struct Does {
    name: String,
    script: Script,
}

impl Actor for Does {
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

    async fn on_undelivered(
        &mut self,
        _: ActorStopReason,
        messages: Vec<BoxMessage<Self>>,
    ) -> Result<(), Infallible> {
        undelivered(&messages);
        Ok(())
    }
}

impl Message<Job> for Does {
    type Reply = ();

    async fn handle(&mut self, Job(work): Job, _: &mut Context<Self, ()>) {
        work().await;
    }
}

impl Framework for Kameo {
    const HOOK_AFTER_KILL: bool = true;
    type Ref = Ref<Does>;

    async fn spawn(
        system: &ActorSystem,
        above: Option<&Self::Ref>,
        name: &str,
        script: Script,
    ) -> Result<Self::Ref, SpawnError> {
        let room = script.room.unwrap_or(64);
        let does = Does { name: name.to_owned(), script };
        let does = actor::<Does>(does).mailbox(mailbox::bounded(room));
        match above {
            Some(above) => above.spawn(name, does).await,
            None => system.spawn(name, does).await,
        }
    }

    async fn send(to: &Self::Ref, job: Job) -> bool {
        to.tell(job).await.is_ok()
    }

    fn termination(of: &Self::Ref) -> Termination {
        of.into_termination()
    }

    fn told(of: &Self::Ref, job: Job) -> Termination {
        of.stopped_by(job)
    }
}
