//! Programs that install, remove or share signals.

use std::process::ExitCode;

use adieu::{Config, KillAfter, Shutdown, Signal};
use tokio::signal::unix;

use super::{FOREVER, library, ready_until_begun, runner};

pub(crate) fn other_signal() -> ExitCode {
    runner()
        .signals([Signal::USR2])
        .run(async |shutdown: Shutdown| ready_until_begun(&shutdown).await)
}

pub(crate) fn signals_removed() -> ExitCode {
    library(async |shutdown| {
        shutdown.install_signals()?;
        shutdown.remove_signals()?;
        println!("ready");
        tokio::time::sleep(FOREVER).await;
        Ok(())
    })
}

pub(crate) fn signals_installed_again() -> ExitCode {
    library(async |shutdown| {
        shutdown.install_signals()?;
        shutdown.remove_signals()?;
        shutdown.install_signals()?;
        println!("ready");
        println!("{}", shutdown.completed().await?);
        Ok(())
    })
}

pub(crate) fn dropped() -> ExitCode {
    library(async |shutdown| {
        shutdown.install_signals()?;
        drop(shutdown);
        println!("ready");
        tokio::time::sleep(FOREVER).await;
        Ok(())
    })
}

pub(crate) fn exit_process() -> ExitCode {
    library(async |_| {
        let config = Config::new().kill_after(KillAfter::Never).exit_process(true).exit_code(5);
        let shutdown = Shutdown::configured(config)?;
        shutdown.install_signals()?;
        println!("ready");
        std::thread::sleep(FOREVER);
        Ok(())
    })
}

pub(crate) fn exit_process_with_a_report() -> ExitCode {
    library(async |_| {
        let config = Config::from_env()?.exit_process(true);
        let shutdown = Shutdown::configured(config)?;
        shutdown.install_signals()?;
        println!("ready");
        std::future::pending().await
    })
}

pub(crate) fn own_listener() -> ExitCode {
    library(async |shutdown| {
        let listen = || unix::signal(unix::SignalKind::terminate());
        let mut mine = None;
        let when = std::env::var("LISTENS")?;
        if when == "before" {
            mine = Some(listen()?);
        }
        shutdown.install_signals()?;
        if when == "meanwhile" {
            mine = Some(listen()?);
        }
        shutdown.remove_signals()?;
        let mut mine = mine.map_or_else(listen, Ok)?;
        for time in ["ready", "once", "twice"] {
            println!("{time}");
            mine.recv().await;
        }
        Ok(())
    })
}

pub(crate) fn living_on() -> ExitCode {
    library(async |shutdown| {
        shutdown.install_signals()?;
        println!("ready");
        shutdown.completed().await?;
        println!("over");
        std::future::pending().await
    })
}

pub(crate) fn signalled_after_main() -> ExitCode {
    let code = adieu::main(async |shutdown| ready_until_begun(&shutdown).await);
    signal_this_process();
    code
}

/// Sends SIGTERM to this process, which is about to end.
pub(crate) fn signal_this_process() {
    let kill = format!("kill -TERM {}", std::process::id());
    let sent = std::process::Command::new("sh").args(["-c", &kill]).status();
    // Long enough for a thread that would end the process.
    std::thread::sleep(std::time::Duration::from_millis(300));
    println!("sent: {}", sent.is_ok_and(|sent| sent.success()));
}
