//! The data that adieu stores for each actor, in addition to its framework's.

mod current;
mod ending;
mod identity;
mod settling;

#[cfg(feature = "kameo")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

pub(crate) use current::{is_draining_code_running, mark_worker_thread, poll_as, run_as};
use ending::Ending;
pub use identity::{Identity, Scoped};
use settling::Settling;

use adieu_core::adapter::is_body_running;

use crate::admission::{Admission, SystemAdmission};
use crate::around::Around;
use crate::dead_letters::{DeadLetter, Undelivered};
use crate::path::NodePath;
use crate::state::{Parent, SystemState};

/// An actor as a node, with its record.
///
/// Both are one allocation: with very many actors, cache misses dominate the cost.
pub(crate) trait HasRecord: Send + Sync {
    fn record(&self) -> &Record;

    /// Counts the messages that the actor has accepted and will not process. Called when the actor
    /// has ended, before its end is announced.
    fn count_left_behind(&self) {}
}

/// The data that adieu stores for each actor.
//
// In this order: the fields that are used when an idle actor is polled, stopped and reported come
// first, next to each other. With very many actors, each additional cache line costs a cache miss.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Record {
    /// The admission of the system. If the system is being drained, so is the actor.
    system_admission: Arc<SystemAdmission>,
    /// Boxed, because it is read with each poll and is usually absent: so it takes one word.
    around: Option<Box<Arc<dyn Around>>>,
    pub(crate) settling: Settling,
    /// How many messages the actor refused, or accepted and did not process to the end, since its
    /// drain or the end of its system began.
    pub(crate) dead: AtomicU64,
    pub(crate) admission: Admission,
    /// Whether the actor has counted the messages that its framework did not deliver.
    #[cfg(feature = "kameo")]
    is_undelivered_counted: AtomicBool,
    pub(crate) ending: Ending,
    // The following fields are not used when an idle actor is stopped.
    path: NodePath,
    system: Weak<SystemState>,
    /// How many futures and functions run in the name of the actor, outside its own task.
    scopes: AtomicU64,
}

/// Marks an actor as ended when it is dropped. The actor owns it, so every way to end drops it.
pub(crate) struct EndGuard<N: HasRecord> {
    node: Arc<N>,
}

// === impl Record ===

impl Record {
    pub(crate) fn new(path: NodePath, system: &Arc<SystemState>) -> Self {
        Self {
            system_admission: Arc::clone(&system.admission),
            around: None,
            settling: Settling::default(),
            dead: AtomicU64::new(0),
            admission: Admission::default(),
            #[cfg(feature = "kameo")]
            is_undelivered_counted: AtomicBool::new(false),
            ending: Ending::new(),
            path,
            system: Arc::downgrade(system),
            scopes: AtomicU64::new(0),
        }
    }

    /// Sets what runs around each poll of the actor.
    pub(crate) fn within(mut self, around: Option<Arc<dyn Around>>) -> Self {
        self.around = around.map(Box::new);
        self
    }

    pub(crate) fn around(&self) -> Option<&Arc<dyn Around>> {
        self.around.as_deref()
    }

    /// Returns whether this actor, or its whole system, is being drained.
    pub(crate) fn is_draining(&self) -> bool {
        !self.admission.is_open() || !self.system_admission.state.is_open()
    }

    /// Returns whether the messages that this actor sends belong to a drain.
    ///
    /// When several actors or systems are drained together, the drain begins in one after the
    /// other. So it is first announced to all of them. Otherwise the first to begin would refuse
    /// messages from one that has not begun.
    fn is_part_of_drain(&self) -> bool {
        let is_announced =
            || self.system().is_some_and(|system| system.is_drain_announced(&self.path));
        self.is_draining() || is_announced()
    }

