//! A desk of no framework: a task and a channel, as a node of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adieu::actors::{ActorSystem, Ended, Node, NodePath};
use futures_util::future::BoxFuture;
use tokio::sync::{SetOnce, mpsc, oneshot};

use super::{Clerk, Desk, Order};
use crate::service::Error;

struct PlainDesk {
    clerk: Arc<Clerk>,
    node: Arc<PlainNode>,
}

struct PlainNode {
    path: NodePath,
    mail: mpsc::Sender<Mail>,
    killed: SetOnce<()>,
    ended: SetOnce<Ended>,
    handled: AtomicU64,
    dead: AtomicU64,
}

enum Mail {
    Order(Order),
    /// Answers when its turn has come.
    Settle(oneshot::Sender<()>),
    /// Closes the mailbox.
    Pill,
}

pub(super) fn spawn(system: &ActorSystem, clerk: Arc<Clerk>) -> Result<Arc<dyn Desk>, Error> {
    spawn_at(system, &NodePath::user(), clerk)
}

fn spawn_at(
    system: &ActorSystem,
    above: &NodePath,
    clerk: Arc<Clerk>,
) -> Result<Arc<dyn Desk>, Error> {
    let (mail, mailbox) = mpsc::channel(64);
    let node = Arc::new(PlainNode {
        path: above.child(&clerk.name)?,
        mail,
        killed: SetOnce::new(),
        ended: SetOnce::new(),
        handled: AtomicU64::new(0),
        dead: AtomicU64::new(0),
    });
    system.register(Arc::clone(&node) as Arc<dyn Node>)?;
    let (living, worker) = (Arc::clone(&node), Arc::clone(&clerk));
    #[expect(clippy::disallowed_methods, reason = "an actor is a task; its node waits for it")]
    tokio::spawn(async move { living.live(mailbox, &worker).await });
    Ok(Arc::new(PlainDesk { clerk, node }))
}

impl PlainNode {
    async fn live(&self, mut mailbox: mpsc::Receiver<Mail>, clerk: &Clerk) {
        let working = async {
            while let Some(mail) = mailbox.recv().await {
                match mail {
                    Mail::Order(order) => {
                        self.dead.fetch_add(1, Ordering::Relaxed); // Unless it comes to its end.
                        clerk.work(order).await;
                        self.dead.fetch_sub(1, Ordering::Relaxed);
                        self.handled.fetch_add(1, Ordering::Relaxed);
                    }
                    Mail::Settle(settled) => drop(settled.send(())),
                    // Orders that have been accepted before are still received.
                    Mail::Pill => mailbox.close(),
                }
            }
        };
        let ended = tokio::select! {
            biased;
            _ = self.killed.wait() => Ended::Killed,
            () = working => Ended::Stopped,
        };
        mailbox.close();
        while let Some(mail) = mailbox.recv().await {
            if let Mail::Order(_) = mail {
                self.dead.fetch_add(1, Ordering::Relaxed);
            }
        }
        let _ = self.ended.set(ended);
    }
}

impl Node for PlainNode {
    fn path(&self) -> &NodePath {
        &self.path
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let (settle, settled) = oneshot::channel();
            if self.mail.send(Mail::Settle(settle)).await.is_ok() {
                let _ = settled.await;
            }
        })
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { drop(self.mail.send(Mail::Pill).await) })
    }

    fn kill(&self) {
        let _ = self.killed.set(());
    }

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(async { self.ended.wait().await.clone() })
    }

    fn queued(&self) -> Option<usize> {
        Some(self.mail.max_capacity() - self.mail.capacity())
    }

    fn handled(&self) -> Option<u64> {
        Some(self.handled.load(Ordering::Relaxed))
    }

    fn dead_letters(&self) -> Option<u64> {
        Some(self.dead.load(Ordering::Relaxed))
    }
}

impl Desk for PlainDesk {
    fn clerk(&self) -> &Arc<Clerk> {
        &self.clerk
    }

    fn send(&self, order: Order) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.node.mail.send(Mail::Order(order)).await.is_ok() })
    }

    /// The node counts only the messages in its mailbox.
    fn counts_refusals(&self) -> bool {
        false
    }

    fn spawn_below<'a>(
        &'a self,
        system: Option<&'a ActorSystem>,
        clerk: Arc<Clerk>,
    ) -> BoxFuture<'a, Result<Arc<dyn Desk>, Error>> {
        Box::pin(async move {
            let system = system.ok_or("a node of its own is registered with a handle")?;
            spawn_at(system, &self.node.path, clerk)
        })
    }
}
