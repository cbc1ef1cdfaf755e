//! Worker threads: each has a runtime and actors of its own. They are drained together.

use adieu::actors::{Timeouts, Worker, WorkerThreads, kameo as on_kameo};
use kameo::Actor;
use kameo::message::{Context, Message};

/// Adds up the numbers that belong to its thread.
#[derive(Actor, Default)]
struct Sum(u64);

struct Add(u64);
struct Total;

impl Message<Add> for Sum {
    type Reply = ();

    async fn handle(&mut self, Add(number): Add, _: &mut Context<Self, ()>) {
        self.0 += number;
    }
}

impl Message<Total> for Sum {
    type Reply = u64;

    async fn handle(&mut self, _: Total, _: &mut Context<Self, u64>) -> u64 {
        self.0
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads =
        WorkerThreads::builder("sums").count(4).start(async |mut worker: Worker<u64>| {
            let sum = on_kameo::actor::<Sum>(Sum::default());
            let sum = worker.system().spawn("sum", sum).await?;
            // Ends when the workers are being drained, and no worker and no actor has work.
            while let Some(received) = worker.recv().await {
                let number = *received;
                let belongs = number as usize % worker.count();
                if belongs == worker.index() {
                    sum.tell(Add(number)).await?;
                } else {
                    worker.send(belongs, number).await?;
                }
                received.done();
            }
            let total = sum.ask(Total).await?;
            println!("{} has {total}", worker.system().name());
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        })?;
    // All numbers go to the first worker, which passes on those that belong to another.
    for number in 1..=100 {
        threads.send(0, number).await?;
    }
    let report = threads.shutdown(Timeouts::WORKER_THREADS).await;
    let merged = report.merged();
    println!("clean: {}, actors: {}", report.is_clean(), merged.nodes.len());
    println!("messages to workers that were not processed: {}", report.dead_letters());
    Ok(())
}
