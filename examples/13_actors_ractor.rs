//! Actors of ractor: letters, which are counted if they are lost, and a phase that waits for an actor.

use std::time::Duration;

use adieu::actors::ractor::{Letter, Ref, actor};
use adieu::actors::{ActorSystem, ActorTasks};
use adieu::{Phase, Reason, Shutdown};
use ractor::{Actor, ActorProcessingErr, ActorRef};

/// Counts coins, and stops when it receives `Msg::Stop`.
struct Till;

enum Msg {
    Coins(u32),
    Stop,
}

impl Actor for Till {
    type Msg = Letter<Msg>;
    type State = u32;
    type Arguments = u32;

    async fn pre_start(
        &self,
        _: ActorRef<Letter<Msg>>,
        coins: u32,
    ) -> Result<u32, ActorProcessingErr> {
        Ok(coins)
    }

    async fn handle(
        &self,
        myself: ActorRef<Letter<Msg>>,
        letter: Letter<Msg>,
        coins: &mut u32,
    ) -> Result<(), ActorProcessingErr> {
        match letter.open() {
            Msg::Coins(more) => *coins += more,
            Msg::Stop => myself.stop(None),
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<Letter<Msg>>,
        coins: &mut u32,
    ) -> Result<(), ActorProcessingErr> {
        println!("a till closes with {coins} coins");
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = Shutdown::new();
    let system = ActorSystem::on(&shutdown, "shop")?;
    let _main: Ref<Letter<Msg>> = system.spawn("main", actor(Till, 1000)).await?;
    let kiosk = system.spawn("kiosk", actor(Till, 10)).await?;
    for coins in 1..=10 {
        kiosk.post(Msg::Coins(coins)).map_err(|_| "closed")?;
    }
    // This phase sends the kiosk a stop message, and waits until it has terminated.
    let (phase, stop) = (Phase::SERVICE_STOP, kiosk.stopped_by_letter(Msg::Stop));
    shutdown.add_actor_termination_task(&phase, "close kiosk", stop)?;
    shutdown.add_task(&phase, "sweep", async |_| {
        tokio::time::sleep(Duration::from_millis(200)).await;
        println!("swept");
    })?;

    print!("{}", system.tree());
    let report = shutdown.run(Reason::Unknown).await?;
    println!("outcome: {}", report.outcome);
    // A message that is refused is returned as an error, and counted.
    let refused = kiosk.post(Msg::Coins(5)).is_err();
    println!("refused: {refused}, dead letters: {}", system.dead_letter_count());
    Ok(())
}
