//! The sources of connections: TCP and Unix listeners.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream, unix};

#[cfg(unix)]
use crate::unix_connection::UnixConnection;

/// A source of connections: a TCP listener, a Unix listener, or a type of your own.
pub trait Listener: Send + Sized + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// The address of the client.
    type Peer: Clone + Debug + Send + Sync + 'static;

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// If the system cannot accept a connection. The server logs the error, pauses and retries.
    ///
    /// # Cancel safety
    ///
    /// Must be cancel safe: dropping the future must not lose a connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, Self::Peer)>> + Send;

    /// Accepts, one by one, the connections that are in the queue: to their clients, they are
    /// established. Dropping the iterator closes the listener.
    ///
    /// The iterator ends when the queue is empty. After an error, such as a lack of file
    /// descriptors, the next call retries.
    fn close(self) -> impl Iterator<Item = io::Result<(Self::Io, Self::Peer)>> + Send;

    /// Returns the local and the remote address of a TCP connection. With them the server asks the
    /// kernel how much the client has acknowledged.
    ///
    /// For other connections, bytes count as received by the client when the kernel has taken them.
    fn endpoints(_io: &Self::Io) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    /// With `resets`, makes the connection end with a reset instead of regularly, when `io` is dropped
    /// and when the process ends. Without, lets it end regularly again.
    ///
    /// Called around each response whose end is the end of the connection, as with HTTP/1.0: with `true`
    /// before its first byte, and with `false` when its end has been written. The kernel closes the
    /// connections of a process that is killed, so a later call could not reset them. TCP connections
    /// are reset; so are connections over Unix sockets, on Linux. If a listener of your own does nothing
    /// here, a response that is cut looks complete: let proxies speak HTTP/1.1 to it, such as nginx with
    /// `proxy_http_version 1.1`.
    fn reset_on_drop(_io: &Self::Io, _resets: bool) {}

    /// Returns the listener's address for the log.
    fn describe(&self) -> Option<String> {
        None
    }
}

impl Listener for TcpListener {
    type Io = TcpStream;
    type Peer = SocketAddr;

    async fn accept(&mut self) -> io::Result<(TcpStream, Self::Peer)> {
        let (stream, peer) = Self::accept(self).await?;
        // Short responses are written in one piece, so Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer))
    }

    fn endpoints(io: &TcpStream) -> Option<(SocketAddr, SocketAddr)> {
        Some((io.local_addr().ok()?, io.peer_addr().ok()?))
    }

    fn reset_on_drop(io: &TcpStream, resets: bool) {
        // The calls fail if the connection has already ended. Then neither is needed.
        if resets {
            let _ = io.set_zero_linger();
        } else {
            #[expect(deprecated, reason = "without a time to linger, closing blocks no thread")]
            let _ = io.set_linger(None);
        }
    }

    fn describe(&self) -> Option<String> {
        self.local_addr().ok().map(|addr| addr.to_string())
    }

    fn close(self) -> impl Iterator<Item = io::Result<(TcpStream, Self::Peer)>> + Send {
        queued(self.into_std(), |listener| {
            let (stream, peer) = listener.accept()?;
            stream.set_nonblocking(true)?;
            Ok((TcpStream::from_std(stream)?, peer))
        })
    }
}

/// Accepts the connections that are queued. Skips connections whose clients have already left.
///
/// Accepts through the standard library: tokio would not try unless it has been notified.
fn queued<L, T>(
    listener: io::Result<L>,
    accept: impl Fn(&L) -> io::Result<T>,
) -> impl Iterator<Item = io::Result<T>> {
    let listener = listener.ok();
    std::iter::from_fn(move || {
        let listener = listener.as_ref()?;
        loop {
            match accept(listener) {
                Ok(accepted) => return Some(Ok(accepted)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    })
}

/// Returns whether the error concerns one connection only, and not the listener.
pub(crate) fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(unix)]
impl Listener for UnixListener {
    type Io = UnixConnection;
    type Peer = Arc<unix::SocketAddr>;

    async fn accept(&mut self) -> io::Result<(UnixConnection, Self::Peer)> {
        let (stream, peer) = Self::accept(self).await?;
        Ok((stream.into(), Arc::new(peer)))
    }

    fn reset_on_drop(io: &UnixConnection, resets: bool) {
        io.reset_on_drop(resets);
    }

    fn describe(&self) -> Option<String> {
        let addr = self.local_addr().ok()?;
        addr.as_pathname().map(|path| path.display().to_string())
    }

    fn close(self) -> impl Iterator<Item = io::Result<(UnixConnection, Self::Peer)>> + Send {
        queued(self.into_std(), |listener| {
            let (stream, peer) = listener.accept()?;
            stream.set_nonblocking(true)?;
            let peer = Arc::new(unix::SocketAddr::from(peer));
            Ok((UnixStream::from_std(stream)?.into(), peer))
        })
    }
}
