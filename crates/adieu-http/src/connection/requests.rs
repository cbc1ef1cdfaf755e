//! The requests of one connection: how many are open, whose turn each is, and what they are called.
//!
//! A request is open from its call to the end of its body. Only the application can continue it
//! while its handler runs or its body has nothing to send; otherwise only the client can, by
//! reading. A connection on which it is always the client's turn, and which acknowledges nothing, is
//! stalled.

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

/// How many answers of a connection are remembered by name after their bodies have been handed
/// over.
const MOST_SENT: usize = 32;

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

    /// What answers that have not been read may belong to.
    pub(super) fn names(&self) -> Vec<String> {
        self.known().list.iter().map(|request| request.name.to_string()).collect()
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
    /// A request is called; what was sent before is forgotten as far as it has been read.
    pub(super) fn new(conn: &Arc<Conn>, name: Name) -> Self {
        let is_http2 = conn.is_http2();
        let mut known = conn.requests.known();
        if !is_http2 {
            known.list.clear();
        } else if !conn.has_open_answers() {
            known.list.retain(|request| !request.is_sent);
        }
        known.last_id = known.last_id.checked_add(1).unwrap_or(1);
        let id = known.last_id;
        known.list.push(Request { id, name, since: None, is_sent: false });
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
        let sent = known.list.iter().filter(|request| request.is_sent).count();
        if let Some(request) = known.list.iter_mut().find(|request| request.id == self.id) {
            request.is_sent = true;
        }
        if sent >= MOST_SENT
            && let Some(at) = known.list.iter().position(|request| request.is_sent)
        {
            known.list.remove(at);
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
