//! Which task it is, and how it came to its end.

use std::sync::Arc;

use super::{TaskResult, chain};

/// A task of one run, by the order in which tasks start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskId(pub(crate) usize);

/// How a task came to its end, as far as the driver can tell.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    Finished,
    Failed(Arc<str>),
    Panicked(Arc<str>),
    /// It was dropped before it was over: aborted, or with its runtime.
    Aborted,
    /// It was aborted, but its thread runs on.
    LeftBehind,
}

/// How a task that returned this has ended.
pub(crate) fn end_of(returned: impl TaskResult) -> Ended {
    match returned.into_result() {
        Ok(()) => Ended::Finished,
        Err(error) => Ended::Failed(chain(&*error).into()),
    }
}
