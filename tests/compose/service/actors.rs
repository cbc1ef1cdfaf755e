//! Departments of actors, through which orders go to the store.

mod kameo;
mod plain;
mod ractor;
mod task;
mod threads;

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use adieu::Shutdown;
use adieu::actors::{ActorSystem, Identity};
use adieu_testkit::ledger::Fact;
use futures_util::future::BoxFuture;

use super::Error;
use super::store::Store;
use crate::plan::{Department, Framework, OnPanic, Plan, Topology};

/// After this many orders an actor that is to hang does.
const HANGS_AFTER: u64 = 20;
/// The order at which a handler panics whose actor ends then. Others are queued behind it.
const PANICS_AT: u64 = 30;
/// A handler whose actor continues panics at one of this many orders.
const PANICS_EACH: u64 = 7;
/// An actor that spawns children does so for one of this many orders.
const CHILD_EACH: u64 = 4;

/// The kind of the orders in the last phase before the drain.
pub(super) const LAST: &str = "last";

/// The kind of orders that race with the drain.
pub(super) const RACE: &str = "race";

/// An order, as a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) kind: &'static str,
    pub(super) id: u64,
}

/// An actor that takes orders, of whatever framework.
pub(super) trait Desk: Send + Sync {
    /// Returns its handler.
    fn clerk(&self) -> &Arc<Clerk>;

    /// Sends it an order. True if it was accepted.
    fn send(&self, order: Order) -> BoxFuture<'_, bool>;

    /// Returns whether the report counts the orders that it refuses.
    fn counts_refusals(&self) -> bool {
        true
    }

    /// Spawns an actor below this one. The system is `None` in a message handler, because an actor
    /// that holds a handle of its system keeps the system alive.
    fn spawn_below<'a>(
        &'a self,
        system: Option<&'a ActorSystem>,
        clerk: Arc<Clerk>,
    ) -> BoxFuture<'a, Result<Arc<dyn Desk>, Error>>;
}

/// The handler of an actor.
pub(super) struct Clerk {
    name: String,
    think: Duration,
    hangs: bool,
    on_panic: Option<OnPanic>,
    store: Arc<Store>,
    /// The next receiver of orders; the store, if this is not set.
    next: OnceLock<Arc<dyn Desk>>,
    /// Whether orders go there in a task of their own, in the name of the actor.
    is_scoped: bool,
    /// Its own desk, if it spawns a child for some orders.
    spawns_below: OnceLock<Weak<dyn Desk>>,
}

/// Spawns all departments of a plan, and returns their entries.
pub(super) async fn spawn(
    shutdown: &Shutdown,
    plan: &Plan,
    store: &Arc<Store>,
) -> Result<(Option<ActorSystem>, Vec<Arc<dyn Desk>>), Error> {
    if plan.departments.is_empty() {
        return Ok((None, Vec::new()));
    }
    let system = ActorSystem::on(shutdown, "compose")?;
    let mut desks = Vec::new();
    for (number, department) in plan.departments.iter().enumerate() {
        desks.push(spawn_department(shutdown, &system, number, *department, store).await?);
    }
    Ok((Some(system), desks))
}

/// Spawns an actor that races are run to.
pub(super) async fn spawn_lane(
    system: &ActorSystem,
    framework: Framework,
    lane: u64,
    store: &Arc<Store>,
) -> Result<Arc<dyn Desk>, Error> {
    let clerk = Clerk::new(format!("lane-{lane}"), Duration::ZERO, false, store);
    spawn_top(system, framework, Arc::new(clerk)).await
}

async fn spawn_department(
    shutdown: &Shutdown,
    system: &ActorSystem,
    number: usize,
    department: Department,
    store: &Arc<Store>,
) -> Result<Arc<dyn Desk>, Error> {
    let clerk = |role: &str, is_last: bool| {
        let hangs = department.is_stuck && is_last;
        let think = Duration::from_micros(department.think_us);
        let clerk = Clerk::new(format!("{role}-{number}"), think, hangs, store);
        Arc::new(Clerk { on_panic: department.on_panic.filter(|_| is_last), ..clerk })
    };
    if department.framework == Framework::Threads {
        let name = format!("threads-{number}");
        let clerk = |role: &str| clerk(role, role == "second-actor");
        return threads::spawn(shutdown, name, department.panics, clerk);
    }
    let top = async |clerk| spawn_top(system, department.framework, clerk).await;
    let (entry, last) = match department.topology {
        Topology::Single => return top(clerk("only", true)).await,
        Topology::Siblings => {
            let entry = top(clerk("front", false)).await?;
            (entry, top(clerk("back", true)).await?)
        }
        Topology::Scoped => {
            let front = Arc::into_inner(clerk("front", false)).ok_or("a new clerk")?;
            let entry = top(Arc::new(Clerk { is_scoped: true, ..front })).await?;
            (entry, top(clerk("back", true)).await?)
        }
        Topology::OtherSystem => {
            let entry = top(clerk("front", false)).await?;
            let other = ActorSystem::on(shutdown, format!("other-{number}"))?;
            (entry, spawn_top(&other, department.framework, clerk("back", true)).await?)
        }
        Topology::ParentToChild => {
            let parent = top(clerk("parent", false)).await?;
            let child = parent.spawn_below(Some(system), clerk("child", true)).await?;
            (parent, child)
        }
        Topology::ChildToParent => {
            let parent = top(clerk("parent", true)).await?;
            (parent.spawn_below(Some(system), clerk("child", false)).await?, parent)
        }
        Topology::SpawnsChildren => {
            let parent = top(clerk("parent", false)).await?;
            let _ = parent.clerk().spawns_below.set(Arc::downgrade(&parent));
            return Ok(parent);
        }
    };
    let _ = entry.clerk().next.set(last);
    Ok(entry)
}

