//! Programs with a `main` of their own and an exit guard.

use std::process::{ExitCode, Termination};
use std::time::Duration;

use adieu::{Config, Phase, Reason, Shutdown};

use super::signals::signal_this_process;
use super::{Error, FOREVER};

/// A shutdown with two tasks, in a process that does not end without it.
fn with_goodbye() -> Result<Shutdown, Error> {
    let shutdown = Shutdown::configured(Config::from_env()?)?;
    shutdown.install_signals()?;
    for (phase, word) in [(Phase::SERVICE_STOP, "stopping"), (Phase::CLOSE_RESOURCES, "closed")] {
        shutdown.add_task(phase, word, async move |_| {
            tokio::time::sleep(Duration::from_millis(50)).await;
            println!("{word}");
        })?;
    }
    if std::env::var_os("HANGS").is_some() {
        shutdown.start_watchdog()?;
        tokio::task::spawn_blocking(|| std::thread::sleep(FOREVER));
    }
    if let Ok(bad) = std::env::var("BAD_TASK") {
        shutdown.add_task(Phase::SERVICE_STOP, "bad", async move |_| Err::<(), _>(bad))?;
    }
    Ok(shutdown)
}

/// Ends `main` in the way that the test requires.
async fn end_as_asked(shutdown: &Shutdown) -> Result<(), Error> {
    match std::env::var("ENDS")?.as_str() {
        "returns" => Ok(()),
        "fails" => Err("no database".into()),
        "unwinds" => panic!("no database"),
        "is over" => shutdown.run(Reason::Unknown).await.map(drop).map_err(Into::into),
        "is notified" => {
            println!("ready");
            shutdown.begun().await;
            Ok(())
        }
        "exits" =>
        {
            #[expect(clippy::exit, clippy::disallowed_methods, reason = "the subject of the test")]
            std::process::exit(3)
        }
        other => Err(other.into()),
    }
}

pub(crate) fn guarded() -> ExitCode {
    #[tokio::main]
    async fn main() -> Result<(), Error> {
        let shutdown = with_goodbye()?;
        let _exit = shutdown.run_on_exit();
        end_as_asked(&shutdown).await
    }
    main().report()
}

pub(crate) fn guarded_on_one_thread() -> ExitCode {
    #[tokio::main(flavor = "current_thread")]
    async fn main() -> Result<(), Error> {
        let shutdown = with_goodbye()?;
        let _exit = shutdown.run_on_exit();
        end_as_asked(&shutdown).await
    }
    main().report()
}

pub(crate) fn guarded_to_the_end() -> ExitCode {
    #[tokio::main(flavor = "current_thread")]
    async fn main() -> ExitCode {
        let shutdown = with_goodbye().unwrap_or_else(|error| panic!("{error}"));
        let exit = shutdown.run_on_exit();
        exit.finish(end_as_asked(&shutdown).await).await
    }
    main()
}

pub(crate) fn signalled_after_finish() -> ExitCode {
    let code = guarded_to_the_end();
    signal_this_process();
    code
}

pub(crate) fn signalled_after_guard() -> ExitCode {
    let code = guarded();
    signal_this_process();
    code
}

pub(crate) fn guarded_without_a_runtime() -> ExitCode {
    fn main() -> Result<(), Error> {
        let shutdown = with_goodbye()?;
        let _exit = shutdown.run_on_exit();
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(end_as_asked(&shutdown))
    }
    main().report()
}
