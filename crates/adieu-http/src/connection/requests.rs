//! The requests of one connection: how many are open, whose turn each is, and what they are called.
//!
//! A request is open from its call to the end of its body. Only the application can continue it
//! while its handler runs or its body has nothing to send; otherwise only the client can, by
//! reading. A connection on which it is always the client's turn, and which acknowledges nothing, is
//! stalled.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adieu_core::Waiting;
use tokio::time::Instant;

use super::Conn;
use crate::layer::Name;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// How many are open, in the upper half; how many of those are the application's turn, in the
    /// lower half.
    turns: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// In the order in which they came. With HTTP/1 this is the latest request alone.
    list: Vec<Request>,
    last_id: u32,
    /// Streams of HTTP/2 whose requests have been read and not been called yet: hyper calls them in
    /// the order in which they come.
    arrived: VecDeque<u32>,
}

#[derive(Debug)]
struct Request {
    id: u32,
    name: Name,
    /// Set when the handler first has to wait, or when somebody first looks. Reading the clock with
    /// every request would cost every request.
    since: Option<Instant>,
    /// The body has been handed over; the client may still be reading it.
    is_sent: bool,
    /// With HTTP/2, its stream, and up to where the bytes of the connection belong to it, once all
    /// of them have been written.
    stream: u32,
    ended_at: Option<u64>,
}

/// One open request of a connection. It ends with the last byte that its body has to send.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) conn: Arc<Conn>,
    /// 0 for requests that the gate is not asked about, which are not counted.
    id: u32,
    is_ours: bool,
}

const OPEN: u64 = 1 << 32;
const OURS: u64 = 1;

/// How many answers of an HTTP/2 connection are remembered by name after their last byte has been
/// written.
const MOST_ENDED: usize = 32;

// === impl Requests ===

impl Requests {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With HTTP/1 only the task of the connection gets here, so a load and a store will do.
    fn add(&self, delta: u64, is_http2: bool) {
        if is_http2 {
            self.turns.fetch_add(delta, Ordering::Relaxed);
        } else {
            let turns = self.turns.load(Ordering::Relaxed).wrapping_add(delta);
            self.turns.store(turns, Ordering::Relaxed);
        }
    }

    /// How many are open, and for how many of them it is the application's turn.
    fn turns(&self) -> (usize, usize) {
        let turns = self.turns.load(Ordering::Relaxed);
        ((turns / OPEN) as usize, (turns % OPEN) as usize)
    }

    pub(super) fn open(&self) -> usize {
        self.turns().0
    }

    /// Whether there are open requests, and only the client can continue them.
    pub(super) fn are_the_clients_turn(&self) -> bool {
        let (open, ours) = self.turns();
        open > 0 && ours == 0
    }

    /// The requests whose bodies have not been handed over yet.
    pub(super) fn inside(&self, now: Instant) -> Vec<Waiting> {
        let open = self.open();
        let mut known = self.known();
        let unsent = known.list.iter_mut().filter(|request| !request.is_sent);
        // With HTTP/1 nothing marks a request as sent, but nothing is open then.
        unsent.take(open).map(|request| request.waiting(now)).collect()
    }

    /// The requests whose answers the client has not got all of, if it has got so many bytes.
    pub(super) fn unread(&self, heard: u64) -> Vec<String> {
        let known = self.known();
        let is_unread = |request: &&Request| request.ended_at.is_none_or(|at| at > heard);
        known.list.iter().filter(is_unread).map(|request| request.name.to_string()).collect()
    }

    /// A request has been read from a stream of HTTP/2.
    pub(super) fn arrived(&self, stream: u32) {
        self.known().arrived.push_back(stream);
    }

    /// The stream of the request that hyper calls now.
    pub(super) fn next_stream(&self) -> u32 {
        self.known().arrived.pop_front().unwrap_or_default()
    }

    /// The last byte for a stream of HTTP/2 has been written, and was byte `at`; or the client wants
    /// no more of it, and it was byte 0.
    pub(super) fn ended(&self, stream: u32, at: u64) {
        let mut known = self.known();
        known.arrived.retain(|arrived| *arrived != stream);
        if let Some(request) = known.list.iter_mut().find(|request| request.stream == stream) {
            request.ended_at = Some(at);
        }
        let ended = known.list.iter().filter(|request| request.ended_at.is_some()).count();
        if ended > MOST_ENDED
            && let Some(at) = known.list.iter().position(|request| request.ended_at.is_some())
        {
            known.list.remove(at);
        }
    }
}

impl Request {
    fn waiting(&mut self, now: Instant) -> Waiting {
        let since = *self.since.get_or_insert(now);
        let age: Duration = now.saturating_duration_since(since);
        Waiting::new(self.name.to_string(), age)
    }
}

// === impl Ticket ===

impl Ticket {
    /// A request is called. With HTTP/1 the one before it has been answered.
    pub(super) fn new(conn: &Arc<Conn>, name: Name, stream: u32) -> Self {
        let is_http2 = conn.is_http2();
        let mut known = conn.requests.known();
        if !is_http2 {
            known.list.clear();
        }
        known.last_id = known.last_id.checked_add(1).unwrap_or(1);
        let id = known.last_id;
        let request = Request { id, name, since: None, is_sent: false, stream, ended_at: None };
        known.list.push(request);
        drop(known);
        conn.requests.add(OPEN + OURS, is_http2);
        Self { conn: Arc::clone(conn), id, is_ours: true }
    }

    /// For a request that the gate is not asked about.
    pub(super) fn uncounted(conn: &Arc<Conn>) -> Self {
        Self { conn: Arc::clone(conn), id: 0, is_ours: false }
    }

    /// Says whether the application or the client has to continue.
    #[inline]
    pub(crate) fn set_ours(&mut self, is_ours: bool) {
        if self.id != 0 && self.is_ours != is_ours {
            self.is_ours = is_ours;
            let delta = if is_ours { OURS } else { OURS.wrapping_neg() };
            self.conn.requests.add(delta, self.conn.is_http2());
        }
    }

    /// The handler has to wait: from now on its age counts.
    pub(crate) fn waits(&self) {
        let now = Instant::now();
        let mut known = self.conn.requests.known();
        if let Some(request) = known.list.iter_mut().find(|request| request.id == self.id) {
            request.since.get_or_insert(now);
        }
    }

    pub(crate) fn name(&self) -> Option<Name> {
        let known = self.conn.requests.known();
        known.list.iter().find(|request| request.id == self.id).map(|request| request.name.clone())
    }

    #[cold]
    fn mark_sent(&self) {
        let mut known = self.conn.requests.known();
        if let Some(request) = known.list.iter_mut().find(|request| request.id == self.id) {
            request.is_sent = true;
        }
    }
}

impl Drop for Ticket {
    #[inline]
    fn drop(&mut self) {
        if self.id == 0 {
            return;
        }
        let is_http2 = self.conn.is_http2();
        if is_http2 {
            self.mark_sent();
        }
        let ours = if self.is_ours { OURS } else { 0 };
        self.conn.requests.add((OPEN + ours).wrapping_neg(), is_http2);
    }
}
