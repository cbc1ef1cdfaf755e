//! Tasks that send to actors while those are being drained, until they are refused.

use std::sync::Arc;

use adieu::actors::ActorSystem;
use adieu::{Phase, Shutdown};
use tokio::sync::SetOnce;

use super::actors::{Desk, Order, RACE, spawn_lane};
use super::store::Store;
use super::{Error, pause};
use crate::plan::Plan;

/// So many actors are raced for: each drain is a chance.
const LANES: u64 = 40;
/// By so many tasks each.
const RACERS: u64 = 4;

/// Adds actors, and tasks that begin to send when the actors are about to be drained.
pub(super) async fn add(
    shutdown: &Shutdown,
    system: &ActorSystem,
    plan: &Plan,
    store: &Arc<Store>,
) -> Result<(), Error> {
    let begins = Arc::new(SetOnce::new());
    for lane in 0..LANES {
        let desk = spawn_lane(system, plan.departments[0].framework, lane, store).await?;
        for racer in 0..RACERS {
            let (desk, begins) = (Arc::clone(&desk), Arc::clone(&begins));
            #[expect(clippy::disallowed_methods, reason = "it ends when it is refused")]
            tokio::spawn(async move {
                begins.wait().await;
                race(&*desk, racer).await;
            });
        }
    }
    shutdown.add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "begin the race", async move |_| {
        let _ = begins.set(());
        // All racers run when the drain begins.
        pause(10).await;
    })?;
    Ok(())
}

/// Only the actor can observe when it is too late.
async fn race(desk: &dyn Desk, racer: u64) {
    for lap in 0..10_000 {
        let id = racer * 1_000_000 + lap;
        if desk.pass(Order { kind: RACE, id }).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
}
