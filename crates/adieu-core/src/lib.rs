#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adapter;
mod background;
mod body;
mod budget;
pub mod config;
mod coordinator;
mod deadline;
mod exit_guard;
mod gate;
mod journal;
mod lifecycle;
mod log_thread;
mod loops;
mod names;
mod outcome;
mod park;
mod phase;
mod plan;
mod platform;
mod policy;
mod readiness;
mod reason;
mod registry;
mod report;
mod rung;
mod runner;
mod shield;
mod signals;
mod status;
mod sync;
#[cfg(all(feature = "systemd", unix))]
mod systemd;
#[cfg(not(all(feature = "systemd", unix)))]
#[path = "systemd/off.rs"]
mod systemd;
mod task;
mod thread_index;
mod time;
mod watchdog;

pub use budget::BudgetCheck;
pub use config::{Config, ConfigError, Format, KillAfter, Times};
pub use coordinator::{
    AddPhaseError, AwaitError, CheckHandle, Completion, Drain, Promise, ResumeError, Shutdown,
    TaskHandle, WeakShutdown,
};
pub use deadline::Deadline;
pub use exit_guard::ExitGuard;
pub use gate::{DrainClass, Draining, Gate, InFlight, Pass, Scope, Verdict};
pub use lifecycle::{
    AssembleError, DeploymentProfile, Lifecycle, LifecycleBuilder, StartCx, StartError, StartHook,
    StartResult, Started, Step, StepAction, StepError, StepFailure, StopCx, StopHook,
};
pub use loops::{
    AddLoopError, Backoff, Consumer, Interrupted, JobCx, LoopCx, LoopSpec, Periodic, Source,
};
pub use names::PhaseNames;
pub use outcome::{Ending, Outcome, SkipCause};
pub use phase::{Phase, PhaseSpec};
pub use plan::{
    CriticalPath, CriticalPathView, Order, PhaseView, Plan, PlanBuilder, PlanError, PlanView,
    PlannedPhase,
};
pub use platform::Platform;
pub use policy::{ExitCode, Policy};
pub use readiness::{Check, CheckState, Readiness};
pub use reason::{CustomReason, Reason};
pub use report::{Finding, PhaseReport, Report, TaskReport, UncleanShutdown};
pub use rung::Rung;
pub use runner::{Runner, main};
pub use signals::{Signal, SignalError};
pub use status::{Stage, Status, UncleanTask, WaitingFor};
#[cfg(all(feature = "systemd", unix))]
pub use systemd::NotifyError;
pub use task::{AddTaskError, TaskCx, TaskInfo, TaskResult, TaskSpec};
#[doc(hidden)]
pub use time::Short;
