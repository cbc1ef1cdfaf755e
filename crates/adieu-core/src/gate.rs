//! Admits work until closed, then reports when all of it has left.
//!
//! # Invariants
//!
//! 1. `Closed` is set at most once and never cleared. `Cordoned` can be cleared.
//! 2. A [`Pass`] exists if and only if the counters include it.
//! 3. After [`Gate::close`] returns, every later [`Gate::enter`] fails, unless it runs in the scope of a
//!    pass that is inside. So "closed and empty" is final.
//!
//! `gate/counters.rs` explains how the counters keep these; loom checks it.

mod barrier;
mod class;
mod counters;
mod current_gate;
mod draining;
mod labels;
mod pass;
mod pass_tag;
mod pool;
mod scope;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use class::DrainClass;
pub use draining::{Draining, Verdict};
pub use labels::{InFlight, ListInFlight};
pub use pass::Pass;
pub use scope::Scope;

pub(crate) use counters::State;
use pool::{GateHandle, GateMemory};

use crate::deadline::{Deadline, LiveDeadline};
use crate::sync::Ordering;
use crate::thread_index::ThreadIndex;

/// Admits work until it is closed, then reports when all of it has left.
///
/// A gate is a cheap handle: clones refer to the same gate. Entering and leaving write to no memory that
/// another thread writes, so they cost the same on one core as on many.
///
/// ```
/// use adieu_core::Gate;
///
/// let gate = Gate::new("orders");
/// let pass = gate.enter().expect("the gate is open");
/// gate.close();
/// assert!(gate.enter().is_err(), "no more work is admitted");
/// assert_eq!(gate.in_flight(), 1, "but admitted work may finish");
/// drop(pass);
/// assert_eq!(gate.in_flight(), 0);
/// ```
///
/// A gate does not limit how much work is inside.
#[derive(Clone)]
pub struct Gate {
    inner: &'static GateMemory,
    /// Returns the counters to the pool when the last handle is dropped.
    _handle: Arc<GateHandle>,
}

// === impl Gate ===

