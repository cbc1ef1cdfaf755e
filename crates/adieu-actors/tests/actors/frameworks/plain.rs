//! A node of your own: a task and a channel, with everything that is needed to drain it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adieu_actors::{ActorSystem, Ended, IntoTermination, Node, NodePath, SpawnError, Termination};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{SetOnce, mpsc};
use tokio_util::sync::CancellationToken;

use super::{Framework, Job, Script};

pub(crate) struct Plain;

pub(crate) struct Actor {
    path: NodePath,
    jobs: mpsc::Sender<Order>,
    /// Cancelled when the actor refuses jobs.
    closed: CancellationToken,
    killed: CancellationToken,
    ended: SetOnce<Ended>,
    handled: AtomicU64,
    dead: AtomicU64,
}

enum Order {
    Do(Job),
    /// Dropped when all orders before it have been processed.
    Reached(mpsc::Sender<()>),
    Stop,
}

impl Actor {
    async fn live(&self, mut jobs: mpsc::Receiver<Order>, script: Script) -> Ended {
        let working = async {
            loop {
                match jobs.recv().await {
                    Some(Order::Do(Job(work))) => {
                        self.dead.fetch_add(1, Ordering::Relaxed); // Unless the job ends.
                        work().await;
                        self.dead.fetch_sub(1, Ordering::Relaxed);
                        self.handled.fetch_add(1, Ordering::Relaxed);
                    }
                    Some(Order::Reached(reached)) => drop(reached),
                    Some(Order::Stop) | None => return,
                }
            }
        };
        let working = AssertUnwindSafe(working).catch_unwind();
        let ended = tokio::select! {
            biased;
            () = self.killed.cancelled() => Ended::Killed,
            worked = working => match worked {
                Ok(()) => Ended::Stopped,
                Err(_) => return Ended::Failed { error: "a job panicked".into() },
            }
        };
        self.closed.cancel();
        jobs.close();
        while let Ok(order) = jobs.try_recv() {
            if let Order::Do(_) = order {
                self.dead.fetch_add(1, Ordering::Relaxed);
            }
        }
        let hook = std::panic::catch_unwind(AssertUnwindSafe(|| script.stops(self.path.name())));
        if hook.is_err() { Ended::HookFailed { error: "in the hook".into() } } else { ended }
    }
}

impl Node for Actor {
    fn path(&self) -> &NodePath {
        &self.path
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let (reached, mut dropped) = mpsc::channel(1);
            if self.jobs.send(Order::Reached(reached)).await.is_ok() {
                dropped.recv().await;
            }
        })
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.closed.cancel();
            let _ = self.jobs.send(Order::Stop).await;
        })
    }

    fn kill(&self) {
        self.killed.cancel();
    }

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(async { self.ended.wait().await.clone() })
    }

    fn queued(&self) -> Option<usize> {
        Some(self.jobs.max_capacity() - self.jobs.capacity())
    }

    fn handled(&self) -> Option<u64> {
        Some(self.handled.load(Ordering::Relaxed))
    }

    fn dead_letters(&self) -> Option<u64> {
        Some(self.dead.load(Ordering::Relaxed))
    }
}

impl Framework for Plain {
    const HOOK_AFTER_KILL: bool = true;
    type Ref = Arc<Actor>;

    async fn spawn(
        system: &ActorSystem,
        parent: Option<&Self::Ref>,
        name: &str,
        script: Script,
    ) -> Result<Self::Ref, SpawnError> {
        let parent = parent.map_or_else(NodePath::user, |parent| parent.path().clone());
        let (jobs, orders) = mpsc::channel(script.room.unwrap_or(64));
        let actor = Arc::new(Actor {
            path: parent.child(name)?,
            jobs,
            closed: CancellationToken::new(),
            killed: CancellationToken::new(),
            ended: SetOnce::new(),
            handled: AtomicU64::new(0),
            dead: AtomicU64::new(0),
        });
        system.register(Arc::clone(&actor) as Arc<dyn Node>)?;
        let (started, has_started) = tokio::sync::oneshot::channel();
        let (system, task) = (system.clone(), Arc::clone(&actor));
        tokio::spawn(async move {
            let ended = tokio::select! {
                biased;
                () = task.killed.cancelled() => Ended::Killed,
                () = script.starts() => {
                    let _ = started.send(());
                    task.live(orders, script).await
                }
            };
            system.remove(&task.path);
            let _ = task.ended.set(ended);
        });
        match has_started.await {
            Ok(()) => Ok(actor),
            Err(_) => Err(SpawnError::Killed { path: actor.path.clone() }),
        }
    }

    async fn send(to: &Self::Ref, job: Job) -> bool {
        !to.closed.is_cancelled() && to.jobs.send(Order::Do(job)).await.is_ok()
    }

    fn termination(of: &Self::Ref) -> Termination {
        (Arc::clone(of) as Arc<dyn Node>).into_termination()
    }

    fn stopped_by(of: &Self::Ref, job: Job) -> Termination {
        let of = Arc::clone(of);
        Termination::of(Arc::clone(&of) as Arc<dyn Node>).with_stop(async move {
            Self::send(&of, job).await;
        })
    }
}
