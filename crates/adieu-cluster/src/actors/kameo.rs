//! Actors of kameo as entities.

use std::sync::Arc;

use adieu_actors::kameo::{Ref, Unstarted};
use adieu_actors::{ActorSystem, Node};
use kameo::Actor;
use kameo::error::SendError;
use kameo::message::Message;

use super::cx::EntityCx;
use super::entity::{Addressed, run};
use crate::cluster::{ClusterError, RegionBuilder};
use crate::entity::{Entity, Mail};
use crate::message::Command;
use crate::regions::Region;

impl<C: Command> RegionBuilder<C> {
    /// Runs entities of the region on this node as actors of kameo, and returns the handle that sends
    /// messages to all of them.
    ///
    /// The function creates the actor of an entity, which handles its mail one after another. The actor
    /// is part of the system, under the name `region:id`. When the entity was idle for too long or its
    /// shard moves, the actor is drained, and its stop hook runs before the shard is handed over. An
    /// actor that does not end is killed, as an entity is, and the report names it.
    ///
    /// ```no_run
    /// use adieu_actors::{ActorSystem, kameo::actor};
    /// use adieu_cluster::{Cluster, Command, Mail};
    /// use kameo::Actor;
    /// use kameo::message::{Context, Message};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Add(u32);
    /// impl Command for Add {
    ///     type Reply = u32;
    /// }
    ///
    /// #[derive(Actor)]
    /// struct Cart {
    ///     total: u32,
    ///     fence: u64,
    /// }
    ///
    /// impl Message<Mail<Add>> for Cart {
    ///     type Reply = ();
    ///     async fn handle(&mut self, mail: Mail<Add>, _: &mut Context<Self, ()>) {
    ///         self.total += mail.command().0; // or saved first, under `self.fence`
    ///         mail.reply(self.total);
    ///     }
    /// }
    ///
    /// # async fn example(cluster: Cluster, system: ActorSystem) -> Result<(), Box<dyn std::error::Error>> {
    /// let carts = cluster
    ///     .region::<Add>("cart")
    ///     .kameo(&system, |me| actor::<Cart>(Cart { total: 0, fence: me.fence().get() }))?;
    /// cluster.join().await?;
    /// let total = carts.at("cart-17").ask(Add(7)).await?;
    /// # drop(total); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`RegionBuilder::serve`].
    pub fn kameo<A, F>(self, system: &ActorSystem, create: F) -> Result<Region<C>, ClusterError>
    where
        A: Actor + Message<Mail<C>>,
        F: Fn(EntityCx) -> Unstarted<A> + Send + Sync + 'static,
    {
        let (system, create) = (system.clone(), Arc::new(create));
        self.serve(move |me: Entity<C>| {
            let (system, create) = (system.clone(), Arc::clone(&create));
            async move { run(me, system, move |cx| create(cx)).await }
        })
    }
}

impl<C, A> Addressed<C> for Ref<A>
where
    C: Command,
    A: Actor + Message<Mail<C>>,
{
    async fn send(&self, mail: Mail<C>) -> Result<(), Option<Mail<C>>> {
        self.tell(mail).send().await.map_err(|error| match error {
            SendError::ActorNotRunning(mail)
            | SendError::ActorRestarting(mail)
            | SendError::MailboxFull(mail) => Some(mail),
            SendError::Timeout(mail) => mail,
            SendError::ActorStopped | SendError::HandlerError(_) => None,
        })
    }

    fn node(&self) -> Arc<dyn Node> {
        Ref::node(self)
    }
}
