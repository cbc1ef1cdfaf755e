//! The state of one connection.
//!
//! [`drive`] serves the connection to its end, [`Io`](io::Io) moves its bytes, [`Requests`] tracks
//! its open requests, and [`Delivery`] tracks how much of its responses the client has
//! acknowledged.

mod closing;
mod coalesce;
mod cuts;
mod delivery;
mod driver;
mod http2;
mod io;
mod requests;
mod service;
mod streams;
mod upgraded;
mod websocket;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adieu_core::adapter::lock;
use adieu_core::{InFlight, Pass};
use tokio::time::Instant;

pub(crate) use cuts::{CutReason, Cuts};
pub(crate) use driver::{Configure, drive};
pub(crate) use service::AddPeer;
pub(crate) use streams::Streams;

use delivery::Delivery;
use requests::Requests;
use upgraded::Upgraded;

use crate::admission::Admission;
use crate::clock::TickingClock;
use crate::probes::Probes;
use crate::request::Name;
use crate::socket::{Endpoints, SendQueues};
use crate::stage::{CurrentStage, Stage};

/// The state that all connections of a server share.
#[derive(Debug)]
pub(crate) struct ServerContext {
    pub(crate) admission: Admission,
    pub(crate) stage: CurrentStage,
    pub(crate) probes: Option<Probes>,
    /// How long the closing handshake of a WebSocket may take.
    pub(crate) websocket_close_timeout: Duration,
    /// How long a client may acknowledge nothing of its response when all other work is done.
    pub(crate) stall_timeout: Duration,
    pub(crate) queues: SendQueues,
    pub(crate) clock: TickingClock,
    pub(crate) cuts: Arc<Cuts>,
}

/// The state of one connection.
pub(crate) struct Conn {
    pub(crate) server: Arc<ServerContext>,
    accepted_at: Instant,
    has_had_request: AtomicBool,
    /// True when the first request has shown that the connection speaks HTTP/2.
    is_http2: AtomicBool,
    /// A [`Mode`].
    mode: AtomicU8,
    requests: Requests,
    delivery: Delivery,
    /// A request was refused before its body had been read: the client may still be sending it.
    is_client_sending: AtomicBool,
    /// The response has no length, so it ends where the connection ends.
    ends_by_close: AtomicBool,
    /// With HTTP/1: the client has closed its side.
    is_half_closed: AtomicBool,
    passes: Mutex<Passes>,
    /// The upgraded connection, until [`drive`] takes it to end it.
    upgraded: Mutex<Option<Arc<dyn Upgraded>>>,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Http,
    /// Upgraded to a WebSocket.
    WebSocket,
    /// Upgraded to another protocol.
    Other,
}

#[derive(Debug, Default)]
struct Passes {
    /// Reserved for the first request of a connection that was accepted just before the gate closed.
    first_request: Option<Pass>,
    /// Held until the application has dropped the upgraded connection.
    upgraded: Option<UpgradePass>,
}

/// The pass of a request whose connection was upgraded.
#[derive(Debug)]
struct UpgradePass {
    // Dropped with the others when the connection has ended.
    _pass: Pass,
    /// The request, for the report.
    name: Option<Name>,
}

/// A connection that was accepted less than this long before the gate closed may still send its
/// first request. The server waits for that request for this long after the gate has closed.
pub(crate) const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// How a connection whose first request has not arrived is named in a report.
pub(crate) const NEW_CONNECTION: &str = "a new connection";

// === impl Conn ===

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conn").field("mode", &self.mode()).finish_non_exhaustive()
    }
}

