//! Admits work until closed, then says when the last of it has left.
//!
//! # Invariants
//!
//! 1. Closed is set at most once and never cleared. (Cordoned can be.)
//! 2. A [`Pass`] exists if and only if the counters include it.
//! 3. After [`Gate::close`] returns, every later [`Gate::enter`] fails, unless it rides on a pass
//!    that is inside. So "closed and empty" is final: once seen, it is seen by everyone, for ever.
//!
//! How the counters keep them is said, and checked by loom, in `gate/counters.rs`.

mod barrier;
mod class;
mod counters;
mod labels;
mod marks;
mod pool;
mod ride;
mod threads;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use class::DrainClass;
pub use labels::{Names, Waiting};
pub use ride::Scope;

pub(crate) use counters::State;
use marks::Marks;
use pool::{Inner, Lent};
use threads::ThreadIndex;

use crate::deadline::Deadline;
use crate::shield::drop_shielded;
use crate::sync::Ordering;

/// Admits work until it is closed, then says when the last of it has left.
///
/// A gate is a cheap handle: clones stand for the same gate. Entering and leaving touch nothing
/// that another thread writes, so they cost the same on one core as on many.
///
/// ```
/// use adieu_core::Gate;
///
/// let gate = Gate::new("orders");
/// let pass = gate.enter().expect("the gate is open");
/// gate.close();
/// assert!(gate.enter().is_err(), "nobody gets in any more");
/// assert_eq!(gate.in_flight(), 1, "but who is inside may finish");
/// drop(pass);
/// assert_eq!(gate.in_flight(), 0);
/// ```
///
/// A gate is not a limit: it does not count how many may be inside.
#[derive(Clone)]
pub struct Gate {
    inner: &'static Inner,
    /// Gives the counters back when the last handle is gone.
    _lent: Arc<Lent>,
}

/// One unit of work inside a [`Gate`]. Dropping it means that the work is over.
///
/// A pass can be moved into spawned work, and cloned: a clone is admitted while its parent lives,
/// even when the gate is closed, so work that begets work is never counted as done too early.
#[must_use = "the work is over when the pass is dropped"]
pub struct Pass {
    // Two words, so that a pass travels in registers, and nothing in it needs to be freed.
    inner: &'static Inner,
    marks: Marks,
}

/// The gate is closed: this work was not admitted, and nothing of it was done.
///
/// It is worth trying again, elsewhere or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("draining: try again in {}", crate::time::Short(self.retry_after()))]
pub struct Draining {
    // Not a `Duration`: a result of a pass should be no larger than a pass.
    retry_after_ms: u32,
}

/// What a queue consumer should do with a message that was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Give it back, for another consumer or for later; do not count it as a failure.
    Requeue {
        /// How long it should wait at least.
        after: Duration,
    },
}

// === impl Gate ===

