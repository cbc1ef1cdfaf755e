//! How many bytes a client's kernel has not acknowledged.
//!
//! The server's kernel takes megabytes of an answer at once, and asks for more in large steps. So the
//! bytes that have been written show neither whether a client reads nor whether it has received the
//! end. The unacknowledged bytes show both. `SIOCOUTQ` would return them, but has no safe wrapper;
//! `sock_diag(7)` returns them through a netlink socket.

#[cfg(not(target_os = "linux"))]
#[path = "socket/unknown.rs"]
mod queues;
#[cfg(target_os = "linux")]
#[path = "socket/sock_diag.rs"]
mod queues;

use std::net::SocketAddr;

pub(crate) use queues::SendQueues;

/// The addresses of both ends of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux reports acknowledgements")
)]
pub(crate) struct Endpoints {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}
