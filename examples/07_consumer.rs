//! A consumer at shutdown: takes no more jobs, returns jobs that have not started to their queue,
//! finishes running jobs, and returns the interrupted ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use adieu::{Consumer, JobCx, Outcome, Phase, Reason, Shutdown, Source};

/// Orders, as a broker would deliver them.
struct Orders {
    batches: Vec<Vec<String>>,
}

impl Source for Orders {
    type Job = String;
    type Error = Infallible;

    async fn take(&mut self) -> Result<Option<Vec<String>>, Infallible> {
        match self.batches.pop() {
            Some(batch) => Ok(Some(batch)),
            None => std::future::pending().await, // The broker has no more jobs for now.
        }
    }

    async fn done(&mut self, order: &String, outcome: &Outcome) -> Result<(), Infallible> {
        println!("{order}: {outcome}");
        Ok(())
    }

    async fn on_interrupted(&mut self, order: &String) -> Result<(), Infallible> {
        println!("{order}: interrupted, returned");
        Ok(())
    }

    async fn release(&mut self, orders: Vec<String>) -> Result<(), Infallible> {
        println!("not started, returned: {}", orders.join(", "));
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), Infallible> {
        println!("committed");
        Ok(())
    }

    async fn leave(&mut self) -> Result<(), Infallible> {
        println!("left");
        Ok(())
    }

    fn label(&self, order: &String) -> Option<String> {
        Some(order.clone())
    }
}

async fn place(
    order: Arc<String>,
    cx: JobCx,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    match order.as_str() {
        "tea" => tokio::time::sleep(Duration::from_millis(200)).await,
        // May be cancelled before it ends. Other jobs are finished.
        "piano" => cx.interruptible(tokio::time::sleep(Duration::from_secs(60))).await?,
        other => return Err(format!("no {other} in stock").into()),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = Shutdown::new();
    shutdown.set_phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_millis(500))?;
    let connect = || async {
        let batch = |orders: &str| orders.split(' ').map(String::from).collect();
        let batches = vec![batch("piano tea ink soap"), batch("moon")];
        Ok::<_, Infallible>(Orders { batches })
    };
    shutdown.add_consumer(Consumer::new("orders").concurrency(2), connect, place)?;

    tokio::time::sleep(Duration::from_millis(100)).await;
    let report = shutdown.run(Reason::Unknown).await?;
    eprintln!("{report}");
    Ok(())
}
