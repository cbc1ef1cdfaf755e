//! Reads from a Unix socket, and leaves the last byte in the kernel's queue.

use std::io::{ErrorKind, IoSliceMut, Result};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};
use tokio::net::UnixStream;

/// Reads new bytes, and leaves the last of them in the kernel's queue. `is_last_queued` is whether
/// the call before has left one there.
pub(super) fn read(
    stream: &UnixStream,
    is_last_queued: &mut bool,
    into: &mut [u8],
) -> Result<usize> {
    let mut known = [0];
    let known = &mut known[..usize::from(*is_last_queued)];
    let seen = receive(stream, known, into, RecvFlags::PEEK)?;
    let new = seen - known.len();
    if new == 0 {
        // The known byte stays, even at the end of the stream: a client that has closed its side
        // may still be reading its response.
        let is_end = known.is_empty() || is_read_closed(stream)?;
        return if is_end { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
    }
    // The same bytes again.
    take(stream, known, &mut into[..new - 1])?;
    *is_last_queued = true;
    Ok(new)
}

/// Takes the last byte out of the kernel's queue.
pub(super) fn discard(stream: &UnixStream) -> Result<()> {
    take(stream, &mut [], &mut [0])
}

/// Takes as many bytes out of the kernel's queue as there is room for. The queue has them.
fn take(stream: &UnixStream, mut first: &mut [u8], mut second: &mut [u8]) -> Result<()> {
    // More than one call is needed if the client has sent file descriptors along.
    while !first.is_empty() || !second.is_empty() {
        let count = receive(stream, first, second, RecvFlags::empty())?;
        if count == 0 {
            break;
        }
        let of_first = count.min(first.len());
        first = &mut first[of_first..];
        second = &mut second[count - of_first..];
    }
    Ok(())
}

fn receive(
    stream: &UnixStream,
    first: &mut [u8],
    second: &mut [u8],
    flags: RecvFlags,
) -> Result<usize> {
    let slices = &mut [IoSliceMut::new(first), IoSliceMut::new(second)];
    let control = &mut RecvAncillaryBuffer::default();
    Ok(recvmsg(stream, slices, control, flags)?.bytes)
}

fn is_read_closed(stream: &UnixStream) -> Result<bool> {
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP))
}
