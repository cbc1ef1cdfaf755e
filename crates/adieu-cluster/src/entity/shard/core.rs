//! The state that the shards of one region share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use adieu_core::TaskResult;

use super::life::{Ended, live};
use super::running::Handler;
use crate::entity::Entity;
use crate::entity::letter::ReplyTo;
use crate::entity::node::Here;
use crate::message::{AskError, Command};
use crate::time::Duration;
use crate::transport::Refusal;

/// The settings and the counters of a region on this node.
pub(crate) struct Core<C: Command> {
    pub(crate) name: Arc<str>,
    pub(crate) here: Arc<Here>,
    /// `None` if this node hosts no entities of the region.
    pub(crate) spawner: Option<Box<dyn Spawner<C>>>,
    /// How much mail an entity may have that is not opened.
    pub(crate) mailbox: usize,
    /// After how long an idle entity ends.
    pub(crate) idle: Option<Duration>,
    /// Whether the entity runs without mail, as a singleton does.
    pub(crate) is_resident: bool,
    /// The bytes of the messages that this node keeps or has sent.
    pub(crate) bytes: AtomicUsize,
    pub(crate) tally: Tally,
    /// Runs HTTP requests, if this node routes them.
    pub(crate) requests: Handler,
}

/// The counters of a region on this node.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    ran: AtomicU64,
    not_run: AtomicU64,
    unknown: AtomicU64,
    pub(super) dead_letters: AtomicU64,
    pub(super) started: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// Spawns the task of an entity.
pub(crate) trait Spawner<C: Command>: Send + Sync {
    fn spawn(&self, entity: Entity<C>, ended: Ended<C>) -> Option<tokio::task::AbortHandle>;
}

/// Runs entities with a function.
pub(crate) struct Function<F>(pub(crate) Arc<F>);

impl<C, F, Fut> Spawner<C> for Function<F>
where
    C: Command,
    F: Fn(Entity<C>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: TaskResult> + Send + 'static,
{
    fn spawn(&self, entity: Entity<C>, ended: Ended<C>) -> Option<tokio::task::AbortHandle> {
        let here = Arc::clone(&entity.shard.core().here);
        here.spawn(live(Arc::clone(&self.0), entity, ended))
    }
}

// === impl Core ===

impl<C: Command> Core<C> {
    /// Returns why a message whose command cannot be decoded does not run.
    pub(super) fn undecoded(&self, error: &str) -> Refusal {
        let region = &self.name;
        Refusal::Unsupported(format!("the command to {region} cannot be decoded: {error}"))
    }

    /// Ends a message that its entity cannot decode. A tell was admitted, so it is lost.
    pub(crate) fn unreadable(&self, id: &str, to: ReplyTo<C::Reply>, error: String) {
        if !to.is_ask() {
            self.tally.dead_letters.fetch_add(1, Ordering::Relaxed);
            let error = format!("a tell is lost, because it cannot be decoded: {error}");
            (self.here.failed)(&self.name, id, error);
            return;
        }
        to.not_run(self.undecoded(&error));
    }
}

// === impl Tally ===

impl Tally {
    /// Counts how an ask ended.
    pub(crate) fn ask<R>(&self, outcome: &Result<R, AskError>) {
        let counter = match outcome {
            Ok(_) => &self.ran,
            Err(AskError::NotRun(_)) => &self.not_run,
            Err(AskError::Unknown(_)) => &self.unknown,
        };
        // Relaxed, here and below, because no other memory depends on this value.
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn asks(&self) -> [(&'static str, u64); 3] {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("ran", load(&self.ran)),
            ("not-run", load(&self.not_run)),
            ("unknown", load(&self.unknown)),
        ]
    }

    /// Counts a tell that no handler has seen and none will.
    #[cfg(feature = "actors")]
    pub(crate) fn count_dead_letter(&self) {
        self.dead_letters.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many entities were started.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// Returns how many entities failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns how many tells were lost with their entities.
    pub(crate) fn dead_letters(&self) -> u64 {
        self.dead_letters.load(Ordering::Relaxed)
    }
}

impl<C: Command> fmt::Debug for Core<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("name", &self.name).finish_non_exhaustive()
    }
}
