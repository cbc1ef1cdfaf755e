//! The bytes of a connection, on their way to and from hyper.
//!
//! While the connection speaks HTTP, [`Io`] passes the bytes on and records the bytes that are written. When
//! the connection is upgraded, [`Io`] shares it with the code that ends it, see
//! [`upgraded`](super::upgraded).

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::closing::{self, Closing};
use super::coalesce::poll_write_coalesced;
use super::http2::Protocol;
use super::upgraded::UpgradedIo;
use super::{Conn, Mode};

/// The bytes of a connection.
#[derive(Debug)]
pub(super) struct Io<I: Send + 'static> {
    inner: Inner<I>,
    /// Decides whether the kernel ends the connection with a reset.
    reset: fn(&I, bool),
    /// The kernel ends the connection with a reset, also if the process ends now.
    is_reset: bool,
    conn: Arc<Conn>,
    protocol: Protocol,
    /// Set when the end of the stream has been written.
    closing: Option<Closing>,
}

#[derive(Debug)]
enum Inner<I: Send + 'static> {
    Http(I),
    Upgraded(Arc<UpgradedIo<I>>),
    /// Only while the connection moves from `Http` to `Upgraded`.
    Taken,
}

// === impl Io ===

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io<I> {
    pub(super) fn new(inner: I, reset: fn(&I, bool), conn: Arc<Conn>) -> Self {
        let (inner, protocol) = (Inner::Http(inner), Protocol::new());
        Self { inner, reset, is_reset: false, conn, protocol, closing: None }
    }

    /// Detects that the connection has been upgraded: hyper hands the connection on without a
    /// notification.
    #[inline]
    fn detect_upgrade(&mut self) {
        if self.conn.mode() != Mode::Http {
            self.share();
        }
    }

    #[cold]
    fn share(&mut self) {
        if let Inner::Http(_) = &self.inner
            && let Inner::Http(inner) = std::mem::replace(&mut self.inner, Inner::Taken)
        {
            let upgraded = UpgradedIo::new(inner, self.conn.mode());
            self.conn.set_upgraded(Arc::clone(&upgraded) as _);
            self.inner = Inner::Upgraded(upgraded);
        }
    }

    /// Records that the first `count` bytes of `slices` have been written.
    #[inline]
    fn record_write(&mut self, slices: &[IoSlice<'_>], count: usize) {
        let delivery = &self.conn.delivery;
        let before = delivery.written();
        let written = before.wrapping_add(count as u64);
        match &mut self.protocol {
            Protocol::Http2(http2) => {
                let (mut at, mut rest) = (before, count);
                for slice in slices {
                    let here = &slice[..rest.min(slice.len())];
                    if let Some(until) = http2.wrote(here, at, &self.conn.requests) {
                        delivery.set_answered(until);
                    }
                    (at, rest) = (at + here.len() as u64, rest - here.len());
                }
                delivery.set_open_answers(http2.open_answers());
            }
            Protocol::Http1 | Protocol::Unknown(_) => delivery.set_answered(written),
        }
        delivery.set_written(written);
        if self.conn.requests.is_crowded() {
            let (acknowledged, _) = delivery.acknowledged(&self.conn.server.queues);
            self.conn.requests.forget_received(acknowledged);
        }
    }
}

fn not_connected<T>() -> Poll<Result<T>> {
    Poll::Ready(Err(Error::from(ErrorKind::NotConnected)))
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncRead for Io<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let this = &mut *self;
        this.detect_upgrade();
        match &mut this.inner {
            Inner::Http(inner) => {
                let (before, room) = (buf.filled().len(), buf.remaining());
                ready!(Pin::new(inner).poll_read(cx, buf))?;
                let read = &buf.filled()[before..];
                if read.is_empty() && room > 0 && matches!(this.protocol, Protocol::Http1) {
                    this.conn.is_half_closed.store(true, Ordering::Relaxed);
                }
                this.protocol.read(read, &this.conn.requests);
                Poll::Ready(Ok(()))
            }
            Inner::Upgraded(upgraded) => upgraded.poll_read(cx, buf),
            Inner::Taken => not_connected(),
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
        this.detect_upgrade();
        match &mut this.inner {
            Inner::Http(inner) => {
                // Before the first byte of the response, because the process may end at any time, and a
                // regular end would make the client take a part of the response for all of it.
                if !this.is_reset && this.conn.ends_by_close.load(Ordering::Relaxed) {
                    this.is_reset = true;
                    (this.reset)(inner, true);
                }
                // Set before the write: bytes that cannot be written now are not flushed either.
                this.conn.delivery.set_unflushed(true);
                let written = ready!(poll_write_coalesced(Pin::new(inner), cx, slices))?;
                this.record_write(slices, written);
                Poll::Ready(Ok(written))
            }
            Inner::Upgraded(upgraded) => upgraded.poll_write(cx, slices),
            Inner::Taken => not_connected(),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.inner {
            Inner::Http(inner) => inner.is_write_vectored(),
            Inner::Upgraded(_) => true,
            Inner::Taken => false,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.detect_upgrade();
        match &mut self.inner {
            Inner::Http(inner) => ready!(Pin::new(inner).poll_flush(cx))?,
            Inner::Upgraded(upgraded) => ready!(upgraded.poll_flush(cx))?,
            Inner::Taken => return not_connected(),
        }
        self.conn.delivery.set_unflushed(false);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        this.detect_upgrade();
        let inner = match &mut this.inner {
            Inner::Http(inner) => inner,
            Inner::Upgraded(upgraded) => return upgraded.poll_shutdown(cx),
            Inner::Taken => return not_connected(),
        };
        let closing = match &mut this.closing {
            Some(closing) => closing,
            None => {
                let unacknowledged = closing::unacknowledged(&this.conn);
                ready!(Pin::new(&mut *inner).poll_shutdown(cx))?;
                // The client gets the end of the response. A reset could now destroy its last bytes.
                if std::mem::take(&mut this.is_reset) {
                    (this.reset)(inner, false);
                }
                this.closing.insert(Closing::new(&this.conn, unacknowledged))
            }
        };
        closing.poll(inner, &this.conn, cx).map(Ok)
    }
}

impl<I: Send + 'static> Drop for Io<I> {
    fn drop(&mut self) {
        if let Inner::Upgraded(upgraded) = &self.inner {
            upgraded.application_closed();
        }
        self.conn.release_passes();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use adieu_core::{Gate, Shutdown};
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    use super::super::{Cuts, ServerContext};
    use super::*;
    use crate::admission::Admission;
    use crate::clock::TickingClock;
    use crate::socket::SendQueues;
    use crate::stage::CurrentStage;

    #[tokio::test]
    async fn bytes_that_wait_to_be_written_are_an_unread_answer() {
        let server = ServerContext {
            admission: Admission::new(Gate::new("http")),
            stage: CurrentStage::new(),
            probes: None,
            websocket_close_timeout: Duration::from_secs(2),
            stall_timeout: Duration::from_secs(2),
            queues: SendQueues::open(),
            clock: TickingClock::new(),
            cuts: Arc::new(Cuts::new("http".into(), Shutdown::new(), Gate::new("http"))),
        };
        let conn = Conn::new(Arc::new(server), None, Instant::now());
        let (server, _client) = tokio::io::duplex(4);
        let mut io = Io::new(server, |_, _| {}, Arc::clone(&conn));
        assert!(!conn.has_unread_answer());
        io.write_all(b"four").await.unwrap();
        assert!(conn.has_unread_answer(), "written, and not flushed");
        io.flush().await.unwrap();
        assert!(!conn.has_unread_answer(), "written and flushed");
        // The client does not read, so not one byte more can be written.
        tokio::select! {
            biased;
            _ = io.write_all(b"more") => panic!("there is no room for it"),
            () = std::future::ready(()) => {}
        }
        assert!(conn.has_unread_answer());
    }
}
