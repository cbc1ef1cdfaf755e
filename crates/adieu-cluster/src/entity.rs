//! Entities: one instance each, a mailbox in front of it, and the shard that starts, drains and kills
//! them.
//!
//! # Invariants
//!
//! 1. An entity has one instance at a time. The next one starts after the future of the last one has
//!    been dropped.
//! 2. Every message that was accepted is opened by an instance, or answered, or counted as a dead
//!    letter.
//! 3. A shard is drained when no instance is left in it, no mail waits in it, and no pass is held.
//! 4. Locks are taken in the order shard, mailbox, starts. No reply is sent while one is held.

mod letter;
mod mail;
mod mailbox;
mod nested;
mod node;
mod reply;
mod shard;
mod starts;
mod timers;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};

use adieu_fleet::Fence;
use tokio::task::coop::poll_proceed;

#[cfg(feature = "actors")]
pub(crate) use mail::WhyStopped;
pub use mail::{Mail, Replier};
#[cfg(feature = "actors")]
pub(crate) use mailbox::Slot;
#[cfg(feature = "actors")]
pub(crate) use nested::AsEntity;
pub(crate) use node::Here;
#[cfg(feature = "actors")]
pub(crate) use shard::STOPPED;
pub(crate) use shard::{Core, Function, Killed, Pass, Path, Sent, SentTell, Shard, Spawner, Tally};
#[cfg(feature = "http")]
pub(crate) use shard::{Inside, Requests, Stopped};
pub(crate) use starts::{Due, Starts};

use crate::message::Command;
use crate::singleton::Displaced;
use crate::store::Revision;

/// One instance of an entity: its mailbox, its name and its fence.
///
/// An entity is an async function that takes this. It starts with the first mail and processes one
/// mail after another. What follows its loop is its stop hook: there it saves its unsaved state.
///
/// ```
/// use adieu_cluster::{Command, Entity};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Add(u32);
/// impl Command for Add {
///     type Reply = u32;
/// }
///
/// async fn counter(mut me: Entity<Add>) {
///     let mut total = 0; // or loaded by `me.id()`
///     while let Some(mail) = me.next().await {
///         total += mail.command().0;
///         // or saved first: … WHERE id = $1 AND fence <= $2
///         mail.reply(total);
///     }
/// }
/// # drop(counter);
/// ```
pub struct Entity<C: Command> {
    shard: Arc<Shard<C>>,
    slot: Arc<mailbox::Slot<C>>,
    epoch: Revision,
}

// === impl Entity ===

impl<C: Command> Entity<C> {
    /// Returns the key of this entity.
    #[must_use]
    pub fn id(&self) -> &str {
        self.slot.id()
    }

    /// Returns the fence of the shard, which is higher than that of every owner before. The resource
    /// that the entity writes to must reject a fence that is lower than one it has seen.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence::new(self.epoch.get())
    }

    /// Waits for the next mail. Returns `None` after the last mail, when the shard is handed over, or
    /// when the entity was idle for too long. Then save the state and return: mail that arrives
    /// meanwhile starts the next instance, here or on another node.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses no mail.
    pub async fn next(&mut self) -> Option<Mail<C>> {
        let unreadable = |to, error| self.shard.core().unreadable(self.id(), to, error);
        poll_fn(|cx| {
            // An entity that always has mail would otherwise never yield.
            let budget = ready!(poll_proceed(cx));
            let next = ready!(self.slot.poll_next(cx, unreadable));
            budget.made_progress();
            Poll::Ready(next)
        })
        .await
    }

    /// Returns the parts that an actor of this entity needs.
    #[cfg(feature = "actors")]
    pub(crate) fn parts(&self) -> (Arc<Here>, Arc<Slot<C>>, &Arc<str>) {
        let core = self.shard.core();
        (Arc::clone(&core.here), Arc::clone(&self.slot), &core.name)
    }

    /// Counts a tell that no handler has seen and none will.
    #[cfg(feature = "actors")]
    pub(crate) fn count_dead_letter(&self) {
        self.shard.core().tally.count_dead_letter();
    }

    /// Checks by the clock whether this instance may still act. Code that does not await must call
    /// this before each write.
    ///
    /// # Errors
    ///
    /// If the instance may no longer act.
    pub fn check(&self) -> Result<Fence, Displaced> {
        let core = self.shard.core();
        let name = || format!("{}/{}", core.name, self.id()).into();
        let displaced = || Displaced { name: name(), fence: self.fence() };
        core.here.is_good().then(|| self.fence()).ok_or_else(displaced)
    }
}

impl<C: Command> fmt::Debug for Entity<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entity")
            .field("id", &self.id())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}
