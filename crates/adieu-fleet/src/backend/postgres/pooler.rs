//! Detects a pooler between this process and the server.
//!
//! A session is numbered by the id of its server process. A client learns the number in two ways: when
//! it connects, as part of the key for cancel requests, and from `pg_backend_pid()`. A pooler lends
//! one session to several clients, so it sends its own keys and handles cancel requests itself. If
//! the two numbers differ, there is a pooler. A TCP proxy forwards bytes and changes neither.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// Returns the number of the session that was announced when the client connected.
///
/// The client stores the number without an accessor, but writes it into a cancel request. The request
/// is sent to a pipe here.
pub async fn announced_session(client: &Client) -> Option<i32> {
    let (ours, mut theirs) = tokio::io::duplex(64);
    let token = client.cancel_token();
    let sending = token.cancel_query_raw(ours, Plain);
    let reading = async {
        let mut head = [0; 8];
        theirs.read_exact(&mut head).await?;
        if head[4..] == SSL_REQUEST {
            theirs.write_all(b"S").await?;
            theirs.read_exact(&mut head).await?;
        }
        theirs.read_i32().await
    };
    let (_, announced): (_, io::Result<i32>) = tokio::join!(sending, reading);
    announced.ok()
}

/// The request of a client for TLS.
const SSL_REQUEST: [u8; 4] = 80_877_103_i32.to_be_bytes();

/// No encryption, because the data does not leave this process.
struct Plain;

struct PlainStream(DuplexStream);

impl TlsConnect<DuplexStream> for Plain {
    type Stream = PlainStream;
    type Error = Infallible;
    type Future = Ready<Result<PlainStream, Infallible>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(PlainStream(stream)))
    }
}

impl TlsStream for PlainStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for PlainStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, bytes)
    }
}

impl AsyncWrite for PlainStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
