//! Actors of kameo: a parent and its child, which a shutdown drains children first.

use std::time::Duration;

use adieu::actors::{ActorSystem, kameo as on_kameo};
use adieu::{Phase, Reason, Shutdown};
use kameo::Actor;
use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::{ActorStopReason, Infallible};
use kameo::message::{Context, Message};

/// An actor that processes orders.
struct Desk(&'static str);

struct Order(&'static str);

impl Actor for Desk {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(desk: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(desk)
    }

    async fn on_stop(
        &mut self,
        _: WeakActorRef<Self>,
        reason: ActorStopReason,
    ) -> Result<(), Infallible> {
        println!("{} closes: {reason}", self.0);
        Ok(())
    }
}

impl Message<Order> for Desk {
    type Reply = ();

    async fn handle(&mut self, Order(item): Order, _: &mut Context<Self, ()>) {
        match item {
            "elephant" => std::future::pending().await, // Never ends.
            _ => println!("{} has done {item}", self.0),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = Shutdown::new();
    shutdown.set_phase_timeout("actor-system-terminate", Duration::from_secs(2))?;
    // Resources that actors use are closed after them: in a step, or in this phase.
    shutdown.add_task(Phase::CLOSE_RESOURCES, "till", async |_| println!("till locked"))?;
    let system = ActorSystem::on(&shutdown, "shop")?;
    let front = system.spawn("front", on_kameo::actor::<Desk>(Desk("front"))).await?;
    let back = front.spawn("back", on_kameo::actor::<Desk>(Desk("back"))).await?;
    let stable = system.spawn("stable", on_kameo::actor::<Desk>(Desk("stable"))).await?;
    for order in ["tea", "coffee"] {
        back.tell(Order(order)).await?;
    }
    for order in ["elephant", "mouse"] {
        stable.tell(Order(order)).await?;
    }
    shutdown.run(Reason::Unknown).await?;
    let report = system.terminated().await;
    println!("{} dead letters, for {}", report.dead_letters(), system.dead_letters()[0].to);
    Ok(())
}
