//! A connection that was upgraded from HTTP to another protocol, and how it is ended.
//!
//! The application reads and writes the connection, the server ends it, and both share it. The
//! server needs no help from the application: on a WebSocket it writes a close frame between two of
//! the application's frames, and at the end it takes the connection away. From then on the
//! application reads the end of the stream, and its writes fail.
//!
//! The pass is held until the application has dropped the connection, also after the connection was
//! taken away: a handler may still be processing its last message.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use adieu_core::adapter::lock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::websocket::{GOING_AWAY, WebSocketFrames};
use super::{Conn, Mode};

/// An upgraded connection as the server sees it, independent of the type of its socket.
pub(super) trait Upgraded: Send + Sync {
    /// Writes the close frame of a WebSocket, as soon as the application is between two frames.
    fn poll_close_frame(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Takes the connection away from the application, and closes it.
    fn disconnect(&self);

    /// Returns the token that fires when the application has dropped the connection.
    fn closed(&self) -> &CancellationToken;
}

/// The bytes of an upgraded connection.
#[derive(Debug)]
pub(super) struct UpgradedIo<I> {
    shared: Mutex<Shared<I>>,
    closed: CancellationToken,
}

#[derive(Debug)]
struct Shared<I> {
    /// `None` when the connection has been taken away.
    io: Option<I>,
    /// For a WebSocket: the application's position in its frames.
    frames: Option<WebSocketFrames>,
    close_frame: CloseFrame,
    // The socket stores one waker for each direction, and the server's may have replaced the
    // application's there.
    reader: Option<Waker>,
    writer: Option<Waker>,
    server: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseFrame {
    NotDue,
    /// To be written as soon as the application is between two frames.
    Due,
    /// This many of its bytes have been written.
    Writing(usize),
    Written,
}

/// Disconnects on drop, so that a cancelled [`drain_upgraded`] disconnects, too. If the application
/// still has the connection, it is named as cut off.
struct DisconnectOnDrop<'a>(&'a dyn Upgraded, &'a Conn);

/// Waits until the connection must end, and ends it. Returns when the application has dropped it, or
/// when the gate is cut.
pub(super) async fn drain_upgraded(upgraded: Arc<dyn Upgraded>, conn: &Conn) {
    let gate = &conn.server.admission.gate;
    let (gate_closed, gate_cut) = (gate.closed_token(), gate.cut_token());
    let _disconnect = DisconnectOnDrop(&*upgraded, conn);
    let closing_handshake = async {
        if conn.mode() == Mode::WebSocket {
            gate_closed.cancelled().await;
            std::future::poll_fn(|cx| upgraded.poll_close_frame(cx)).await;
            tokio::time::sleep(conn.server.websocket_close_timeout).await;
            upgraded.disconnect();
        }
        // The handler may be busy: it sees the end when it next reads or writes.
        std::future::pending().await
    };
    tokio::select! {
        () = upgraded.closed().cancelled() => {}
        () = closing_handshake => {}
        () = gate_cut.cancelled() => {}
    }
}

impl Drop for DisconnectOnDrop<'_> {
    fn drop(&mut self) {
        self.0.disconnect();
        if !self.0.closed().is_cancelled() {
            self.1.report_upgrade_cut();
        }
        self.1.release_passes();
    }
}

// === impl UpgradedIo ===

impl<I> UpgradedIo<I> {
    pub(super) fn new(io: I, mode: Mode) -> Arc<Self> {
        let shared = Shared {
            io: Some(io),
            frames: (mode == Mode::WebSocket).then(WebSocketFrames::new),
            close_frame: CloseFrame::NotDue,
            reader: None,
            writer: None,
            server: None,
        };
        Arc::new(Self { shared: Mutex::new(shared), closed: CancellationToken::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Shared<I>> {
        lock(&self.shared)
    }

    fn take_away(&self) {
        let mut shared = self.lock();
        let io = shared.io.take();
        let wakers = [shared.reader.take(), shared.writer.take(), shared.server.take()];
        drop(shared);
        // Neither the destructor nor the wakers run under the lock.
        drop(io);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Records that the application has dropped the connection.
    pub(super) fn application_closed(&self) {
        self.take_away();
        self.closed.cancel();
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> UpgradedIo<I> {
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let mut shared = self.lock();
        let Some(io) = &mut shared.io else { return Poll::Ready(Ok(())) };
        let polled = Pin::new(io).poll_read(cx, buf);
        shared.reader = polled.is_pending().then(|| cx.waker().clone());
        polled
    }

    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let mut shared = self.lock();
        let polled = shared.poll_write(cx, slices);
        shared.writer = polled.is_pending().then(|| cx.waker().clone());
        // The application may be between two frames now.
        let server = shared.server.take_if(|_| polled.is_ready());
        drop(shared);
        server.into_iter().for_each(Waker::wake);
        polled
    }

    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut shared = self.lock();
        shared.io.as_mut().map_or(Poll::Ready(Ok(())), |io| Pin::new(io).poll_flush(cx))
    }

    pub(super) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut shared = self.lock();
        shared.io.as_mut().map_or(Poll::Ready(Ok(())), |io| Pin::new(io).poll_shutdown(cx))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> Upgraded for UpgradedIo<I> {
    fn poll_close_frame(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.lock();
        let polled = shared.poll_close_frame(cx);
        shared.server = polled.is_pending().then(|| cx.waker().clone());
        let writer = shared.writer.take_if(|_| polled.is_ready());
        drop(shared);
        writer.into_iter().for_each(Waker::wake);
        polled
    }

    fn disconnect(&self) {
        self.take_away();
    }

    fn closed(&self) -> &CancellationToken {
        &self.closed
    }
}

// === impl Shared ===

impl<I: AsyncRead + AsyncWrite + Unpin> Shared<I> {
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        if self.close_frame == CloseFrame::Due
            && self.frames.as_ref().is_some_and(WebSocketFrames::is_between)
        {
            // The close frame goes before the application's next frame, although the server's task
            // has not been woken yet.
            ready!(self.poll_close_frame(cx));
        }
        let Some(io) = &mut self.io else {
            return Poll::Ready(Err(Error::from(ErrorKind::BrokenPipe)));
        };
        let Some(frames) = &mut self.frames else {
            return Pin::new(io).poll_write_vectored(cx, slices);
        };
        if matches!(self.close_frame, CloseFrame::Writing(_) | CloseFrame::Written) {
            // No frame may follow a close frame, so this one is discarded. The application sees the
            // end of the connection when it reads.
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let written = if self.close_frame == CloseFrame::Due {
            // Not beyond the end of this frame.
            let first = slices.iter().find(|slice| !slice.is_empty());
            let bytes: &[u8] = first.map_or(&[], |slice| slice);
            let here = frames.until_between(bytes);
            ready!(Pin::new(io).poll_write(cx, &bytes[..here]))?
        } else {
            ready!(Pin::new(io).poll_write_vectored(cx, slices))?
        };
        let mut rest = written;
        for slice in slices {
            let here = rest.min(slice.len());
            frames.advance(&slice[..here]);
            rest -= here;
        }
        Poll::Ready(Ok(written))
    }

    fn poll_close_frame(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(io), Some(frames)) = (&mut self.io, &self.frames) else {
            return Poll::Ready(());
        };
        loop {
            match self.close_frame {
                CloseFrame::NotDue => self.close_frame = CloseFrame::Due,
                CloseFrame::Due if !frames.is_between() => return Poll::Pending,
                CloseFrame::Due => self.close_frame = CloseFrame::Writing(0),
                CloseFrame::Writing(sent) if sent < GOING_AWAY.len() => {
                    match ready!(Pin::new(&mut *io).poll_write(cx, &GOING_AWAY[sent..])) {
                        Ok(written) if written > 0 => {
                            self.close_frame = CloseFrame::Writing(sent + written)
                        }
                        Ok(_) | Err(_) => self.close_frame = CloseFrame::Written,
                    }
                }
                CloseFrame::Writing(_) => {
                    // Bytes that cannot be flushed now go out with the next flush.
                    let _ = Pin::new(&mut *io).poll_flush(cx);
                    self.close_frame = CloseFrame::Written;
                }
                CloseFrame::Written => return Poll::Ready(()),
            }
        }
    }
}
