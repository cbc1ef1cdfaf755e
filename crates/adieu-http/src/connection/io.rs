//! The bytes of a connection, on their way to and from hyper, and to whatever it is upgraded to.
//!
//! While the connection speaks HTTP this passes them on, and closes without destroying what the
//! other side has not read yet. When it is upgraded, it is shared with its usher.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::http2::Protocol;
use super::upgraded::Upgraded;
use super::{Conn, Speaks, Why};

/// How long, and how much, is read and thrown away of what a client goes on sending when it has
/// been answered.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 16 << 20;

/// How often it is checked whether the client has acknowledged the last byte, at first and later.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LOOK: Duration = Duration::from_millis(100);

/// How long a client that acknowledges nothing keeps a connection that is closed otherwise. In a
/// shutdown the server decides sooner.
const STALLED: Duration = Duration::from_secs(30);

/// What is no longer than this is copied together rather than gathered by the kernel.
const SHORT: usize = 2 * 1024;

/// A connection's bytes.
#[derive(Debug)]
pub(crate) struct Io<I: Send + 'static> {
    bytes: Bytes<I>,
    /// Makes the kernel end the connection with a reset.
    reset: fn(&I),
    conn: Arc<Conn>,
    protocol: Protocol,
    linger: Option<Linger>,
    /// The client had not acknowledged all of its answer when the end was written.
    awaits_acknowledgement: bool,
    acknowledged: Option<Acknowledged>,
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

/// Waits until the client has acknowledged the last byte.
#[derive(Debug)]
struct Acknowledged {
    look: Pin<Box<Sleep>>,
    pause: Duration,
}

// === impl Io ===

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io<I> {
    pub(super) fn new(inner: I, reset: fn(&I), conn: Arc<Conn>) -> Self {
        let protocol = Protocol::new();
        let bytes = Bytes::Own(inner);
        let (linger, acknowledged) = (None, None);
        Self { bytes, reset, conn, protocol, linger, awaits_acknowledgement: false, acknowledged }
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

    /// Waits until the client has acknowledged the last byte. The kernel goes on sending when the
    /// connection is closed, but not when the machine or its network is gone, as they often are
    /// soon after the process.
    fn poll_acknowledged(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let conn = &self.conn;
        if !self.awaits_acknowledgement {
            return Poll::Ready(());
        }
        loop {
            if conn.unacknowledged().unwrap_or(0) == 0 {
                return Poll::Ready(());
            }
            if conn.unheard_for(Instant::now()) >= STALLED {
                if conn.winds_down() {
                    conn.give_up(Why::StoppedReading);
                }
                return Poll::Ready(());
            }
            let waits = self.acknowledged.get_or_insert_with(|| Acknowledged {
                look: Box::pin(sleep(FIRST_LOOK)),
                pause: FIRST_LOOK,
            });
            ready!(waits.look.as_mut().poll(cx));
            waits.pause = LOOK.min(waits.pause * 2);
            waits.look.as_mut().reset(Instant::now() + waits.pause);
        }
    }

    /// Takes note of the first `count` bytes of `slices`, which have been written.
    #[inline]
    fn wrote(&mut self, slices: &[IoSlice<'_>], count: usize) {
        let sent = &self.conn.sent;
        let before = sent.written.load(Ordering::Relaxed);
        let written = before.wrapping_add(count as u64);
        match &mut self.protocol {
            Protocol::Http2(http2) => {
                let (mut at, mut rest) = (before, count);
                for slice in slices {
                    let here = &slice[..rest.min(slice.len())];
                    if let Some(until) = http2.wrote(here, at, &self.conn.requests) {
                        sent.answered.store(until, Ordering::Relaxed);
                    }
                    (at, rest) = (at + here.len() as u64, rest - here.len());
                }
                sent.open_answers.store(http2.open_answers(), Ordering::Relaxed);
            }
            Protocol::Http1 | Protocol::Unknown(_) => {
                sent.answered.store(written, Ordering::Relaxed);
            }
        }
        sent.written.store(written, Ordering::Relaxed);
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
        let this = &mut *self;
        this.look();
        match &mut this.bytes {
            Bytes::Own(inner) => {
                let before = buf.filled().len();
                ready!(Pin::new(inner).poll_read(cx, buf))?;
                this.protocol.read(&buf.filled()[before..], &this.conn.requests);
                Poll::Ready(Ok(()))
            }
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
                this.conn.sent.is_unflushed.store(true, Ordering::Relaxed);
                let written = ready!(poll_write_all_of(Pin::new(inner), cx, slices))?;
                this.wrote(slices, written);
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
        self.conn.sent.is_unflushed.store(false, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        this.look();
        match &mut this.bytes {
            // Not a second time while it lingers.
            Bytes::Own(_) if this.linger.is_some() => {}
            Bytes::Own(inner) => {
                let unread = this.conn.unread_at_the_end();
                ready!(Pin::new(inner).poll_shutdown(cx))?;
                this.conn.ends_by_close.store(false, Ordering::Relaxed);
                if unread > 0 {
                    this.conn.said_farewell(unread);
                    this.awaits_acknowledgement = true;
                }
            }
            Bytes::Shared(upgraded) => return upgraded.poll_shutdown(cx),
            Bytes::Gone => return gone(),
        }
        // While the one waits, the other is not asked: it would read on for a second time.
        if this.acknowledged.is_none() {
            ready!(this.poll_linger(cx));
        }
        this.poll_acknowledged(cx).map(Ok)
    }
}

impl<I: Send + 'static> Drop for Io<I> {
    fn drop(&mut self) {
        match &self.bytes {
            Bytes::Shared(upgraded) => upgraded.hang_up(),
            // Or else the client would take what it has got for the whole answer.
            Bytes::Own(inner) if self.conn.ends_by_close.load(Ordering::Relaxed) => {
                (self.reset)(inner);
            }
            Bytes::Own(_) | Bytes::Gone => {}
        }
        self.conn.gone();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use adieu_core::{Gate, Shutdown};
    use tokio::io::AsyncWriteExt;

    use super::super::Common;
    use super::*;
    use crate::layer::Door;
    use crate::serve::{Cuts, Now};
    use crate::socket::SendQueues;

    #[tokio::test]
    async fn what_waits_to_be_written_is_owed() {
        let common = Common {
            door: Door::new(Gate::new("http")),
            now: Now::new(),
            probes: None,
            goodbye: Duration::from_secs(2),
            patience_ms: AtomicU64::new(2_000),
            queues: SendQueues::open(),
            cuts: Arc::new(Cuts::new("http".into(), Shutdown::new(), Gate::new("http"))),
        };
        let conn = Conn::new(Arc::new(common), None, Instant::now());
        let (server, _client) = tokio::io::duplex(4);
        let mut io = Io::new(server, |_| {}, Arc::clone(&conn));
        assert!(!conn.owes());
        io.write_all(b"four").await.unwrap();
        assert!(conn.owes(), "written, and not flushed");
        io.flush().await.unwrap();
        assert!(!conn.owes(), "all has been said");
        // The client does not read: not one byte more can be written.
        tokio::select! {
            biased;
            _ = io.write_all(b"more") => panic!("there is no room for it"),
            () = std::future::ready(()) => {}
        }
        assert!(conn.owes());
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
