//! The memory of gates, which is lent to a gate and reused after it.
//!
//! Passes point to it without counting references, because all threads would write to that count. So it
//! is never freed. It is lent again when its gate has no handles left and is drained. If the last handle
//! of a gate is dropped before its last pass, the last pass returns it.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::counters::Counters;
use super::draining::RETRY_AFTER;
use super::labels::{Labels, ListInFlight};
use crate::deadline::{Deadline, LiveDeadline};
use crate::sync::{AtomicBool, AtomicU64, Ordering, lock};

static FREE: Mutex<Vec<&'static GateMemory>> = Mutex::new(Vec::new());

pub(super) struct GateMemory {
    pub(super) counters: Counters,
    /// Notified when a pass leaves a gate that is not open, and when the state of the gate changes.
    pub(super) left: Notify,
    /// How often work was refused. Not written when work is admitted.
    pub(super) refused: AtomicU64,
    /// Every handle has been dropped, and the counters have not been returned to the pool yet.
    is_orphan: AtomicBool,
    labels: Mutex<Labels>,
    info: Mutex<GateInfo>,
}

struct GateInfo {
    name: Arc<str>,
    retry_after: Duration,
    closed: CancellationToken,
    cut: CancellationToken,
    named_by: Vec<Weak<dyn ListInFlight>>,
    cuts: Cuts,
    /// The end of the window, once a shutdown drains the gate.
    window: Option<Arc<LiveDeadline>>,
    is_loop: bool,
}

/// The work that was cut off before its end.
#[derive(Default)]
struct Cuts {
    count: u64,
    /// The work that no report has named yet.
    unreported: Vec<String>,
    /// How many passes were inside when the gate was cut and are not in a report yet.
    inside: usize,
}

/// Held by every handle of one gate. Returns the memory when the last one is dropped.
pub(super) struct GateHandle(pub(super) &'static GateMemory);

pub(super) fn borrow(name: Arc<str>) -> &'static GateMemory {
    let info = GateInfo {
        name,
        retry_after: RETRY_AFTER,
        closed: CancellationToken::new(),
        cut: CancellationToken::new(),
        named_by: Vec::new(),
        cuts: Cuts::default(),
        window: None,
        is_loop: false,
    };
    let free = lock(&FREE).pop();
    if let Some(inner) = free {
        *lock(&inner.info) = info;
        inner.refused.store(0, Ordering::Relaxed);
        inner.counters.reopen();
        return inner;
    }
    Box::leak(Box::new(GateMemory {
        counters: Counters::new(),
        left: Notify::new(),
        refused: AtomicU64::new(0),
        is_orphan: AtomicBool::new(false),
        labels: Mutex::default(),
        info: Mutex::new(info),
    }))
}

impl Drop for GateHandle {
    fn drop(&mut self) {
        // Before `close`, because a pass that leaves a closed gate loads this flag. Of the last handle
        // and the last pass, at least one then observes the other, as in `Counters`.
        self.0.is_orphan.store(true, Ordering::SeqCst);
        self.0.counters.close();
        self.0.return_if_unused();
    }
}

// === impl GateMemory ===

impl GateMemory {
    /// Wakes the tasks that wait for a state of the gate.
    #[cold]
    pub(super) fn wake(&self) {
        self.left.notify_waiters();
    }

    /// Called after a pass has left a gate that is not open.
    #[cold]
    pub(super) fn passed(&'static self) {
        self.wake();
        if self.is_orphan.load(Ordering::SeqCst) {
            self.return_if_unused();
        }
    }

    /// Returns the counters to the pool if neither a handle nor a pass points to them.
    fn return_if_unused(&'static self) {
        // The flag is loaded under the lock of the pool. If it is set, the counters have not been lent
        // again, and `is_drained` may latch.
        let mut free = lock(&FREE);
        if self.is_orphan.load(Ordering::SeqCst) && self.counters.is_drained() {
            self.is_orphan.store(false, Ordering::SeqCst);
            free.push(self);
        }
    }

