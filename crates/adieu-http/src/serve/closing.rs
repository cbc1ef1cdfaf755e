//! Empties the queue of a listener that closes.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use crate::layer::Refusal;
use crate::spare::{Spare, is_exhausted};

/// How long descriptors are waited for, and how long clients that get none are refused. Together
/// less than what a gate allows for what comes before its closing.
const FOR_DESCRIPTORS: Duration = Duration::from_secs(1);
const FOR_REFUSALS: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_millis(20);

/// How long a client that is refused may take to send its request. Unread, it would make the kernel
/// answer with a reset, which destroys the refusal.
const FOR_REQUEST: Duration = Duration::from_millis(20);

/// What became of the connections that could not be served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turned {
    pub(super) refused: usize,
    /// There was no time for a refusal, or no way: the kernel resets them.
    pub(super) reset: bool,
}

enum Next<T> {
    /// The queue is empty.
    Nothing,
    Accepted(T),
    /// Accepted on the descriptor in reserve.
    OnSpare(T),
    Failed,
}

/// Takes in what is queued, with `take_in`. When descriptors run out it waits until connections have
/// ended; then it refuses the rest, one by one, on the descriptor in reserve.
pub(super) async fn empty<I, P>(
    mut queue: impl Iterator<Item = io::Result<(I, P)>>,
    spare: &mut Spare,
    refusal: Refusal,
    mut take_in: impl FnMut(I, P),
) -> Turned
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let until = Instant::now() + FOR_DESCRIPTORS;
    let mut turned = Turned::default();
    loop {
        let (io, peer) = match next(&mut queue, spare) {
            Next::Nothing => return turned,
            Next::Failed => return Turned { reset: true, ..turned },
            Next::Accepted((io, peer)) => {
                take_in(io, peer);
                continue;
            }
            Next::OnSpare(accepted) => accepted,
        };
        while !spare.refill() && Instant::now() < until {
            sleep(RETRY).await;
        }
        if spare.refill() {
            take_in(io, peer);
        } else if Instant::now() < until + FOR_REFUSALS {
            refuse(io, refusal).await;
            turned.refused += 1;
            spare.refill();
        } else {
            return Turned { reset: true, ..turned };
        }
    }
}

fn next<T>(queue: &mut impl Iterator<Item = io::Result<T>>, spare: &mut Spare) -> Next<T> {
    match queue.next() {
        None => Next::Nothing,
        Some(Ok(accepted)) => Next::Accepted(accepted),
        // The kernel takes a descriptor before it looks into the queue, which may be empty.
        Some(Err(error)) if is_exhausted(&error) && spare.release() => match queue.next() {
            None => Next::Nothing,
            Some(Ok(accepted)) => Next::OnSpare(accepted),
            Some(Err(_)) => Next::Failed, // Somebody else was faster.
        },
        Some(Err(_)) => Next::Failed,
    }
}

/// Refuses a connection before its request has been understood.
async fn refuse(mut io: impl AsyncRead + AsyncWrite + Unpin, refusal: Refusal) {
    let mut thrown_away = [0; 4096];
    let _ = timeout(FOR_REQUEST, io.read(&mut thrown_away)).await;
    let refused = async {
        io.write_all(refusal.to_text().as_bytes()).await?;
        io.shutdown().await
    };
    let _ = timeout(FOR_REQUEST, refused).await;
}
