use adieu_actors::ractor::{Letter, Ref, actor};
use adieu_actors::{ActorSystem, IntoTermination, SpawnError, Termination};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::{Framework, Job, Script};

pub(crate) struct Ractor;

struct Does;

impl Actor for Does {
    type Msg = Letter<Job>;
    type State = (String, Script);
    type Arguments = (String, Script);

    async fn pre_start(
        &self,
        _: ActorRef<Letter<Job>>,
        args: (String, Script),
    ) -> Result<(String, Script), ActorProcessingErr> {
        args.1.starts().await;
        Ok(args)
    }

    async fn handle(
        &self,
        _: ActorRef<Letter<Job>>,
        letter: Letter<Job>,
        _: &mut (String, Script),
    ) -> Result<(), ActorProcessingErr> {
        let Job(work) = letter.open();
        work().await;
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<Letter<Job>>,
        (name, script): &mut (String, Script),
    ) -> Result<(), ActorProcessingErr> {
        script.stops(name);
        Ok(())
    }
}

impl Framework for Ractor {
    const HOOK_AFTER_KILL: bool = false;
    type Ref = Ref<Letter<Job>>;

    async fn spawn(
        system: &ActorSystem,
        above: Option<&Self::Ref>,
        name: &str,
        script: Script,
    ) -> Result<Self::Ref, SpawnError> {
        let does = actor(Does, (name.to_owned(), script));
        match above {
            Some(above) => above.spawn(name, does).await,
            None => system.spawn(name, does).await,
        }
    }

    async fn send(to: &Self::Ref, job: Job) -> bool {
        to.post(job).is_ok()
    }

    fn termination(of: &Self::Ref) -> Termination {
        of.into_termination()
    }

    fn told(of: &Self::Ref, job: Job) -> Termination {
        of.stopped_by_letter(job)
    }
}
