//! A desk of kameo.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;

use adieu::actors::ActorSystem;
use adieu::actors::kameo::{Ref, actor};
use futures_util::future::BoxFuture;
use kameo::Actor;
use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::{ActorStopReason, PanicError};
use kameo::message::{Context, Message};

use super::{Clerk, Desk, Order};
use crate::service::Error;

struct Kameo(Arc<Clerk>);

impl Actor for Kameo {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(args: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(args)
    }

    async fn on_panic(
        &mut self,
        _: WeakActorRef<Self>,
        error: PanicError,
    ) -> Result<ControlFlow<ActorStopReason>, Infallible> {
        Ok(match self.0.continues() {
            true => ControlFlow::Continue(()),
            // Like the default.
            false => ControlFlow::Break(ActorStopReason::Panicked(error)),
        })
    }
}

impl Message<Order> for Kameo {
    type Reply = ();

    async fn handle(&mut self, order: Order, _: &mut Context<Self, ()>) {
        self.0.work(order).await;
    }
}

struct KameoDesk {
    clerk: Arc<Clerk>,
    actor: Ref<Kameo>,
}

pub(super) async fn spawn(system: &ActorSystem, clerk: Arc<Clerk>) -> Result<Arc<dyn Desk>, Error> {
    let actor = system.spawn(&clerk.name, actor::<Kameo>(Kameo(Arc::clone(&clerk)))).await?;
    Ok(Arc::new(KameoDesk { clerk, actor }))
}

impl Desk for KameoDesk {
    fn clerk(&self) -> &Arc<Clerk> {
        &self.clerk
    }

    fn send(&self, order: Order) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.actor.tell(order).await.is_ok() })
    }

    fn spawn_below<'a>(
        &'a self,
        _: Option<&'a ActorSystem>,
        clerk: Arc<Clerk>,
    ) -> BoxFuture<'a, Result<Arc<dyn Desk>, Error>> {
        Box::pin(async move {
            let below = actor::<Kameo>(Kameo(Arc::clone(&clerk)));
            let actor = self.actor.spawn(&clerk.name, below).await?;
            Ok(Arc::new(KameoDesk { clerk, actor }) as Arc<dyn Desk>)
        })
    }
}
