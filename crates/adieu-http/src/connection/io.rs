//! The bytes of a connection, on their way to and from hyper, and to whatever it is upgraded to.
//!
//! While the connection speaks HTTP this only passes them on. It does three things more, each where
//! nobody else can: it says goodbye on WebSockets, it ends upgraded connections when their window
//! is over, and it closes without destroying what the other side has not read yet.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::frames::{Frames, GOING_AWAY};
use super::{Conn, Speaks};

/// How much is read and thrown away of what a client goes on sending while we close.
const LINGER_BYTES: usize = 256 * 1024;

/// A connection's bytes.
#[derive(Debug)]
pub(crate) struct Io<I> {
    inner: I,
    conn: Arc<Conn>,
    upgraded: Option<Box<Upgraded>>,
}

/// A connection that does not speak HTTP any more.
#[derive(Debug)]
struct Upgraded {
    /// The window for it is over.
    cut: Told,
    websocket: Option<WebSocket>,
    /// Who writes, if it has to wait: reading may bring the end, of which it must hear.
    writer: Option<Waker>,
}

#[derive(Debug)]
struct WebSocket {
    /// The gate is closed: say goodbye.
    closed: Told,
    frames: Frames,
    goodbye: Goodbye,
}

#[derive(Debug)]
enum Goodbye {
    NotYet,
    /// So many bytes of the close frame have been written.
    Saying(usize),
    /// The other side has until then to say the same.
    Said(Pin<Box<Sleep>>),
    Over,
}

/// A token, and who waits for it. Only the reading side waits: there is always one that reads,
/// and a wait can wake only one.
#[derive(Debug)]
struct Told {
    token: CancellationToken,
    wait: Pin<Box<WaitForCancellationFutureOwned>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Reading,
    Writing,
}

/// How much of what is to be written may be.
enum Writable {
    All,
    UpTo(usize),
    /// It only seems to be: after goodbye nothing may follow.
    Nothing,
}

// === impl Io ===

impl<I> Io<I> {
    pub(super) fn new(inner: I, conn: Arc<Conn>) -> Self {
        Self { inner, conn, upgraded: None }
    }

    /// Notices that the connection has been upgraded: hyper hands it on, but does not tell it.
    #[inline]
    fn is_upgraded(&mut self) -> bool {
        let speaks = self.conn.speaks();
        if speaks == Speaks::Http {
            return false;
        }
        self.upgraded.get_or_insert_with(|| Box::new(Upgraded::new(&self.conn, speaks)));
        true
    }
}

