//! Coordinated shutdown for Rust services.
//!
//! A service that owns its process: runtime, signals, phases, exit code. With the feature `axum` it
//! serves so that a deploy drops no request.
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
//! Inside an existing `#[tokio::main]`, the same engine as a handle:
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
//! # The few nouns
//!
//! - A [`Phase`] is a named stage of the shutdown. Akka's twelve are built in, and
//!   [`Phase::CLOSE_RESOURCES`] after them; they run in the order in which they are listed in
//!   [`Phase::BUILT_IN`]. [`PhaseSpec`] describes one of your own. A phase starts when all it
//!   depends on is over; phases that do not depend on each other run side by side.
//! - A task is a named function in a phase, async or blocking. It is given a [`TaskCx`]: the
//!   reason, the deadline, a cancellation token. The tasks of a phase run side by side.
//! - A [`Gate`] admits work until it is closed; a [`Pass`] is one unit of work inside. Make one with
//!   [`Shutdown::gate`], and the shutdown closes it and waits for what is inside.
//! - A loop takes work for as long as the process lives: [`Shutdown::add_loop`] runs it, starts it
//!   again when it crashes, and joins it. A consumer takes its jobs from a [`Source`].
//! - A [`Step`] is started when the process starts and stopped when it ends. A [`Lifecycle`] puts
//!   steps in waves, by what each requires and provides, and stops them in reverse.
//! - [`Readiness`] says whether work should be sent here. It follows from [`Shutdown::started`],
//!   from each [`Promise`] and check, from cordons and from the shutdown; nobody can set it.
//! - A [`Reason`] says why. The first one wins.
//! - The [`Deadline`] is fixed when the shutdown begins, and can only be shortened. It comes from
//!   [`KillAfter`]: what the platform allows between its signal and the kill.
//! - The [`Report`] says how everything ended, and when. It prints as a timeline and maps to an
//!   [`ExitCode`].
//! - A [`Plan`] is the phases and what each waits for, proved acyclic, with its worst case.
//!
//! # Which do I need
//!
//! | I want to | use |
//! |---|---|
//! | write a new service | [`main`], or [`Runner`] to set more |
//! | add shutdown to an existing one | [`Shutdown::new`], [`Shutdown::install_signals`], [`Shutdown::run_on_exit`] |
//! | configure it from a file | [`Config`], [`Shutdown::configured`]; the keys are in [`config`] |
//! | start what my service needs, in order, and stop it in reverse | [`Lifecycle`], [`Step`] |
//! | do something at shutdown | [`Shutdown::add_task`], [`Shutdown::add_blocking_task`] |
//! | serve axum or tonic without dropping a request | `http::serve`, with the feature `axum` or `tonic` |
//! | take no work that cannot be finished | [`Shutdown::gate`], [`Gate::enter`] |
//! | limit how long requests may take to finish | `drain-timeout` in the configuration |
//! | consume a queue | [`Shutdown::add_consumer`], [`Source`] |
//! | do something every minute | [`Shutdown::add_periodic`] |
//! | run any other background loop | [`Shutdown::add_loop`] |
//! | be unready while a database is away | [`Shutdown::check`] |
//! | drain actors of kameo or ractor, or plain tasks with a mailbox | `actors::ActorSystem::on`, with the feature `kameo` or `ractor` |
//! | run actors on threads of their own | `actors::WorkerThreads::on` |
//! | use several actor systems and worker threads on one shutdown | `on` for each of them: they are drained together |
//! | let one replica do it, or do it once per fleet | `fleet::Fleet` for steps of start-up, `fleet::Lock` for the rest, with the feature `fleet` |
//! | have a leader among replicas | `fleet::Lock::lead` |
//! | limit, protect and repeat calls to a backend | `resilience::Policy`, with the feature `resilience` |
//! | know what it is waiting for | the log, [`Shutdown::status`] |
//! | test my own shutdown | [`Config::for_tests`]; the crate `adieu-testkit` starts and signals processes, and its `ledger` judges from outside whether a service lost work that it had accepted |
//!
//! # What to put where
//!
//! | phase | what belongs there |
//! |---|---|
//! | [`BEFORE_SERVICE_UNBIND`](Phase::BEFORE_SERVICE_UNBIND) | say that you are going: readiness, lame duck |
//! | [`SERVICE_UNBIND`](Phase::SERVICE_UNBIND) | close doors: listeners, consumers |
//! | [`SERVICE_REQUESTS_DONE`](Phase::SERVICE_REQUESTS_DONE) | wait for what got in |
//! | [`SERVICE_STOP`](Phase::SERVICE_STOP) | cut what is left |
//! | [`BEFORE_CLUSTER_SHUTDOWN`](Phase::BEFORE_CLUSTER_SHUTDOWN) | your own, when nothing new can arrive |
//! | `CLUSTER_…` | leave a cluster |
//! | [`BEFORE_ACTOR_SYSTEM_TERMINATE`](Phase::BEFORE_ACTOR_SYSTEM_TERMINATE) | your own, while actors still answer: flush |
//! | [`ACTOR_SYSTEM_TERMINATE`](Phase::ACTOR_SYSTEM_TERMINATE) | actors are drained |
//! | [`CLOSE_RESOURCES`](Phase::CLOSE_RESOURCES) | close pools, stores, brokers, clients |
//! | [`stop-steps`](Lifecycle::PHASE) | steps are stopped, in reverse |
//!
//! One rule decides where a pool is closed: **what actors use is closed after them. Make it a
//! [`Step`], or a task in [`Phase::CLOSE_RESOURCES`].** A pool that is closed earlier fails the
//! messages that actors still have to process. Tasks in `close-resources` may use what steps have
//! opened, because steps are stopped after it. A phase of your own comes before the actors unless it
//! is declared to come after [`Phase::ACTOR_SYSTEM_TERMINATE`].
//!
//! # How long requests have
//!
//! When the doors have closed, admitted work has a window to finish: requests, jobs, streams and
//! upgraded connections. It is as long as the deadline leaves time: what the platform allows, less
//! the worst case of the later phases that have tasks, less the reserve, and never less than
//! `default-phase-timeout`. Where no deadline is known, at a terminal for instance, the window is ten
//! seconds. `drain-timeout` in the [configuration](config), or [`Config::drain_timeout`], sets another
//! length, and then that holds. `adieu check` says how long the window is in a deployment; the line
//! that says what is waited for every five seconds says how much of it is left.
//!
//! # Signals
//!
//! SIGTERM and SIGINT run the shutdown. Repeated, they climb a ladder, and each step says what the
//! next will do: a second SIGINT cancels what runs and goes straight to the closing phases, a third
//! exits at once. A second SIGTERM only ends mere waiting: tasks that wait for
//! [`TaskCx::hurried`] beside what they wait for end then. See [`Rung`].
//!
//! # What you see
//!
//! Everything is said through `tracing`. [`main`] says it on stderr if no subscriber has been set;
//! a [`Shutdown`] of your own does not, so set one up. [`Shutdown::status`] and the [`Report`] are
//! the same as values.
//!
//! The command `adieu` (`cargo install adieu-cli`) sees the same from outside. Before a deploy,
//! `adieu check --config service.toml --manifest deploy.yaml` says whether the platform waits long
//! enough before it kills, and what to change if not; while a service stops, `adieu watch` follows
//! what its admin port says; afterwards, `adieu report` draws where the time went.
//!
//! # Background work
//!
//! A loop is given a [`LoopCx`], which says when to take no more and when to stop now. What it drops
//! when doors close is the taking, never the work:
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
//!                 Err(_) => queue.requeue(job).await, // doors have closed just now
//!             }
//!         }
//!     }
//! })?;
//! # Ok(()) }
//! ```
//!
//! A task that you have spawned yourself can end with [`Shutdown::token`], and be joined in a task:
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
//! | feature | what it adds |
//! |---|---|
//! | `hocon` | configuration in HOCON, as Akka and Akka.NET have it |
//! | `metrics` | counters and histograms through the `metrics` facade |
//! | `http` | the module `http`: a server with a real drain, a tower layer, probes, an admin port |
//! | `axum`, `tonic` | `http`, with what these two need besides |
//! | `tls` | `http` over rustls |
//! | `prometheus` | `http`, with a recorder of metrics behind the admin port's `/metrics` |
//! | `fleet` | the module `fleet`: locks and leases with fences, once-per-fleet work, a leader; in memory and in files |
//! | `redis`, `postgres`, `etcd` | `fleet`, with locks there and the client re-exported; `etcd` needs `protoc` to build |
//! | `resilience` | the module `resilience`: deadlines, rate limits, bulkheads, circuit breakers and retries in one policy; with `http` also as tower layers |
//! | `reqwest` | `resilience`, for clients of reqwest |
//! | `systemd` | tells systemd how it stands, for a unit of `Type=notify` |
//! | `actors` | the module `actors`: a tree of whatever can be drained, leaves first |
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

/// Deadlines, rate limits, bulkheads, circuit breakers and retries in one policy.
#[cfg(feature = "resilience")]
#[doc(inline)]
pub use adieu_resilience as resilience;

/// The README's program compiles.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
