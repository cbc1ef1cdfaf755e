//! The first program: `main` owns the process, and tasks run when it ends.
//!
//! Run it with `cargo run -p adieu-examples --bin 01_first`, and again while pressing Ctrl-C.

use std::time::Duration;

use adieu::Phase;

fn main() -> std::process::ExitCode {
    adieu::main(async |shutdown| {
        shutdown.add_task(Phase::SERVICE_UNBIND, "close the door", async |_| {
            println!("no new guests");
        })?;
        shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, "wait for guests", async |_| {
            tokio::time::sleep(Duration::from_millis(300)).await;
            println!("the last guest has left");
        })?;
        shutdown.add_task(Phase::CLOSE_RESOURCES, "lights", async |_| {
            println!("lights out");
        })?;

        println!("open for two seconds, or until you press Ctrl-C");
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(2)) => {}
            reason = shutdown.begun() => println!("closing early: {reason}"),
        }
        Ok::<(), adieu::AddTaskError>(())
    })
}