impl<I: AsyncWrite + Unpin> Io<I> {
    /// Does what an upgraded connection has to do before it goes on. True if it is at its end.
    fn poll_end(&mut self, cx: &mut Context<'_>, side: Side) -> Poll<bool> {
        let Some(upgraded) = self.upgraded.as_deref_mut() else { return Poll::Ready(false) };
        let is_cut = upgraded.cut.is_true(cx, side);
        let Some(websocket) = &mut upgraded.websocket else { return Poll::Ready(is_cut) };
        loop {
            match &mut websocket.goodbye {
                Goodbye::NotYet => {
                    let is_closed = websocket.closed.is_true(cx, side);
                    if !is_closed || !websocket.frames.are_whole() {
                        return Poll::Ready(is_cut);
                    }
                    websocket.goodbye = Goodbye::Saying(0);
                }
                Goodbye::Saying(said) if *said < GOING_AWAY.len() => {
                    match Pin::new(&mut self.inner).poll_write(cx, &GOING_AWAY[*said..]) {
                        Poll::Ready(Ok(written)) if written > 0 => *said += written,
                        Poll::Pending if !is_cut => return Poll::Pending,
                        Poll::Ready(_) | Poll::Pending => websocket.goodbye = Goodbye::Over,
                    }
                }
                Goodbye::Saying(_) => {
                    // What cannot be flushed at once goes with what is flushed next.
                    let _ = Pin::new(&mut self.inner).poll_flush(cx);
                    let until = Box::pin(sleep(self.conn.common.goodbye));
                    websocket.goodbye = Goodbye::Said(until);
                    upgraded.writer.take().into_iter().for_each(Waker::wake);
                }
                Goodbye::Said(until) => {
                    let is_late = match side {
                        Side::Reading => until.as_mut().poll(cx).is_ready(),
                        Side::Writing => until.is_elapsed(),
                    };
                    if !is_late && !is_cut {
                        return Poll::Ready(false);
                    }
                    websocket.goodbye = Goodbye::Over;
                    upgraded.writer.take().into_iter().for_each(Waker::wake);
                }
                Goodbye::Over => return Poll::Ready(true),
            }
        }
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<Writable>> {
        if !self.is_upgraded() {
            return Poll::Ready(Ok(Writable::All));
        }
        if ready!(self.poll_end(cx, Side::Writing)) {
            return Poll::Ready(Err(Error::from(ErrorKind::BrokenPipe)));
        }
        let websocket = self.upgraded.as_deref().and_then(|upgraded| upgraded.websocket.as_ref());
        let Some(websocket) = websocket else { return Poll::Ready(Ok(Writable::All)) };
        Poll::Ready(Ok(match websocket.goodbye {
            Goodbye::NotYet => Writable::UpTo(websocket.frames.until_whole(bytes)),
            Goodbye::Saying(_) | Goodbye::Said(_) | Goodbye::Over => Writable::Nothing,
        }))
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let bytes = match ready!(self.poll_writable(cx, bytes))? {
            Writable::All => {
                let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
                self.conn.wrote(written);
                return Poll::Ready(Ok(written));
            }
            Writable::UpTo(len) => &bytes[..len],
            Writable::Nothing => return Poll::Ready(Ok(bytes.len())),
        };
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        let websocket = self.upgraded.as_deref_mut().and_then(|up| up.websocket.as_mut());
        if let Some(websocket) = websocket {
            websocket.frames.take(&bytes[..written]);
        }
        Poll::Ready(Ok(written))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for Io<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        // Being kept from saying goodbye is no reason not to read.
        if self.is_upgraded() && self.poll_end(cx, Side::Reading) == Poll::Ready(true) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Io<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let polled = self.poll_bytes(cx, bytes);
        if let Some(upgraded) = self.upgraded.as_deref_mut() {
            upgraded.writer = polled.is_pending().then(|| cx.waker().clone());
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        if !self.is_upgraded() {
            let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, slices))?;
            self.conn.wrote(written);
            return Poll::Ready(Ok(written));
        }
        let first = slices.iter().find(|slice| !slice.is_empty());
        self.poll_write(cx, first.map_or(&[], |slice| slice))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        self.conn.flushed();
        Poll::Ready(Ok(()))
    }

    /// Closes for writing. Bytes that have arrived unread would make the kernel answer with a
    /// reset, which can destroy our last response on its way: so they are read first.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
        let mut rest = LINGER_BYTES;
        let mut thrown_away = [0; 8 * 1024];
        while rest > 0 {
            let mut buf = ReadBuf::new(&mut thrown_away);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    rest = rest.saturating_sub(buf.filled().len());
                }
                Poll::Ready(_) | Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<I> Drop for Io<I> {
    fn drop(&mut self) {
        self.conn.gone();
    }
}

// === impl Upgraded ===

impl Upgraded {
    fn new(conn: &Conn, speaks: Speaks) -> Self {
        let gate = &conn.common.door.gate;
        let websocket = (speaks == Speaks::WebSocket).then(|| WebSocket {
            closed: Told::by(gate.closed_token()),
            frames: Frames::new(),
            goodbye: Goodbye::NotYet,
        });
        Self { cut: Told::by(gate.cut_token()), websocket, writer: None }
    }
}

// === impl Told ===

impl Told {
    fn by(token: CancellationToken) -> Self {
        let wait = Box::pin(token.clone().cancelled_owned());
        Self { token, wait }
    }

    fn is_true(&mut self, cx: &mut Context<'_>, side: Side) -> bool {
        match side {
            Side::Reading => self.wait.as_mut().poll(cx).is_ready(),
            Side::Writing => self.token.is_cancelled(),
        }
    }
}
