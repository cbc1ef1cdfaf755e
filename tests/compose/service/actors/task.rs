//! A desk that is a plain task with a mailbox.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use adieu::actors::task::{Inbox, Mailbox, task};
use adieu::actors::{ActorSystem, Spawn};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Clerk, Desk, Order};
use crate::service::Error;

struct TaskDesk {
    clerk: Arc<Clerk>,
    mailbox: Mailbox<Order>,
}

fn prepare(clerk: &Arc<Clerk>) -> impl Spawn<Ref = Mailbox<Order>> + use<> {
    let clerk = Arc::clone(clerk);
    task(64, async move |mut inbox: Inbox<Order>| {
        while let Some(order) = inbox.recv().await {
            let working = order.process(|order| clerk.work(order));
            if let Err(panic) = AssertUnwindSafe(working).catch_unwind().await
                && !clerk.continues()
            {
                resume_unwind(panic);
            }
        }
    })
}

pub(super) async fn spawn(system: &ActorSystem, clerk: Arc<Clerk>) -> Result<Arc<dyn Desk>, Error> {
    let mailbox = system.spawn(&clerk.name, prepare(&clerk)).await?;
    Ok(Arc::new(TaskDesk { clerk, mailbox }))
}

impl Desk for TaskDesk {
    fn clerk(&self) -> &Arc<Clerk> {
        &self.clerk
    }

    fn send(&self, order: Order) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.mailbox.send(order).await.is_ok() })
    }

    fn spawn_below<'a>(
        &'a self,
        _: Option<&'a ActorSystem>,
        clerk: Arc<Clerk>,
    ) -> BoxFuture<'a, Result<Arc<dyn Desk>, Error>> {
        Box::pin(async move {
            let mailbox = self.mailbox.spawn(&clerk.name, prepare(&clerk)).await?;
            Ok(Arc::new(TaskDesk { clerk, mailbox }) as Arc<dyn Desk>)
        })
    }
}
