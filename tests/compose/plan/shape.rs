//! The shapes of a random service that a seed can have, and their names.

/// Parts that can be left out of random plans, or forced into one.
///
/// An item is a kind of defect that once lost work. Patches in `tests/compose/mutants` put items 1 to 9
/// back: those of item 1 are named `a1-…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Item 1: the handle of the actor system is dropped while its actors have work.
    DroppedHandle,
    /// Item 2: the pool that actors use is a lifecycle step.
    PoolStep,
    /// Item 2: the pool that actors use is closed by a task in `close-resources`.
    PoolTask,
    /// Item 2: the pool that actors use is closed by a task in a phase after the last one.
    PoolPhase,
    /// Item 3: an actor sends to its sibling.
    Siblings,
    /// Items 3 and 17: an actor sends to its parent.
    ChildToParent,
    /// Item 4: an actor on a worker thread sends to another thread.
    Threads,
    /// Item 4: a worker thread panics while it is drained, and others send to it.
    PanickedWorker,
    /// Item 5: an actor hangs, and is killed with messages in its mailbox.
    Stuck,
    /// Item 6: tasks send to actors that are being drained, until they are refused.
    Racer,
    /// Item 7: a client reads a large answer slowly and steadily.
    SlowReader,
    /// Item 7: a client reads a large answer over HTTP/2 with pauses.
    PausedReader,
    /// Item 8: the answer to an HTTP/1.0 request is cut because its client stops reading.
    CutHttp10,
    /// Like item 8, over a Unix socket.
    CutUnix,
    /// Item 9: two singleton steps share one lock, and a loop asks for a lock without waiting.
    SharedLock,
    /// Item 10: the log's subscriber panics.
    PanickingSubscriber,
    /// Item 10: the log's subscriber blocks.
    BlockingSubscriber,
    /// Item 11: the signal arrives while the service starts up.
    StartupSignal,
    /// Like item 3: an actor sends to an actor of another system on the same shutdown.
    OtherSystem,
    /// Like item 18: an actor spawns a child for an order, also while it is drained.
    SpawnsChildren,
    /// Like item 3: a task that an actor has spawned, in its name, sends to its sibling.
    Scoped,
    /// Like item 1: the future of the server is dropped when the shutdown begins.
    DroppedServer,
    /// `axum::serve` with a layer serves, instead of a server of adieu.
    Layer,
    /// Handlers answer, and leave the order to a task that holds a pass of another gate.
    Later,
    /// The phase that waits for admitted work is disabled.
    NoDrain,
    /// Another phase is disabled, or the shutdown does not terminate its actors.
    Disabled,
    /// The shutdown begins at a later phase.
    LateBegin,
    /// A tick that has accepted an order panics when gates close.
    PanickingTick,
    /// Like item 7: `axum::serve` with a layer sends a large answer as one frame, and it is cut.
    CutFrame,
    /// A WebSocket handler is busy for longer than the closing handshake may take.
    BusySocket,
    /// Repeated signals reach the hard stop, or end the process.
    HardStop,
    /// The platform or the phases allow less time than the work needs.
    Haste,
    /// A handler of an actor panics while messages are queued, and the actor ends.
    PanickingHandler,
    /// Handlers of an actor panic while messages are queued, and the actor continues.
    ContinuingHandler,
    /// The log's subscriber panics in spans.
    PanickingSpans,
    /// The log's subscriber blocks in spans for a while.
    BlockingSpans,
    /// The log's subscriber blocks in events and in spans.
    BlockingEverywhere,
}

// === impl Shape ===

impl Shape {
    /// All of them.
    pub const ALL: [Self; 37] = [
        Self::DroppedHandle,
        Self::PoolStep,
        Self::PoolTask,
        Self::PoolPhase,
        Self::Siblings,
        Self::ChildToParent,
        Self::Threads,
        Self::PanickedWorker,
        Self::Stuck,
        Self::Racer,
        Self::SlowReader,
        Self::PausedReader,
        Self::CutHttp10,
        Self::CutUnix,
        Self::SharedLock,
        Self::PanickingSubscriber,
        Self::BlockingSubscriber,
        Self::StartupSignal,
        Self::OtherSystem,
        Self::SpawnsChildren,
        Self::Scoped,
        Self::DroppedServer,
        Self::Layer,
        Self::Later,
        Self::NoDrain,
        Self::Disabled,
        Self::LateBegin,
        Self::PanickingTick,
        Self::CutFrame,
        Self::BusySocket,
        Self::HardStop,
        Self::Haste,
        Self::PanickingHandler,
        Self::ContinuingHandler,
        Self::PanickingSpans,
        Self::BlockingSpans,
        Self::BlockingEverywhere,
    ];

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DroppedHandle => "dropped-handle",
            Self::PoolStep => "pool-step",
            Self::PoolTask => "pool-task",
            Self::PoolPhase => "pool-phase",
            Self::Siblings => "siblings",
            Self::ChildToParent => "child-to-parent",
            Self::Threads => "threads",
            Self::PanickedWorker => "panicked-worker",
            Self::Stuck => "stuck",
            Self::Racer => "racer",
            Self::SlowReader => "slow-reader",
            Self::PausedReader => "paused-reader",
            Self::CutHttp10 => "cut-http10",
            Self::CutUnix => "cut-unix",
            Self::SharedLock => "shared-lock",
            Self::PanickingSubscriber => "panicking-subscriber",
            Self::BlockingSubscriber => "blocking-subscriber",
            Self::StartupSignal => "startup-signal",
            Self::OtherSystem => "other-system",
            Self::SpawnsChildren => "spawns-children",
            Self::Scoped => "scoped",
            Self::DroppedServer => "dropped-server",
            Self::Layer => "layer",
            Self::Later => "later",
            Self::NoDrain => "no-drain",
            Self::Disabled => "disabled",
            Self::LateBegin => "late-begin",
            Self::PanickingTick => "panicking-tick",
            Self::CutFrame => "cut-frame",
            Self::BusySocket => "busy-socket",
            Self::HardStop => "hard-stop",
            Self::Haste => "haste",
            Self::PanickingHandler => "panicking-handler",
            Self::ContinuingHandler => "continuing-handler",
            Self::PanickingSpans => "panicking-spans",
            Self::BlockingSpans => "blocking-spans",
            Self::BlockingEverywhere => "blocking-everywhere",
        }
    }

    /// Returns the shape of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
    }
}
