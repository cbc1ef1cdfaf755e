//! Runs a plain task, from its start until its remaining messages were counted.

use std::any::type_name;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use adieu_core::TaskResult;
use futures_util::FutureExt;
use pin_project_lite::pin_project;

use super::inbox::Slot;
use super::node::TaskNode;
use crate::node::Ended;
use crate::panics::panic_text;
use crate::record::{EndGuard, poll_as, run_as};

/// How long the end of a task waits for messages that are being sent.
const LAST_MESSAGES: Duration = Duration::from_millis(100);

pin_project! {
    /// The tokio task, which runs as the code of its node.
    struct Life<F> {
        #[pin]
        run: F,
        // The last field: it announces that all others were dropped.
        end: EndGuard<TaskNode>,
    }
}

/// Spawns the task.
pub(super) fn spawn<M, R>(
    node: Arc<TaskNode>,
    slot: Slot<M>,
    body: impl Future<Output = R> + Send + 'static,
) where
    M: Send + 'static,
    R: TaskResult,
{
    let life = Life { run: run(Arc::clone(&node), slot, body), end: EndGuard::new(node) };
    #[expect(clippy::disallowed_methods, reason = "its system joins it")]
    drop(tokio::spawn(life));
}

/// Runs the task to its end, and counts the messages that it has not processed.
async fn run<M, R: TaskResult>(node: Arc<TaskNode>, slot: Slot<M>, body: impl Future<Output = R>) {
    let mut ended = {
        let body = AssertUnwindSafe(async { body.await.into_result() }).catch_unwind();
        let mut body = pin!(body);
        tokio::select! {
            biased;
            () = node.kill_token().cancelled() => Ended::Killed,
            ended = poll_fn(|cx| poll_as(&node, || body.as_mut().poll(cx))) => {
                let ended = match ended {
                    Ok(Ok(())) => Ended::Stopped,
                    Ok(Err(error)) => Ended::Failed { error: error.to_string().into() },
                    Err(panic) => Ended::Failed { error: panic_text(&*panic).into() },
                };
                node.record().wait_for_children().await;
                ended
            }
        }
    };
    // The body may have moved the inbox or deliveries into other tasks, which process the messages.
    let receiver = slot.await;
    tokio::select! {
        biased;
        () = node.all_delivered() => {}
        () = node.kill_token().cancelled() => {}
    }
    if node.interrupt_deliveries() > 0 {
        ended = Ended::Killed;
    }
    if let Ok(mut receiver) = receiver {
        // Senders that have reserved room will still send. All others are refused.
        receiver.close();
        let mut remaining = 0;
        while let Ok(Some(message)) = tokio::time::timeout(LAST_MESSAGES, receiver.recv()).await {
            drop(message);
            remaining += 1;
        }
        node.record().count_unprocessed(None, Some(type_name::<M>()), remaining);
        node.finish(remaining);
    }
    node.record().ending.set(ended);
}

// === impl Life ===

impl<F: Future<Output = ()>> Future for Life<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        run_as(this.end.node(), || this.run.poll(cx))
    }
}
