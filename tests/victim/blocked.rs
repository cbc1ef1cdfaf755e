//! Programs in which threads, requests or outputs are blocked.

use std::process::ExitCode;
use std::time::Duration;

use adieu::{Phase, Shutdown};

use super::{Error, FOREVER, adieu_hang, on_one_thread, ready_until_begun, runner};

pub(crate) fn wedged() -> ExitCode {
    runner().run(async |shutdown: Shutdown| {
        shutdown.add_task(Phase::SERVICE_STOP, "never polled", async |_| ())?;
        shutdown.add_blocking_task(Phase::SERVICE_STOP, "on its thread", |_| ())?;
        let mut blockers = tokio::task::JoinSet::new();
        let (block, blocked) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let block = block.clone();
            blockers.spawn(async move {
                let _ = block.send(());
                std::thread::sleep(FOREVER);
            });
        }
        // Both occupy a worker thread for ever.
        blocked.recv()?;
        blocked.recv()?;
        ready_until_begun(&shutdown).await?;
        std::future::pending::<()>().await;
        Ok::<(), Error>(())
    })
}

/// A request that does not end, and does not listen.
pub(crate) fn request() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        let gate = shutdown.add_gate("orders")?;
        let _pass = gate.enter()?.labelled("export 7");
        if std::env::var_os("CLOSES").is_none() {
            shutdown.set_phase_timeout(Phase::CLOSE_RESOURCES, FOREVER)?;
            shutdown.add_task(Phase::CLOSE_RESOURCES, "stuck", adieu_hang)?;
        }
        println!("ready");
        std::future::pending::<()>().await;
        Ok::<(), Error>(())
    })
}

/// Only the watchdog can end this: the thread that would drain has no time.
pub(crate) fn wedged_in_a_request() -> ExitCode {
    on_one_thread().run(async |shutdown: Shutdown| {
        let gate = shutdown.add_gate("orders")?;
        let _pass = gate.enter()?.labelled("export 7");
        println!("ready");
        std::thread::sleep(FOREVER);
        Ok::<(), Error>(())
    })
}

/// The body blocks the main thread, so only the watchdog can end this.
pub(crate) fn wedged_body() -> ExitCode {
    runner().run(async |shutdown: Shutdown| {
        shutdown.add_task(Phase::SERVICE_STOP, "stuck", adieu_hang)?;
        println!("ready");
        std::thread::sleep(FOREVER);
        Ok::<(), Error>(())
    })
}

pub(crate) fn blocking_task() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_millis(300))?;
        shutdown
            .add_blocking_task(Phase::SERVICE_STOP, "stuck", |_| std::thread::sleep(FOREVER))?;
        ready_until_begun(&shutdown).await
    })
}

/// A thread of the runtime's pool, for which dropping the runtime would wait.
pub(crate) fn blocking_pool() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        tokio::task::spawn_blocking(|| std::thread::sleep(FOREVER));
        ready_until_begun(&shutdown).await
    })
}

pub(crate) fn full_stderr() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.add_task(Phase::SERVICE_STOP, "stuck", adieu_hang)?;
        let (full, filled) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            use std::io::Write;
            // A pipe holds 64 KiB. The write that fills it blocks, and locks stderr.
            let mut stderr = std::io::stderr().lock();
            let _ = stderr.write_all(&[b'x'; 60 * 1024]);
            let _ = full.send(());
            loop {
                let _ = stderr.write_all(&[b'x'; 8 * 1024]);
            }
        });
        filled.recv()?;
        println!("ready");
        std::future::pending::<()>().await;
        Ok::<(), Error>(())
    })
}

/// Logs to stdout as most services do. With `STUFF`, until the pipe is full.
pub(crate) fn logging() -> ExitCode {
    tracing_subscriber::fmt().init();
    runner().run(async |shutdown: Shutdown| {
        for phase in [
            Phase::BEFORE_SERVICE_UNBIND,
            Phase::SERVICE_STOP,
            Phase::BEFORE_ACTOR_SYSTEM_TERMINATE,
        ] {
            let work = async |_| tokio::time::sleep(Duration::from_millis(5)).await;
            shutdown.add_task(phase, "work", work)?;
        }
        if std::env::var_os("STUFF").is_some() {
            stuff_stdout()?;
        }
        eprintln!("ready");
        shutdown.begun().await;
        Ok::<(), Error>(())
    })
}

/// Fills the pipe behind stdout and continues to write, so that every write to it blocks.
fn stuff_stdout() -> Result<(), Error> {
    let (full, filled) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        use std::io::Write;
        let mut stdout = std::io::stdout().lock();
        // A pipe holds 64 KiB. The write that fills it blocks, and locks stdout.
        let _ = stdout.write_all(&[b'x'; 60 * 1024]);
        let _ = full.send(());
        loop {
            let _ = stdout.write_all(&[b'x'; 8 * 1024]);
        }
    });
    Ok(filled.recv()?)
}
