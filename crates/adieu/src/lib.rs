//! Coordinated shutdown for Rust services.
//!
//! [`main`] owns the process: runtime, signals, phases, exit code. With the feature `axum`, the service
//! drops no request during a deploy.
//!
#![cfg_attr(feature = "axum", doc = "```no_run")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! use adieu::{Phase, http};
//! use axum::{Router, routing::get};
//! use tokio::{fs::File, net::TcpListener};
//!
//! fn main() -> std::process::ExitCode {
//!     adieu::main(async |shutdown| {
//!         shutdown.keep_until_exit(http::Admin::new(&shutdown).start()?); // for `adieu status`
//!         let log = File::create("orders.log").await?;
//!         let close = async move |_| log.sync_all().await; // errors are reported
//!         shutdown.add_task(Phase::CLOSE_RESOURCES, "close log", close)?; // after requests and actors
//!         let app = Router::new().route("/", get(async || "hello"));
//!         let listener = TcpListener::bind("0.0.0.0:8080").await?;
//!         http::serve(listener, app, &shutdown).probes(http::Probes::new(&shutdown)).await?;
//!         Ok::<_, http::BoxError>(())
//!     })
//! }
//! ```
//!
//! Inside an existing `#[tokio::main]`, the same engine is a handle:
//!
//! ```no_run
//! use adieu::{Phase, PhaseSpec, Shutdown, TaskCx};
//! use std::time::Duration;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let shutdown = Shutdown::new();
//!     let _exit = shutdown.run_on_exit(); // runs it when `main` returns, fails or unwinds
//!     shutdown.install_signals()?;
//!     shutdown.start_watchdog()?; // ends the process at the deadline, whatever hangs
//!     shutdown.add_phase(
//!         PhaseSpec::new("flush-metrics")
//!             .after(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE)
//!             .timeout(Duration::from_secs(3)),
//!     )?;
//!     shutdown.add_task("flush-metrics", "push", async |cx: TaskCx| {
//!         println!("pushed with {:?} left", cx.remaining());
//!     })?;
//!     let report = shutdown.completed().await?; // or: shutdown.run(Reason::Unknown).await?
//!     println!("{report}");
//!     report.into_result()?; // an abort, or a task that failed, is an error from here on
//!     Ok(())
//! }
//! ```
//!
//! # Terms
//!
//! - A [`Phase`] is a named stage of the shutdown. Akka's twelve are built in, and
//!   [`Phase::CLOSE_RESOURCES`] after them; they run in the order of [`Phase::BUILT_IN`]. A
//!   [`PhaseSpec`] describes a custom phase. A phase starts when all its dependencies have ended;
//!   phases that do not depend on each other run at the same time.
//! - A task is a named function in a phase, async or blocking. It receives a [`TaskCx`]: the reason,
//!   the deadline, a cancellation token. The tasks of a phase run at the same time.
//! - A [`Gate`] admits work until it is closed; a [`Pass`] is one admitted unit of work. Create a gate
//!   with [`Shutdown::gate`]; the shutdown closes it and waits for the admitted work.
//! - A loop takes work while the process runs: [`Shutdown::add_loop`] runs it, restarts it when it
//!   crashes, and joins it. A consumer takes its jobs from a [`Source`].
//! - A [`Step`] starts with the process and stops with it. A [`Lifecycle`] orders steps in waves, by
//!   the capabilities that each requires and provides, and stops them in reverse.
//! - [`Readiness`] says whether work should be sent here. It follows from [`Shutdown::started`],
//!   from each [`Promise`] and check, from cordons and from the shutdown; nobody can set it.
//! - A [`Reason`] is the cause of the shutdown. The first one wins.
//! - The [`Deadline`] is fixed when the shutdown begins, and can only be shortened. It follows from
//!   [`KillAfter`]: the time that the platform allows between its signal and the kill.
//! - The [`Report`] contains the outcome and the time of every phase and task. It prints as a timeline
//!   and maps to an [`ExitCode`].
//! - A [`Plan`] is the phases and their dependencies, proved acyclic, with the worst case.
//!
//! # Which item do I need
//!
//! | I want to | use |
//! |---|---|
//! | write a new service | [`main`], or [`Runner`] to set more |
//! | add shutdown to an existing one | [`Shutdown::new`], [`Shutdown::install_signals`], [`Shutdown::run_on_exit`] |
//! | configure it from a file | [`Config`], [`Shutdown::configured`]; the keys are in [`config`], all environment variables in `docs/environment.md` of the repository |
//! | start resources in order, and stop them in reverse | [`Lifecycle`], [`Step`] |
//! | run code at shutdown | [`Shutdown::add_task`], [`Shutdown::add_blocking_task`] |
//! | serve axum or tonic without dropping a request | `http::serve`, with the feature `axum` or `tonic` |
//! | admit no work that cannot be finished | [`Shutdown::gate`], [`Gate::enter`] |
//! | limit how long requests may take to finish | `drain-timeout` in the configuration |
//! | consume a queue | [`Shutdown::add_consumer`], [`Source`] |
//! | run code every minute | [`Shutdown::add_periodic`] |
//! | run any other background loop | [`Shutdown::add_loop`] |
//! | be unready while a database is away | [`Shutdown::check`] |
//! | drain actors of kameo or ractor, or plain tasks with a mailbox | `actors::ActorSystem::on`, with the feature `kameo` or `ractor` |
//! | run actors on dedicated threads | `actors::WorkerThreads::on` |
//! | use several actor systems and worker threads on one shutdown | `on` for each of them: they are drained together |
//! | run work on one replica, or once per fleet | `fleet::Fleet` for steps of start-up, `fleet::Lock` for the rest, with the feature `fleet` |
//! | elect a leader among replicas | `fleet::Lock::lead` |
//! | see what the shutdown waits for | the log, [`Shutdown::status`] |
//! | test a shutdown | [`Config::for_tests`]; the crate `adieu-testkit` starts and signals processes, and its `ledger` checks from outside whether a service lost accepted work |
//!
//! # Which phase for which task
//!
//! | phase | tasks |
//! |---|---|
//! | [`BEFORE_SERVICE_UNBIND`](Phase::BEFORE_SERVICE_UNBIND) | announce the shutdown: readiness, lame duck |
//! | [`SERVICE_UNBIND`](Phase::SERVICE_UNBIND) | close listeners and gates, stop consumers |
//! | [`SERVICE_REQUESTS_DONE`](Phase::SERVICE_REQUESTS_DONE) | wait for admitted work |
//! | [`SERVICE_STOP`](Phase::SERVICE_STOP) | cancel the remaining work |
//! | [`BEFORE_CLUSTER_SHUTDOWN`](Phase::BEFORE_CLUSTER_SHUTDOWN) | your own, when no new work can arrive |
//! | `CLUSTER_…` | leave a cluster |
//! | [`BEFORE_ACTOR_SYSTEM_TERMINATE`](Phase::BEFORE_ACTOR_SYSTEM_TERMINATE) | your own, while actors still process messages: flush |
//! | [`ACTOR_SYSTEM_TERMINATE`](Phase::ACTOR_SYSTEM_TERMINATE) | actors are drained |
//! | [`CLOSE_RESOURCES`](Phase::CLOSE_RESOURCES) | close pools, stores, brokers, clients |
//! | [`stop-steps`](Lifecycle::PHASE) | steps are stopped, in reverse |
//!
//! One rule decides where a pool is closed: **close resources that actors use after the actors. Make
//! such a resource a [`Step`], or close it in a task of [`Phase::CLOSE_RESOURCES`].** If a pool is
//! closed earlier, messages fail that actors still have to process. Tasks in `close-resources` may use
//! resources of steps, because steps are stopped later. A custom phase runs before the actors
//! terminate, unless it is declared to run after [`Phase::ACTOR_SYSTEM_TERMINATE`].
//!
//! # How long requests have
//!
//! When gates have closed, admitted work has a window to finish: requests, jobs, streams and upgraded
//! connections. The window is the time that the platform allows, less the worst case of the later
//! phases that have tasks, less the reserve, and never less than `default-phase-timeout`. If no
//! deadline is known, at a terminal for example, the window is ten seconds. `drain-timeout` in the
//! [configuration](config), or [`Config::drain_timeout`], sets another length. `adieu check` prints the
//! length of the window in a deployment; the progress line, every five seconds, contains the rest of
//! it.
//!
//! # Signals
//!
//! SIGTERM and SIGINT run the shutdown. Repeated signals escalate, and each logs the effect of the
//! next: a second SIGINT cancels running tasks and continues with the closing phases, a third exits
//! immediately. A second SIGTERM only ends waiting: tasks that also wait for [`TaskCx::hurried`] end
//! then. See [`Rung`].
//!
//! # Logs, status and reports
//!
//! Everything is logged through `tracing`. [`main`] writes to stderr if no subscriber is set; a
//! [`Shutdown`] that you create does not, so set up a subscriber. [`Shutdown::status`] and the
//! [`Report`] contain the same information as values.
//!
//! The command `adieu` (crate `adieu-cli`) shows it from outside. Before a deploy, `adieu check
//! --config service.toml --manifest deploy.yaml` checks whether the platform waits long enough before
//! it kills the process, and suggests changes. While a service stops, `adieu watch` follows its admin
//! port. Afterwards, `adieu report` draws a timeline.
//!
//! # Background work
//!
//! A loop receives a [`LoopCx`], which signals when to take no more work and when to stop. When gates
//! close, only the wait for work is dropped, never the work:
//!
//! ```no_run
//! # use adieu::{LoopCx, Shutdown};
//! # #[derive(Clone)] struct Queue;
//! # impl Queue { async fn next(&self) -> u32 { 7 } async fn requeue(&self, _: u32) {} }
//! # async fn work(_: u32) {}
//! # fn spawn(shutdown: &Shutdown, queue: Queue) -> Result<(), adieu::AddLoopError> {
//! shutdown.add_loop("worker", move |cx: LoopCx| {
//!     let queue = queue.clone();
//!     async move {
//!         while cx.may_take().await {
//!             let Some(job) = cx.take(queue.next()).await else { continue };
//!             match cx.enter() {
//!                 Ok(pass) => pass.scope(work(job)).await,
//!                 Err(_) => queue.requeue(job).await, // the gate has just closed
//!             }
//!         }
//!     }
//! })?;
//! # Ok(()) }
//! ```
//!
//! A spawned tokio task can end with [`Shutdown::token`], and be joined in a task of the shutdown:
//!
//! ```no_run
//! # use adieu::{Phase, Shutdown};
//! # async fn tick() {}
//! # fn spawn(shutdown: &Shutdown) -> Result<(), adieu::AddTaskError> {
//! let worker = tokio::spawn({
//!     let stop = shutdown.token();
//!     async move {
//!         while stop.run_until_cancelled(tick()).await.is_some() {}
//!     }
//! });
//! shutdown.add_task(Phase::BEFORE_CLUSTER_SHUTDOWN, "join worker", async |_| worker.await)?;
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `hocon` | configuration in HOCON, as Akka and Akka.NET have it |
//! | `metrics` | counters and histograms through the `metrics` facade |
//! | `http` | the module `http`: a server with a real drain, a tower layer, probes, an admin port |
//! | `axum`, `tonic` | `http`, for applications of these frameworks |
//! | `tls` | `http` over rustls |
//! | `prometheus` | `http`, with a recorder of metrics behind the admin port's `/metrics` |
//! | `fleet` | the module `fleet`: locks and leases with fences, once-per-fleet work, a leader; in memory and in files |
//! | `redis`, `postgres`, `etcd` | `fleet`, with locks in these servers and the client re-exported; `etcd` needs `protoc` to build |
//! | `systemd` | notifies systemd, for a unit of `Type=notify` |
//! | `actors` | the module `actors`: a tree of actors, drained leaves first |
//! | `kameo`, `ractor` | `actors`, for the actors of these two |
//!
//! The minimum supported Rust version is the `rust-version` of the manifest; raising it is a minor
//! release.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(feature = "systemd", unix))]
pub use adieu_core::NotifyError;
pub use adieu_core::{
    // Starting up
    Act,
    // Background work
    AddLoopError,
    // Declaring and running
    AddPhaseError,
    AddTaskError,
    AssembleError,
    AwaitError,
    Backoff,
    // Why and when
    BudgetCheck,
    // Readiness
    Check,
    CheckHandle,
    CheckState,
    Completion,
    // Configuration
    Config,
    ConfigError,
    Consumer,
    // The plan
    CriticalPath,
    CriticalPathView,
    CustomReason,
    Deadline,
    DeploymentProfile,
    // Admitting work
    Drain,
    DrainClass,
    Draining,
    // Status and report
    Ending,
    ExitCode,
    ExitGuard,
    Format,
    Gate,
    Interrupted,
    JobCx,
    KillAfter,
    Known,
    Lifecycle,
    LifecycleBuilder,
    LoopCx,
    LoopSpec,
    Names,
    Order,
    Outcome,
    Pass,
    Periodic,
    Phase,
    PhaseReport,
    PhaseSpec,
    PhaseView,
    Plan,
    PlanBuilder,
    PlanError,
    PlanView,
    PlannedPhase,
    Platform,
    Policy,
    Problem,
    Promise,
    Readiness,
    Reason,
    Report,
    ResumeError,
    Rung,
    Runner,
    Scope,
    Shutdown,
    Signal,
    SignalError,
    SkipCause,
    Source,
    Stage,
    StartCx,
    StartError,
    StartHook,
    StartResult,
    Started,
    Status,
    Step,
    StepError,
    StopCx,
    StopHook,
    TaskCx,
    TaskHandle,
    TaskInfo,
    TaskReport,
    TaskResult,
    TaskSpec,
    Times,
    UncleanShutdown,
    Verdict,
    Waiting,
    WaitingFor,
    WeakShutdown,
    config,
    main,
};

/// Draining a tree of actors leaves first.
#[cfg(feature = "actors")]
#[doc(inline)]
pub use adieu_actors as actors;

/// Locks and leases with fences, once-per-fleet work and leader election.
#[cfg(feature = "fleet")]
#[doc(inline)]
pub use adieu_fleet as fleet;

/// Serving HTTP and gRPC with a real drain.
#[cfg(feature = "http")]
#[doc(inline)]
pub use adieu_http as http;

/// The README's program compiles.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
