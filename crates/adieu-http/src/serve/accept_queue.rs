//! Empties the accept queue of a listener that is being closed.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use crate::refusal::Refusal;
use crate::spare_fd::{SpareFd, exclusively, is_exhausted};

/// How long to wait for file descriptors, and how long to refuse clients that got none. The sum is
/// less than the time that a gate's drain allows before the gate closes.
const FOR_DESCRIPTORS: Duration = Duration::from_secs(1);
const FOR_REFUSALS: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_millis(20);

/// How long a refused client may take to send its request. An unread request would make the kernel
/// reset the connection, which destroys the refusal.
const FOR_REQUEST: Duration = Duration::from_millis(20);

/// The connections that could not be served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unserved {
    pub(super) refused: usize,
    /// The kernel resets the rest of the queue, because there was no time or no descriptor left.
    pub(super) is_reset: bool,
}

enum Next<T> {
    QueueEmpty,
    Accepted(T),
    /// Accepted with the descriptor in reserve.
    AcceptedOnSpare(T),
    Failed,
}

/// Passes each queued connection to `serve`. When file descriptors run out it waits until other
/// connections have ended; after that it refuses the rest, one by one, on the descriptor in reserve.
pub(super) async fn drain<I, P>(
    mut queue: impl Iterator<Item = io::Result<(I, P)>>,
    spare: &mut SpareFd,
    refusal: Refusal,
    mut serve: impl FnMut(I, P),
) -> Unserved
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let until = Instant::now() + FOR_DESCRIPTORS;
    let mut unserved = Unserved::default();
    loop {
        let (io, peer) = match exclusively(|| next(&mut queue, spare)) {
            Next::QueueEmpty => return unserved,
            Next::Failed => return Unserved { is_reset: true, ..unserved },
            Next::Accepted((io, peer)) => {
                serve(io, peer);
                continue;
            }
            Next::AcceptedOnSpare(accepted) => accepted,
        };
        while !spare.refill() && Instant::now() < until {
            sleep(RETRY).await;
        }
        if spare.refill() {
            serve(io, peer);
        } else if Instant::now() < until + FOR_REFUSALS {
            refuse(io, refusal).await;
            unserved.refused += 1;
            spare.refill();
        } else {
            return Unserved { is_reset: true, ..unserved };
        }
    }
}

fn next<T>(queue: &mut impl Iterator<Item = io::Result<T>>, spare: &mut SpareFd) -> Next<T> {
    match queue.next() {
        None => Next::QueueEmpty,
        Some(Ok(accepted)) => Next::Accepted(accepted),
        // The kernel allocates a descriptor before it looks into the queue, which may be empty.
        Some(Err(error)) if is_exhausted(&error) && spare.release() => match queue.next() {
            None => Next::QueueEmpty,
            Some(Ok(accepted)) => Next::AcceptedOnSpare(accepted),
            Some(Err(_)) => Next::Failed, // Another thread has taken the freed descriptor.
        },
        Some(Err(_)) => Next::Failed,
    }
}

/// Refuses a connection without parsing its request.
async fn refuse(mut io: impl AsyncRead + AsyncWrite + Unpin, refusal: Refusal) {
    let mut discarded = [0; 4096];
    let _ = timeout(FOR_REQUEST, io.read(&mut discarded)).await;
    let refused = async {
        io.write_all(refusal.to_text().as_bytes()).await?;
        io.shutdown().await
    };
    let _ = timeout(FOR_REQUEST, refused).await;
}