impl Conn {
    pub(crate) fn new(
        server: Arc<ServerContext>,
        endpoints: Option<Endpoints>,
        accepted_at: Instant,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            accepted_at,
            has_had_request: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            mode: AtomicU8::new(Mode::Http as u8),
            requests: Requests::default(),
            delivery: Delivery::new(endpoints),
            is_client_sending: AtomicBool::new(false),
            ends_by_close: AtomicBool::new(false),
            is_half_closed: AtomicBool::new(false),
            passes: Mutex::default(),
            upgraded: Mutex::default(),
        })
    }

    fn passes(&self) -> MutexGuard<'_, Passes> {
        lock(&self.passes)
    }

    /// Reserves a pass for the first request, if the connection is new and has had none.
    ///
    /// Called just before the gate closes: to the client, the connection is established.
    pub(crate) fn reserve_first_request(&self, now: Instant) {
        let is_new = now.duration_since(self.accepted_at) <= FIRST_REQUEST;
        if self.has_had_request.load(Ordering::Acquire) || !is_new {
            return;
        }
        let pass = self.server.admission.gate.enter().ok();
        self.passes().first_request = pass.map(|pass| pass.labelled(NEW_CONNECTION));
    }

    /// Returns the pass that was reserved for a first request, if that has not arrived.
    pub(crate) fn release_first_request(&self) -> Option<Pass> {
        self.passes().first_request.take()
    }

    /// Takes the pass that was reserved for the first request.
    fn take_first_request(&self) -> Option<Pass> {
        if self.has_had_request.load(Ordering::Relaxed) {
            return None;
        }
        self.has_had_request.store(true, Ordering::Release);
        self.passes().first_request.take()
    }

    fn is_client_sending(&self) -> bool {
        self.is_client_sending.load(Ordering::Relaxed)
    }

    fn mark_client_sending(&self) {
        self.is_client_sending.store(true, Ordering::Relaxed);
    }

    fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }

    fn set_version(&self, version: http::Version) {
        if version == http::Version::HTTP_2 && !self.is_http2() {
            self.is_http2.store(true, Ordering::Relaxed);
        }
    }

    /// Records, before a response that belongs to no admitted request, that the last response has been
    /// written. With HTTP/2 the frames show that.
    fn record_answered(&self) {
        if !self.is_http2() {
            self.requests.mark_all_ended(self.delivery.written());
        }
    }

    /// Returns the stream of the request that hyper calls now; 0 with HTTP/1.
    fn next_stream(&self) -> u32 {
        if self.is_http2() { self.requests.next_stream() } else { 0 }
    }

    /// Returns whether responses should ask the client to reconnect elsewhere.
    fn is_winding_down(&self) -> bool {
        self.server.stage.get() >= Stage::WindingDown
    }

    #[inline]
    fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Acquire) {
            mode if mode == Mode::WebSocket as u8 => Mode::WebSocket,
            mode if mode == Mode::Other as u8 => Mode::Other,
            _ => Mode::Http,
        }
    }

    /// Records that the connection is upgraded, and holds the pass until the application has dropped it.
    fn upgrade(&self, mut pass: Pass, name: Option<Name>, is_websocket: bool) {
        if let Some(name) = name.clone() {
            pass.set_label(name);
        }
        self.passes().upgraded = Some(UpgradePass { _pass: pass, name });
        let mode = if is_websocket { Mode::WebSocket } else { Mode::Other };
        self.mode.store(mode as u8, Ordering::Release);
    }

    fn set_upgraded(&self, upgraded: Arc<dyn Upgraded>) {
        *lock(&self.upgraded) = Some(upgraded);
    }

    fn take_upgraded(&self) -> Option<Arc<dyn Upgraded>> {
        lock(&self.upgraded).take()
    }

    /// Names the upgraded connection as cut off: the application still has it.
    fn report_upgrade_cut(&self) {
        let name = self.passes().upgraded.as_mut().and_then(|upgraded| upgraded.name.take());
        if let Some(name) = name {
            self.server.admission.gate.note_cut_off(name.to_string());
        }
    }

    /// Releases all passes of a connection that has ended.
    fn release_passes(&self) {
        let passes = std::mem::take(&mut *self.passes());
        drop(passes); // Not under the lock.
    }

    /// Returns the requests that are inside the gate.
    pub(crate) fn inside(&self, now: Instant) -> Vec<InFlight> {
        self.requests.inside(&self.server.clock, now)
    }

    pub(crate) fn open_requests(&self) -> usize {
        self.requests.open()
    }

    /// Returns how many bytes the client has yet to acknowledge, if that is known.
    fn unacknowledged(&self) -> Option<u64> {
        self.delivery.unacknowledged(&self.server.queues)
    }

    /// Returns why the server gives up waiting for the client; `None` if it still waits.
    fn given_up(&self, now: Instant) -> Option<CutReason> {
        let stall = self.delivery.watch(&self.server.queues, now);
        let most = self.server.stall_timeout;
        if stall.is_gone {
            Some(CutReason::ClientGone)
        } else if stall.lasts >= most {
            Some(CutReason::Stalled(most))
        } else {
            None
        }
    }

    /// Returns whether all open requests wait for a client that need not be waited for.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.requests.all_await_client() && self.given_up(now).is_some()
    }

    /// Returns whether the client has yet to receive a part of a response whose body has ended.
    fn has_unread_answer(&self) -> bool {
        self.mode() == Mode::Http && !self.delivery.is_complete(&self.server.queues)
    }

    /// Returns the names of the responses that the client has not received completely.
    pub(crate) fn unread(&self) -> Vec<String> {
        let mut names = self.unread_requests();
        if names.is_empty() && self.has_unread_answer() {
            // The response to a probe, or to a request that has been reported or refused.
            names.push("a response".into());
        }
        names
    }

    /// Names the requests whose responses have begun and have not been acknowledged completely.
    pub(crate) fn unread_requests(&self) -> Vec<String> {
        if !self.has_unread_answer() {
            return Vec::new();
        }
        let (acknowledged, _) = self.delivery.acknowledged(&self.server.queues);
        self.requests.unread(acknowledged)
    }

    /// Reports the requests that are cut because the connection is ended now.
    pub(crate) fn report_cut(&self, reason: CutReason) {
        let is_cut = self.open_requests() > 0 || self.has_unread_answer();
        if self.mode() == Mode::Http && is_cut {
            let (acknowledged, _) = self.delivery.acknowledged(&self.server.queues);
            self.server.cuts.add(self.requests.settle_cut(acknowledged), reason);
        }
    }

    /// Returns whether the connection needs more time: for a request, for a response, or for a client
    /// that is still sending.
    fn needs_time(&self) -> bool {
        // HTTP/2 resets the stream of a request that was refused. The connection does not matter.
        let is_client_sending = self.is_client_sending() && !self.is_http2();
        is_client_sending || self.open_requests() > 0 || self.has_unread_answer()
    }
}
