//! Custom phases: a graph, not a list. Phases that do not depend on each other run at the same time.

use std::time::Duration;

use adieu::{Phase, PhaseSpec, Reason, Shutdown};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = Shutdown::new();
    shutdown.add_phase(PhaseSpec::new("drain-queue").after(Phase::SERVICE_UNBIND))?;
    shutdown.add_phase(
        PhaseSpec::new("commit-offsets")
            .after("drain-queue")
            .before(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE)
            .timeout(Duration::from_secs(2)),
    )?;

    // (phase, how long its task takes in tenths of a second)
    for (phase, tenths) in [
        ("service-unbind", 1),
        ("service-requests-done", 5),
        ("drain-queue", 2),
        ("commit-offsets", 1),
        ("before-actor-system-terminate", 1),
    ] {
        shutdown.add_task(phase, "work", async move |_| {
            tokio::time::sleep(Duration::from_millis(tenths * 100)).await;
            println!("{phase} over");
        })?;
    }

    let report = shutdown.run(Reason::Unknown).await?;
    eprintln!("{report}");
    Ok(())
}
