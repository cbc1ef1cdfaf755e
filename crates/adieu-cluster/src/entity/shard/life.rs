//! The task of one instance: every poll goes through the guard of the session, and its end is
//! reported however it ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use adieu_core::TaskResult;
use adieu_core::adapter::error_text;

use super::Shard;
use crate::entity::Entity;
use crate::entity::mailbox::Slot;
use crate::entity::nested::{AsEntity, ForgetWhy, SayWhy};
use crate::message::Command;
use crate::singleton::panic_text;
use crate::time::now;

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InstanceEnd {
    Returned,
    /// It returned an error, or panicked.
    Failed(String),
    /// It was dropped: killed, or its node may no longer act, or the runtime has ended.
    Dropped,
}

/// Reports the end of an instance when it is dropped.
pub(crate) struct Ended<C: Command> {
    shard: Arc<Shard<C>>,
    slot: Arc<Slot<C>>,
    how: InstanceEnd,
}

// === impl Ended ===

impl<C: Command> Ended<C> {
    pub(super) fn new(shard: Arc<Shard<C>>, slot: Arc<Slot<C>>) -> Self {
        Self { shard, slot, how: InstanceEnd::Dropped }
    }
}

impl<C: Command> Drop for Ended<C> {
    fn drop(&mut self) {
        let how = std::mem::replace(&mut self.how, InstanceEnd::Dropped);
        #[cfg(feature = "actors")]
        if let Some(remainder) = self.slot.take_remainder() {
            let (shard, slot) = (Arc::clone(&self.shard), Arc::clone(&self.slot));
            // A runtime that has ended drops the task, and with it the next `Ended`.
            let ended = Self { shard, slot, how };
            let here = Arc::clone(&self.shard.core().here);
            let finish = async move {
                remainder.await;
                drop(ended);
            };
            drop(here.spawn(finish));
            return;
        }
        self.shard.ended(&self.slot, how);
    }
}

/// Why an ask has no reply whose entity was stopped.
pub(crate) const STOPPED: &str = "the entity was stopped before it replied, because its shard moves or its node may no longer act";

/// Runs an instance until it ends, or its node may no longer act.
pub(super) async fn live<C, F, Fut>(function: Arc<F>, entity: Entity<C>, mut ended: Ended<C>)
where
    C: Command,
    F: Fn(Entity<C>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: TaskResult> + Send + 'static,
{
    let shard = Arc::clone(&ended.shard);
    // The future is created inside the guard, so that even the code before its first `await` runs
    // only while this node may act.
    let work = async move { function(entity).await.into_result() };
    // Locals are dropped from the last to the first. So `SayWhy` sets the reason before the work and its
    // mail are dropped, and the end is reported after that.
    let _after = ForgetWhy;
    let mut work = pin!(work);
    let _before = SayWhy(STOPPED);
    let how = std::future::poll_fn(|cx| {
        // A node that loses its place aborts the task. Nothing else must wake it for that.
        let now = now();
        if !shard.core().here.is_good_at(now) {
            return Poll::Ready(InstanceEnd::Dropped);
        }
        let _here = AsEntity::enter(now);
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.map_or_else(
            |panic| Poll::Ready(InstanceEnd::Failed(panic_text(&*panic))),
            |polled| {
                polled.map(|result| match result {
                    Ok(()) => InstanceEnd::Returned,
                    Err(error) => InstanceEnd::Failed(error_text(&*error)),
                })
            },
        )
    })
    .await;
    ended.how = how;
}
