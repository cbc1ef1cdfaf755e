//! What is known of an actor besides what its framework knows; and which actor is at work here.

mod ending;
mod settling;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ending::Ending;
use settling::Settling;

use crate::doors::{Door, Doors};
use crate::letters::{DeadLetter, Undelivered};
use crate::path::NodePath;
use crate::spawn::{Place, SpawnError};
use crate::system::{ActorSystem, Inner};

thread_local! {
    /// The actor whose code runs on this thread, or did last: it stays until another one comes,
    /// because to let go of it after each message costs more than to handle many a message.
    static CURRENT: RefCell<Option<Arc<dyn Recorded>>> = const { RefCell::new(None) };
    /// Where that one is in memory, to be compared with each message at no cost.
    static ADDRESS: Cell<usize> = const { Cell::new(0) };
    /// Whether it runs now.
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Something that has a record: an actor as a node. One allocation for both, because with very many
/// actors it is the looking up in memory that costs.
pub(crate) trait Recorded: Send + Sync {
    fn record(&self) -> &Record;
}

/// What is known of an actor besides what its framework knows.
//
// In this order, so that what is needed at its end lies together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Record {
    /// Those of the system. An actor of a system that is being drained is being drained, too.
    doors: Arc<Doors>,
    pub(crate) door: Door,
    pub(crate) ending: Ending,
    path: NodePath,
    system: Weak<Inner>,
    /// Messages that were refused, and messages that it ended without.
    pub(crate) dead: AtomicU64,
    /// Its stop hook has counted what its framework left undelivered.
    undelivered_is_counted: AtomicBool,
    pub(crate) settling: Settling,
}

/// While this is alive the code of an actor runs here.
struct Running {
    /// The code of an actor ran here before; and if that was another one, which.
    within: bool,
    outer: Option<Arc<dyn Recorded>>,
}

/// Notes that the actor is gone, however that came about: it is dropped with the actor.
pub(crate) struct Last<N: Recorded> {
    node: Arc<N>,
}

// === impl Record ===

impl Record {
    pub(crate) fn new(path: NodePath, system: &Arc<Inner>) -> Self {
        Self {
            path,
            system: Arc::downgrade(system),
            doors: Arc::clone(&system.doors),
            door: Door::default(),
            ending: Ending::new(),
            dead: AtomicU64::new(0),
            undelivered_is_counted: AtomicBool::new(false),
            settling: Settling::default(),
        }
    }

    /// Whether this actor, or its whole system, is being drained.
    pub(crate) fn is_draining(&self) -> bool {
        !self.door.is_open() || !self.doors.door.is_open()
    }

    /// Whether the code that runs here may send this actor a message: nobody may when its door is
    /// closed, and only actors that are being drained may while it is being drained itself.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        !self.is_draining() || (!self.door.is_closed() && is_inside())
    }

    /// Notes that the actor has been sent something.
    #[inline]
    pub(crate) fn note_work(&self) {
        self.doors.note_work();
    }

    /// Waits until the children of an actor that is about to end have ended, if a drain takes care
    /// of them.
    pub(crate) async fn let_children_end_first(&self) {
        if self.is_draining() {
            self.settling.wait_for_release(&self.door).await;
        }
    }

    /// Closes the door for good: the children have ended, and the actor may.
    pub(crate) fn close_door(&self) {
        self.door.close();
        self.settling.release();
    }

    /// Looks at the actor whose code runs here, if it was spawned through a system.
    pub(crate) fn current<T>(look: impl FnOnce(&Self) -> T) -> Option<T> {
        if !IS_RUNNING.get() {
            return None;
        }
        let current = CURRENT.try_with(|current| current.borrow().clone()).ok().flatten();
        current.map(|current| look(current.record()))
    }

    /// The path of the actor whose code runs here.
    pub(crate) fn current_path() -> Option<NodePath> {
        Self::current(|record| record.path.clone())
    }

    pub(crate) fn path(&self) -> &NodePath {
        &self.path
    }

    pub(crate) fn system(&self) -> Option<ActorSystem> {
        self.system.upgrade().map(ActorSystem::of)
    }

    /// Returns the place below this actor, for a child of this name.
    ///
    /// # Errors
    ///
    /// If its system is gone, or it has ended or been told to stop.
    pub(crate) fn place(&self, name: &str) -> Result<Place, SpawnError> {
        let path = self.path.child(name)?;
        if self.door.is_closed() || self.ending.get().is_some() {
            return Err(SpawnError::ParentStopped { path, above: self.path.clone() });
        }
        let system = self.system().ok_or_else(|| SpawnError::Gone { path: self.path.clone() })?;
        Ok(system.place(self.path.clone()))
    }

    pub(crate) fn is_of(&self, system: &Arc<Inner>) -> bool {
        std::ptr::eq(self.system.as_ptr(), Arc::as_ptr(system))
    }

    pub(crate) fn has_counted_undelivered(&self) {
        self.undelivered_is_counted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_undelivered_counted(&self) -> bool {
        self.undelivered_is_counted.load(Ordering::Relaxed)
    }

    /// Messages that had been accepted, and that it ended without.
    pub(crate) fn left_behind(
        &self,
        from: Option<NodePath>,
        message: Option<&'static str>,
        count: u64,
    ) {
        self.dead.fetch_add(count, Ordering::Relaxed);
        self.dead_letter(from, message, Undelivered::LeftBehind, count);
    }

    /// A message whose handler did not come to its end.
    pub(crate) fn interrupted(&self, from: Option<NodePath>, message: &'static str) {
        self.dead.fetch_add(1, Ordering::Relaxed);
        self.dead_letter(from, Some(message), Undelivered::Interrupted, 1);
    }

    /// A message that was refused, sent by the code that runs here.
    pub(crate) fn came_too_late(&self, message: &'static str) {
        let from = Self::current_path();
        self.dead.fetch_add(1, Ordering::Relaxed);
        self.dead_letter(from, Some(message), Undelivered::Stopped, 1);
    }

    fn dead_letter(
        &self,
        from: Option<NodePath>,
        message: Option<&'static str>,
        because: Undelivered,
        count: u64,
    ) {
        if let Some(system) = self.system.upgrade() {
            let letter = DeadLetter { to: self.path.clone(), from, message, because };
            system.letters.add(&letter, count);
        }
    }
}

