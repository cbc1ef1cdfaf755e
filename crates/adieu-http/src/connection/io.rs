//! The bytes of a connection, on their way to and from hyper, and to whatever it is upgraded to.
//!
//! While the connection speaks HTTP this passes them on, and closes without destroying what the
//! other side has not read yet. When it is upgraded, it is shared with its usher.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::upgraded::Upgraded;
use super::{Conn, Speaks};

/// How long, and how much, is read and thrown away of what a client goes on sending when it has
/// been answered.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 16 << 20;

/// What is no longer than this is copied together rather than gathered by the kernel.
const SHORT: usize = 2 * 1024;

/// A connection's bytes.
#[derive(Debug)]
pub(crate) struct Io<I: Send + 'static> {
    bytes: Bytes<I>,
    conn: Arc<Conn>,
    linger: Option<Linger>,
}

#[derive(Debug)]
enum Bytes<I: Send + 'static> {
    Own(I),
    Shared(Arc<Upgraded<I>>),
    /// Only while it goes from the one to the other.
    Gone,
}

/// Reads on, so that the client gets to read our answer.
#[derive(Debug)]
struct Linger {
    until: Pin<Box<Sleep>>,
    bytes: usize,
}

// === impl Io ===

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io<I> {
    pub(super) fn new(inner: I, conn: Arc<Conn>) -> Self {
        Self { bytes: Bytes::Own(inner), conn, linger: None }
    }

    /// Notices that the connection has been upgraded: hyper hands it on, but does not tell it.
    #[inline]
    fn look(&mut self) {
        if self.conn.speaks() != Speaks::Http {
            self.share();
        }
    }

    #[cold]
    fn share(&mut self) {
        if let Bytes::Own(_) = &self.bytes
            && let Bytes::Own(inner) = std::mem::replace(&mut self.bytes, Bytes::Gone)
        {
            let upgraded = Upgraded::new(inner, self.conn.speaks());
            self.conn.take_in(Arc::clone(&upgraded) as _);
            self.bytes = Bytes::Shared(upgraded);
        }
    }

    /// Reads what the client goes on sending. Unread, it would make the kernel answer with a reset,
    /// which can destroy our answer on its way.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Bytes::Own(inner) = &mut self.bytes else { return Poll::Ready(()) };
        if self.conn.is_sending() {
            // It is not done before that.
            self.conn.writes();
        }
        let linger = self
            .linger
            .get_or_insert_with(|| Linger { until: Box::pin(sleep(LINGER)), bytes: LINGER_BYTES });
        let mut thrown_away = [0; 8 * 1024];
        while linger.bytes > 0 {
            let mut buf = ReadBuf::new(&mut thrown_away);
            match Pin::new(&mut *inner).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    linger.bytes = linger.bytes.saturating_sub(buf.filled().len());
                }
                // A client that has sent all it had to is not waited for.
                Poll::Pending if self.conn.is_sending() => return linger.until.as_mut().poll(cx),
                Poll::Ready(_) | Poll::Pending => return Poll::Ready(()),
            }
        }
        Poll::Ready(())
    }
}

