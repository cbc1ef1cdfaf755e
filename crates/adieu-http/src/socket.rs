//! How many bytes a client's kernel has not acknowledged, and whether it still answers.
//!
//! The server's kernel takes megabytes of a response at once, and asks for more in large steps. So the
//! bytes that have been written show neither whether a client reads nor whether it has received the
//! end. The unacknowledged bytes show both.
//!
//! A slow client's kernel opens its window in steps of megabytes, so a client that reads steadily
//! can acknowledge nothing for many seconds. Meanwhile the server's kernel sends probes. The
//! client's kernel answers them for as long as it exists, which distinguishes a slow client from
//! one that has vanished.
//!
//! `SIOCOUTQ` and `TCP_INFO` would return this, but have no safe wrappers; `sock_diag(7)` returns it
//! through a netlink socket.

#[cfg(not(target_os = "linux"))]
#[path = "socket/unknown.rs"]
mod queues;
#[cfg(target_os = "linux")]
#[path = "socket/sock_diag.rs"]
mod queues;

use std::net::SocketAddr;
use std::time::Duration;

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

/// The kernel's view of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendQueue {
    /// How many bytes have been written and not acknowledged, including the end of the stream. 0 if
    /// the connection has been closed.
    pub(crate) unacknowledged: u64,
    /// The client has not answered the last probe or retransmission.
    pub(crate) is_unanswered: bool,
    /// The time since the client last acknowledged anything, even a probe.
    pub(crate) since_answer: Duration,
}
