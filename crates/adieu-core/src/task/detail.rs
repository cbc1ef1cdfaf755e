//! What a task says of itself, asked for when somebody can afford to wait for the answer.

use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;

use crate::shield::shielded;

/// Says what a task is waiting for. It is the user's code: it may panic, and it may block.
pub(crate) type Describe = Arc<dyn Fn() -> String + Send + Sync>;

/// A text that is made once, when it is first asked for: not where it is noted that there is
/// something to tell, which is often under a lock, but where it is told.
pub(crate) struct Detail {
    describe: Describe,
    /// Its clock, which tests can pause, is the one that the answer is to show.
    runtime: Option<Handle>,
    told: OnceLock<String>,
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
    pub(crate) fn new(describe: Describe) -> Arc<Self> {
        let runtime = Handle::try_current().ok();
        Arc::new(Self { describe, runtime, told: OnceLock::new() })
    }

    /// Asks, unless that has been done.
    pub(crate) fn tell(&self) -> &str {
        self.told.get_or_init(|| {
            let _entered = self.runtime.as_ref().map(Handle::enter);
            ask(&self.describe)
        })
    }

    /// The text, if it has been asked for.
    pub(crate) fn told(&self) -> Option<String> {
        self.told.get().cloned()
    }
}