async fn spawn_top(
    system: &ActorSystem,
    framework: Framework,
    clerk: Arc<Clerk>,
) -> Result<Arc<dyn Desk>, Error> {
    Ok(match framework {
        // Worker threads have actors of kameo.
        Framework::Kameo | Framework::Threads => kameo::spawn(system, clerk).await?,
        Framework::Ractor => ractor::spawn::<Order>(system, clerk).await?,
        Framework::Letters => ractor::spawn::<ractor::Sealed>(system, clerk).await?,
        Framework::Plain => plain::spawn(system, clerk)?,
        Framework::Task => task::spawn(system, clerk).await?,
    })
}

// === impl Desk ===

impl dyn Desk + '_ {
    /// Sends an order, and records whether it was accepted.
    pub(super) async fn pass(&self, order: Order) -> Result<(), Error> {
        let is_late = order.kind == LAST || (order.kind != RACE && self.clerk().store.has_begun());
        let is_accepted = self.send(order).await;
        // The report contains messages that are refused since the shutdown began, as a loss. A racer goes
        // on until all actors have ended, and no longer counts then.
        let is_reported = is_late && self.counts_refusals();
        let fact = if is_accepted || is_reported { Fact::Accepted } else { Fact::Refused };
        self.clerk().note(order, fact);
        if is_accepted { Ok(()) } else { Err(self.refusal()) }
    }

    /// Sends an order that the service has accepted before. So a refusal is a loss, which the report
    /// must contain.
    async fn forward(&self, order: Order) -> Result<(), Error> {
        if !self.counts_refusals() {
            return self.pass(order).await;
        }
        let is_accepted = self.send(order).await;
        // Only now: an actor that is killed while it waits for room has sent nothing.
        self.clerk().note(order, Fact::Accepted);
        if is_accepted { Ok(()) } else { Err(self.refusal()) }
    }

    fn refusal(&self) -> Error {
        format!("{} accepts no more", self.clerk().name).into()
    }
}

// === impl Clerk ===

impl Clerk {
    fn new(name: String, think: Duration, hangs: bool, store: &Arc<Store>) -> Self {
        let (next, spawns_below) = (OnceLock::new(), OnceLock::new());
        let (store, is_scoped, on_panic) = (Arc::clone(store), false, None);
        Self { name, think, hangs, on_panic, store, next, is_scoped, spawns_below }
    }

    /// Returns whether the actor continues when its handler has panicked.
    fn continues(&self) -> bool {
        self.on_panic == Some(OnPanic::Continues)
    }

    /// Panics if this is an order at which the handler panics. Only orders of the shutdown: the report
    /// contains no earlier losses.
    fn panic_at(&self, order: Order) {
        let panics = match self.on_panic {
            None => false,
            Some(OnPanic::Ends) => order.id == PANICS_AT,
            Some(OnPanic::Continues) => order.id.is_multiple_of(PANICS_EACH),
        };
        assert!(!panics || order.kind != LAST, "order {order} is lost");
    }

    /// Handles an order: thinks, and passes it on.
    async fn work(&self, order: Order) {
        if self.hangs && order.id >= HANGS_AFTER {
            return std::future::pending().await;
        }
        if !self.think.is_zero() {
            tokio::time::sleep(self.think).await;
        }
        self.panic_at(order);
        if let (true, Some(next), Some(me)) =
            (self.is_scoped, self.next.get().cloned(), Identity::current())
        {
            #[expect(clippy::disallowed_methods, reason = "the drain of the actor waits for it")]
            tokio::spawn(me.scope(async move {
                tokio::task::yield_now().await;
                let _ = next.forward(order).await;
            }));
            return self.note(order, Fact::Finished);
        }
        // An order that cannot be passed on is lost here. The ledger has recorded that it was
        // accepted.
        let _ = match (self.next.get(), self.spawns_below.get().and_then(Weak::upgrade)) {
            (Some(next), _) => next.forward(order).await,
            (None, Some(desk)) if order.id.is_multiple_of(CHILD_EACH) => {
                self.pass_to_child(&*desk, order).await
            }
            (None, _) => self.store.write(order).await,
        };
        self.note(order, Fact::Finished);
    }

    /// Spawns a child that does nothing but this order.
    async fn pass_to_child(&self, desk: &dyn Desk, order: Order) -> Result<(), Error> {
        let name = format!("child-{}-{}", order.kind, order.id);
        let clerk = Arc::new(Self::new(name, self.think, false, &self.store));
        desk.spawn_below(None, clerk).await?.forward(order).await
    }

    /// Records what became of the message with this order.
    fn note(&self, order: Order, fact: Fact) {
        self.store.record(fact, "message", format_args!("{order} at {}", self.name));
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)
    }
}
