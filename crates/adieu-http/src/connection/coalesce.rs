//! Writes the head and the body of a short response in one piece.
//!
//! hyper hands them over as two slices. Copying a few bytes together costs less than a vectored
//! write costs the kernel. hyper's own setting for that would also copy long bodies.

use std::io::{IoSlice, Result};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncWrite, ReadBuf};

/// The longest write that is copied together.
const SHORT: usize = 2 * 1024;

/// Writes several slices, in one piece if they are short.
pub(super) fn poll_write_coalesced<I: AsyncWrite>(
    inner: Pin<&mut I>,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<Result<usize>> {
    let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
    match slices {
        [one] => inner.poll_write(cx, one),
        _ if bytes <= SHORT => {
            let mut space = [MaybeUninit::uninit(); SHORT];
            let mut together = ReadBuf::uninit(&mut space);
            slices.iter().for_each(|slice| together.put_slice(slice));
            inner.poll_write(cx, together.filled())
        }
        _ => inner.poll_write_vectored(cx, slices),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts all bytes, and records in how many slices each write came.
    #[derive(Default)]
    struct Sink {
        bytes: Vec<u8>,
        slices: Vec<usize>,
    }

    impl AsyncWrite for Sink {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<Result<usize>> {
            self.slices.push(slices.len());
            let before = self.bytes.len();
            slices.iter().for_each(|slice| self.bytes.extend_from_slice(slice));
            Poll::Ready(Ok(self.bytes.len() - before))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn short_slices_are_written_in_one_piece_and_no_byte_is_lost() {
        // A head, and bodies up to and beyond the longest that still fits beside it.
        for (body, slices) in [(0, 1), (5, 1), (SHORT - 4, 1), (SHORT - 3, 2), (1 << 20, 2)] {
            let body = vec![b'b'; body];
            let mut sink = Sink::default();
            let both = [IoSlice::new(b"head"), IoSlice::new(&body)];
            let cx = &mut Context::from_waker(std::task::Waker::noop());
            let Poll::Ready(Ok(written)) = poll_write_coalesced(Pin::new(&mut sink), cx, &both)
            else {
                panic!("the sink accepts all bytes")
            };
            assert_eq!(written, 4 + body.len());
            assert!(sink.bytes == [&b"head"[..], &body].concat());
            assert_eq!(sink.slices, [slices], "with a body of {}", body.len());
        }
    }
}
