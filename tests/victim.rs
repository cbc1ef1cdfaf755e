//! The process under test: one small program for each way in which a process can end.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the tests read it")]

use std::process::{ExitCode, Termination};
use std::time::Duration;

use adieu::{
    Config, KillAfter, Lifecycle, LoopCx, Phase, PhaseSpec, Reason, Runner, Shutdown, Signal, Step,
    TaskCx,
};
use tokio::signal::unix;

type Error = Box<dyn std::error::Error + Send + Sync>;

const FOREVER: Duration = Duration::from_secs(3_600);

fn main() -> ExitCode {
    let scenario = std::env::args().nth(1).unwrap_or_default();
    let runner = || Runner::new().worker_threads(2);
    if std::env::var_os("SUBSCRIBES").is_some() {
        tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    }
    match scenario.as_str() {
        "clean" => adieu::main(async |shutdown| {
            shutdown.keep_until_exit(Farewell);
            shutdown.add_task(Phase::SERVICE_UNBIND, "close", async |_| ())?;
            ready_until_begun(&shutdown).await
        }),
        "slow task" => adieu::main(async |shutdown| {
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
        }),
        "guard" => guarded(),
        "guard on one thread" => guarded_on_one_thread(),
        "guard that finishes" => guarded_to_the_end(),
        "guard without a runtime" => guarded_without_a_runtime(),
        "returning to a slow task" => adieu::main(async |shutdown: Shutdown| {
            shutdown.set_phase_timeout(Phase::SERVICE_STOP, FOREVER)?;
            shutdown.add_task(Phase::SERVICE_STOP, "slow", async |_| {
                println!("ready");
                tokio::time::sleep(FOREVER).await;
            })?;
            Ok::<(), Error>(())
        }),
        "returning on one thread" => {
            let one_thread = |builder: &mut tokio::runtime::Builder| {
                *builder = tokio::runtime::Builder::new_current_thread();
                builder.enable_all();
            };
            Runner::new().runtime(one_thread).run(async |shutdown: Shutdown| {
                shutdown.add_task(Phase::SERVICE_STOP, "work", async |_| {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    println!("worked");
                })?;
                Ok::<(), Error>(())
            })
        }
        "wedged" => runner().run(async |shutdown: Shutdown| {
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
        }),
        // A request that does not end, and does not listen.
        "request" => adieu::main(async |shutdown: Shutdown| {
            let gate = shutdown.add_gate("orders")?;
            let _pass = gate.enter()?.labelled("export 7");
            if std::env::var_os("CLOSES").is_none() {
                shutdown.set_phase_timeout(Phase::CLOSE_RESOURCES, FOREVER)?;
                shutdown.add_task(Phase::CLOSE_RESOURCES, "stuck", adieu_hang)?;
            }
            println!("ready");
            std::future::pending::<()>().await;
            Ok::<(), Error>(())
        }),
        // Only the watchdog can end this: the thread that would drain has no time.
        "wedged in a request" => {
            let one_thread = |builder: &mut tokio::runtime::Builder| {
                *builder = tokio::runtime::Builder::new_current_thread();
                builder.enable_all();
            };
            Runner::new().runtime(one_thread).run(async |shutdown: Shutdown| {
                let gate = shutdown.add_gate("orders")?;
                let _pass = gate.enter()?.labelled("export 7");
                println!("ready");
                std::thread::sleep(FOREVER);
                Ok::<(), Error>(())
            })
        }
        // The body blocks the main thread, so only the watchdog can end this.
        "wedged body" => runner().run(async |shutdown: Shutdown| {
            shutdown.add_task(Phase::SERVICE_STOP, "stuck", adieu_hang)?;
            println!("ready");
            std::thread::sleep(FOREVER);
            Ok::<(), Error>(())
        }),
        "supervised" => adieu::main(async |shutdown: Shutdown| {
            for phase in [Phase::SERVICE_UNBIND, Phase::SERVICE_STOP] {
                let wait = async |_| tokio::time::sleep(Duration::from_millis(300)).await;
                shutdown.add_task(phase, "wait", wait)?;
            }
            shutdown.mark_started();
            ready_until_begun(&shutdown).await
        }),
        "start-up" => adieu::main(async |shutdown: Shutdown| {
            shutdown.add_task(Phase::SERVICE_STOP, "stop", async |_| println!("stopped"))?;
            println!("ready");
            tokio::time::sleep(FOREVER).await; // Connects to a server that does not respond.
            println!("started");
            Ok::<(), Error>(())
        }),
        "lifecycle" => adieu::main(async |shutdown: Shutdown| {
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
        }),
        "blocking task" => adieu::main(async |shutdown: Shutdown| {
            shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_millis(300))?;
            shutdown
                .add_blocking_task(Phase::SERVICE_STOP, "stuck", |_| std::thread::sleep(FOREVER))?;
            ready_until_begun(&shutdown).await
        }),
        // A thread of the runtime's pool, for which dropping the runtime would wait.
        "blocking pool" => adieu::main(async |shutdown: Shutdown| {
            tokio::task::spawn_blocking(|| std::thread::sleep(FOREVER));
            ready_until_begun(&shutdown).await
        }),
        "panicking task" => adieu::main(async |shutdown: Shutdown| {
            shutdown.add_task(Phase::SERVICE_STOP, "bang", async |_| -> () { panic!("bang") })?;
            shutdown.add_task(Phase::CLUSTER_LEAVE, "next", async |_| println!("next"))?;
            ready_until_begun(&shutdown).await
        }),
        "failing body" => adieu::main(async |shutdown: Shutdown| {
            shutdown.add_task(Phase::SERVICE_STOP, "stop", async |_| println!("stopped"))?;
            Err::<(), Error>("no database".into())
        }),
        "panicking body" => adieu::main(async |shutdown: Shutdown| -> Result<(), Error> {
            shutdown.add_task(Phase::SERVICE_STOP, "stop", async |_| println!("stopped"))?;
            panic!("no database")
        }),
        "returning body" => adieu::main(async |shutdown: Shutdown| {
            shutdown.add_task(Phase::SERVICE_STOP, "stop", async |_| println!("stopped"))?;
            Ok::<(), Error>(())
        }),
        "last word" => adieu::main(async |shutdown: Shutdown| {
            println!("ready");
            println!("{}", shutdown.completed().await?);
            Ok::<(), Error>(())
        }),
        "other signal" => runner()
            .signals([Signal::USR2])
            .run(async |shutdown: Shutdown| ready_until_begun(&shutdown).await),
        "hanging guard" => adieu::main(async |shutdown: Shutdown| {
            shutdown.keep_until_exit(HangingGuard);
            ready_until_begun(&shutdown).await
        }),
        "signals removed" => library(async |shutdown| {
            shutdown.install_signals()?;
            shutdown.remove_signals()?;
            println!("ready");
            tokio::time::sleep(FOREVER).await;
            Ok(())
        }),
        "signals installed again" => library(async |shutdown| {
            shutdown.install_signals()?;
            shutdown.remove_signals()?;
            shutdown.install_signals()?;
            println!("ready");
            println!("{}", shutdown.completed().await?);
            Ok(())
        }),
        "dropped" => library(async |shutdown| {
            shutdown.install_signals()?;
            drop(shutdown);
            println!("ready");
            tokio::time::sleep(FOREVER).await;
            Ok(())
        }),
        "resuming body" => adieu::main(async |shutdown: Shutdown| -> Result<(), Error> {
            shutdown.add_phase(PhaseSpec::new("bad").recover(false))?;
            shutdown.add_phase(PhaseSpec::new("next").after("bad"))?;
            shutdown.add_task("bad", "bad", async |_| Err::<(), _>("no"))?;
            shutdown.add_task("next", "next", async |_| println!("resumed"))?;
            shutdown.run(Reason::Unknown).await?;
            shutdown.resume_from("next")?.await?;
            std::future::pending().await
        }),
        "full stderr" => adieu::main(async |shutdown: Shutdown| {
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
        }),
        "exit-process" => library(async |_| {
            let config = Config::new().kill_after(KillAfter::Never).exit_process(true).exit_code(5);
            let shutdown = Shutdown::configured(config)?;
            shutdown.install_signals()?;
            println!("ready");
            std::thread::sleep(FOREVER);
            Ok(())
        }),
        "exit-process with a report" => library(async |_| {
            let config = Config::from_env()?.exit_process(true);
            let shutdown = Shutdown::configured(config)?;
            shutdown.install_signals()?;
            println!("ready");
            std::future::pending().await
        }),
        // Logs to stdout as most services do. With `STUFF`, until the pipe is full.
        "logging" => {
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
        // The server it connects to responds after the shutdown, which is late in start-up.
        "late start-up" => adieu::main(async |shutdown: Shutdown| {
            println!("ready");
            shutdown.completed().await?;
            declare_late(&shutdown).await
        }),
        "own listener" => library(async |shutdown| {
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
        }),
        "living on" => library(async |shutdown| {
            shutdown.install_signals()?;
            println!("ready");
            shutdown.completed().await?;
            println!("over");
            std::future::pending().await
        }),
        "panicking destructor" => library(async |_| {
            let text = "phases.service-stop.enabled = false\nexit-process = true\nexit-code = 5";
            let shutdown = Shutdown::configured(Config::parse(text, adieu::Format::Toml)?)?;
            for name in ["one", "two"] {
                let bomb = Bomb(name);
                shutdown.add_task(Phase::SERVICE_STOP, name, async move |_| drop(bomb))?;
            }
            shutdown.run(Reason::Unknown).await?;
            println!("over");
            std::future::pending().await
        }),
        "panicking guards" => adieu::main(async |shutdown: Shutdown| {
            shutdown.keep_until_exit(Farewell);
            shutdown.keep_until_exit(Bomb("one"));
            shutdown.keep_until_exit(Bomb("two"));
            ready_until_begun(&shutdown).await
        }),
        "panicking body destructor" => adieu::main(async |shutdown: Shutdown| {
            shutdown.keep_until_exit(Farewell);
            let _bomb = Bomb("body");
            println!("ready");
            std::future::pending::<()>().await;
            Ok::<(), Error>(())
        }),
        "hanging body destructor" => adieu::main(async |shutdown: Shutdown| {
            shutdown.keep_until_exit(Farewell);
            let _hangs = HangingGuard;
            let ended = ready_until_begun(&shutdown).await;
            if std::env::var_os("WAITS").is_some() {
                std::future::pending::<()>().await;
            }
            ended
        }),
        other => {
            println!("no such scenario: {other}");
            ExitCode::from(2)
        }
    }
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

fn guarded() -> ExitCode {
    #[tokio::main]
    async fn main() -> Result<(), Error> {
        let shutdown = with_goodbye()?;
        let _exit = shutdown.run_on_exit();
        end_as_asked(&shutdown).await
    }
    main().report()
}

fn guarded_on_one_thread() -> ExitCode {
    #[tokio::main(flavor = "current_thread")]
    async fn main() -> Result<(), Error> {
        let shutdown = with_goodbye()?;
        let _exit = shutdown.run_on_exit();
        end_as_asked(&shutdown).await
    }
    main().report()
}

fn guarded_to_the_end() -> ExitCode {
    #[tokio::main(flavor = "current_thread")]
    async fn main() -> ExitCode {
        let shutdown = with_goodbye().unwrap_or_else(|error| panic!("{error}"));
        let exit = shutdown.run_on_exit();
        exit.finish(end_as_asked(&shutdown).await).await
    }
    main()
}

fn guarded_without_a_runtime() -> ExitCode {
    fn main() -> Result<(), Error> {
        let shutdown = with_goodbye()?;
        let _exit = shutdown.run_on_exit();
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(end_as_asked(&shutdown))
    }
    main().report()
}

async fn adieu_hang(_: TaskCx) {
    std::future::pending().await
}

struct Farewell;

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
