//! What a task reports about itself, asked for where the answer may take its time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::shield::shielded;
use crate::sync::lock;

/// Describes what a task is waiting for. It is the user's code: it may panic, and it may block.
pub(crate) type Describe = Arc<dyn Fn() -> String + Send + Sync>;

/// A text that is made once, by one of the [`Describers`](super::Describers): neither where it is
/// found that there is something to describe, which is often under a lock, nor where it is logged.
pub(crate) struct Detail {
    describe: Describe,
    /// The text for a log that does not wait any longer.
    without_answer: String,
    /// Its clock, which tests can pause, is the one that the answer is to show.
    runtime: Option<Handle>,
    answer: Mutex<Option<String>>,
    answered: Condvar,
}

/// Asks. A panic is an answer, too.
pub(crate) fn ask(describe: &Describe) -> String {
    text_of(|| describe())
}

/// The text, or that there is none because making it panicked.
pub(crate) fn text_of(make: impl FnOnce() -> String) -> String {
    shielded(make).unwrap_or_else(|_| "(panicked when asked)".into())
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

    /// Calls the user's code, and keeps the answer.
    pub(super) fn ask(&self) {
        let answer = {
            let _entered = self.runtime.as_ref().map(Handle::enter);
            ask(&self.describe)
        };
        *lock(&self.answer) = Some(answer);
        self.answered.notify_all();
    }

    /// Blocks until there is an answer, but no longer than `within`; then returns the text for that.
    pub(crate) fn wait(&self, within: Duration) -> String {
        let answer = lock(&self.answer);
        let waited = self.answered.wait_timeout_while(answer, within, |answer| answer.is_none());
        let (answer, _) = waited.unwrap_or_else(PoisonError::into_inner);
        answer.clone().unwrap_or_else(|| self.without_answer.clone())
    }

    /// The answer, or what stands for it if there is none yet.
    pub(crate) fn text(&self) -> String {
        self.wait(Duration::ZERO)
    }
}
