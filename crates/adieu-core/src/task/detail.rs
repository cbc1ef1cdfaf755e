//! A task's description of itself, which is made on another thread because it may block.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::shield::shielded;
use crate::sync::lock;

/// Describes what a task is waiting for. It is code of the application: it may panic, and may block.
pub(crate) type Describe = Arc<dyn Fn() -> String + Send + Sync>;

/// A text that one of the [`Describers`](super::Describers) makes once. It is not made where it is
/// needed first, because that is often under a lock, nor on the log thread.
pub(crate) struct Detail {
    describe: Describe,
    /// The text to use while there is no answer.
    without_answer: String,
    /// The runtime whose clock, which tests can pause, the description should see.
    runtime: Option<Handle>,
    answer: Mutex<Option<String>>,
    answered: Condvar,
}

/// Calls the description. Returns a fixed text if it panics.
pub(crate) fn ask(describe: &Describe) -> String {
    text_of(|| describe())
}

/// Returns the text that `make` returns, or a fixed text if it panics.
pub(crate) fn text_of(make: impl FnOnce() -> String) -> String {
    shielded(make).unwrap_or_else(|_| "(its description panicked)".into())
}

impl Detail {
    pub(crate) fn new(describe: Describe, without_answer: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            describe,
            without_answer: without_answer.into(),
            runtime: Handle::try_current().ok(),
            answer: Mutex::default(),
            answered: Condvar::new(),
        })
    }

    /// Calls the description, and stores the answer.
    pub(super) fn ask(&self) {
        let answer = {
            let _entered = self.runtime.as_ref().map(Handle::enter);
            ask(&self.describe)
        };
        *lock(&self.answer) = Some(answer);
        self.answered.notify_all();
    }

    /// Blocks until there is an answer, for up to `within`. Returns the substitute text if there is
    /// none by then.
    pub(crate) fn wait(&self, within: Duration) -> String {
        let answer = lock(&self.answer);
        let waited = self.answered.wait_timeout_while(answer, within, |answer| answer.is_none());
        let (answer, _) = waited.unwrap_or_else(PoisonError::into_inner);
        answer.clone().unwrap_or_else(|| self.without_answer.clone())
    }

    /// Returns the answer, or the substitute text if there is none yet.
    pub(crate) fn text(&self) -> String {
        self.wait(Duration::ZERO)
    }
}
