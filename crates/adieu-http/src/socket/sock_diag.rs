//! Reads the send queues of TCP sockets from Linux, through `sock_diag(7)`.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adieu_core::adapter::lock;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::{Endpoints, SendQueue};

/// Access to the kernel's table of sockets.
#[derive(Debug)]
pub(crate) struct SendQueues {
    /// `None` if netlink sockets are not permitted.
    netlink: Option<Mutex<Netlink>>,
    /// The kernel has found a socket before. So a socket that it does not find has been closed, and
    /// the kernel does not merely lack `inet_diag`.
    has_found: AtomicBool,
}

#[derive(Debug)]
struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

enum Answer {
    Found(SendQueue),
    NotFound,
    Unknown,
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
const INET_DIAG_INFO: u16 = 2;
const TCP_TIME_WAIT: u8 = 6;
const TCP_CLOSE: u8 = 7;
/// For a connection that has been closed, the kernel finds its listener.
const TCP_LISTEN: u8 = 10;
const ENOENT: i32 = 2;

const HEAD: usize = 16;
const REQUEST: usize = HEAD + 56;
/// The offsets of the fields in the kernel's message.
const STATE: usize = HEAD + 1;
const WRITE_QUEUE: usize = HEAD + 60;
const ATTRIBUTES: usize = HEAD + 72;
/// The offset of `tcpi_last_ack_recv` in `struct tcp_info`.
const LAST_ACK_RECV: usize = 56;

// === impl SendQueues ===

impl SendQueues {
    /// Opens the netlink socket. Called once for a server, so that it is available even when file
    /// descriptors have run out.
    pub(crate) fn open() -> Self {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        );
        let netlink = socket.ok().map(|socket| Mutex::new(Netlink { socket, sequence: 0 }));
        Self { netlink, has_found: AtomicBool::new(false) }
    }

    /// Returns whether this process is not permitted to open netlink sockets.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.netlink.is_none()
    }

    /// Returns `None` if the kernel does not report the state of the connection.
    pub(crate) fn get(&self, of: &Endpoints) -> Option<SendQueue> {
        let mut netlink = lock(self.netlink.as_ref()?);
        match netlink.ask(of) {
            Answer::Found(queue) => {
                self.has_found.store(true, Ordering::Relaxed);
                Some(queue)
            }
            Answer::NotFound if self.has_found.load(Ordering::Relaxed) => {
                Some(SendQueue::default())
            }
            Answer::NotFound | Answer::Unknown => None,
        }
    }
}

// === impl Netlink ===

impl Netlink {
    fn ask(&mut self, of: &Endpoints) -> Answer {
        self.sequence = self.sequence.wrapping_add(1);
        if send(&self.socket, &request(of, self.sequence), SendFlags::DONTWAIT).is_err() {
            return Answer::Unknown;
        }
        // The kernel has answered when `send` returns. Answers to earlier requests are skipped.
        let mut answer = [0; 1024];
        while let Ok((len, _)) = recv(&self.socket, &mut answer[..], RecvFlags::DONTWAIT) {
            let answer = &answer[..len];
            if u32_at(answer, 8) == Some(self.sequence) {
                return parse(answer).unwrap_or(Answer::Unknown);
            }
        }
        Answer::Unknown
    }
}

fn request(of: &Endpoints, sequence: u32) -> [u8; REQUEST] {
    let (family, scope) = match of.peer {
        SocketAddr::V4(_) => (AddressFamily::INET, 0),
        SocketAddr::V6(peer) => (AddressFamily::INET6, peer.scope_id()),
    };
    let mut request = Vec::with_capacity(REQUEST);
    request.extend((REQUEST as u32).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend(sequence.to_ne_bytes());
    request.extend(0u32.to_ne_bytes());
    // `struct inet_diag_req_v2`: family, protocol, extensions, all states.
    request.extend([family.as_raw() as u8, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    request.extend(u32::MAX.to_ne_bytes());
    // `struct inet_diag_sockid`: ports, addresses, interface, no cookie.
    request.extend(of.local.port().to_be_bytes());
    request.extend(of.peer.port().to_be_bytes());
    request.extend(address(of.local.ip()));
    request.extend(address(of.peer.ip()));
    request.extend(scope.to_ne_bytes());
    request.extend([0xff; 8]);
    let mut whole = [0; REQUEST];
    whole.copy_from_slice(&request);
    whole
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&ip.octets());
            address
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn parse(answer: &[u8]) -> Option<Answer> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    match kind {
        SOCK_DIAG_BY_FAMILY
            if matches!(*answer.get(STATE)?, TCP_TIME_WAIT | TCP_CLOSE | TCP_LISTEN) =>
        {
            Some(Answer::Found(SendQueue::default()))
        }
        SOCK_DIAG_BY_FAMILY => {
            let unacknowledged = u32_at(answer, WRITE_QUEUE)?.into();
            // Without `struct tcp_info` the client counts as one that answers.
            let queue = tcp_info(answer).and_then(|info| {
                let [retransmits, probes] = [*info.get(2)?, *info.get(3)?];
                let since_answer = Duration::from_millis(u32_at(info, LAST_ACK_RECV)?.into());
                let is_unanswered = retransmits > 0 || probes > 0;
                Some(SendQueue { unacknowledged, is_unanswered, since_answer })
            });
            Some(Answer::Found(queue.unwrap_or(SendQueue { unacknowledged, ..Default::default() })))
        }
        NLMSG_ERROR if u32_at(answer, HEAD)?.cast_signed() == -ENOENT => Some(Answer::NotFound),
        _ => None,
    }
}

/// Returns the `struct tcp_info` among the attributes of the kernel's message.
fn tcp_info(answer: &[u8]) -> Option<&[u8]> {
    let mut rest = answer.get(ATTRIBUTES..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let attribute = rest.get(4..length)?;
        if kind == INET_DIAG_INFO {
            return Some(attribute);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn unacknowledged_bytes_are_reported() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, peer) = listener.accept().unwrap();
            let ends = Endpoints { local: server.local_addr().unwrap(), peer };
            let queues = SendQueues::open();
            let unacknowledged = || queues.get(&ends).map(|queue| queue.unacknowledged);
            assert_eq!(unacknowledged(), Some(0), "{at}");
            server.set_nonblocking(true).unwrap();
            let mut written = 0;
            while let Ok(more) = server.write(&[7; 100_000]) {
                written += more as u64;
            }
            let queued = unacknowledged().unwrap();
            assert!(queued > 0 && queued < written, "{queued} of {written}");
            let mut read = vec![0; written as usize];
            client.read_exact(&mut read).unwrap();
            while unacknowledged() != Some(0) {
                std::thread::yield_now();
            }
            drop((client, server));
            assert_eq!(unacknowledged(), Some(0), "the listener is open");
            drop(listener);
            assert_eq!(unacknowledged(), Some(0), "the listener is closed");
        }
    }
}
