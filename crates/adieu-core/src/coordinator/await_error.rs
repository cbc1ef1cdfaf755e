//! Why the end of a shutdown could not be awaited.

/// Why the end of a shutdown could not be awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AwaitError {
    /// The shutdown waits for the task, so the task cannot wait for the shutdown.
    #[error("a task cannot wait for the end of the shutdown that it is part of")]
    InsideTask,
    /// Blocking the only thread of the runtime that the shutdown runs on would block it, too.
    #[error(
        "the shutdown runs on this current-thread runtime, which stands still while this thread \
         waits: await the shutdown instead of blocking"
    )]
    OnlyThread,
    /// No thread runs the current-thread runtime that the shutdown runs on.
    #[error(
        "the shutdown runs on a current-thread runtime that no thread runs: await the shutdown in \
         its `block_on`"
    )]
    StandsStill,
    /// The runtime that the shutdown ran on was dropped before it was over.
    #[error(
        "the runtime was dropped before the shutdown was over: await the shutdown before the \
         runtime is dropped"
    )]
    RuntimeGone,
    /// The driver of the shutdown panicked, and there will be no report.
    #[error(
        "the driver of the shutdown panicked: see the message of the panic; if the runtime has no \
         timers, build it with `enable_time` or `enable_all`"
    )]
    DriverPanicked,
    /// Every handle was dropped before the shutdown had begun.
    #[error("the last handle of the shutdown was dropped before the shutdown had begun")]
    NeverBegun,
}
