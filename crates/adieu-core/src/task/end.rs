//! The id of a running task, and how the task ended.

use std::sync::Arc;

use super::{TaskResult, chain};

/// The id of a task of one run: its number in the order in which tasks start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskId(pub(crate) usize);

/// How a task ended, before the machine compares it with the task's timeout.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    Finished,
    Failed(Arc<str>),
    Panicked(Arc<str>),
    /// The task was dropped before its end: aborted, or with its runtime.
    Aborted,
    /// The task was aborted, but its thread is still running.
    LeftBehind,
}

/// Returns how a task with this result has ended.
pub(crate) fn end_of(returned: impl TaskResult) -> Ended {
    match returned.into_result() {
        Ok(()) => Ended::Finished,
        Err(error) => Ended::Failed(chain(&*error).into()),
    }
}
