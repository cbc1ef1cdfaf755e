//! A connection over a Unix socket that can be reset.
//!
//! A Unix socket has no reset of its own. But if a socket is closed while bytes of its peer are
//! unread, Linux lets the peer read everything that was sent to it, and after that an error
//! (`ECONNRESET`) instead of the end of the stream. So the last byte of a client is only peeked at: it
//! stays in the kernel's queue until more bytes arrive, or until the connection ends regularly.

#[cfg(target_os = "linux")]
mod last_byte;

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// A connection over a Unix socket, as a `UnixListener` accepts it.
///
/// On Linux it can be reset, so that a response that is cut does not look complete to the client.
#[derive(Debug)]
pub struct UnixConnection {
    stream: UnixStream,
    /// The last byte that was read is still in the kernel's queue.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux resets"))]
    is_last_byte_queued: bool,
    is_reset_on_drop: AtomicBool,
}

// === impl UnixConnection ===

impl From<UnixStream> for UnixConnection {
    fn from(stream: UnixStream) -> Self {
        let is_reset_on_drop = AtomicBool::new(false);
        Self { stream, is_last_byte_queued: false, is_reset_on_drop }
    }
}

impl UnixConnection {
    pub(crate) fn reset_on_drop(&self, resets: bool) {
        self.is_reset_on_drop.store(resets, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
impl UnixConnection {
    fn poll_read_bytes(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            std::task::ready!(self.stream.poll_read_ready(cx))?;
            let (stream, is_queued) = (&self.stream, &mut self.is_last_byte_queued);
            let into = buf.initialize_unfilled();
            let read = || last_byte::read(stream, is_queued, into);
            match stream.try_io(tokio::io::Interest::READABLE, read) {
                Ok(count) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Lets the connection end regularly.
    fn take_last_byte(&mut self) {
        if std::mem::take(&mut self.is_last_byte_queued) {
            let _ = last_byte::discard(&self.stream);
        }
    }
}

// On other platforms the peer of a socket that is closed reads a regular end.
#[cfg(not(target_os = "linux"))]
impl UnixConnection {
    fn poll_read_bytes(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }

    fn take_last_byte(&mut self) {}
}

impl AsyncRead for UnixConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        self.poll_read_bytes(cx, buf)
    }
}

impl AsyncWrite for UnixConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for UnixConnection {
    fn drop(&mut self) {
        if !self.is_reset_on_drop.load(Ordering::Relaxed) {
            self.take_last_byte();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> Result<(UnixConnection, UnixStream)> {
        let (server, client) = UnixStream::pair()?;
        Ok((server.into(), client))
    }

    #[tokio::test]
    async fn bytes_arrive_once_and_in_order_however_they_are_split() {
        let sent: Vec<u8> = (0..10_000u32).map(|byte| (byte % 251) as u8).collect();
        for (written, read) in [(1, 1), (1, 100), (3, 2), (2, 3), (100, 1), (999, 64), (64, 999)] {
            let (mut server, mut client) = pair().unwrap();
            let mut received: Vec<u8> = Vec::new();
            let reading = async {
                let mut buf = vec![0; read];
                loop {
                    match server.read(&mut buf).await.unwrap() {
                        0 => break,
                        count => received.extend(&buf[..count]),
                    }
                }
            };
            let writing = async {
                for piece in sent.chunks(written) {
                    client.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                client.shutdown().await.unwrap();
            };
            tokio::join!(reading, writing);
            assert!(received == sent, "written by {written}, read by {read}");
        }
    }

    #[tokio::test]
    async fn a_connection_waits_for_bytes_that_have_not_arrived() {
        let (mut server, mut client) = pair().unwrap();
        let mut byte = [0];
        for sent in *b"ab" {
            tokio::select! {
                biased;
                read = server.read(&mut byte) => panic!("nothing was sent: {read:?}"),
                () = tokio::task::yield_now() => {}
            }
            client.write_all(&[sent]).await.unwrap();
            assert_eq!(server.read(&mut byte).await.unwrap(), 1);
            assert_eq!(byte, [sent]);
        }
        drop(client);
        assert_eq!(server.read(&mut byte).await.unwrap(), 0);
        assert_eq!(server.read(&mut byte).await.unwrap(), 0);
    }

    /// Answers a request, ends the connection, and returns what the client reads after that.
    async fn ended(is_reset: bool, is_half_closed: bool) -> Result<(Vec<u8>, Option<ErrorKind>)> {
        let (mut server, mut client) = pair()?;
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        if is_half_closed {
            client.shutdown().await?;
        }
        let mut request = [0; 100];
        assert_eq!(server.read(&mut request).await?, 18);
        if is_half_closed {
            assert_eq!(server.read(&mut request).await?, 0);
        }
        server.write_all(b"answer").await?;
        if is_reset {
            server.reset_on_drop(true);
        }
        drop(server);
        let mut read = Vec::new();
        let error = client.read_to_end(&mut read).await.err();
        Ok((read, error.map(|error| error.kind())))
    }

    #[tokio::test]
    async fn a_reset_connection_ends_in_an_error_and_others_do_not() {
        for is_half_closed in [false, true] {
            let answer = b"answer".to_vec();
            assert_eq!(ended(false, is_half_closed).await.unwrap(), (answer.clone(), None));
            let reset = Some(ErrorKind::ConnectionReset);
            assert_eq!(ended(true, is_half_closed).await.unwrap(), (answer, reset));
        }
    }
}
