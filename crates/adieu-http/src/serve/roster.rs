//! The connections of a server, and the responses that they wait for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use adieu_core::InFlight;
use adieu_core::adapter::{ListInFlight, lock};
use tokio::task::Id;
use tokio::time::Instant;

use crate::connection::Conn;

/// How many unread responses the summary names.
const MAX_NAMED: usize = 3;

/// The connections of a server.
#[derive(Debug, Default)]
pub(super) struct Roster {
    connections: Mutex<HashMap<Id, Arc<Conn>>>,
}

impl Roster {
    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Arc<Conn>>> {
        lock(&self.connections)
    }

    pub(super) fn add(&self, id: Id, conn: Arc<Conn>) {
        self.lock().insert(id, conn);
    }

    pub(super) fn remove(&self, id: Id) {
        let conn = self.lock().remove(&id);
        drop(conn); // Not under the lock.
    }

    pub(super) fn all(&self) -> Vec<Arc<Conn>> {
        self.lock().values().map(Arc::clone).collect()
    }

    /// Returns how many requests are open.
    pub(super) fn open_requests(&self) -> usize {
        self.all().iter().map(|conn| conn.open_requests()).sum()
    }

    /// Returns how many requests wait for clients that have stopped reading.
    pub(super) fn stalled_requests(&self, now: Instant) -> usize {
        let stalled = |conn: &Arc<Conn>| conn.is_stalled(now).then(|| conn.open_requests());
        self.all().iter().filter_map(stalled).sum()
    }

    /// Names the requests whose responses have not been acknowledged completely.
    pub(super) fn unread(&self) -> Vec<String> {
        self.all().iter().flat_map(|conn| conn.unread_requests()).collect()
    }

    /// Summarises the open connections in one line: `3 connections, unread: GET /export`.
    pub(super) fn summary(&self) -> String {
        let all = self.all();
        let noun = if all.len() == 1 { "connection" } else { "connections" };
        let unread: Vec<_> = all.iter().flat_map(|conn| conn.unread()).take(MAX_NAMED).collect();
        match unread.is_empty() {
            true => format!("{} {noun}", all.len()),
            false => format!("{} {noun}, unread: {}", all.len(), unread.join(", ")),
        }
    }
}

impl ListInFlight for Roster {
    fn in_flight(&self) -> Vec<InFlight> {
        let now = Instant::now();
        self.all().iter().flat_map(|conn| conn.inside(now)).collect()
    }
}
