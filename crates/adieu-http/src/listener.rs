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

    /// Takes in, one by one, the connections that have been queued and not accepted: their clients
    /// believe that they are connected. Dropping the iterator closes the listener.
    ///
    /// It ends when the queue is empty. After an error, such as a lack of descriptors, the next call
    /// tries again.
    fn close(self) -> impl Iterator<Item = io::Result<(Self::Io, Self::Peer)>> + Send;

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

    fn close(self) -> impl Iterator<Item = io::Result<(TcpStream, Self::Peer)>> + Send {
        // Asks the kernel itself: tokio would answer from what it has heard so far.
        let listener = self.into_std().ok();
        std::iter::from_fn(move || {
            let listener = listener.as_ref()?;
            next(|| {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((TcpStream::from_std(stream)?, peer))
            })
        })
    }
}

/// The next one that is queued. One that has gone again is no reason to leave the others there.
fn next<T>(accept: impl Fn() -> io::Result<T>) -> Option<io::Result<T>> {
    loop {
        match accept() {
            Ok(accepted) => return Some(Ok(accepted)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => return Some(Err(error)),
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

    fn close(self) -> impl Iterator<Item = io::Result<(UnixStream, Self::Peer)>> + Send {
        let listener = self.into_std().ok();
        std::iter::from_fn(move || {
            let listener = listener.as_ref()?;
            next(|| {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((UnixStream::from_std(stream)?, Arc::new(unix::SocketAddr::from(peer))))
            })
        })
    }
}
