//! The HTTP/2 stream of a link that another node has dialled. It reads and answers in one place, so
//! an envelope needs no second task on its way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::accepted::{Inbound, Next};
use super::core::{Core, Started};
use super::frame::{Backward, Forward, Prepare, Welcome};
use super::turn::Turn;
use crate::records::ShardId;

/// The answers to one peer. Polling it also reads the peer's envelopes.
///
/// HTTP/2 polls it only while the peer takes answers. So a peer that does not read its answers cannot
/// send more envelopes than its window holds.
pub(super) struct Accepted {
    core: Arc<Core>,
    started: Started,
    link: Arc<Inbound>,
    frames: Streaming<Forward>,
    welcome: Option<Welcome>,
    turn: Turn,
    is_over: bool,
}

/// After this many frames in one go, answers are sent.
const FRAMES_AT_ONCE: usize = 16;

// === impl Accepted ===

impl Accepted {
    pub(super) fn new(
        core: Arc<Core>,
        started: Started,
        link: Arc<Inbound>,
        frames: Streaming<Forward>,
        welcome: Welcome,
    ) -> Self {
        Self {
            core,
            started,
            link,
            frames,
            welcome: Some(welcome),
            turn: Turn::new(),
            is_over: false,
        }
    }

    /// Reads the frames that have arrived.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        for _ in 0..FRAMES_AT_ONCE {
            if !self.link.is_reading() {
                return Ok(());
            }
            match Pin::new(&mut self.frames).poll_next(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.link.peer_finished(),
                Poll::Ready(Some(Err(status))) => return Err(status),
                Poll::Ready(Some(Ok(mut frame))) => {
                    self.prepare(std::mem::take(&mut frame.prepares));
                    let read = self.link.read(frame);
                    read.map_err(|violation| Status::invalid_argument(violation.to_string()))?;
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Lets the receiver prepare for shards, in tasks of their own.
    fn prepare(&self, prepares: Vec<Prepare>) {
        for Prepare { id, region, shard } in prepares {
            let (link, killed) = (Arc::clone(&self.link), self.core.killed.clone());
            if !link.begin_prepare() {
                link.prepared(id, Err("too many shards are being prepared".to_owned()));
                continue;
            }
            let (receiver, within) = (Arc::clone(&self.started.receiver), self.core.limits.prepare);
            self.core.spawn(&self.started.runtime, async move {
                let shard = ShardId { region: region.into(), number: shard };
                let preparing = timeout(within, receiver.prepare(&link.peer, &shard));
                let prepared = tokio::select! {
                    prepared = preparing => prepared.unwrap_or_else(|_| {
                        Err(format!("timed out preparing for shard {shard}"))
                    }),
                    () = killed.cancelled() => return,
                };
                link.prepared(id, prepared);
            });
        }
    }
}

impl Stream for Accepted {
    type Item = Result<Backward, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Backward, Status>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(welcome) = self.welcome.take() {
            let frame = Backward { welcome: Some(welcome), ..Backward::default() };
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Err(status) = self.read(cx) {
            self.is_over = true;
            return Poll::Ready(Some(Err(status)));
        }
        let Self { link, turn, .. } = &mut *self;
        match link.next(cx, turn) {
            Next::Send(frame) => Poll::Ready(Some(Ok(frame))),
            Next::Wait => Poll::Pending,
            Next::End => Poll::Ready(None),
        }
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.link.end();
        self.core.forget(&self.link);
    }
}
