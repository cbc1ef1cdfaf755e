//! Departments of actors, through which orders go to the store.

mod kameo;
mod plain;
mod ractor;
mod task;
mod threads;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use adieu::Shutdown;
use adieu::actors::ActorSystem;
use adieu_testkit::ledger::Fact;
use futures_util::future::BoxFuture;

use super::Error;
use super::store::Store;
use crate::plan::{Department, Framework, Plan, Topology};

/// After this many orders an actor that is to hang does.
const HANGS_AFTER: u64 = 20;

/// An order, as a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) kind: &'static str,
    pub(super) id: u64,
}

/// An actor that takes orders, of whatever framework.
pub(super) trait Desk: Send + Sync {
    /// What it does.
    fn clerk(&self) -> &Arc<Clerk>;

    /// Sends it an order. True if it was accepted.
    fn send(&self, order: Order) -> BoxFuture<'_, bool>;

    /// Spawns an actor below this one.
    fn spawn_below<'a>(
        &'a self,
        system: &'a ActorSystem,
        clerk: Arc<Clerk>,
    ) -> BoxFuture<'a, Result<Arc<dyn Desk>, Error>>;
}

/// What an actor does with an order.
pub(super) struct Clerk {
    name: String,
    think: Duration,
    hangs: bool,
    store: Arc<Store>,
    /// Where orders go next. To the store, if this is not set.
    next: OnceLock<Arc<dyn Desk>>,
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
    let clerk = Clerk {
        name: format!("lane-{lane}"),
        think: Duration::ZERO,
        hangs: false,
        store: Arc::clone(store),
        next: OnceLock::new(),
    };
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
        Arc::new(Clerk {
            name: format!("{role}-{number}"),
            think: Duration::from_micros(department.think_us),
            hangs: department.is_stuck && is_last,
            store: Arc::clone(store),
            next: OnceLock::new(),
        })
    };
    if department.framework == Framework::Threads {
        let name = format!("threads-{number}");
        return threads::spawn(shutdown, name, |role| clerk(role, role == "second-actor"));
    }
    let top = async |clerk| spawn_top(system, department.framework, clerk).await;
    let (entry, last) = match department.topology {
        Topology::Single => return top(clerk("only", true)).await,
        Topology::Siblings => {
            let entry = top(clerk("front", false)).await?;
            (entry, top(clerk("back", true)).await?)
        }
        Topology::OtherSystem => {
            let entry = top(clerk("front", false)).await?;
            let other = ActorSystem::on(shutdown, format!("other-{number}"))?;
            (entry, spawn_top(&other, department.framework, clerk("back", true)).await?)
        }
        Topology::ParentToChild => {
            let parent = top(clerk("parent", false)).await?;
            let child = parent.spawn_below(system, clerk("child", true)).await?;
            (parent, child)
        }
        Topology::ChildToParent => {
            let parent = top(clerk("parent", true)).await?;
            (parent.spawn_below(system, clerk("child", false)).await?, parent)
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
        let clerk = self.clerk();
        let id = clerk.message(order);
        if self.send(order).await {
            clerk.store.record(Fact::Accepted, "message", id);
            return Ok(());
        }
        clerk.store.record(Fact::Refused, "message", id);
        Err(format!("{} accepts no more", clerk.name).into())
    }
}

// === impl Clerk ===

impl Clerk {
    /// What an actor does with an order: it thinks, and passes it on.
    async fn work(&self, order: Order) {
        if self.hangs && order.id >= HANGS_AFTER {
            return std::future::pending().await;
        }
        if !self.think.is_zero() {
            tokio::time::sleep(self.think).await;
        }
        // An order that cannot be passed on is lost here. The ledger knows that it was accepted.
        let _ = match self.next.get() {
            Some(next) => next.pass(order).await,
            None => self.store.write(order).await,
        };
        self.store.record(Fact::Finished, "message", self.message(order));
    }

    fn message(&self, order: Order) -> String {
        format!("{order} at {}", self.name)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)
    }
}
