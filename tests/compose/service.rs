//! The process under test: what a plan says, built as the documents say.

mod actors;
mod impatient;
mod pages;
mod queue;
mod race;
mod store;
mod subscriber;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adieu::fleet::{Files, Lock, LockSpec, Others, Owner};
use adieu::http::serve;
use adieu::{Consumer, JobCx, Lifecycle, Periodic, Phase, PhaseSpec, Runner, Shutdown, Step};
use adieu_testkit::ledger::Fact;
use tokio::net::TcpListener;

use self::actors::{Desk, Order};
use self::queue::Queue;
use self::store::Store;
use crate::plan::{Body, Handle, Locks, Plan, Pool};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The name of the file that facts are written to.
pub const JOURNAL: &str = "journal";

/// Where orders go.
#[derive(Clone)]
struct Counter {
    store: Arc<Store>,
    desks: Vec<Arc<dyn Desk>>,
}

/// Runs the service of a plan until it is stopped.
#[must_use]
pub fn main(plan: &Plan, folder: &Path) -> ExitCode {
    subscriber::install(plan.subscriber);
    Runner::new()
        .worker_threads(plan.workers)
        .run(async |shutdown: Shutdown| body(&shutdown, plan, folder).await)
}

#[expect(clippy::print_stdout, reason = "the driver reads it")]
async fn body(shutdown: &Shutdown, plan: &Plan, folder: &Path) -> Result<(), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    pause(plan.startup_ms[0]).await;
    let store = Arc::new(Store::open(&folder.join(JOURNAL))?);
    start_steps(shutdown, plan, folder, &store).await?;
    pause(plan.startup_ms[1]).await;
    close_pool(shutdown, plan, &store)?;
    for guard in 0..plan.guards {
        store.record(Fact::Accepted, "guard", guard);
        shutdown.keep_until_exit(Guard { number: guard, store: Arc::clone(&store) });
    }
    let (system, desks) = actors::spawn(shutdown, plan, &store).await?;
    if let (Some(system), true) = (&system, plan.has_racer) {
        race::add(shutdown, system, plan, &store).await?;
    }
    let counter = Counter { store, desks };
    let mut in_body = None;
    match plan.handle {
        Handle::Kept => shutdown.keep_until_exit(system),
        Handle::InBody => in_body = system,
        Handle::Dropped => drop(system),
    }
    pause(plan.startup_ms[2]).await;
    add_loops(shutdown, plan, &counter)?;
    if plan.locks == Locks::Shared {
        impatient::add(shutdown, &counter.store)?;
    }
    pause(plan.startup_ms[3]).await;
    subscriber::misbehave();
    println!("ready");
    let serving = serve(listener, pages::router(counter), shutdown).into_future();
    match plan.body {
        Body::Serves => serving.await?,
        Body::Waits => {
            let mut server = tokio::task::JoinSet::new();
            server.spawn(serving);
            let _ = shutdown.completed().await;
        }
        Body::Returns => {
            #[expect(clippy::disallowed_methods, reason = "it ends with the shutdown")]
            tokio::spawn(serving);
            pause(plan.trigger.after_ms).await;
        }
        Body::Selects => tokio::select! {
            ended = serving => ended?,
            _ = shutdown.begun() => {}
        },
    }
    drop(in_body);
    Ok(())
}

/// Starts the pool as a step, and the steps that one replica does.
async fn start_steps(
    shutdown: &Shutdown,
    plan: &Plan,
    folder: &Path,
    store: &Arc<Store>,
) -> Result<(), Error> {
    let mut builder = Lifecycle::builder();
    if plan.pool == Pool::Step {
        let closed = Arc::clone(store);
        builder = builder.step(Step::new("pool").stop(async move |_| closed.close()));
    }
    let names: &[&str] = match plan.locks {
        Locks::None => &[],
        Locks::One => &["index"],
        Locks::Shared => &["index", "schema"],
    };
    let locks = Arc::new(Files::open(folder.join("locks"))?);
    let spec = LockSpec::new("start-up").retry(Duration::from_millis(5));
    let lock = Lock::new(locks, spec, &Owner::this_process())?;
    for &name in names {
        let done = Arc::clone(store);
        let step = Step::new(name).start(async move |_| {
            pause(10).await;
            done.record(Fact::Finished, "step", name);
        });
        builder = builder.step(lock.singleton_step(step, Others::Wait, Duration::from_secs(10)));
    }
    builder.build()?.start(shutdown).await?;
    for name in names {
        store.record(Fact::Accepted, "step", name);
    }
    Ok(())
}

fn close_pool(shutdown: &Shutdown, plan: &Plan, store: &Arc<Store>) -> Result<(), Error> {
    let store = Arc::clone(store);
    match plan.pool {
        Pool::Step => {}
        Pool::Guard => shutdown.keep_until_exit(store::CloseOnDrop(store)),
        Pool::Task => {
            let phase = PhaseSpec::new("close-stores").after(Phase::ACTOR_SYSTEM_TERMINATE);
            shutdown.add_phase(phase)?;
            shutdown.add_task("close-stores", "close pool", async move |_| store.close())?;
        }
    }
    Ok(())
}

fn add_loops(shutdown: &Shutdown, plan: &Plan, counter: &Counter) -> Result<(), Error> {
    if let Some(consumer) = plan.consumer {
        let spec = Consumer::new("jobs").concurrency(consumer.concurrency);
        let store = Arc::clone(&counter.store);
        let connect = move || {
            let queue = Queue::new(Arc::clone(&store));
            async { Ok::<_, Error>(queue) }
        };
        let counter = counter.clone();
        let handle = move |job: Arc<u64>, _: JobCx| {
            let counter = counter.clone();
            async move {
                let order = Order { kind: "job", id: *job };
                match consumer.via_actor {
                    true => counter.place(order).await,
                    false => counter.store.write(order).await,
                }
            }
        };
        shutdown.add_consumer(spec, connect, handle)?;
    }
    if plan.is_periodic {
        let (counter, ticks) = (counter.clone(), Arc::new(AtomicU64::new(0)));
        let periodic = Periodic::new("ticks", Duration::from_millis(10)).seed(plan.seed);
        shutdown.add_periodic(periodic, move |_| {
            let (counter, id) = (counter.clone(), ticks.fetch_add(1, Ordering::Relaxed));
            async move {
                let order = Order { kind: "tick", id };
                counter.place(order).await.inspect(|()| {
                    counter.store.record(Fact::Accepted, "tick", id);
                })
            }
        })?;
    }
    Ok(())
}

async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

// === impl Counter ===

impl Counter {
    /// Takes an order. When this returns without an error the service is responsible for it.
    async fn place(&self, order: Order) -> Result<(), Error> {
        if self.desks.is_empty() {
            return self.store.write(order).await;
        }
        let desk = usize::try_from(order.id)? % self.desks.len();
        self.desks[desk].pass(order).await
    }
}

/// Records that it was dropped.
struct Guard {
    number: usize,
    store: Arc<Store>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.store.record(Fact::Finished, "guard", self.number);
    }
}
