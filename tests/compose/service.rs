//! The process under test: the service of a plan, built as the documents show.

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

use adieu::fleet::{Files, Lock, LockSpec, OtherReplicas, Owner};
use adieu::http::{GateLayer, serve};
use adieu::{
    Consumer, Gate, JobCx, Lifecycle, Periodic, Phase, PhaseSpec, Reason, Runner, Shutdown, Step,
};
use adieu_testkit::ledger::Fact;
use axum::Router;
use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, UnixListener};

use self::actors::{Desk, LAST, Order};
use self::queue::Queue;
use self::store::Store;
use crate::plan::{Body, Client, Deviation, Handle, LockBackend, Plan, Pool, Server};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The name of the file that facts are written to.
pub const JOURNAL: &str = "journal";

/// The name of the Unix socket that is served, too, if a client asks there.
pub const SOCKET: &str = "socket";

/// How many orders are made in the last phase before the actors are drained.
const LAST_ORDERS: u64 = 100;

/// Passes orders to the store or to actors.
#[derive(Clone)]
struct Counter {
    store: Arc<Store>,
    desks: Vec<Arc<dyn Desk>>,
    /// For tasks that handlers leave orders to.
    later: Option<Gate>,
    /// How long such a task takes at least.
    later_ms: u64,
}

/// Runs the service of a plan until it is stopped.
#[must_use]
pub fn main(plan: &Plan, folder: &Path) -> ExitCode {
    subscriber::install(plan);
    Runner::new()
        .worker_threads(plan.workers)
        .run(async |shutdown: Shutdown| body(&shutdown, plan, folder).await)
}

#[expect(clippy::print_stdout, reason = "the driver reads it")]
async fn body(shutdown: &Shutdown, plan: &Plan, folder: &Path) -> Result<(), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let has_socket = plan.clients.contains(&Client::CutUnix);
    let socket = has_socket.then(|| UnixListener::bind(folder.join(SOCKET))).transpose()?;
    println!("listening on {}", listener.local_addr()?);
    pause(plan.startup_ms[0]).await;
    let counting = (!plan.is_cut_short()).then(|| shutdown.downgrade());
    let store = Arc::new(Store::open(&folder.join(JOURNAL), counting)?);
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
    let later = plan.has_later.then(|| shutdown.add_gate("later")).transpose()?;
    // Longer than a gate waits for work that no phase has waited for.
    let later_ms = if plan.deviation.cuts_gates() { 150 } else { 0 };
    let counter = Counter { store, desks, later, later_ms };
    let mut in_body = None;
    match plan.handle {
        Handle::Kept => shutdown.keep_until_exit(system),
        Handle::InBody => in_body = system,
        Handle::Dropped => drop(system),
    }
    pause(plan.startup_ms[2]).await;
    add_loops(shutdown, plan, &counter)?;
    add_last_orders(shutdown, &counter)?;
    if plan.locks == LockBackend::Shared {
        impatient::add(shutdown, &counter.store)?;
    }
    pause(plan.startup_ms[3]).await;
    subscriber::misbehave();
    println!("ready");
    if let Some(socket) = socket {
        let server = serve(socket, pages::router(counter.clone()), shutdown).name("unix");
        #[expect(clippy::disallowed_methods, reason = "it ends with the shutdown")]
        tokio::spawn(server.into_future());
    }
    let serving = serving(shutdown, plan, listener, pages::router(counter))?;
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
            if let Deviation::LateBegin(from) = plan.deviation {
                shutdown.run_from(from, Reason::Unknown)?.await?;
            }
        }
        Body::Selects => tokio::select! {
            ended = serving => ended?,
            _ = shutdown.begun() => {}
        },
    }
    drop(in_body);
    Ok(())
}

/// Returns the server's future.
fn serving(
    shutdown: &Shutdown,
    plan: &Plan,
    listener: TcpListener,
    app: Router,
) -> Result<BoxFuture<'static, Result<(), Error>>, Error> {
    Ok(match plan.server {
        Server::Adieu => {
            let serving = serve(listener, app, shutdown).into_future();
            Box::pin(async { Ok(serving.await?) })
        }
        Server::Axum => {
            let app = app.layer(GateLayer::new(&shutdown.add_gate("http")?));
            let token = shutdown.token();
            let serving = axum::serve(listener, app)
                .with_graceful_shutdown(async move { token.cancelled().await });
            Box::pin(async { Ok(serving.await?) })
        }
    })
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
        LockBackend::None => &[],
        LockBackend::One => &["index"],
        LockBackend::Shared => &["index", "schema"],
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
        builder =
            builder.step(lock.singleton_step(step, OtherReplicas::Wait, Duration::from_secs(10)));
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
            shutdown
                .add_task(Phase::CLOSE_RESOURCES, "close pool", async move |_| store.close())?;
        }
        Pool::Phase => {
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
        let panics = plan.deviation == Deviation::PanickingTick;
        shutdown.add_periodic(periodic, move |cx| {
            let (counter, id) = (counter.clone(), ticks.fetch_add(1, Ordering::Relaxed));
            async move {
                if panics {
                    counter.store.record(Fact::Accepted, "tick", id);
                    let work = tokio::time::timeout(Duration::from_millis(20), cx.takes_no_more());
                    assert!(work.await.is_err(), "tick {id} is lost");
                }
                let order = Order { kind: "tick", id };
                counter.place(order).await.inspect(|()| {
                    counter.store.record(Fact::Accepted, "tick", id);
                })
            }
        })?;
    }
    Ok(())
}

/// Adds a task that orders in the last phase in which actors receive messages: they have work when
/// they are drained. An actor that hangs has no room for all of it, so some orders wait until it is
/// killed.
fn add_last_orders(shutdown: &Shutdown, counter: &Counter) -> Result<(), Error> {
    let counter = counter.clone();
    shutdown.add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "last orders", async move |_| {
        let orders = (0..LAST_ORDERS).map(|id| {
            let counter = counter.clone();
            let place = async move {
                counter.place(Order { kind: LAST, id }).await.inspect(|()| {
                    counter.store.record(Fact::Accepted, LAST, id);
                })
            };
            #[expect(clippy::disallowed_methods, reason = "it ends with the actor")]
            tokio::spawn(place)
        });
        let orders = futures_util::future::join_all(orders);
        let _ = tokio::time::timeout(Duration::from_millis(300), orders).await;
    })?;
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