impl Gate {
    /// Makes an open gate. The name appears in logs and reports while the gate drains.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let inner = pool::borrow(name.into());
        Self { inner, _handle: Arc::new(GateHandle(inner)) }
    }

    /// Admits one unit of work, of the class [`DrainClass::Finish`].
    ///
    /// # Errors
    ///
    /// If the gate is closed or cordoned, unless this is called inside a [`Pass::scope`] of this gate.
    #[inline]
    pub fn enter(&self) -> Result<Pass, Draining> {
        self.enter_as(DrainClass::Finish)
    }

    /// Admits one unit of work of this class.
    ///
    /// # Errors
    ///
    /// As [`Gate::enter`].
    #[inline]
    pub fn enter_as(&self, class: DrainClass) -> Result<Pass, Draining> {
        let inner = self.inner;
        if inner.counters.enter(ThreadIndex::current()) {
            return Ok(Pass::admitted(inner, class));
        }
        self.enter_inside(class)
    }

    /// Admits work that runs in the scope of a pass of this gate, and refuses all other work.
    #[cold]
    fn enter_inside(&self, class: DrainClass) -> Result<Pass, Draining> {
        // `enter` may have counted this work for an instant, and a waiter may have seen it.
        self.inner.wake();
        if !current_gate::is_inside(self.inner) {
            self.inner.refused.fetch_add(1, Ordering::Relaxed);
            return Err(self.draining());
        }
        Ok(Pass::beside(self.inner, class))
    }

    /// Returns the refusal that [`Gate::enter`] returns, for work that is refused by other means.
    #[must_use]
    pub fn draining(&self) -> Draining {
        Draining::new(self.inner.retry_after())
    }

    /// Closes the gate, for good. Fires the tokens of passes whose class is not
    /// [`DrainClass::Finish`].
    pub fn close(&self) {
        self.inner.counters.close();
        self.inner.fire_closed();
        self.inner.wake();
    }

    /// Refuses work until [`Gate::uncordon`]. Does nothing once the gate is closed.
    pub fn cordon(&self) {
        self.inner.counters.cordon();
        self.inner.wake();
    }

    /// Admits work again after [`Gate::cordon`]. Returns false if the gate is closed, which is final.
    #[must_use = "a closed gate stays closed"]
    pub fn uncordon(&self) -> bool {
        let open = self.inner.counters.uncordon();
        self.inner.wake();
        open
    }

    /// Fires the tokens of all passes: the window for admitted work is over.
    ///
    /// Work that does not listen to its token continues. If the shutdown drains the gate, its report
    /// contains how much work was inside.
    pub fn cut(&self) {
        self.inner.fire_cut();
    }

    /// Makes known when the window of the work inside ends.
    pub(crate) fn set_window(&self, window: Arc<LiveDeadline>) {
        self.inner.set_window(window);
    }

    /// Declares that the work inside belongs to a loop of the shutdown.
    pub(crate) fn set_is_loop(&self) {
        self.inner.set_is_loop();
    }

    /// Cuts the gate, as [`Gate::cut`]. The caller reports the work that is inside.
    pub(crate) fn cut_and_report(&self) {
        self.cut();
        self.inner.forget_inside();
    }

    /// Returns a token that fires when the gate closes: take no more work.
    #[must_use]
    pub fn closed_token(&self) -> CancellationToken {
        self.inner.closed_token()
    }

    /// Returns a token that fires when the window for admitted work is over: stop now.
    #[must_use]
    pub fn cut_token(&self) -> CancellationToken {
        self.inner.cut_token()
    }

    /// Waits until the gate is closed and all work has left, or the deadline has passed. Returns how
    /// much work is still inside.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the state is level-triggered, so a dropped wait loses nothing.
    pub async fn drained(&self, deadline: Deadline) -> usize {
        let emptied = self.until(Self::is_drained);
        let _ = tokio::time::timeout_at(deadline.instant(), emptied).await;
        self.in_flight()
    }

    /// Waits until `wanted` returns true.
    pub(crate) async fn until(&self, wanted: impl Fn(&Self) -> bool) {
        loop {
            let woken = self.inner.left.notified();
            tokio::pin!(woken);
            // Before the check, so that no wake-up is lost between the check and the wait.
            woken.as_mut().enable();
            if wanted(self) {
                return;
            }
            woken.await;
        }
    }

    /// Returns whether the gate is closed and all work has left. Final once true.
    ///
    /// If `membarrier` was refused when the gate closed, this stays false; see the promise S550 in
    /// SEMANTICS.md.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.inner.counters.is_drained()
    }

    /// Returns how much work is inside. Exact once the gate is drained; before that it may include work
    /// that has just left.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.inner.counters.in_flight()
    }

    /// Returns how much work has been refused so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.inner.refused.load(Ordering::Relaxed)
    }

    /// Returns how much admitted work has been recorded as cut off before its end.
    #[must_use]
    pub fn cut_off(&self) -> u64 {
        self.inner.cuts()
    }

    /// Counts work that was cut off and is reported elsewhere.
    pub fn count_cut_off(&self, count: u64) {
        self.inner.count_cuts(count);
    }

    /// Records that work was cut off before the window was over. The task that drains the gate then
    /// fails, and its error names the work.
    pub fn note_cut_off(&self, what: impl Into<String>) {
        self.inner.note_cut(what.into());
    }

    /// Fails with the work that has been cut off since this was last called.
    pub(crate) fn report_cut_off(&self) -> Result<(), String> {
        const MOST: usize = 20;
        let (cut, inside) = self.inner.take_unreported_cuts();
        // Work that was inside may also have recorded its name, and is not counted twice.
        let unnamed = inside.saturating_sub(cut.len());
        let mut problems = Vec::new();
        if !cut.is_empty() {
            let named = cut.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = cut.len().saturating_sub(MOST);
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            problems.push(format!("{} cut off: {named}{rest}", cut.len()));
        }
        if unnamed > 0 {
            problems.push(format!("{unnamed} in flight when the gate was cut"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    /// Returns how much work is inside, if the gate was never cut. The cut itself is reported.
    pub(crate) fn uncut_inside(&self) -> usize {
        if self.cut_token().is_cancelled() { 0 } else { self.in_flight() }
    }

    /// Returns how often the gate has been entered so far, including clones and refused attempts.
    pub(crate) fn entered(&self) -> usize {
        self.inner.counters.entered()
    }

    /// Returns whether the gate is closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state() == State::Closed
    }

    /// Returns whether a cordon makes the gate refuse work.
    #[must_use]
    pub fn is_cordoned(&self) -> bool {
        self.state() == State::Cordoned
    }

    pub(crate) fn state(&self) -> State {
        self.inner.counters.state()
    }

    /// Returns whether both are handles of the same gate.
    #[must_use]
    pub fn same_gate(&self, other: &Self) -> bool {
        std::ptr::eq(self.inner, other.inner)
    }

    /// Returns the gate's name.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.inner.name()
    }

    /// Sets the time after which refused work should try again; see [`Draining::retry_after`]. One second
    /// by default.
    pub fn set_retry_after(&self, retry_after: Duration) {
        self.inner.set_retry_after(retry_after);
    }

    /// Adds a source of names for work without labels, for as long as `names` lives.
    ///
    /// For servers, which have the request of each connection. A label would cost something for
    /// every request; a list of connections costs something only when it is requested.
    pub fn add_names(&self, names: Weak<dyn ListInFlight>) {
        self.inner.add_names(names);
    }

    /// Returns the named work that has been inside longest, oldest first, at most `most` of it.
    #[must_use]
    pub fn oldest(&self, most: usize) -> Vec<InFlight> {
        let oldest = self.inner.labels().oldest(most);
        let now = crate::time::now();
        // Formatted here, not under the lock, because labels are code of the application.
        let in_flight = |(label, since): (labels::Label, _)| InFlight {
            // Including the drop: the pass may have left meanwhile, and this is then the last reference.
            label: crate::task::text_of(move || label.to_string()),
            age: now.saturating_duration_since(since),
        };
        let mut oldest: Vec<_> = oldest.into_iter().map(in_flight).collect();
        // Not under a lock either.
        let named_by = self.inner.named_by();
        if !named_by.is_empty() {
            oldest.extend(named_by.iter().flat_map(|names| names.in_flight()));
            oldest.sort_by_key(|work| std::cmp::Reverse(work.age));
            oldest.truncate(most);
        }
        oldest
    }

    /// Returns a clone of the pass of this gate on which this code runs, if it runs inside a
    /// [`Pass::scope`] of this gate.
    #[must_use]
    pub fn current(&self) -> Option<Pass> {
        current_gate::is_inside(self.inner).then(|| Pass::beside(self.inner, DrainClass::Finish))
    }

    /// Describes the work inside in one line: `3 in flight, oldest 6.1s GET /export`.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut line = format!("{} in flight", self.in_flight());
        if self.inner.counters.may_have_missed() {
            line.push_str(" or more (membarrier was refused, so the count is not exact)");
        }
        line.push_str(&self.names_of_oldest());
        line
    }

    /// Returns the oldest named work as the end of a line: `, oldest 6.1s GET /export`.
    pub(crate) fn names_of_oldest(&self) -> String {
        let mut names = String::new();
        for (at, waiting) in self.oldest(3).iter().enumerate() {
            let lead = if at == 0 { "oldest " } else { "" };
            let age = crate::time::Short(waiting.age);
            names.push_str(&format!(", {lead}{age} {}", waiting.label));
        }
        names
    }

    /// Spawns a task on the pass of the calling code, or else on a pass of its own.
    ///
    /// The task belongs to the caller: keep its handle, and join it.
    ///
    /// # Errors
    ///
    /// If the calling code has no pass of this gate and the gate is closed or cordoned.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn spawn<F>(&self, work: F) -> Result<tokio::task::JoinHandle<F::Output>, Draining>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let pass = match self.current() {
            Some(pass) => pass,
            None => self.enter()?,
        };
        Ok(tokio::runtime::Handle::current().spawn(pass.scope(work)))
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("name", &self.name())
            .field("state", &self.state())
            .field("in_flight", &self.in_flight())
            .finish()
    }
}
