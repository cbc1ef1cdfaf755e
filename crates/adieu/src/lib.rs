//! Coordinated shutdown for Rust services.
//!
//! [`main`] owns the process: runtime, signals, phases, exit code. With the feature `axum` it serves
//! requests, and a deploy drops none.
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
//!         let close = async move |_| log.sync_all().await; // an error: exit code 70
//!         shutdown.add_task(Phase::CLOSE_RESOURCES, "close log", close)?; // after requests and actors
//!         let app = Router::new().route("/", get(async || "hello"));
//!         let listener = TcpListener::bind("0.0.0.0:8080").await?;
//!         http::serve(listener, app, &shutdown).probes(http::Probes::new(&shutdown)).await?;
//!         Ok::<_, http::BoxError>(())
//!     })
//! }
//! ```
//!
//! In a program with `#[tokio::main]`, use [`Shutdown`], the handle of the same engine:
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
//!     shutdown.start_watchdog()?; // ends the process at the deadline if it hangs
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
//! # Concepts
//!
//! - A [`Phase`] is a named stage of the shutdown. The twelve phases of Akka are built in, and
//!   [`Phase::CLOSE_RESOURCES`] after them; [`Phase::BUILT_IN`] lists them in order. [`PhaseSpec`]
//!   describes a new one. A phase starts when all its dependencies are over; phases that do not
//!   depend on each other run concurrently.
//! - A task is a named function in a phase, async or blocking. It gets a [`TaskCx`] with the reason,
//!   the deadline and a cancellation token. The tasks of a phase run concurrently.
//! - A [`Gate`] admits work until it is closed; a [`Pass`] is one unit of admitted work. If you create
//!   the gate with [`Shutdown::add_gate`], the shutdown closes it and waits for the admitted work.
//! - A loop takes work for as long as the process lives. [`Shutdown::add_loop`] runs it, restarts it
//!   after a crash, and joins it. A consumer is a loop that takes jobs from a [`Source`].
//! - A [`Step`] is started when the process starts and stopped when it ends. A [`Lifecycle`] arranges
//!   steps in waves, by the capabilities that each requires and provides, and stops them in reverse.
//! - [`Readiness`] is whether routers should send work to the process. It is derived from
//!   [`Shutdown::mark_started`], promises ([`Promise`]), checks, cordons and the shutdown. No method sets
//!   it.
//! - A [`Reason`] is why the shutdown runs. The first one counts.
//! - The [`Deadline`] is fixed when the shutdown begins, and can only be shortened. It is derived from
//!   [`KillAfter`]: the time between the platform's signal and the kill.
//! - The [`Report`] contains how and when each phase and task ended. It displays as a timeline and
//!   contains an [`ExitCode`].
//! - A [`Plan`] is the graph of phases, with its worst case.
//!
//! # Which item do I need
//!
//! | I want to | use |
//! |---|---|
//! | write a new service | [`main`], or [`Runner`] for more options |
//! | add shutdown to an existing service | [`Shutdown::new`], [`Shutdown::install_signals`], [`Shutdown::run_on_exit`] |
//! | configure it from a file | [`Config`], [`Shutdown::configured`]; the keys are in [`config`], all environment variables in `docs/environment.md` of the repository |
//! | start pools and clients in order, and stop them in reverse | [`Lifecycle`], [`Step`] |
//! | run code at shutdown | [`Shutdown::add_task`], [`Shutdown::add_blocking_task`] |
//! | serve axum or tonic without dropping a request | `http::serve`, with the feature `axum` or `tonic` |
//! | admit only work that can be finished | [`Shutdown::add_gate`], [`Gate::enter`] |
//! | limit how long requests may take to finish | `drain-timeout` in the configuration |
//! | consume a queue | [`Shutdown::add_consumer`], [`Source`] |
//! | run code every minute | [`Shutdown::add_periodic`] |
//! | run another background loop | [`Shutdown::add_loop`] |
//! | be unready while a database is unreachable | [`Shutdown::add_check`] |
//! | drain actors of kameo or ractor, or plain tasks with a mailbox | `actors::ActorSystem::on`, with the feature `kameo` or `ractor` |
//! | run actors on dedicated threads | `actors::WorkerThreads::on` |
//! | use several actor systems and worker threads on one shutdown | `on` for each of them: they are drained together |
//! | let one replica do work, or do it once per fleet | `fleet::Fleet` for steps of start-up, `fleet::Lock` otherwise, with the feature `fleet` |
//! | elect a leader among replicas | `fleet::Lock::lead` |
//! | limit, protect and repeat calls to a backend | `resilience::Policy`, with the feature `resilience`; the guide is `docs/resilience.md` of the repository |
//! | form a cluster that nodes join and leave, with work that one node does at a time, or entities that are spread over the nodes | `cluster::Cluster`, with the feature `cluster`; the guide is `docs/cluster.md` of the repository |
//! | see what the shutdown is waiting for | the log, [`Shutdown::status`] |
//! | test my own shutdown | [`Config::for_tests`], which leaves actor systems running: with actors, `Config::for_tests().terminate_actor_system(true)`; the crate `adieu-testkit` starts and signals processes, and its `ledger` checks from outside whether a service lost accepted work |
//!
//! # Which phase to use
//!
//! | phase | tasks |
//! |---|---|
//! | [`BEFORE_SERVICE_UNBIND`](Phase::BEFORE_SERVICE_UNBIND) | announce the end: readiness, lame duck |
//! | [`SERVICE_UNBIND`](Phase::SERVICE_UNBIND) | stop accepting work: listeners, gates, consumers |
//! | [`SERVICE_REQUESTS_DONE`](Phase::SERVICE_REQUESTS_DONE) | wait for admitted work |
//! | [`SERVICE_STOP`](Phase::SERVICE_STOP) | cut off remaining work |
//! | [`BEFORE_CLUSTER_SHUTDOWN`](Phase::BEFORE_CLUSTER_SHUTDOWN) | your own tasks, when no new work can arrive |
//! | `CLUSTER_…` | leave a cluster |
//! | [`BEFORE_ACTOR_SYSTEM_TERMINATE`](Phase::BEFORE_ACTOR_SYSTEM_TERMINATE) | your own tasks while actors still run: flush |
//! | [`ACTOR_SYSTEM_TERMINATE`](Phase::ACTOR_SYSTEM_TERMINATE) | drain actors |
//! | [`CLOSE_RESOURCES`](Phase::CLOSE_RESOURCES) | close pools, stores, brokers, clients |
//! | [`stop-steps`](Lifecycle::PHASE) | stop steps, in reverse |
//!
//! One rule decides where to close a pool: **close a resource that actors use after the actors. Make
//! it a [`Step`], or close it in a task of [`Phase::CLOSE_RESOURCES`].** If a pool is closed
//! earlier, the actors fail to process their remaining messages. Tasks in `close-resources` may use
//! the resources of steps, because steps are stopped after that phase. A phase that you add runs
//! before the actors are drained, unless it is declared to come after
//! [`Phase::ACTOR_SYSTEM_TERMINATE`].
//!
//! # How long requests may take
//!
//! After listeners and gates have closed, admitted work has a window to finish: requests, jobs,
//! streams and upgraded connections. The window is the time that the platform allows, minus the worst
//! case of the later phases that have tasks, minus the reserve. It is never less than
//! `default-phase-timeout`. If no deadline is known, for example at a terminal, the window is ten
//! seconds. `drain-timeout` in the [configuration](config), or [`Config::drain_timeout`], sets a fixed
//! length. `adieu check` shows the window in a deployment, and the "still waiting" line, every five
//! seconds, shows the remaining time.
//!
//! # What counts as finished
//!
//! A shutdown is clean only if all accepted work was finished. One rule holds for requests, jobs and
//! other work inside gates, from when the gate has closed; for messages to actors and for ticks, see
//! their own documentation:
//!
//! - Work that panics is not finished. An answer that has begun and then fails, for example because its
//!   body stream returns an error, is not finished either. The report names such work, and the outcome
//!   is not clean.
//! - A handler that returns a response has finished its request, whatever the status: also a 500 that a
//!   layer has made of a panic. A job whose handler returns an error is finished, because its
//!   [`Source`] is notified and can return it to its queue.
//! - Before the gate has closed, also in the lame duck, panics and errors are ordinary failures, and no
//!   part of the outcome.
//!
//! A disabled phase does not wait for its work. With [`Phase::SERVICE_REQUESTS_DONE`] disabled,
//! requests that are inside, and connections that have just been accepted, are cut after 100 ms, and
//! the report names the requests. With `terminate-actor-system = off`, actors continue while tasks in
//! [`Phase::CLOSE_RESOURCES`] and steps close what they use; the report contains the messages that they
//! have not processed. Leave both on unless other code drains this work before.
//!
//! `http::serve` waits until clients have received their answers. Behind another server, such as a
//! plain `axum::serve`, an `http::GateLayer` admits requests, but the shutdown needs a task that waits
//! for the server. The documentation of `GateLayer` shows that task. An [`ExitGuard`] alone does not
//! wait for such a server. The guard runs the shutdown when `main` returns, and by then the future of
//! `axum::serve` was dropped or its tasks are detached, so that their requests are lost and not in the
//! report.
//!
//! # Signals
//!
//! SIGTERM and SIGINT run the shutdown. Repeated signals escalate, and the log line of each shows what
//! the next one will do. A second SIGINT cancels running tasks and runs only the closing phases; a
//! third exits at once. A second SIGTERM only ends tasks that wait for [`TaskCx::hurried`]. See
//! [`Rung`].
//!
//! # Logs and status
//!
//! All events are logged through `tracing`. If no subscriber is set, [`main`] writes them to stderr; a
//! [`Shutdown`] that you create yourself does not, so set a subscriber. [`Shutdown::status`] and
//! the [`Report`] contain the same information as values. With `report-file`, the report is also
//! written to a file before the process ends. [`main`] does that. A program with a `main` of its own
//! needs [`Shutdown::run_on_exit`] for it, or `exit-process`.
//!
//! The command `adieu` (crate `adieu-cli`) shows this information from outside. Before a deploy,
//! `adieu check --config service.toml --manifest deploy.yaml` reports whether the platform waits long
//! enough before it kills, and what to change if it does not. While a service stops, `adieu watch`
//! follows its admin port. Afterwards, `adieu report` shows where the time went.
//!
//! # Background work
//!
//! A loop gets a [`LoopCx`], which signals when to take no more work and when to stop. When gates
//! close, `take` drops a pending wait for a job, but never a job that the loop has taken:
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
//! A task that you have spawned yourself can listen to [`Shutdown::token`], and a task of the shutdown
//! can join it:
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
//! | `hocon` | configuration in HOCON, the format of Akka and Akka.NET |
//! | `metrics` | counters and histograms through the `metrics` facade |
//! | `http` | the module `http`: a server with a real drain, a tower layer, probes, an admin port |
//! | `axum`, `tonic` | `http`, with support for these two |
//! | `tls` | `http` over rustls |
//! | `prometheus` | `http`, with a metrics recorder for `/metrics` of the admin port |
//! | `cluster` | the module `cluster`: membership that follows the shutdown, singletons with fences, regions of entities that move between nodes; in memory and in files |
//! | `links` | `cluster`, with links between nodes, over which messages reach entities on other nodes; with certificates or a token |
//! | `fleet` | the module `fleet`: locks and leases with fences, once-per-fleet work, a leader; in memory and in files |
//! | `redis`, `postgres`, `etcd` | `fleet`, with locks in that store and its client re-exported; with `cluster`, `postgres` and `etcd` also hold the cluster's table; with `resilience`, `redis` also shares policies; `etcd` needs `protoc` to build |
//! | `resilience` | the module `resilience`: deadlines, rate limits, bulkheads, circuit breakers and retries in one policy; with `http` also as tower layers |
//! | `reqwest` | `resilience`, for clients of reqwest |
//! | `systemd` | notifications to systemd, for a unit of `Type=notify` |
//! | `actors` | the module `actors`: drains a tree of actors, pools or servers, leaves first |
//! | `kameo`, `ractor` | `actors`, for the actors of these two |
//!
//! The minimum supported Rust version is the `rust-version` of the manifest; raising it is a minor
//! release.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(feature = "systemd", unix))]
pub use adieu_core::NotifyError;
pub use adieu_core::{
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
    Finding,
    Format,
    Gate,
    InFlight,
    Interrupted,
    JobCx,
    KillAfter,
    Lifecycle,
    LifecycleBuilder,
    LoopCx,
    LoopSpec,
    Order,
    Outcome,
    Pass,
    Periodic,
    Phase,
    PhaseNames,
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
    // Starting up
    StepAction,
    StepError,
    StepFailure,
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
    UncleanTask,
    Verdict,
    WaitingFor,
    WeakShutdown,
    config,
    main,
};

/// Draining a tree of actors leaves first.
#[cfg(feature = "actors")]
#[doc(inline)]
pub use adieu_actors as actors;

/// Cluster membership and singletons with fences.
#[cfg(feature = "cluster")]
#[doc(inline)]
pub use adieu_cluster as cluster;

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

/// The program of the guide to policies compiles.
#[cfg(all(doctest, feature = "axum", feature = "redis", feature = "reqwest"))]
#[doc = include_str!("../../../docs/resilience.md")]
struct ResilienceGuide;

/// The programs of the guide to clusters compile.
#[cfg(all(doctest, feature = "axum", feature = "links", feature = "kameo"))]
#[doc = include_str!("../../../docs/cluster.md")]
struct ClusterGuide;