impl Gate {
    /// An open gate. Its name is what is said when it is waited for.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let inner = pool::borrow(name.into());
        Self { inner, _lent: Arc::new(Lent(inner)) }
    }

    /// Admits one unit of work, of the class that finishes within the window.
    ///
    /// # Errors
    ///
    /// If the gate is closed or cordoned, unless this is called inside a [`Pass::scope`] of this
    /// gate: then it rides on that pass.
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
            return Ok(Pass { inner, marks: Marks::of(class) });
        }
        self.ride(class)
    }

    /// Whoever is inside already may bring in what it needs.
    #[cold]
    fn ride(&self, class: DrainClass) -> Result<Pass, Draining> {
        // A late-comer may have been counted for an instant.
        self.inner.wake();
        if !ride::is_inside(self.inner) {
            self.inner.refused.fetch_add(1, Ordering::Relaxed);
            return Err(self.draining());
        }
        Ok(Pass::counted(self.inner, class))
    }

    /// What refused work is told, for work that has to be turned away by other means.
    #[must_use]
    pub fn draining(&self) -> Draining {
        Draining::new(self.inner.retry_after())
    }

    /// Closes the gate, for good. Work of the classes that do not finish is told.
    pub fn close(&self) {
        self.inner.counters.close();
        self.inner.tell_closed();
        self.inner.wake();
    }

    /// Refuses work until [`Gate::uncordon`]. Does nothing once the gate is closed.
    pub fn cordon(&self) {
        self.inner.counters.cordon();
        self.inner.wake();
    }

    /// Admits work again after [`Gate::cordon`]. Returns false once the gate is closed: there is
    /// no way back from that.
    #[must_use = "a closed gate stays closed"]
    pub fn uncordon(&self) -> bool {
        let open = self.inner.counters.uncordon();
        self.inner.wake();
        open
    }

    /// Tells all work that is still inside that its window is over.
    ///
    /// This fires the tokens of passes; work that does not listen goes on.
    pub fn cut(&self) {
        self.inner.tell_cut();
    }

    /// Fires when the gate closes: take no more.
    #[must_use]
    pub fn closed_token(&self) -> CancellationToken {
        self.inner.closed_token()
    }

    /// Fires when the window for the work inside is over: stop now.
    #[must_use]
    pub fn cut_token(&self) -> CancellationToken {
        self.inner.cut_token()
    }

    /// Waits until the gate is closed and everyone has left, or the deadline has passed; returns
    /// how many are still inside.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the state is level-triggered, so a dropped wait loses nothing.
    pub async fn drained(&self, deadline: Deadline) -> usize {
        let emptied = self.until(Self::is_drained);
        let _ = tokio::time::timeout_at(deadline.instant(), emptied).await;
        self.in_flight()
    }

    /// Waits until the gate is as `wanted`: drained, or in another state.
    pub(crate) async fn until(&self, wanted: impl Fn(&Self) -> bool) {
        loop {
            let woken = self.inner.left.notified();
            tokio::pin!(woken);
            // From here on a wake-up is kept for us, so none is lost between the look and the
            // wait.
            woken.as_mut().enable();
            if wanted(self) {
                return;
            }
            woken.await;
        }
    }

    /// Whether the gate is closed and everyone has left. Final once true.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.inner.counters.is_drained()
    }

    /// How many are inside. Exact once the gate is closed and empty; before that it may count some
    /// who have just left.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.inner.counters.in_flight()
    }

    /// How much work has been refused so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.inner.refused.load(Ordering::Relaxed)
    }

    /// How much admitted work has been cut off before its end so far, as far as whoever cut it off
    /// has said so.
    #[must_use]
    pub fn cut_off(&self) -> u64 {
        self.inner.cuts()
    }

    /// Counts work that was cut off and is reported elsewhere.
    pub fn count_cut_off(&self, count: u64) {
        self.inner.count_cuts(count);
    }

    /// Notes that work was cut off before the window was over. The task that drains the gate then
    /// fails, and names it.
    pub fn note_cut_off(&self, what: impl Into<String>) {
        self.inner.note_cut(what.into());
    }

    /// Fails with what has been cut off since this was last called.
    pub(crate) fn report_cut_off(&self) -> Result<(), String> {
        const MOST: usize = 20;
        let cut = self.inner.take_unreported_cuts();
        if cut.is_empty() {
            return Ok(());
        }
        let named = cut.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = cut.len().saturating_sub(MOST);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(format!("{} cut off: {named}{rest}", cut.len()))
    }

    /// How many have entered so far, clones and those who came too late included.
    pub(crate) fn entered(&self) -> usize {
        self.inner.counters.entered()
    }

    /// Whether the gate is closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state() == State::Closed
    }

    /// Whether work is refused for now.
    #[must_use]
    pub fn is_cordoned(&self) -> bool {
        self.state() == State::Cordoned
    }

    pub(crate) fn state(&self) -> State {
        self.inner.counters.state()
    }

    /// Whether both are handles of the same gate.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.inner, other.inner)
    }

    /// The gate's name.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.inner.name()
    }

    /// What refused work is told to wait before it tries again. One second at first.
    pub fn set_retry_after(&self, retry_after: Duration) {
        self.inner.set_retry_after(retry_after);
    }

    /// Lists work that has no label by what `names` returns, for as long as `names` lives.
    ///
    /// For servers, which know what each connection is doing: to label every request would cost
    /// every request, to list the connections costs only the one who asks.
    pub fn add_names(&self, names: Weak<dyn Names>) {
        self.inner.add_names(names);
    }

    /// The named work that has been inside longest, oldest first, at most `most` of it.
    #[must_use]
    pub fn oldest(&self, most: usize) -> Vec<Waiting> {
        let oldest = self.inner.labels().oldest(most);
        let now = crate::time::now();
        // Turned into text here, not under the lock: it is the user's code that does it.
        let waiting = |(label, since): (labels::Label, _)| Waiting {
            // With its drop: the pass may have left meanwhile, and this is the last one then.
            label: crate::task::text_of(move || label.to_string()),
            age: now.saturating_duration_since(since),
        };
        let mut oldest: Vec<_> = oldest.into_iter().map(waiting).collect();
        // Not under a lock either.
        let named_by = self.inner.named_by();
        if !named_by.is_empty() {
            oldest.extend(named_by.iter().flat_map(|names| names.inside()));
            oldest.sort_by_key(|waiting| std::cmp::Reverse(waiting.age));
            oldest.truncate(most);
        }
        oldest
    }

    /// The pass on which this code rides, if it runs inside a [`Pass::scope`] of this gate.
    #[must_use]
    pub fn current(&self) -> Option<Pass> {
        ride::is_inside(self.inner).then(|| Pass::counted(self.inner, DrainClass::Finish))
    }

    /// Who is inside, in one line: `3 in flight, oldest 6.1s GET /export`.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut line = format!("{} in flight", self.in_flight());
        for (at, waiting) in self.oldest(3).iter().enumerate() {
            let lead = if at == 0 { "oldest " } else { "" };
            line.push_str(&format!(
                ", {lead}{} {}",
                crate::time::Short(waiting.age),
                waiting.label
            ));
        }
        line
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

