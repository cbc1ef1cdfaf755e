//! Programs whose body of `main` ends early, late or not at all.

use std::process::ExitCode;
use std::time::Duration;

use adieu::{Lifecycle, LoopCx, Phase, PhaseSpec, Reason, Shutdown, Step};

use super::{Error, FOREVER, on_one_thread};

pub(crate) fn returning_to_a_slow_task() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.set_phase_timeout(Phase::SERVICE_STOP, FOREVER)?;
        shutdown.add_task(Phase::SERVICE_STOP, "slow", async |_| {
            println!("ready");
            tokio::time::sleep(FOREVER).await;
        })?;
        Ok::<(), Error>(())
    })
}

pub(crate) fn returning_on_one_thread() -> ExitCode {
    on_one_thread().run(async |shutdown: Shutdown| {
        shutdown.add_task(Phase::SERVICE_STOP, "work", async |_| {
            tokio::time::sleep(Duration::from_millis(50)).await;
            println!("worked");
        })?;
        Ok::<(), Error>(())
    })
}

pub(crate) fn start_up() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.add_task(Phase::SERVICE_STOP, "stop", async |_| println!("stopped"))?;
        println!("ready");
        tokio::time::sleep(FOREVER).await; // Connects to a server that does not respond.
        println!("started");
        Ok::<(), Error>(())
    })
}

pub(crate) fn lifecycle() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        let postgres = Step::new("postgres")
            .start(async |_| println!("postgres up"))
            .stop(async |_| println!("postgres down"));
        let broker = Step::new("broker").depends_on("postgres").start(async |_| {
            println!("ready");
            tokio::time::sleep(FOREVER).await; // Connects to a server that does not respond.
        });
        let broker = match std::env::var("BROKER_TIMEOUT_MS") {
            Ok(millis) => broker.timeout(Duration::from_millis(millis.parse()?)),
            Err(_) => broker,
        };
        Lifecycle::builder().step(postgres).step(broker).build()?.start(&shutdown).await?;
        println!("started");
        Ok::<(), Error>(())
    })
}

pub(crate) fn failing_body() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.add_task(Phase::SERVICE_STOP, "stop", async |_| println!("stopped"))?;
        Err::<(), Error>("no database".into())
    })
}

pub(crate) fn panicking_body() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| -> Result<(), Error> {
        shutdown.add_task(Phase::SERVICE_STOP, "stop", async |_| println!("stopped"))?;
        panic!("no database")
    })
}

pub(crate) fn returning_body() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.add_task(Phase::SERVICE_STOP, "stop", async |_| println!("stopped"))?;
        Ok::<(), Error>(())
    })
}

pub(crate) fn last_word() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        println!("ready");
        println!("{}", shutdown.completed().await?);
        Ok::<(), Error>(())
    })
}

pub(crate) fn resuming_body() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| -> Result<(), Error> {
        shutdown.add_phase(PhaseSpec::new("bad").recover(false))?;
        shutdown.add_phase(PhaseSpec::new("next").after("bad"))?;
        shutdown.add_task("bad", "bad", async |_| Err::<(), _>("no"))?;
        shutdown.add_task("next", "next", async |_| println!("resumed"))?;
        shutdown.run(Reason::Unknown).await?;
        shutdown.resume_from("next")?.await?;
        std::future::pending().await
    })
}

/// The server it connects to responds after the shutdown, which is late in start-up.
pub(crate) fn late_start_up() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        println!("ready");
        shutdown.completed().await?;
        declare_late(&shutdown).await
    })
}

/// Declares something as if the shutdown had not started.
async fn declare_late(shutdown: &Shutdown) -> Result<(), Error> {
    /// Like an error with `#[error(transparent)]`, which does not name its cause.
    #[derive(Debug)]
    struct Transparent(Error);
    impl std::fmt::Display for Transparent {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }
    impl std::error::Error for Transparent {}
    #[derive(Debug)]
    struct WithCause(Error);
    impl std::fmt::Display for WithCause {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("failed to open the pool")
        }
    }
    impl std::error::Error for WithCause {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&*self.0)
        }
    }
    let close_pool =
        || shutdown.add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "close pool", async |_| ());
    match std::env::var("DECLARES")?.as_str() {
        "task" => drop(close_pool()?),
        "task, transparent" => drop(close_pool().map_err(|error| Transparent(error.into()))?),
        "task, with cause" => drop(close_pool().map_err(|error| WithCause(error.into()))?),
        "task, as text" => drop(close_pool().map_err(|error| error.to_string())?),
        "loop" => drop(shutdown.add_loop("jobs", async |cx: LoopCx| cx.stops_now().await)?),
        "gate" => drop(shutdown.add_gate("http")?),
        "phase" => shutdown.add_phase(PhaseSpec::new("late"))?,
        "timeout" => shutdown.set_phase_timeout(Phase::SERVICE_STOP, FOREVER)?,
        "lifecycle" => Lifecycle::builder()
            .step(Step::new("pool").start(async |_| ()))
            .build()?
            .start(shutdown)
            .await
            .map_err(|error| Transparent(error.into()))?,
        other => return Err(other.into()),
    }
    Ok(())
}
