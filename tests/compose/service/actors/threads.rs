//! A desk of worker threads: an actor on the first forwards to an actor on the second.

use std::sync::Arc;

use adieu::Shutdown;
use adieu::actors::{ActorSystem, Peers, Worker, WorkerThreads};
use futures_util::future::BoxFuture;

use super::{Clerk, Desk, Order, kameo};
use crate::service::Error;

/// The handlers of each worker: one clerk for the inbox, and one that is an actor.
type Staff = [(Arc<Clerk>, Arc<Clerk>); 2];

/// The inbox of a worker, for senders from outside.
struct Outside {
    clerk: Arc<Clerk>,
    threads: WorkerThreads<Order>,
}

/// The inbox of a worker, for actors of the others.
struct Peer {
    clerk: Arc<Clerk>,
    peers: Peers<Order>,
    to: usize,
}

/// Starts two workers. `clerk` makes what each of them does, by its role. If `panics`, the second
/// panics at its first order of the drain.
pub(super) fn spawn(
    shutdown: &Shutdown,
    name: String,
    panics: bool,
    clerk: impl Fn(&str) -> Arc<Clerk>,
) -> Result<Arc<dyn Desk>, Error> {
    let staff: Arc<Staff> = Arc::new([
        (clerk("first-inbox"), clerk("first-actor")),
        (clerk("second-inbox"), clerk("second-actor")),
    ]);
    let entry = Arc::clone(&staff[0].0);
    let threads = WorkerThreads::builder(name).count(2).start(async move |worker| {
        let staff = Arc::clone(&staff);
        work(worker, &staff, panics).await
    })?;
    threads.on(shutdown)?;
    Ok(Arc::new(Outside { clerk: entry, threads }))
}

async fn work(mut worker: Worker<Order>, staff: &Staff, panics: bool) -> Result<(), Error> {
    let (inbox, actor) = &staff[worker.index()];
    let desk = kameo::spawn(worker.system(), Arc::clone(actor)).await?;
    let _ = inbox.next.set(desk);
    if worker.index() == 0 {
        let peer = Peer { clerk: Arc::clone(&staff[1].0), peers: worker.peers(), to: 1 };
        let _ = actor.next.set(Arc::new(peer));
    }
    while let Some(order) = worker.recv().await {
        if panics && worker.index() == 1 && worker.draining().is_cancelled() {
            panic!("a worker that panics");
        }
        order.process(|order| inbox.work(order)).await;
    }
    Ok(())
}

fn cannot_spawn<'a>() -> BoxFuture<'a, Result<Arc<dyn Desk>, Error>> {
    Box::pin(async { Err("a worker's inbox has nothing below it".into()) })
}

impl Desk for Outside {
    fn clerk(&self) -> &Arc<Clerk> {
        &self.clerk
    }

    fn send(&self, order: Order) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.threads.send(0, order).await.is_ok() })
    }

    fn spawn_below<'a>(
        &'a self,
        _: Option<&'a ActorSystem>,
        _: Arc<Clerk>,
    ) -> BoxFuture<'a, Result<Arc<dyn Desk>, Error>> {
        cannot_spawn()
    }
}

impl Desk for Peer {
    fn clerk(&self) -> &Arc<Clerk> {
        &self.clerk
    }

    fn send(&self, order: Order) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.peers.send(self.to, order).await.is_ok() })
    }

    fn spawn_below<'a>(
        &'a self,
        _: Option<&'a ActorSystem>,
        _: Arc<Clerk>,
    ) -> BoxFuture<'a, Result<Arc<dyn Desk>, Error>> {
        cannot_spawn()
    }
}
