//! One unit of work inside a gate.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::class::DrainClass;
use super::counters::State;
use super::current_gate;
use super::pass_tag::PassTag;
use super::pool::GateMemory;
use crate::deadline::Deadline;
use crate::shield::drop_shielded;
use crate::task::text_of;
use crate::thread_index::ThreadIndex;

/// One unit of work inside a [`Gate`](super::Gate). Dropping it means that the work is over.
///
/// A pass can be moved into spawned work, and cloned. A clone is admitted while its parent lives, even
/// when the gate is closed. So work that starts other work never counts as done too early.
#[must_use = "the work is over when the pass is dropped"]
pub struct Pass {
    // Two words, so that a pass travels in registers, and nothing in it needs to be freed.
    inner: &'static GateMemory,
    tag: PassTag,
}

// === impl Pass ===

impl Pass {
    /// Returns a pass for work that `Counters::enter` has counted.
    #[inline]
    pub(super) fn admitted(inner: &'static GateMemory, class: DrainClass) -> Self {
        Self { inner, tag: PassTag::of(class) }
    }

    /// Counts one more unit of work, whatever the state of the gate is. The caller must ensure that
    /// a pass is inside.
    pub(super) fn beside(inner: &'static GateMemory, class: DrainClass) -> Self {
        inner.counters.enter_beside(ThreadIndex::current());
        Self::admitted(inner, class)
    }

    /// Names the work in logs and reports.
    ///
    /// The label can be any type that implements `Display`. It is formatted only when it is shown.
    pub fn labelled(mut self, label: impl fmt::Display + Send + Sync + 'static) -> Self {
        self.set_label(label);
        self
    }

    /// Names the work, or renames it. See [`Pass::labelled`].
    pub fn set_label(&mut self, label: impl fmt::Display + Send + Sync + 'static) {
        self.drop_label();
        let label = self.inner.labels().add(Arc::new(label), crate::time::now());
        self.tag = self.tag.with_label(label);
    }

    /// Records that this work panicked, if the thread unwinds and the gate is closed: then it is accepted
    /// work of the drain that was not finished. Before, a panic is an ordinary failure of the application.
    #[cold]
    fn note_panic(&self) {
        if !std::thread::panicking() || !self.is_draining() {
            return;
        }
        // The work around this one panics with it, and is recorded in its place.
        if current_gate::is_inside(self.inner) {
            return;
        }
        let label = self.tag.label().and_then(|id| self.inner.labels().get(id));
        let name = label.map(|label| text_of(|| label.to_string()));
        self.inner.note_cut(format!("{} panicked", name.as_deref().unwrap_or("work")));
    }

    #[cold]
    fn drop_label(&mut self) {
        if let Some(id) = self.tag.label() {
            self.tag = PassTag::of(self.tag.class());
            let label = self.inner.labels().remove(id);
            // Not under the lock, and shielded: the destructor is code of the application, and a panic
            // there must not keep the pass inside.
            drop_shielded(label);
        }
    }

    /// Returns how this work ends when the gate is drained.
    #[must_use]
    pub fn class(&self) -> DrainClass {
        self.tag.class()
    }

    /// Returns whether the gate has been closed since the work was admitted. Work that can end early
    /// should do so then.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.inner.counters.state() == State::Closed
    }

    /// Returns when the window of this work ends: work that has not left by then is cut off. `None`
    /// until the shutdown has begun to wait for the gate, and for gates that no shutdown drains.
    ///
    /// Later calls may return an earlier deadline, never a later one. On a second signal the window
    /// ends at once; [`Pass::token`] notifies of that.
    #[must_use]
    pub fn window_end(&self) -> Option<Deadline> {
        // The state is one load. The window is behind a lock, and unknown before the gate closes.
        self.is_draining().then(|| self.inner.window_end()).flatten()
    }

    /// Returns whether the work belongs to a loop of the shutdown: a job of a consumer, a tick. Such
    /// work comes again if it fails, whereas the caller of a request waits for its answer.
    #[must_use]
    pub fn is_of_loop(&self) -> bool {
        self.inner.is_loop()
    }

    /// Returns a token that fires when this work should end: for [`DrainClass::Finish`] when its window
    /// is over, for the other classes when the gate closes.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        match self.class() {
            DrainClass::Finish => self.inner.cut_token(),
            DrainClass::CloseNow | DrainClass::Resumable => self.inner.closed_token(),
        }
    }

    /// Counts this work as cut off; see [`Gate::count_cut_off`](super::Gate::count_cut_off).
    pub fn count_cut_off(&self) {
        self.inner.count_cuts(1);
    }

    /// Records that this work was cut off; see [`Gate::note_cut_off`](super::Gate::note_cut_off).
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

    /// Returns a clone of the pass of the innermost [`Pass::scope`] in which this code runs, of any
    /// gate.
    ///
    /// The HTTP layer runs each request handler in such a scope. A handler can carry the pass into
    /// spawned work, or listen to its token.
    #[must_use]
    pub fn current() -> Option<Self> {
        current_gate::innermost().map(|inner| Self::beside(inner, DrainClass::Finish))
    }

    /// Moves the work to another class, for example when it turns out to be a stream.
    pub fn reclassified(mut self, class: DrainClass) -> Self {
        self.tag = self.tag.with_class(class);
        self
    }

    /// Runs a function on this pass, as [`Pass::scope`] runs a future.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        current_gate::within(self.inner, work)
    }
}

impl Clone for Pass {
    /// Admits one more unit of work, because this one is inside. The clone has no label.
    fn clone(&self) -> Self {
        Self::beside(self.inner, self.class())
    }
}

impl Drop for Pass {
    #[inline]
    fn drop(&mut self) {
        // Before the pass is counted out: the report may be made as soon as the gate is drained.
        if !self.inner.counters.looks_open() {
            self.note_panic();
        }
        if self.tag.is_set() {
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
