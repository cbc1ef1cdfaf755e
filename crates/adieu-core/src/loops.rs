//! Loops that take work: two levels at which they are told, and somebody who keeps them running.
//!
//! A loop has a gate. *Take no more* is that the gate is closed, or cordoned for a while; *stop
//! now* is that it is cut. The keeper runs the loop on the shutdown's runtime, starts it again when
//! it crashes, and is joined by a task of the shutdown. A consumer and a periodic loop are loops
//! that are ready-made.

mod backoff;
mod consumer;
mod context;
mod keeper;
mod periodic;
mod source;
mod wiring;

use std::sync::Arc;

pub use backoff::Backoff;
pub use consumer::Consumer;
pub use context::LoopCx;
pub(crate) use keeper::Work;
pub use periodic::Periodic;
pub use source::{Interrupted, JobCx, Source};

use crate::task::{AddTaskError, BoxError, TaskResult};

/// Names a loop, and says how it is started again after a crash.
///
/// A plain string will do where only the name matters.
#[derive(Clone, Debug)]
#[must_use = "a loop does nothing until it is added to a shutdown"]
pub struct LoopSpec {
    pub(crate) name: Arc<str>,
    pub(crate) backoff: Backoff,
    pub(crate) seed: Option<u64>,
}

/// Why a loop was not added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddLoopError {
    /// The loop would have nowhere to run.
    #[error("failed to add loop {name}: there is no runtime; make the shutdown inside one")]
    NoRuntime {
        /// The loop in question.
        name: Arc<str>,
    },
    /// A loop needs a name: it is what is said when it is waited for.
    #[error("failed to add a loop: its name is empty")]
    EmptyName,
    /// It would never wait.
    #[error("failed to add loop {name}: its period is zero")]
    ZeroPeriod {
        /// The loop in question.
        name: Arc<str>,
    },
    /// It would never come.
    #[error("failed to add loop {name}: its period is endless, a year is the most")]
    EndlessPeriod {
        /// The loop in question.
        name: Arc<str>,
    },
    /// The shutdown could not take it on.
    #[error("failed to add loop {name}")]
    Task {
        /// The loop in question.
        name: Arc<str>,
        /// Why not.
        #[source]
        source: AddTaskError,
    },
}

/// A loop that is a function.
pub(crate) struct Function<F>(pub(crate) F);

// === impl LoopSpec ===

impl LoopSpec {
    /// A loop of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), backoff: Backoff::default(), seed: None }
    }

    /// How long it pauses after each crash.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Makes what is random about it repeatable, for tests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    pub(crate) fn random(&self) -> fastrand::Rng {
        self.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed)
    }
}

impl From<&str> for LoopSpec {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for LoopSpec {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

// === impl Function ===

impl<F, Fut> Work for Function<F>
where
    F: FnMut(LoopCx) -> Fut + Send + 'static,
    Fut: Future<Output: TaskResult> + Send + 'static,
{
    async fn run(&mut self, cx: &LoopCx) -> Result<(), BoxError> {
        (self.0)(cx.clone()).await.into_result()
    }
}
