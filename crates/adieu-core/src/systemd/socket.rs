//! The socket on which systemd listens. Sending never waits.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::NotifyError;

pub(super) struct Socket {
    socket: UnixDatagram,
    // Not connected, because the listener may be replaced by another one at the same address.
    to: SocketAddr,
}

impl Socket {
    /// Creates a socket for the address in `NOTIFY_SOCKET`: a path, or an abstract name that begins
    /// with `@`.
    pub(super) fn to(address: OsString) -> Result<Self, NotifyError> {
        let to = match address.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(&address),
            [b'@', name @ ..] => abstract_name(name),
            _ => return Err(NotifyError::Address { address }),
        };
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        match (socket, to) {
            (Ok(socket), Ok(to)) => Ok(Self { socket, to }),
            (Err(source), _) | (_, Err(source)) => Err(NotifyError::Socket { address, source }),
        }
    }

    pub(super) fn send(&self, text: &str) -> io::Result<()> {
        self.socket.send_to_addr(text.as_bytes(), &self.to).map(drop)
    }
}

#[cfg(target_os = "linux")]
fn abstract_name(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_name(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "abstract names exist on Linux only"))
}
