//! An actor of ractor, with letters.

use adieu_actors::ractor::{Letter, Ref, actor};
use adieu_actors::{ActorSystem, IntoTermination, Spawn, SpawnError, Termination};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::{Framework, Job, Mixes, Script};

pub(crate) struct Ractor;

struct RunsJobs;

impl Actor for RunsJobs {
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
        to.post(job).is_ok()
    }

    fn termination(of: &Self::Ref) -> Termination {
        of.into_termination()
    }

    fn stopped_by(of: &Self::Ref, job: Job) -> Termination {
        of.stopped_by_letter(job)
    }
}

impl Mixes for Ractor {
    fn unstarted(name: &str, script: Script) -> impl Spawn<Ref = Self::Ref> + 'static {
        actor(RunsJobs, (name.to_owned(), script))
    }

    async fn spawn_below<S: Spawn + 'static>(
        parent: &Self::Ref,
        name: &str,
        actor: S,
    ) -> Result<S::Ref, SpawnError> {
        parent.spawn(name, actor).await
    }
}
