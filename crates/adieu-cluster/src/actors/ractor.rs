//! Actors of ractor as entities.

use std::any::Any;
use std::sync::Arc;

use adieu_actors::ractor::{Ref, Unstarted};
use adieu_actors::{ActorSystem, Node};
use ractor::{Actor, ActorStatus, Message, MessagingErr};

use super::cx::EntityCx;
use super::entity::{Addressed, run};
use crate::cluster::{ClusterError, RegionBuilder};
use crate::entity::{Entity, Mail};
use crate::message::Command;
use crate::regions::Region;

impl<C: Command> RegionBuilder<C> {
    /// Runs entities of the region on this node as actors of ractor, and returns the handle that sends
    /// messages to all of them. The message of the actor is [`Mail`], or can be made of it.
    ///
    /// Otherwise as with kameo: the function creates the actor of an entity, which handles its mail one
    /// after another. The actor is part of the system, under the name `region:id`. When the entity was
    /// idle for too long or its shard moves, the actor is drained, and its `post_stop` runs before the
    /// shard is handed over. An actor that does not end is killed, as an entity is, and the report names
    /// it; ractor does not run the `post_stop` of a killed actor.
    ///
    /// # Errors
    ///
    /// As [`RegionBuilder::serve`].
    pub fn ractor<A, F>(self, system: &ActorSystem, create: F) -> Result<Region<C>, ClusterError>
    where
        A: Actor<Msg: From<Mail<C>>>,
        F: Fn(EntityCx) -> Unstarted<A> + Send + Sync + 'static,
    {
        let (system, create) = (system.clone(), Arc::new(create));
        self.serve(move |me: Entity<C>| {
            let (system, create) = (system.clone(), Arc::clone(&create));
            async move { run(me, system, move |cx| create(cx)).await }
        })
    }
}

impl<C, M> Addressed<C> for Ref<M>
where
    C: Command,
    M: Message + From<Mail<C>>,
{
    async fn send(&self, mail: Mail<C>) -> Result<(), Option<Mail<C>>> {
        // While its `post_stop` runs, ractor accepts messages and drops them.
        if self.actor_ref().get_status() >= ActorStatus::Stopping {
            return Err(Some(mail));
        }
        Ref::send(self, mail.into()).map_err(|error| match error {
            MessagingErr::SendErr(message) => take_back(message),
            MessagingErr::ChannelClosed | MessagingErr::InvalidActorType => None,
        })
    }

    fn node(&self) -> Arc<dyn Node> {
        Ref::node(self)
    }
}

/// Returns the mail in a message that an actor has refused, if the message is still a mail.
fn take_back<T: 'static>(message: impl Any) -> Option<T> {
    let mut message = Some(message);
    (&mut message as &mut dyn Any).downcast_mut::<Option<T>>().and_then(Option::take)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1607_a_refused_message_is_taken_back_if_it_is_the_mail_itself() {
        assert_eq!(take_back::<String>("a mail".to_owned()).as_deref(), Some("a mail"));
        assert_eq!(take_back::<String>(17), None);
    }
}
