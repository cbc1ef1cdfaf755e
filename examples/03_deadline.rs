//! One deadline for everything: slow tasks are cancelled, and the last phases still run.

use std::time::Duration;

use adieu::{Config, KillAfter, Phase, Reason, Shutdown, TaskCx};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // As if the platform sent SIGKILL two seconds after SIGTERM.
    let config = Config::new().kill_after(KillAfter::After(Duration::from_secs(2)));
    let shutdown = Shutdown::configured(config)?;
    println!("does it fit? {}", shutdown.check_budget().fits());

    shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, "a slow export", async |cx: TaskCx| {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(60)) => println!("export done"),
            // The token is cancelled in time to clean up. Soon after, the task would be aborted.
            () = cx.cancelled() => println!("export cancelled"),
        }
    })?;
    shutdown.add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "flush", async |cx: TaskCx| {
        println!("flushed, with time left: {}", !cx.remaining().is_zero());
    })?;
    println!("does it fit? {}", shutdown.check_budget().fits());
    eprintln!("{}", shutdown.check_budget());

    let report = shutdown.run(Reason::Unknown).await?;
    println!("in time: {}", report.took < Duration::from_secs(2));
    println!("exit code: {}", report.exit_code);
    eprintln!("{report}");
    Ok(())
}