// === impl Pass ===

impl Pass {
    /// One more for somebody who is inside: the gate is not asked.
    fn counted(inner: &'static Inner, class: DrainClass) -> Self {
        inner.counters.enter_beside(ThreadIndex::current());
        Self { inner, marks: Marks::of(class) }
    }

    /// Names the work, so that it can be said what is waited for.
    ///
    /// The label is anything that can be displayed; it is turned into text only when it is shown.
    pub fn labelled(mut self, label: impl fmt::Display + Send + Sync + 'static) -> Self {
        self.set_label(label);
        self
    }

    /// Names the work, for who turns out to wait. See [`Pass::labelled`].
    pub fn set_label(&mut self, label: impl fmt::Display + Send + Sync + 'static) {
        self.drop_label();
        let label = self.inner.labels().add(Arc::new(label), crate::time::now());
        self.marks = self.marks.with_label(label);
    }

    #[cold]
    fn drop_label(&mut self) {
        if let Some(id) = self.marks.label() {
            self.marks = Marks::of(self.marks.class());
            let label = self.inner.labels().remove(id);
            // Not under the lock, and shielded: the user's code may run in its drop, and a panic
            // there must not keep the pass inside.
            drop_shielded(label);
        }
    }

    /// How this work ends when the gate is drained.
    #[must_use]
    pub fn class(&self) -> DrainClass {
        self.marks.class()
    }

    /// Whether the gate has been closed since: nobody else gets in, and who can wind up should.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.inner.counters.state() == State::Closed
    }

    /// Fires when this work should end: for [`DrainClass::Finish`] when its window is over, for
    /// the others as soon as the gate closes.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        match self.class() {
            DrainClass::Finish => self.inner.cut_token(),
            DrainClass::CloseNow | DrainClass::Resumable => self.inner.closed_token(),
        }
    }

    /// Counts this work as cut off; see [`Gate::count_cut_off`].
    pub fn count_cut_off(&self) {
        self.inner.count_cuts(1);
    }

    /// Notes that this work was cut off; see [`Gate::note_cut_off`].
    pub fn note_cut_off(&self, what: impl Into<String>) {
        self.inner.note_cut(what.into());
    }

    /// Waits until this work should end. See [`Pass::token`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn cancelled(&self) {
        self.token().cancelled_owned().await;
    }

    /// The pass on which this code rides, of whichever gate: the innermost [`Pass::scope`].
    ///
    /// A request handler behind the HTTP layer has one: to carry it into spawned work, or to
    /// listen to its token.
    #[must_use]
    pub fn current() -> Option<Self> {
        ride::innermost().map(|inner| Self::counted(inner, DrainClass::Finish))
    }

    /// The same unit of work, in another class. For work that turns out to be a stream.
    pub fn reclassified(mut self, class: DrainClass) -> Self {
        self.marks = self.marks.with_class(class);
        self
    }

    /// Runs `work` on this pass, as [`Pass::scope`] does with a future.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        ride::within(self.inner, work)
    }

    /// Runs `work` under this pass: inside it, [`Gate::enter`] on the same gate succeeds even when
    /// the gate is closed, because what is inside may bring in what it needs.
    ///
    /// This holds across `join!`, timeouts, and whatever else polls within `work`. A task that
    /// `work` spawns is another one: give it a clone of the pass, or use [`Gate::spawn`].
    pub fn scope<F: Future>(self, work: F) -> Scope<F> {
        Scope::new(self, work)
    }
}

impl Gate {
    /// Spawns a task that rides on the pass of the code that calls this, or else enters by itself.
    ///
    /// The task belongs to the caller: keep its handle, and join it.
    ///
    /// # Errors
    ///
    /// If the caller has no pass of this gate and the gate is closed.
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

impl Clone for Pass {
    /// One more unit of work, admitted because this one is inside. The clone has no label.
    fn clone(&self) -> Self {
        Self::counted(self.inner, self.class())
    }
}

impl Drop for Pass {
    #[inline]
    fn drop(&mut self) {
        if self.marks.are_any() {
            self.drop_label();
        }
        let inner = self.inner;
        if inner.counters.leave(ThreadIndex::current()) {
            inner.passed();
        }
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("gate", &self.inner.name())
            .field("class", &self.class())
            .finish()
    }
}

// === impl Draining ===

impl Draining {
    /// The code by which programs tell this refusal from others.
    pub const CODE: &'static str = "draining";

    fn new(retry_after: Duration) -> Self {
        Self { retry_after_ms: u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX) }
    }

    /// How long to wait before trying again.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        Duration::from_millis(self.retry_after_ms.into())
    }

    /// Whether trying again makes sense. Always: nothing of the work was done.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        true
    }

    /// What a queue consumer should do with the message.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::Requeue { after: self.retry_after() }
    }
}