/// Returns what a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}

/// Whether the code that runs here belongs to an actor that is being drained.
#[cold]
pub(crate) fn is_inside() -> bool {
    Record::current(Record::is_draining).unwrap_or(false)
}

/// Runs `work` as the code of this actor.
#[inline]
pub(crate) fn within<T>(node: &Arc<impl Recorded + 'static>, work: impl FnOnce() -> T) -> T {
    let _running = Running::begin(node);
    work()
}

// === impl Running ===

impl Running {
    #[inline]
    fn begin(node: &Arc<impl Recorded + 'static>) -> Self {
        let within = IS_RUNNING.replace(true);
        if ADDRESS.get() == Arc::as_ptr(node).addr() {
            return Self { within, outer: None };
        }
        let last = Self::becomes(Arc::clone(node) as Arc<dyn Recorded>);
        Self { within, outer: last.filter(|_| within) }
    }

    /// From now on this one is remembered. Returns who was before.
    #[cold]
    fn becomes(node: Arc<dyn Recorded>) -> Option<Arc<dyn Recorded>> {
        let address = Arc::as_ptr(&node).addr();
        // It fails when the thread is at its end. Then nobody is remembered.
        let last = CURRENT.try_with(|current| current.replace(Some(node)));
        ADDRESS.set(if last.is_ok() { address } else { 0 });
        last.ok().flatten()
    }
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        IS_RUNNING.set(self.within);
        if let Some(outer) = self.outer.take() {
            drop(Self::becomes(outer));
        }
    }
}

// === impl Last ===

impl<N: Recorded> Last<N> {
    pub(crate) fn new(node: Arc<N>) -> Self {
        Self { node }
    }

    pub(crate) fn node(&self) -> &Arc<N> {
        &self.node
    }
}

impl<N: Recorded> Drop for Last<N> {
    fn drop(&mut self) {
        let record = self.node.record();
        // Out of the tree first: code that awaits its end may want to use its name again. Actors
        // that end while the system is being drained stay, because the report names them.
        if record.doors.door.is_open()
            && let Some(system) = record.system.upgrade()
        {
            system.left(record);
        }
        record.ending.over();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    struct Plain(Record);

    impl Recorded for Plain {
        fn record(&self) -> &Record {
            &self.0
        }
    }

    #[tokio::test]
    async fn it_is_known_whose_code_runs_here() {
        let system = ActorSystem::new("test");
        let plain = |name| {
            let path = NodePath::user().child(name).unwrap();
            Arc::new(Plain(Record::new(path, &system.inner)))
        };
        let (one, other) = (plain("one"), plain("other"));
        let who = || Record::current_path().map(|path| path.to_string());
        assert_eq!(who(), None);
        within(&one, || {
            assert_eq!(who().as_deref(), Some("/user/one"));
            within(&other, || {
                assert_eq!(who().as_deref(), Some("/user/other"));
                within(&other, || assert_eq!(who().as_deref(), Some("/user/other")));
                within(&one, || assert_eq!(who().as_deref(), Some("/user/one")));
                assert_eq!(who().as_deref(), Some("/user/other"));
            });
            assert_eq!(who().as_deref(), Some("/user/one"));
            let panics = || within(&other, || panic!("on purpose"));
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            assert_eq!(who().as_deref(), Some("/user/one"));
        });
        assert_eq!(who(), None, "it has left");
        // One is remembered by the thread, and no more than one.
        within(&other, || {});
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (1, 2));
    }
}
