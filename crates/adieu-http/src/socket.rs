//! What a client's kernel has acknowledged.
//!
//! The kernel takes megabytes of an answer at once, and says that there is room for more in large
//! steps. So what has been written says little about whether a client reads, and nothing about
//! whether it has got the end. What has not been acknowledged does. `SIOCOUTQ` would tell, but has
//! no safe wrapper; `sock_diag(7)` tells the same through a netlink socket.

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
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux can be asked"))]
pub(crate) struct Endpoints {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}
