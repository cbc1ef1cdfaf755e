//! The tasks of phases: how they are described, what they may return, and why they are rejected.

mod context;
mod crew;
mod describers;
mod detail;
mod end;
mod job;
mod lazy_span;
mod span;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use context::TaskCx;
pub(crate) use context::{PhaseCx, RunCx, inside, inside_key, is_inside};
pub(crate) use crew::{Crew, Done};
pub(crate) use describers::Describers;
pub(crate) use detail::{Describe, Detail, ask, text_of};
pub(crate) use end::{Ended, TaskId, end_of};
pub(crate) use job::{Blocking, Job, catch, caught};
pub(crate) use lazy_span::LazySpan;
pub(crate) use span::are_wanted as spans_are_wanted;

use crate::phase::Phase;
use crate::plan::PlanError;

/// The name of a task, and optionally a timeout shorter than that of its phase.
///
/// A plain string can be used instead if only the name matters.
///
/// ```
/// use adieu_core::TaskSpec;
/// use std::time::Duration;
///
/// let spec = TaskSpec::new("flush the cache").timeout(Duration::from_secs(1));
/// ```
#[derive(Clone)]
#[must_use = "a task does nothing until it is added to a phase"]
pub struct TaskSpec {
    pub(crate) name: Arc<str>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) describe: Option<Describe>,
    pub(crate) runs_on: RunsOn,
}

/// The runtime of an async task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunsOn {
    /// The application's.
    Home,
    /// The library's own, whose thread the application cannot block. For tasks that only wait and
    /// signal: they must call no code of the application.
    Own,
}

/// The values that a task may return: nothing, or a result.
///
/// Sealed: it is implemented for `()`, for `Result<(), E>` where `E` is an error or turns into one,
/// such as a string, and for `!`, the type of a task that ends in `loop {}`.
///
/// ```
/// # use adieu_core::{Phase, Shutdown};
/// # let shutdown = Shutdown::new();
/// // The task never ends, so it is cancelled at its timeout.
/// shutdown.add_task(Phase::SERVICE_STOP, "heartbeat", async |_| loop {
///     tokio::task::yield_now().await;
/// })?;
/// # Ok::<(), adieu_core::AddTaskError>(())
/// ```
///
/// Other types do not compile:
///
/// ```compile_fail,E0277
/// # use adieu_core::{Phase, Shutdown};
/// # let shutdown = Shutdown::new();
/// shutdown.add_task(Phase::SERVICE_STOP, "count", async |_| 7)?;
/// # Ok::<(), adieu_core::AddTaskError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a task or body must return `()` or `Result<(), E>`, not `{Self}`",
    note = "`E` must turn into `Box<dyn Error + Send + Sync>`: errors, strings and `anyhow::Error` do, \
            `Box<dyn Error>` does not"
)]
pub trait TaskResult: sealed::Sealed + Send + 'static {
    #[doc(hidden)]
    fn into_result(self) -> Result<(), BoxError>;
}

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

mod sealed {
    #[expect(unnameable_types, reason = "that is what seals it")]
    pub trait Sealed {}

    #[expect(unnameable_types, reason = "only used to name `!`")]
    pub trait Returning {
        type Returned;
    }

    impl<R> Returning for fn() -> R {
        type Returned = R;
    }
}

/// A task that was added, and was neither started nor cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Its phase.
    pub phase: Phase,
    /// Its name.
    pub name: Arc<str>,
    /// Its own timeout, if it has one.
    pub timeout: Option<Duration>,
    /// Whether it runs on a thread of its own.
    pub blocking: bool,
    /// The line of the source that added it, as `file:line`.
    pub added_at: String,
}

/// Why a task was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddTaskError {
    /// The phase does not exist.
    #[error("failed to add task {task}: {problem}")]
    UnknownPhase {
        /// The task in question.
        task: Arc<str>,
        /// Lists the known phases.
        problem: PlanError,
    },
    /// A task needs a name, which appears in logs and reports.
    #[error("failed to add a task to phase {phase}: the name is empty")]
    EmptyName {
        /// The phase it was for.
        phase: Phase,
    },
    /// A timeout of zero would fail the task at once.
    #[error("failed to add task {task} to phase {phase}: the timeout is zero")]
    ZeroTimeout {
        /// The task in question.
        task: Arc<str>,
        /// The phase it was for.
        phase: Phase,
    },
    /// A timeout is one year at most.
    #[error(
        "failed to add task {task} to phase {phase}: the timeout is longer than the maximum (one year)"
    )]
    TimeoutTooLong {
        /// The task in question.
        task: Arc<str>,
        /// The phase it was for.
        phase: Phase,
    },
    /// The phase has already started, so the task would never run.
    #[error("failed to add task {task}: phase {phase} has already started")]
    TooLate {
        /// The task in question.
        task: Arc<str>,
        /// The phase it was for.
        phase: Phase,
    },
    /// In strict mode: with this task the worst case exceeds the time that the platform allows.
    #[error("failed to add task {task} to phase {phase}: {check}")]
    OverBudget {
        /// The task in question.
        task: Arc<str>,
        /// The phase it was for.
        phase: Phase,
        /// The figures, and what to change.
        check: Box<crate::budget::BudgetCheck>,
    },
}

// === impl TaskSpec ===

impl TaskSpec {
    /// Describes a task that may take as long as its phase.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), timeout: None, describe: None, runs_on: RunsOn::Home }
    }

    /// Sets a timeout shorter than that of the phase.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets a function that describes what the task is waiting for.
    ///
    /// The description appears in the status, in "still waiting" lines, and in the report if the task
    /// fails or is cut short.
    pub fn describe(mut self, describe: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.describe = Some(Arc::new(describe));
        self
    }

    pub(crate) fn only_waits(mut self) -> Self {
        self.runs_on = RunsOn::Own;
        self
    }
}

impl fmt::Debug for TaskSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, timeout, describe, runs_on: _ } = self;
        f.debug_struct("TaskSpec")
            .field("name", name)
            .field("timeout", timeout)
            .field("describes", &describe.is_some())
            .finish()
    }
}

impl From<&str> for TaskSpec {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for TaskSpec {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

// === impl TaskResult ===

impl sealed::Sealed for () {}
impl TaskResult for () {
    fn into_result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError>> sealed::Sealed for Result<(), E> {}
impl<E: Into<BoxError> + Send + 'static> TaskResult for Result<(), E> {
    fn into_result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

/// The type `!`, which cannot be named directly yet.
type Never = <fn() -> ! as sealed::Returning>::Returned;

impl sealed::Sealed for Never {}
impl TaskResult for Never {
    fn into_result(self) -> Result<(), BoxError> {
        self
    }
}

/// Returns the text of an error and of its causes. A cause that the text already ends with is not
/// repeated.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
