//! Background loops that take work: they are signalled at two levels, and restarted after a crash.
//!
//! Each loop has a gate. *Take no more* means that the gate is closed, or cordoned for a while; *stop
//! now* means that the gate is cut. The keeper runs the loop on the shutdown's runtime and restarts
//! it after a crash. A task of the shutdown joins it. Consumers and periodic loops are built on this.

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

/// The name of a loop, and how it is restarted after a crash.
///
/// A plain string can be used instead if only the name matters.
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
    /// There is no runtime for the loop.
    #[error("failed to add loop {name}: there is no runtime; create the shutdown inside one")]
    NoRuntime {
        /// The loop in question.
        name: Arc<str>,
    },
    /// A loop needs a name, which appears in logs and reports.
    #[error("failed to add a loop: the name is empty")]
    EmptyName,
    /// With a period of zero the loop would never wait.
    #[error("failed to add loop {name}: the period is zero")]
    ZeroPeriod {
        /// The loop in question.
        name: Arc<str>,
    },
    /// A period is one year at most.
    #[error("failed to add loop {name}: the period is longer than the maximum (one year)")]
    EndlessPeriod {
        /// The loop in question.
        name: Arc<str>,
    },
    /// The shutdown rejected a task that ends the loop.
    #[error("failed to add loop {name}")]
    Task {
        /// The loop in question.
        name: Arc<str>,
        /// Why the task was rejected.
        #[source]
        source: AddTaskError,
    },
}

/// A loop whose work is a function.
pub(crate) struct Function<F>(pub(crate) F);

// === impl LoopSpec ===

impl LoopSpec {
    /// Describes a loop with the default pauses after crashes.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), backoff: Backoff::default(), seed: None }
    }

    /// Sets how long the loop pauses after each crash.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the seed of the random pauses, for repeatable tests.
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
