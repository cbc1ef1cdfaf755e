//! A plain task with a mailbox.

use adieu_actors::task::{Inbox, Mailbox, task};
use adieu_actors::{ActorSystem, IntoTermination, Spawn, SpawnError, Termination};

use super::{Framework, Job, Mixes, Script};

pub(crate) struct Tasks;

impl Framework for Tasks {
    const HOOK_AFTER_KILL: bool = false;
    type Ref = Mailbox<Job>;

    async fn spawn(
        system: &ActorSystem,
        parent: Option<&Self::Ref>,
        name: &str,
        script: Script,
    ) -> Result<Self::Ref, SpawnError> {
        let body = Self::unstarted(name, script);
        match parent {
            Some(parent) => parent.spawn(name, body).await,
            None => system.spawn(name, body).await,
        }
    }

    async fn send(to: &Self::Ref, job: Job) -> bool {
        to.send(job).await.is_ok()
    }

    fn termination(of: &Self::Ref) -> Termination {
        of.into_termination()
    }

    fn stopped_by(of: &Self::Ref, job: Job) -> Termination {
        let to = of.clone();
        of.into_termination().with_stop(async move { drop(to.send(job).await) })
    }
}

impl Mixes for Tasks {
    fn unstarted(name: &str, script: Script) -> impl Spawn<Ref = Self::Ref> + 'static {
        let (room, own_name) = (script.room.unwrap_or(64), name.to_owned());
        task(room, async move |mut inbox: Inbox<Job>| {
            script.starts().await;
            while let Some(job) = inbox.recv().await {
                job.process(|Job(work)| work()).await;
            }
            script.stops(&own_name);
        })
    }

    async fn spawn_below<S: Spawn + 'static>(
        parent: &Self::Ref,
        name: &str,
        actor: S,
    ) -> Result<S::Ref, SpawnError> {
        parent.spawn(name, actor).await
    }
}
