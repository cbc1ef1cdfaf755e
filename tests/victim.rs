//! The process under test: one small program for each way in which a process can end.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the tests read it")]

#[path = "victim/blocked.rs"]
mod blocked;
#[path = "victim/bodies.rs"]
mod bodies;
#[path = "victim/destructors.rs"]
mod destructors;
#[path = "victim/guards.rs"]
mod guards;
#[path = "victim/signals.rs"]
mod signals;

use std::process::ExitCode;
use std::time::Duration;

use adieu::{Phase, Runner, Shutdown, TaskCx};

use self::destructors::Farewell;

type Error = Box<dyn std::error::Error + Send + Sync>;

const FOREVER: Duration = Duration::from_secs(3_600);

type Scenario = fn() -> ExitCode;

/// The programs, by the name that a test passes as the first argument.
const SCENARIOS: [(&str, Scenario); 42] = [
    ("clean", clean),
    ("slow task", slow_task),
    ("guard", guards::guarded),
    ("guard on one thread", guards::guarded_on_one_thread),
    ("guard that finishes", guards::guarded_to_the_end),
    ("guard without a runtime", guards::guarded_without_a_runtime),
    ("returning to a slow task", bodies::returning_to_a_slow_task),
    ("returning on one thread", bodies::returning_on_one_thread),
    ("wedged", blocked::wedged),
    ("request", blocked::request),
    ("wedged in a request", blocked::wedged_in_a_request),
    ("wedged body", blocked::wedged_body),
    ("supervised", supervised),
    ("start-up", bodies::start_up),
    ("lifecycle", bodies::lifecycle),
    ("blocking task", blocked::blocking_task),
    ("blocking pool", blocked::blocking_pool),
    ("panicking task", panicking_task),
    ("failing body", bodies::failing_body),
    ("panicking body", bodies::panicking_body),
    ("returning body", bodies::returning_body),
    ("last word", bodies::last_word),
    ("other signal", signals::other_signal),
    ("hanging guard", destructors::hanging_guard),
    ("signals removed", signals::signals_removed),
    ("signals installed again", signals::signals_installed_again),
    ("dropped", signals::dropped),
    ("resuming body", bodies::resuming_body),
    ("full stderr", blocked::full_stderr),
    ("exit-process", signals::exit_process),
    ("exit-process with a report", signals::exit_process_with_a_report),
    ("logging", blocked::logging),
    ("late start-up", bodies::late_start_up),
    ("own listener", signals::own_listener),
    ("living on", signals::living_on),
    ("signalled after main", signals::signalled_after_main),
    ("signalled after finish", guards::signalled_after_finish),
    ("signalled after guard", guards::signalled_after_guard),
    ("panicking destructor", destructors::panicking_destructor),
    ("panicking guards", destructors::panicking_guards),
    ("panicking body destructor", destructors::panicking_body_destructor),
    ("hanging body destructor", destructors::hanging_body_destructor),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if std::env::var_os("SUBSCRIBES").is_some() {
        tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    }
    match SCENARIOS.iter().find(|(name, _)| *name == wanted) {
        Some((_, run)) => run(),
        None => {
            println!("no such scenario: {wanted}");
            ExitCode::from(2)
        }
    }
}

fn clean() -> ExitCode {
    adieu::main(async |shutdown| {
        shutdown.keep_until_exit(Farewell);
        shutdown.add_task(Phase::SERVICE_UNBIND, "close", async |_| ())?;
        ready_until_begun(&shutdown).await
    })
}

fn slow_task() -> ExitCode {
    adieu::main(async |shutdown| {
        shutdown.keep_until_exit(Farewell);
        shutdown.set_phase_timeout(Phase::SERVICE_STOP, FOREVER)?;
        shutdown.add_task(Phase::SERVICE_STOP, "slow", async |_| {
            println!("slow task started");
            tokio::time::sleep(Duration::from_secs(60)).await;
        })?;
        shutdown.add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "flush", async |_| {
            println!("flushed");
        })?;
        ready_until_begun(&shutdown).await
    })
}

fn supervised() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        for phase in [Phase::SERVICE_UNBIND, Phase::SERVICE_STOP] {
            let wait = async |_| tokio::time::sleep(Duration::from_millis(300)).await;
            shutdown.add_task(phase, "wait", wait)?;
        }
        shutdown.mark_started();
        ready_until_begun(&shutdown).await
    })
}

fn panicking_task() -> ExitCode {
    adieu::main(async |shutdown: Shutdown| {
        shutdown.add_task(Phase::SERVICE_STOP, "bang", async |_| -> () { panic!("bang") })?;
        shutdown.add_task(Phase::CLUSTER_LEAVE, "next", async |_| println!("next"))?;
        ready_until_begun(&shutdown).await
    })
}

/// A runner with two workers, so that two blocked tasks block all of them.
fn runner() -> Runner {
    Runner::new().worker_threads(2)
}

/// A runner on one thread.
fn on_one_thread() -> Runner {
    Runner::new().runtime(|builder| {
        *builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all();
    })
}

fn library(body: impl AsyncFnOnce(Shutdown) -> Result<(), Error>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime
        .map_err(Error::from)
        .and_then(|runtime| runtime.block_on(async { body(Shutdown::new()).await }));
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn ready_until_begun(shutdown: &Shutdown) -> Result<(), Error> {
    println!("ready");
    let reason = shutdown.begun().await;
    println!("begun: {reason}");
    Ok(())
}

async fn adieu_hang(_: TaskCx) {
    std::future::pending().await
}
