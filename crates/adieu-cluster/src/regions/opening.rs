//! Runs the function of `on_open` for a shard that has opened, as long as the shard stays on this node.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio_util::sync::CancellationToken;

use crate::entity::Here;
use crate::records::ShardId;
use crate::singleton::panic_text;

/// The function that runs when a shard opens on this node.
pub(crate) type OnOpen = Arc<dyn Fn(u32) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Runs the function for one shard, until its future ends, the shard is to be handed over, or this node
/// may no longer act.
pub(super) async fn open(
    here: Arc<Here>,
    shard: ShardId,
    closing: CancellationToken,
    on_open: OnOpen,
) {
    // The function is called inside the guard: it is code of the application, which may block, panic,
    // or call the handles of this node.
    let work = async { on_open(shard.number).await };
    let mut work = pin!(work);
    let mut closing = pin!(closing.cancelled());
    let ended = poll_fn(|cx| {
        // A node that loses its place closes its shards. Nothing else must wake this task for that.
        if closing.as_mut().poll(cx).is_ready() || !here.is_good() {
            return Poll::Ready(Ok(()));
        }
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.map_or_else(|panic| Poll::Ready(Err(panic_text(&*panic))), |it| it.map(Ok))
    })
    .await;
    if let Err(error) = ended {
        (here.open_failed)(&shard, error);
    }
}