    pub(super) fn labels(&self) -> MutexGuard<'_, Labels> {
        lock(&self.labels)
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&lock(&self.info).name)
    }

    pub(super) fn retry_after(&self) -> Duration {
        lock(&self.info).retry_after
    }

    pub(super) fn set_retry_after(&self, retry_after: Duration) {
        lock(&self.info).retry_after = retry_after;
    }

    pub(super) fn closed_token(&self) -> CancellationToken {
        lock(&self.info).closed.clone()
    }

    pub(super) fn cut_token(&self) -> CancellationToken {
        lock(&self.info).cut.clone()
    }

    pub(super) fn window_end(&self) -> Option<Deadline> {
        lock(&self.info).window.as_ref().map(|window| Deadline::at(window.get()))
    }

    pub(super) fn set_window(&self, window: Arc<LiveDeadline>) {
        lock(&self.info).window = Some(window);
    }

    pub(super) fn is_loop(&self) -> bool {
        lock(&self.info).is_loop
    }

    pub(super) fn set_is_loop(&self) {
        lock(&self.info).is_loop = true;
    }

    pub(super) fn named_by(&self) -> Vec<Arc<dyn ListInFlight>> {
        lock(&self.info).named_by.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn add_names(&self, names: Weak<dyn ListInFlight>) {
        lock(&self.info).named_by.push(names);
    }

    pub(super) fn count_cuts(&self, count: u64) {
        lock(&self.info).cuts.count += count;
    }

    pub(super) fn note_cut(&self, what: String) {
        let mut info = lock(&self.info);
        info.cuts.count += 1;
        info.cuts.unreported.push(what);
    }

    pub(super) fn cuts(&self) -> u64 {
        lock(&self.info).cuts.count
    }

    /// Forgets the work that was inside when the gate was cut: the caller reports it.
    pub(super) fn forget_inside(&self) {
        lock(&self.info).cuts.inside = 0;
    }

    /// Takes the names of the work that was cut off, and how much was inside when the gate was cut.
    pub(super) fn take_unreported_cuts(&self) -> (Vec<String>, usize) {
        let cuts = &mut lock(&self.info).cuts;
        (std::mem::take(&mut cuts.unreported), std::mem::take(&mut cuts.inside))
    }

    pub(super) fn fire_closed(&self) {
        self.closed_token().cancel();
    }

    /// Fires the tokens of all passes. The work that is inside at the first call is stored until a
    /// report contains it.
    pub(super) fn fire_cut(&self) {
        let inside = if self.counters.is_drained() { 0 } else { self.counters.in_flight() };
        let mut info = lock(&self.info);
        let (closed, cut) = (info.closed.clone(), info.cut.clone());
        if !cut.is_cancelled() {
            info.cuts.inside = inside;
        }
        drop(info); // A token calls the wakers of the application.
        closed.cancel();
        cut.cancel();
    }
}

#[cfg(all(test, not(adieu_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use crate::Gate;

    #[test]
    fn s214_a_gate_dropped_before_its_last_pass_is_reused() {
        let mut used = BTreeSet::new();
        for _ in 0..1_000 {
            let gate = Gate::new("orders");
            let (first, last) = (gate.enter().unwrap(), gate.enter().unwrap());
            used.insert(std::ptr::from_ref(gate.inner).addr());
            drop(first);
            drop(gate);
            drop(last);
        }
        // Other tests in this process also take memory from the pool.
        assert!(used.len() < 50, "{} of 1,000 gates have been leaked", used.len());
    }

    #[test]
    fn s214_also_if_handle_and_pass_are_dropped_by_different_threads() {
        let mut used = BTreeSet::new();
        for _ in 0..2_000 {
            let gate = Gate::new("orders");
            let pass = gate.enter().unwrap();
            used.insert(std::ptr::from_ref(gate.inner).addr());
            let other = std::thread::spawn(move || drop(pass));
            drop(gate);
            other.join().unwrap();
            let next = Gate::new("next");
            assert!(!next.is_drained() && next.enter().is_ok(), "a gate is lent as new");
        }
        assert!(used.len() < 50, "{} of 2,000 gates have been leaked", used.len());
    }
}