/// Writes several slices. What is short is copied together first: that costs less than it costs the
/// kernel to gather it. (hyper's own switch for that would copy long bodies, too.)
fn poll_write_all_of<I: AsyncWrite>(
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

fn gone<T>() -> Poll<Result<T>> {
    Poll::Ready(Err(Error::from(ErrorKind::NotConnected)))
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncRead for Io<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        self.look();
        match &mut self.bytes {
            Bytes::Own(inner) => Pin::new(inner).poll_read(cx, buf),
            Bytes::Shared(upgraded) => upgraded.poll_read(cx, buf),
            Bytes::Gone => gone(),
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncWrite for Io<I> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = &mut *self;
        this.look();
        match &mut this.bytes {
            Bytes::Own(inner) => {
                // Before it is tried: what cannot be written at once is not flushed either.
                this.conn.writes();
                let written = ready!(poll_write_all_of(Pin::new(inner), cx, slices))?;
                this.conn.wrote(written);
                Poll::Ready(Ok(written))
            }
            Bytes::Shared(upgraded) => upgraded.poll_write(cx, slices),
            Bytes::Gone => gone(),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.bytes {
            Bytes::Own(inner) => inner.is_write_vectored(),
            Bytes::Shared(_) => true,
            Bytes::Gone => false,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.look();
        match &mut self.bytes {
            Bytes::Own(inner) => ready!(Pin::new(inner).poll_flush(cx))?,
            Bytes::Shared(upgraded) => ready!(upgraded.poll_flush(cx))?,
            Bytes::Gone => return gone(),
        }
        self.conn.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        this.look();
        match &mut this.bytes {
            // Not a second time while it lingers.
            Bytes::Own(_) if this.linger.is_some() => {}
            Bytes::Own(inner) => ready!(Pin::new(inner).poll_shutdown(cx))?,
            Bytes::Shared(upgraded) => return upgraded.poll_shutdown(cx),
            Bytes::Gone => return gone(),
        }
        this.poll_linger(cx).map(Ok)
    }
}

impl<I: Send + 'static> Drop for Io<I> {
    fn drop(&mut self) {
        if let Bytes::Shared(upgraded) = &self.bytes {
            upgraded.hang_up();
        }
        self.conn.gone();
    }
}

#[cfg(test)]
mod tests {
    use adieu_core::Gate;
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    use super::super::Common;
    use super::*;
    use crate::layer::Door;
    use crate::serve::Now;

    #[tokio::test]
    async fn what_waits_to_be_written_is_more_to_say() {
        let common = Common {
            door: Door::new(Gate::new("http")),
            now: Now::new(),
            probes: None,
            goodbye: Duration::from_secs(2),
        };
        let conn = Conn::new(Arc::new(common), Instant::now());
        let (server, _client) = tokio::io::duplex(4);
        let mut io = Io::new(server, Arc::clone(&conn));
        assert!(!conn.may_have_more_to_say());
        io.write_all(b"four").await.unwrap();
        assert!(conn.may_have_more_to_say(), "written, and not flushed");
        io.flush().await.unwrap();
        assert!(!conn.may_have_more_to_say(), "all has been said");
        // The client does not read: not one byte more can be written.
        tokio::select! {
            biased;
            _ = io.write_all(b"more") => panic!("there is no room for it"),
            () = std::future::ready(()) => {}
        }
        assert!(conn.may_have_more_to_say());
    }

    /// Takes what it is given, and remembers in how many slices each write came.
    #[derive(Default)]
    struct Taker {
        taken: Vec<u8>,
        slices: Vec<usize>,
    }

    impl AsyncWrite for Taker {
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
            let before = self.taken.len();
            slices.iter().for_each(|slice| self.taken.extend_from_slice(slice));
            Poll::Ready(Ok(self.taken.len() - before))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_is_short_is_written_in_one_piece_and_nothing_is_lost_of_the_rest() {
        // A head, and bodies up to and beyond what still fits beside it.
        for (body, slices) in [(0, 1), (5, 1), (SHORT - 4, 1), (SHORT - 3, 2), (1 << 20, 2)] {
            let body = vec![b'b'; body];
            let mut taker = Taker::default();
            let both = [IoSlice::new(b"head"), IoSlice::new(&body)];
            let cx = &mut Context::from_waker(std::task::Waker::noop());
            let Poll::Ready(Ok(written)) = poll_write_all_of(Pin::new(&mut taker), cx, &both)
            else {
                panic!("it takes all")
            };
            assert_eq!(written, 4 + body.len());
            assert!(taker.taken == [&b"head"[..], &body].concat());
            assert_eq!(taker.slices, [slices], "with a body of {}", body.len());
        }
    }
}