    /// Returns whether the code that runs here may send this actor a message.
    ///
    /// While the actor is being drained, only actors that are being drained, too, may send. When its
    /// admission is closed, no code may.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        !self.is_draining() || (!self.admission.is_closed() && is_draining_code_running())
    }

    /// Returns whether code outside the actor's own task runs in its name.
    pub(crate) fn has_scopes(&self) -> bool {
        self.scopes.load(Ordering::SeqCst) > 0
    }

    /// Returns whether actors can be spawned below this one.
    pub(crate) fn may_have_children(&self) -> bool {
        !self.admission.is_closed() && self.ending.get().is_none()
    }

    /// Notes that a message is being sent to the actor.
    #[inline]
    pub(crate) fn note_work(&self) {
        self.system_admission.note_work();
    }

    /// Waits until the children of an actor that is about to end have ended, if a drain stops them.
    pub(crate) async fn wait_for_children(&self) {
        if self.is_draining() {
            self.settling.wait_for_release(&self.admission).await;
        }
    }

    /// Refuses all messages from now on, and lets the actor end: its children have ended.
    pub(crate) fn close(&self) {
        self.admission.close();
        self.settling.release();
    }

    pub(crate) fn path(&self) -> &NodePath {
        &self.path
    }

    pub(crate) fn system(&self) -> Option<Arc<SystemState>> {
        self.system.upgrade()
    }

    pub(crate) fn is_of(&self, system: &Arc<SystemState>) -> bool {
        std::ptr::eq(self.system.as_ptr(), Arc::as_ptr(system))
    }

    #[cfg(feature = "kameo")]
    pub(crate) fn mark_undelivered_counted(&self) {
        self.is_undelivered_counted.store(true, Ordering::Relaxed);
    }

    #[cfg(feature = "kameo")]
    pub(crate) fn is_undelivered_counted(&self) -> bool {
        self.is_undelivered_counted.load(Ordering::Relaxed)
    }

    /// Counts messages that the actor had accepted, and ended without processing.
    pub(crate) fn count_unprocessed(
        &self,
        from: Option<NodePath>,
        message: Option<&'static str>,
        count: u64,
    ) {
        self.count_dead(from, message, Undelivered::LeftBehind, count);
    }

    /// Counts a message whose handler did not run to its end.
    pub(crate) fn count_interrupted(&self, from: Option<NodePath>, message: &'static str) {
        self.count_dead(from, Some(message), Undelivered::Interrupted, 1);
    }

    /// Counts a message that was refused. The code that runs here sent it.
    ///
    /// The report does not contain a message that the body of `main` itself has sent: it was never
    /// accepted, and the body gets the error. The body is not work of the shutdown, and usually has been
    /// interrupted late in start-up.
    pub(crate) fn count_refused(&self, message: &'static str) {
        let (from, because) = (Self::current_path(), Undelivered::Stopped);
        if from.is_none() && is_body_running() {
            self.add_dead_letters(from, Some(message), because, 1, false);
        } else {
            self.count_dead(from, Some(message), because, 1);
        }
    }

    fn count_dead(
        &self,
        from: Option<NodePath>,
        message: Option<&'static str>,
        because: Undelivered,
        count: u64,
    ) {
        let system = self.system.upgrade();
        // The end of the guardian is the beginning of the end of its system. Messages that it leaves
        // behind are lost shortly before that.
        let is_left_by_guardian = |system: &SystemState| {
            because != Undelivered::Stopped && system.tree().is_guardian(&self.path)
        };
        let is_at_end = system
            .as_deref()
            .is_some_and(|system| system.is_at_end() || is_left_by_guardian(system));
        if is_at_end || self.is_draining() {
            self.dead.fetch_add(count, Ordering::Relaxed);
        }
        self.add_dead_letters(from, message, because, count, is_at_end);
    }

    /// Adds dead letters to those of the system. `is_at_end` is whether they are in its report.
    fn add_dead_letters(
        &self,
        from: Option<NodePath>,
        message: Option<&'static str>,
        because: Undelivered,
        count: u64,
        is_at_end: bool,
    ) {
        if let Some(system) = self.system.upgrade() {
            let letter = DeadLetter { to: self.path.clone(), from, message, because };
            system.dead_letters.add(&letter, count, is_at_end);
        }
    }
}

// === impl EndGuard ===

impl<N: HasRecord> EndGuard<N> {
    pub(crate) fn new(node: Arc<N>) -> Self {
        Self { node }
    }

    pub(crate) fn node(&self) -> &Arc<N> {
        &self.node
    }
}

impl<N: HasRecord> Drop for EndGuard<N> {
    fn drop(&mut self) {
        let record = self.node.record();
        // Before the node is removed from the tree, which stores the guardian.
        self.node.count_left_behind();
        // Remove it from the tree before its end is announced: code that awaits the end may reuse
        // the name. During a drain of the system the node stays, because the report names it.
        if record.system_admission.state.is_open()
            && let Some(system) = record.system.upgrade()
        {
            system.remove_ended(&record.path);
        }
        record.ending.announce();
    }
}

impl Parent for Record {
    fn path(&self) -> &NodePath {
        Self::path(self)
    }

    fn may_have_children(&self) -> bool {
        Self::may_have_children(self)
    }

    fn is_draining(&self) -> bool {
        Self::is_draining(self)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// The size of a cache line.
    const LINE: usize = 64;

    #[test]
    fn the_fields_that_a_stop_uses_are_next_to_each_other() {
        let first = offset_of!(Record, system_admission);
        assert_eq!(first, 0);
        for used in [
            offset_of!(Record, around),
            offset_of!(Record, settling),
            offset_of!(Record, dead),
            offset_of!(Record, admission),
            offset_of!(Record, ending), // Begins with the byte that a drain reads.
        ] {
            assert!(used < LINE, "{used}");
        }
        // The end is also announced, which uses a part of `ending` that follows this byte.
        let rare =
            [offset_of!(Record, path), offset_of!(Record, system), offset_of!(Record, scopes)];
        for offset in rare {
            assert!(offset >= offset_of!(Record, ending) + size_of::<Ending>(), "{offset}");
        }
        assert_eq!(size_of::<Option<Box<Arc<dyn Around>>>>(), size_of::<usize>());
    }
}
