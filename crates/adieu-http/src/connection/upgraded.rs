//! A connection that does not speak HTTP any more: shared by the application, which reads and
//! writes it, and its usher, who shows it out.
//!
//! The usher needs nothing of the application: it says goodbye on a WebSocket between two frames
//! that the application writes, and takes the connection away when its time is up. Whoever then
//! reads reads the end, whoever writes writes in vain.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::frames::{Frames, GOING_AWAY};
use super::{Conn, Speaks};

/// A connection that has been upgraded.
#[derive(Debug)]
pub(super) struct Upgraded<I> {
    shared: Mutex<Shared<I>>,
    /// The application has let it go.
    hung_up: CancellationToken,
}

#[derive(Debug)]
struct Shared<I> {
    /// None when it has been taken away.
    io: Option<I>,
    /// For a WebSocket: where in its frames the application is.
    frames: Option<Frames>,
    goodbye: Goodbye,
    /// Who waits on each side. The kernel knows one for each direction only, and the usher may have
    /// taken that place.
    reader: Option<Waker>,
    writer: Option<Waker>,
    usher: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goodbye {
    NotYet,
    /// As soon as the application is between two frames.
    Due,
    /// So many bytes of it have been written. It begins where a frame ends.
    Saying(usize),
    Said,
}

/// What an usher can do, whatever the bytes go over.
pub(super) trait Ushered: Send + Sync {
    /// Says goodbye, when the application is between two frames.
    fn poll_goodbye(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Takes the connection away.
    fn end(&self);

    /// Fires when the application has let it go.
    fn hung_up(&self) -> &CancellationToken;
}

/// Takes the connection away also when the usher is cut short.
struct End<'a>(&'a dyn Ushered, &'a Conn);

/// Shows a connection out, when the time for that has come.
pub(super) async fn usher(upgraded: Arc<dyn Ushered>, conn: &Conn) {
    let gate = &conn.common.door.gate;
    let (closed, cut) = (gate.closed_token(), gate.cut_token());
    let _end = End(&*upgraded, conn);
    let time_is_up = async {
        if conn.speaks() == Speaks::WebSocket {
            closed.cancelled().await;
            std::future::poll_fn(|cx| upgraded.poll_goodbye(cx)).await;
            tokio::time::sleep(conn.common.goodbye).await;
        } else {
            std::future::pending().await
        }
    };
    tokio::select! {
        () = upgraded.hung_up().cancelled() => {}
        () = time_is_up => {}
        () = cut.cancelled() => {}
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
        self.1.gone();
    }
}

// === impl Upgraded ===

impl<I> Upgraded<I> {
    pub(super) fn new(io: I, speaks: Speaks) -> Arc<Self> {
        let shared = Shared {
            io: Some(io),
            frames: (speaks == Speaks::WebSocket).then(Frames::new),
            goodbye: Goodbye::NotYet,
            reader: None,
            writer: None,
            usher: None,
        };
        Arc::new(Self { shared: Mutex::new(shared), hung_up: CancellationToken::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Shared<I>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_away(&self) {
        let mut shared = self.lock();
        let io = shared.io.take();
        let wakers = [shared.reader.take(), shared.writer.take(), shared.usher.take()];
        drop(shared);
        drop(io); // Not under the lock, nor do those who are woken run there.
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    pub(super) fn hang_up(&self) {
        self.take_away();
        self.hung_up.cancel();
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> Upgraded<I> {
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
        let usher = shared.usher.take_if(|_| polled.is_ready());
        drop(shared);
        // It may be between two frames now.
        usher.into_iter().for_each(Waker::wake);
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

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> Ushered for Upgraded<I> {
    fn poll_goodbye(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.lock();
        let polled = shared.poll_goodbye(cx);
        shared.usher = polled.is_pending().then(|| cx.waker().clone());
        let writer = shared.writer.take_if(|_| polled.is_ready());
        drop(shared);
        writer.into_iter().for_each(Waker::wake);
        polled
    }

    fn end(&self) {
        self.take_away();
    }

    fn hung_up(&self) -> &CancellationToken {
        &self.hung_up
    }
}

// === impl Shared ===

impl<I: AsyncRead + AsyncWrite + Unpin> Shared<I> {
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        if self.goodbye == Goodbye::Due && self.frames.as_ref().is_some_and(Frames::are_whole) {
            // Now, and not after the next frame: the usher has yet to wake up.
            ready!(self.poll_goodbye(cx));
        }
        let Some(io) = &mut self.io else {
            return Poll::Ready(Err(Error::from(ErrorKind::BrokenPipe)));
        };
        let Some(frames) = &mut self.frames else {
            return Pin::new(io).poll_write_vectored(cx, slices);
        };
        if matches!(self.goodbye, Goodbye::Saying(_) | Goodbye::Said) {
            // After goodbye nothing may follow; the application hears of it when it reads.
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let written = if self.goodbye == Goodbye::Due {
            // No further than to the end of this frame.
            let first = slices.iter().find(|slice| !slice.is_empty());
            let bytes: &[u8] = first.map_or(&[], |slice| slice);
            let here = frames.until_whole(bytes);
            ready!(Pin::new(io).poll_write(cx, &bytes[..here]))?
        } else {
            ready!(Pin::new(io).poll_write_vectored(cx, slices))?
        };
        let mut rest = written;
        for slice in slices {
            let here = rest.min(slice.len());
            frames.take(&slice[..here]);
            rest -= here;
        }
        Poll::Ready(Ok(written))
    }

    fn poll_goodbye(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(io), Some(frames)) = (&mut self.io, &self.frames) else {
            return Poll::Ready(());
        };
        loop {
            match self.goodbye {
                Goodbye::NotYet => self.goodbye = Goodbye::Due,
                Goodbye::Due if !frames.are_whole() => return Poll::Pending,
                Goodbye::Due => self.goodbye = Goodbye::Saying(0),
                Goodbye::Saying(said) if said < GOING_AWAY.len() => {
                    match ready!(Pin::new(&mut *io).poll_write(cx, &GOING_AWAY[said..])) {
                        Ok(written) if written > 0 => {
                            self.goodbye = Goodbye::Saying(said + written)
                        }
                        Ok(_) | Err(_) => self.goodbye = Goodbye::Said,
                    }
                }
                Goodbye::Saying(_) => {
                    // What cannot be flushed at once goes with what is flushed next.
                    let _ = Pin::new(&mut *io).poll_flush(cx);
                    self.goodbye = Goodbye::Said;
                }
                Goodbye::Said => return Poll::Ready(()),
            }
        }
    }
}
