//! Tracks which actor's code runs on this thread.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::task::Poll;

use tokio_util::sync::CancellationToken;

use super::{HasRecord, Record};
use crate::path::NodePath;

thread_local! {
    /// The actor whose code runs on this thread, or ran last.
    ///
    /// The reference is kept until another actor runs here. Releasing it after each message would
    /// cost more than handling a small message.
    static CURRENT: RefCell<Option<Arc<dyn HasRecord>>> = const { RefCell::new(None) };
    /// The address of that actor, so that comparing costs nothing.
    static ADDRESS: Cell<usize> = const { Cell::new(0) };
    /// Whether its code runs now.
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
    /// Set on the threads of workers: cancelled when the drain of the workers is announced.
    static WORKER: OnceCell<CancellationToken> = const { OnceCell::new() };
}

/// Marks that the code of an actor runs on this thread, until it is dropped.
struct Running {
    /// Whether the code of an actor ran here before.
    was_running: bool,
    /// The actor that ran before, if it differs.
    outer: Option<Arc<dyn HasRecord>>,
}

/// Runs `work` as the code of this actor.
#[inline]
pub(crate) fn run_as<T>(node: &Arc<impl HasRecord + 'static>, work: impl FnOnce() -> T) -> T {
    let _running = Running::begin(Arc::as_ptr(node).addr(), || Arc::clone(node) as _);
    work()
}

/// Polls the code of this actor, unless what runs around it refuses.
#[inline]
pub(crate) fn poll_as<T>(
    node: &Arc<impl HasRecord + 'static>,
    poll: impl FnOnce() -> Poll<T>,
) -> Poll<T> {
    let Some(around) = node.record().around() else { return run_as(node, poll) };
    let (mut poll, mut polled) = (Some(poll), Poll::Pending);
    around.poll(&mut || {
        if let Some(poll) = poll.take() {
            polled = run_as(node, poll);
        }
    });
    polled
}

/// Runs `work` as the code of this actor, whose type is not known.
pub(super) fn run_as_node<T>(node: &Arc<dyn HasRecord>, work: impl FnOnce() -> T) -> T {
    let _running = Running::begin(Arc::as_ptr(node).addr(), || Arc::clone(node));
    work()
}

/// Returns the actor whose code runs here.
pub(super) fn current_node() -> Option<Arc<dyn HasRecord>> {
    if !IS_RUNNING.get() {
        return None;
    }
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Marks this thread as a worker thread, whose drain is announced when the token is cancelled.
pub(crate) fn mark_worker_thread(announced: CancellationToken) {
    let _ = WORKER.with(|worker| worker.set(announced)); // It fails if it is marked already.
}

/// Returns whether the code that runs here belongs to an actor or a worker that is being drained, or
/// whose drain was announced.
#[cold]
pub(crate) fn is_draining_code_running() -> bool {
    let is_announced =
        |token: &OnceCell<CancellationToken>| token.get().is_some_and(|token| token.is_cancelled());
    let is_worker = || WORKER.try_with(is_announced).unwrap_or(false);
    Record::current(Record::is_part_of_drain).unwrap_or(false) || is_worker()
}

// === impl Record ===

impl Record {
    /// Calls `read` with the record of the actor whose code runs here. Returns `None` if no actor of
    /// a system runs here.
    pub(crate) fn current<T>(read: impl FnOnce(&Self) -> T) -> Option<T> {
        current_node().map(|current| read(current.record()))
    }

    /// Returns the path of the actor whose code runs here.
    pub(crate) fn current_path() -> Option<NodePath> {
        Self::current(|record| record.path.clone())
    }
}

// === impl Running ===

impl Running {
    #[inline]
    fn begin(address: usize, node: impl FnOnce() -> Arc<dyn HasRecord>) -> Self {
        let was_running = IS_RUNNING.replace(true);
        if ADDRESS.get() == address {
            return Self { was_running, outer: None };
        }
        let last = Self::set_current(node());
        Self { was_running, outer: last.filter(|_| was_running) }
    }

    /// Sets the actor that this thread stores. Returns the previous one.
    #[cold]
    fn set_current(node: Arc<dyn HasRecord>) -> Option<Arc<dyn HasRecord>> {
        let address = Arc::as_ptr(&node).addr();
        // It fails when the thread-locals are being destroyed. Then no actor is stored.
        let last = CURRENT.try_with(|current| current.replace(Some(node)));
        ADDRESS.set(if last.is_ok() { address } else { 0 });
        last.ok().flatten()
    }
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        IS_RUNNING.set(self.was_running);
        if let Some(outer) = self.outer.take() {
            drop(Self::set_current(outer));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::state::SystemState;

    struct Plain(Record);

    impl HasRecord for Plain {
        fn record(&self) -> &Record {
            &self.0
        }
    }

    #[tokio::test]
    async fn current_returns_the_innermost_actor() {
        let system = Arc::new(SystemState::new("test".into(), None));
        let plain = |name| {
            let path = NodePath::user().child(name).unwrap();
            Arc::new(Plain(Record::new(path, &system)))
        };
        let (one, other) = (plain("one"), plain("other"));
        let current = || Record::current_path().map(|path| path.to_string());
        assert_eq!(current(), None);
        run_as(&one, || {
            assert_eq!(current().as_deref(), Some("/user/one"));
            run_as(&other, || {
                assert_eq!(current().as_deref(), Some("/user/other"));
                run_as(&other, || assert_eq!(current().as_deref(), Some("/user/other")));
                run_as(&one, || assert_eq!(current().as_deref(), Some("/user/one")));
                assert_eq!(current().as_deref(), Some("/user/other"));
            });
            assert_eq!(current().as_deref(), Some("/user/one"));
            let panics = || run_as(&other, || panic!("on purpose"));
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            assert_eq!(current().as_deref(), Some("/user/one"));
        });
        assert_eq!(current(), None, "no actor runs after the outermost call");
        // The thread stores one actor at most.
        run_as(&other, || {});
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (1, 2));
    }
}
