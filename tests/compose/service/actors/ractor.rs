//! A desk of ractor, with and without letters.

use std::marker::PhantomData;
use std::sync::Arc;

use adieu::actors::ActorSystem;
use adieu::actors::ractor::{Letter, Ref, actor};
use futures_util::future::BoxFuture;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::{Clerk, Desk, Order};
use crate::service::Error;

/// An order in an envelope.
pub(super) type Sealed = Letter<Order>;

/// The type of messages.
pub(super) trait Mail: ractor::Message + Sync + Sized {
    fn send(to: &Ref<Self>, order: Order) -> bool;
    fn open(self) -> Order;
}

struct Ractor<M>(Arc<Clerk>, PhantomData<M>);

struct RactorDesk<M> {
    clerk: Arc<Clerk>,
    actor: Ref<M>,
}

impl Mail for Order {
    fn send(to: &Ref<Self>, order: Order) -> bool {
        to.send(order).is_ok()
    }

    fn open(self) -> Order {
        self
    }
}

impl Mail for Sealed {
    fn send(to: &Ref<Self>, order: Order) -> bool {
        to.post(order).is_ok()
    }

    fn open(self) -> Order {
        self.open()
    }
}

impl<M: Mail> Actor for Ractor<M> {
    type Msg = M;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<M>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<M>, mail: M, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.0.work(Mail::open(mail)).await;
        Ok(())
    }
}

pub(super) async fn spawn<M: Mail>(
    system: &ActorSystem,
    clerk: Arc<Clerk>,
) -> Result<Arc<dyn Desk>, Error> {
    let unstarted = actor(Ractor::<M>(Arc::clone(&clerk), PhantomData), ());
    let actor = system.spawn(&clerk.name, unstarted).await?;
    Ok(Arc::new(RactorDesk { clerk, actor }))
}

impl<M: Mail> Desk for RactorDesk<M> {
    fn clerk(&self) -> &Arc<Clerk> {
        &self.clerk
    }

    fn send(&self, order: Order) -> BoxFuture<'_, bool> {
        Box::pin(async move { M::send(&self.actor, order) })
    }

    fn spawn_below<'a>(
        &'a self,
        _: Option<&'a ActorSystem>,
        clerk: Arc<Clerk>,
    ) -> BoxFuture<'a, Result<Arc<dyn Desk>, Error>> {
        Box::pin(async move {
            let unstarted = actor(Ractor::<M>(Arc::clone(&clerk), PhantomData), ());
            let actor = self.actor.spawn(&clerk.name, unstarted).await?;
            Ok(Arc::new(RactorDesk { clerk, actor }) as Arc<dyn Desk>)
        })
    }
}
