//! Programs whose destructors hang or panic.

use std::process::ExitCode;

use adieu::{Config, Phase, Reason, Shutdown};

use super::{Error, FOREVER, library, ready_until_begun};

pub(crate) fn hanging_guard() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.keep_until_exit(HangingGuard);
        ready_until_begun(&shutdown).await
    })
}

pub(crate) fn panicking_destructor() -> ExitCode {
    library(async |_| {
        let text = "phases.service-stop.enabled = false\nexit-process = true\nexit-code = 5";
        let shutdown = Shutdown::configured(Config::parse(text, adieu::Format::Toml)?)?;
        for name in ["one", "two"] {
            let bomb = Bomb(name);
            shutdown.add_task(Phase::SERVICE_STOP, name, async move |_| drop(bomb))?;
        }
        shutdown.run(Reason::Unknown).await?;
        println!("over");
        std::future::pending().await
    })
}

pub(crate) fn panicking_guards() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.keep_until_exit(Farewell);
        shutdown.keep_until_exit(Bomb("one"));
        shutdown.keep_until_exit(Bomb("two"));
        ready_until_begun(&shutdown).await
    })
}

pub(crate) fn panicking_body_destructor() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.keep_until_exit(Farewell);
        let _bomb = Bomb("body");
        println!("ready");
        std::future::pending::<()>().await;
        Ok::<(), Error>(())
    })
}

pub(crate) fn hanging_body_destructor() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.keep_until_exit(Farewell);
        let _hangs = HangingGuard;
        let ended = ready_until_begun(&shutdown).await;
        if std::env::var_os("WAITS").is_some() {
            std::future::pending::<()>().await;
        }
        ended
    })
}

/// Shows when it is dropped.
pub(crate) struct Farewell;

impl Drop for Farewell {
    fn drop(&mut self) {
        println!("guard dropped");
    }
}

struct HangingGuard;

impl Drop for HangingGuard {
    fn drop(&mut self) {
        std::thread::sleep(FOREVER);
    }
}

/// Panics when it is dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a destructor that panics: {}", self.0);
    }
}
