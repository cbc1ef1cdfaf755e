//! The open requests of one connection: how many there are, what each waits for, and their names.
//!
//! A request is open from its call to the end of its body. While its handler runs, or its body has
//! no frame to send, it waits for the application. Otherwise it waits for the client to read. A
//! connection is stalled if all its requests wait for the client and the client acknowledges
//! nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adieu_core::adapter::lock;
use adieu_core::{InFlight, Pass};
use tokio::time::Instant;

use super::{Conn, CutReason};
use crate::admission::{Admission, Origin};
use crate::clock::{Tick, TickingClock};
use crate::request::Name;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// How many are open, in the upper half; how many of those wait for the application, in the
    /// lower half. One word, so that both are read at once.
    counts: AtomicU64,
    log: Mutex<RequestLog>,
    is_crowded: AtomicBool,
}

#[derive(Debug)]
struct RequestLog {
    /// In the order of arrival. With HTTP/1 the latest request alone.
    list: Vec<Request>,
    last_id: u32,
    /// HTTP/2 streams whose requests have been read and not been called yet. hyper calls them in
    /// the order of arrival.
    arrived: VecDeque<u32>,
    /// With HTTP/2: how many responses have been written, and the number above which old ones are
    /// removed.
    ended: usize,
    max_ended: usize,
}

#[derive(Debug)]
struct Request {
    id: u32,
    name: Name,
    /// The last tick of the server's clock when the request was called.
    called: Tick,
    /// Set when the handler first waits. Reading the clock for every request would cost too much.
    since: Option<Instant>,
    /// The body has ended. The client may still be reading.
    is_sent: bool,
    /// The HTTP/2 stream.
    stream: u32,
    /// With HTTP/2: how many bytes the connection had written up to the last byte of the response.
    ended_at: Option<u64>,
    /// The request has been reported as cut, or the application itself failed its response.
    is_settled: bool,
}

/// One open request of a connection. It is dropped when its body has ended.
#[derive(Debug)]
pub(super) struct OpenRequest {
    conn: Arc<Conn>,
    /// 0 for a gRPC health check, which is not counted.
    id: u32,
    awaits_application: bool,
    /// The application has answered completely, or the request is accounted for elsewhere.
    is_done: bool,
}

const OPEN: u64 = 1 << 32;
const AWAITS_APPLICATION: u64 = 1;

/// The number of written responses of an HTTP/2 connection above which the responses that the client
/// has received are removed.
const ENDED: usize = 32;

/// The maximum number of stored requests of a client that does not read its responses.
const MAX_UNREAD: usize = 1_000;

// === impl Requests ===

