//! Where connections come from.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream, unix};

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

    /// Returns the addresses of both ends of a TCP connection, ours first. By these the kernel can be
    /// asked what the client has acknowledged.
    ///
    /// For other connections, what the kernel has taken counts as read by the client.
    fn endpoints(_io: &Self::Io) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    /// Makes dropping `io` reset the connection instead of ending it.
    ///
    /// Called when an answer is cut whose end the client knows only by the end of the connection.
    fn reset_on_drop(_io: &Self::Io) {}

    /// Where it listens, for the log.
    fn describe(&self) -> Option<String> {
        None
    }
}

impl Listener for TcpListener {
    type Io = TcpStream;
    type Peer = SocketAddr;

    async fn accept(&mut self) -> io::Result<(TcpStream, Self::Peer)> {
        let (stream, peer) = Self::accept(self).await?;
        // Answers are written when they are whole: there is nothing to wait for.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer))
    }

    fn endpoints(io: &TcpStream) -> Option<(SocketAddr, SocketAddr)> {
        Some((io.local_addr().ok()?, io.peer_addr().ok()?))
    }

    fn reset_on_drop(io: &TcpStream) {
        // If the connection is gone already, there is nothing to reset.
        let _ = io.set_zero_linger();
    }

    fn describe(&self) -> Option<String> {
        self.local_addr().ok().map(|addr| addr.to_string())
    }

    fn close(self) -> Vec<(TcpStream, Self::Peer)> {
        // Asks the kernel itself: tokio would answer from what it has heard so far.
        let Ok(listener) = self.into_std() else { return Vec::new() };
        let queued = std::iter::from_fn(|| next(|| listener.accept()));
        let taken_in = |(stream, peer): (std::net::TcpStream, _)| {
            stream.set_nonblocking(true).ok()?;
            Some((TcpStream::from_std(stream).ok()?, peer))
        };
        queued.filter_map(taken_in).collect()
    }
}

/// The next one that is queued. One that has gone again is no reason to leave the others there.
fn next<T>(accept: impl Fn() -> io::Result<T>) -> Option<T> {
    loop {
        match accept() {
            Ok(accepted) => return Some(accepted),
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => return None,
        }
    }
}

/// The client has gone again; the listener is well.
pub(crate) fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(unix)]
impl Listener for UnixListener {
    type Io = UnixStream;
    type Peer = Arc<unix::SocketAddr>;

    async fn accept(&mut self) -> io::Result<(UnixStream, Self::Peer)> {
        let (stream, peer) = Self::accept(self).await?;
        Ok((stream, Arc::new(peer)))
    }

    fn describe(&self) -> Option<String> {
        let addr = self.local_addr().ok()?;
        addr.as_pathname().map(|path| path.display().to_string())
    }

    fn close(self) -> Vec<(UnixStream, Self::Peer)> {
        let Ok(listener) = self.into_std() else { return Vec::new() };
        let queued = std::iter::from_fn(|| next(|| listener.accept()));
        let taken_in = |(stream, peer): (std::os::unix::net::UnixStream, _)| {
            stream.set_nonblocking(true).ok()?;
            Some((UnixStream::from_std(stream).ok()?, Arc::new(unix::SocketAddr::from(peer))))
        };
        queued.filter_map(taken_in).collect()
    }
}
