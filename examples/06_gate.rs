//! A gate: admit no work that cannot be finished, and wait for admitted work.

use std::time::Duration;

use adieu::{DrainClass, Phase, Reason, Shutdown};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = Shutdown::new();
    let orders = shutdown.add_gate("orders")?;
    shutdown.set_phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_millis(500))?;
    let mut work = JoinSet::new();

    // A request that needs more time, and enters the gate again for nested work.
    let request = orders.enter()?.labelled("POST /orders");
    let gate = orders.clone();
    work.spawn(request.scope(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        // The gate is closed now, but admitted work may enter again.
        println!("nested work admitted: {}", gate.enter().is_ok());
        println!("order placed");
    }));

    // A stream of events, whose client will reconnect to another replica.
    let stream = orders.enter_as(DrainClass::CloseNow)?;
    work.spawn(async move {
        stream.cancelled().await;
        println!("stream closed");
    });

    // An export that does not finish in time.
    let export = orders.enter()?.labelled("GET /export");
    work.spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(60)) => println!("exported"),
            () = export.cancelled() => println!("export cut"),
        }
    });

    let report = shutdown.run(Reason::Unknown).await?;
    while work.join_next().await.is_some() {}
    println!("too late: {}", orders.enter().is_err());
    println!("outcome: {}", report.outcome);
    eprintln!("{report}");
    Ok(())
}