impl Requests {
    fn log(&self) -> MutexGuard<'_, RequestLog> {
        lock(&self.log)
    }

    /// With HTTP/1 only the connection's task calls this, so a load and a store suffice.
    fn add(&self, delta: u64, is_http2: bool) {
        if is_http2 {
            self.counts.fetch_add(delta, Ordering::Relaxed);
        } else {
            let counts = self.counts.load(Ordering::Relaxed).wrapping_add(delta);
            self.counts.store(counts, Ordering::Relaxed);
        }
    }

    /// Returns how many are open, and how many of those wait for the application.
    fn counts(&self) -> (usize, usize) {
        let counts = self.counts.load(Ordering::Relaxed);
        ((counts / OPEN) as usize, (counts % OPEN) as usize)
    }

    pub(super) fn open(&self) -> usize {
        self.counts().0
    }

    /// Returns whether there are open requests, and all of them wait for the client.
    pub(super) fn all_await_client(&self) -> bool {
        let (open, await_application) = self.counts();
        open > 0 && await_application == 0
    }

    /// Returns the requests whose bodies have not ended.
    pub(super) fn inside(&self, clock: &TickingClock, now: Instant) -> Vec<InFlight> {
        let open = self.open();
        let log = self.log();
        let unsent = log.list.iter().filter(|request| !request.is_sent);
        // With HTTP/1 no request is marked as sent, but `open` is 0 then.
        unsent.take(open).map(|request| request.in_flight(clock, now)).collect()
    }

    /// Returns the names of the requests whose responses end after the first `acknowledged` bytes.
    pub(super) fn unread(&self, acknowledged: u64) -> Vec<String> {
        let log = self.log();
        let is_unread = |request: &&Request| request.is_unread(acknowledged);
        log.list.iter().filter(is_unread).map(|request| request.name.to_string()).collect()
    }

    /// Settles the requests that are cut if the connection ends now, and returns their names: the
    /// open ones, and those whose responses end after the first `acknowledged` bytes.
    ///
    /// Each request is returned once.
    pub(super) fn settle_cut(&self, acknowledged: u64) -> Vec<String> {
        let mut log = self.log();
        let cut = log.list.iter_mut().filter(|request| request.is_unread(acknowledged));
        let cut = cut.map(|request| {
            request.is_settled = true;
            request.name.to_string()
        });
        cut.collect()
    }

    /// Records that a request has been read from an HTTP/2 stream.
    pub(super) fn mark_arrived(&self, stream: u32) {
        self.log().arrived.push_back(stream);
    }

    /// Returns the stream of the request that hyper calls now.
    pub(super) fn next_stream(&self) -> u32 {
        self.log().arrived.pop_front().unwrap_or_default()
    }

    /// Records that all responses end at or before byte `at` of the connection.
    pub(super) fn mark_all_ended(&self, at: u64) {
        for request in &mut self.log().list {
            request.ended_at.get_or_insert(at);
        }
    }

    /// Records that the last byte for an HTTP/2 stream was byte `at` of the connection. `at` is 0 if
    /// the client has reset the stream.
    pub(super) fn mark_ended(&self, stream: u32, at: u64) {
        let mut log = self.log();
        log.arrived.retain(|arrived| *arrived != stream);
        if let Some(request) = log.list.iter_mut().find(|request| request.stream == stream) {
            request.ended_at = Some(at);
        }
        log.ended += 1;
        if log.ended > log.max_ended {
            self.is_crowded.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether many responses are stored, and some should be removed.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Forgets the responses that end with the first `acknowledged` bytes.
    pub(super) fn forget_received(&self, acknowledged: u64) {
        let mut log = self.log();
        // An open request is kept: its handler may still run for a stream that has been reset.
        log.list.retain(|request| {
            !request.is_sent || request.ended_at.is_none_or(|at| at > acknowledged)
        });
        let unread = log.list.iter().filter(|request| request.is_sent).count();
        let mut excess = unread.saturating_sub(MAX_UNREAD);
        log.list.retain(|request| {
            let is_dropped = request.is_sent && excess > 0;
            excess -= usize::from(is_dropped);
            !is_dropped
        });
        log.ended = log.list.iter().filter(|request| request.ended_at.is_some()).count();
        // The threshold grows while a client does not read, so that this search stays rare.
        log.max_ended = ENDED.max(2 * log.ended);
        self.is_crowded.store(false, Ordering::Relaxed);
    }
}

impl Default for RequestLog {
    fn default() -> Self {
        let (list, arrived) = (Vec::new(), VecDeque::new());
        Self { list, last_id: 0, arrived, ended: 0, max_ended: ENDED }
    }
}

impl RequestLog {
    fn find(&mut self, id: u32) -> Option<&mut Request> {
        self.list.iter_mut().find(|request| request.id == id)
    }
}

impl Request {
    /// Returns whether the client has yet to acknowledge the end of a response that is not settled.
    fn is_unread(&self, acknowledged: u64) -> bool {
        !self.is_settled && self.ended_at.is_none_or(|at| at > acknowledged)
    }

    fn in_flight(&self, clock: &TickingClock, now: Instant) -> InFlight {
        let (earliest, latest) = clock.bounds(self.called);
        // A handler that first waits long after its call was blocking its thread before.
        let since = self.since.filter(|since| *since <= latest).unwrap_or(earliest);
        let age: Duration = now.saturating_duration_since(since);
        InFlight::new(self.name.to_string(), age)
    }
}

// === impl OpenRequest ===

impl OpenRequest {
    /// Counts a request that is called now. With HTTP/1 the previous one has been answered.
    pub(super) fn new(conn: &Arc<Conn>, name: Name, stream: u32) -> Self {
        let is_http2 = conn.is_http2();
        let mut log = conn.requests.log();
        if !is_http2 {
            log.list.clear();
        }
        log.last_id = log.last_id.checked_add(1).unwrap_or(1);
        let id = log.last_id;
        let request = Request {
            id,
            name,
            called: conn.server.clock.now(),
            since: None,
            is_sent: false,
            stream,
            ended_at: None,
            is_settled: false,
        };
        log.list.push(request);
        drop(log);
        conn.requests.add(OPEN + AWAITS_APPLICATION, is_http2);
        Self { conn: Arc::clone(conn), id, awaits_application: true, is_done: false }
    }

    /// Makes the handle of a gRPC health check, which is not counted.
    pub(super) fn uncounted(conn: &Arc<Conn>) -> Self {
        Self { conn: Arc::clone(conn), id: 0, awaits_application: false, is_done: true }
    }

    /// Names a request that hyper has dropped because the client has closed its side, if the gate is
    /// closed. The client may still be waiting for the answer: a connection that the client has closed
    /// completely looks the same.
    #[cold]
    fn report_dropped(&self) {
        let gate = &self.admission().gate;
        if gate.is_closed()
            && let Some(name) = self.settle()
        {
            gate.note_cut_off(format!("{name} (its client closed the connection)"));
        }
    }

    #[cold]
    fn mark_sent(&self) {
        if let Some(request) = self.conn.requests.log().find(self.id) {
            request.is_sent = true;
        }
    }
}

impl Origin for OpenRequest {
    fn admission(&self) -> &Admission {
        &self.conn.server.admission
    }

    /// Starts to count the request's age. The connection lists it by name, so the pass needs no
    /// label.
    fn mark_waiting(&self, _: Option<&mut Pass>) {
        let now = Instant::now();
        if let Some(request) = self.conn.requests.log().find(self.id) {
            request.since.get_or_insert(now);
        }
    }

    #[inline]
    fn set_awaits_application(&mut self, awaits: bool) {
        if self.id != 0 && self.awaits_application != awaits {
            self.awaits_application = awaits;
            let delta = if awaits { AWAITS_APPLICATION } else { AWAITS_APPLICATION.wrapping_neg() };
            self.conn.requests.add(delta, self.conn.is_http2());
        }
    }

    fn is_winding_down(&self) -> bool {
        self.conn.is_winding_down()
    }

    fn mark_ends_by_close(&self) {
        self.conn.ends_by_close.store(true, Ordering::Relaxed);
    }

    fn mark_refused(&self) {
        self.conn.mark_client_sending();
    }

    #[inline]
    fn mark_done(&mut self) {
        self.is_done = true;
    }

    fn settle(&self) -> Option<Name> {
        let mut log = self.conn.requests.log();
        let request = log.find(self.id).filter(|request| !request.is_settled)?;
        request.is_settled = true;
        Some(request.name.clone())
    }

    fn report_cut(&self, name: Name) {
        self.conn.server.cuts.add(vec![name.to_string()], CutReason::WindowElapsed);
    }

    fn upgrade(&self, pass: Pass, is_websocket: bool) {
        let name = self.conn.requests.log().find(self.id).map(|request| request.name.clone());
        self.conn.upgrade(pass, name, is_websocket);
    }
}

impl Drop for OpenRequest {
    #[inline]
    fn drop(&mut self) {
        if self.id == 0 {
            return;
        }
        if !self.is_done && self.conn.is_half_closed.load(Ordering::Relaxed) {
            self.report_dropped();
        }
        let is_http2 = self.conn.is_http2();
        if is_http2 {
            self.mark_sent();
        }
        let awaits = if self.awaits_application { AWAITS_APPLICATION } else { 0 };
        self.conn.requests.add((OPEN + awaits).wrapping_neg(), is_http2);
    }
}
