//! Where connections come from.

use std::fmt::Debug;
use std::io;
#[cfg(unix)]
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream, unix::SocketAddr};

/// Where connections come from: a TCP or a Unix socket, or what you make of one.
pub trait Listener: Send + Sized + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Who is at its other end.
    type Peer: Clone + Debug + Send + Sync + 'static;

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// If there is none because of the system. The server logs it, waits a little and tries again.
    ///
    /// # Cancel safety
    ///
    /// Must be cancel safe: a dropped wait loses no connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, Self::Peer)>> + Send;

    /// Closes, after taking in the connections that have been queued and not accepted: their
    /// clients believe that they are connected.
    fn close(self) -> Vec<(Self::Io, Self::Peer)>;
}

impl Listener for TcpListener {
    type Io = TcpStream;
    type Peer = std::net::SocketAddr;

    async fn accept(&mut self) -> io::Result<(TcpStream, Self::Peer)> {
        Self::accept(self).await
    }

    fn close(self) -> Vec<(TcpStream, Self::Peer)> {
        // Asks the kernel itself: tokio would answer from what it has heard so far.
        let Ok(listener) = self.into_std() else { return Vec::new() };
        let queued = std::iter::from_fn(|| listener.accept().ok());
        let taken_in = |(stream, peer): (std::net::TcpStream, _)| {
            stream.set_nonblocking(true).ok()?;
            Some((TcpStream::from_std(stream).ok()?, peer))
        };
        queued.filter_map(taken_in).collect()
    }
}

#[cfg(unix)]
impl Listener for UnixListener {
    type Io = UnixStream;
    type Peer = Arc<SocketAddr>;

    async fn accept(&mut self) -> io::Result<(UnixStream, Self::Peer)> {
        let (stream, peer) = Self::accept(self).await?;
        Ok((stream, Arc::new(peer)))
    }

    fn close(self) -> Vec<(UnixStream, Self::Peer)> {
        let Ok(listener) = self.into_std() else { return Vec::new() };
        let queued = std::iter::from_fn(|| listener.accept().ok());
        let taken_in = |(stream, peer): (std::os::unix::net::UnixStream, _)| {
            stream.set_nonblocking(true).ok()?;
            Some((UnixStream::from_std(stream).ok()?, Arc::new(SocketAddr::from(peer))))
        };
        queued.filter_map(taken_in).collect()
    }
}
