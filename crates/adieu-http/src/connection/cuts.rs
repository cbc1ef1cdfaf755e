//! The responses that a server has cut before their clients had received them completely.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adieu_core::adapter::{lock, log};
use adieu_core::{Gate, Shutdown};
use tracing::warn;

/// How many cut responses a report names, and how many the log names, one line each. Both count all.
const MAX_REPORTED: usize = 20;
const MAX_LOGGED: usize = 1_000;

/// The responses that a server has cut.
#[derive(Debug)]
pub(crate) struct Cuts {
    server: Arc<str>,
    shutdown: Shutdown,
    gate: Gate,
    counts: Mutex<CutCounts>,
}

#[derive(Debug, Default)]
struct CutCounts {
    count: usize,
    /// The first of them.
    names: Vec<String>,
    /// How many of them the report contains.
    reported: usize,
}

/// Why a response was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutReason {
    /// The client has acknowledged nothing for this long.
    Stalled(Duration),
    /// The client's kernel answers neither probes nor retransmissions.
    ClientGone,
    WindowElapsed,
}

// === impl Cuts ===

impl Cuts {
    pub(crate) fn new(server: Arc<str>, shutdown: Shutdown, gate: Gate) -> Self {
        Self { server, shutdown, gate, counts: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, CutCounts> {
        lock(&self.counts)
    }

    /// Counts and logs responses that are cut.
    pub(super) fn add(&self, names: Vec<String>, reason: CutReason) {
        self.gate.count_cut_off(names.len() as u64);
        let (server, reason) = (&self.server, reason.text());
        for name in names {
            let mut all = self.counts();
            all.count += 1;
            let count = all.count;
            if all.names.len() < MAX_REPORTED {
                all.names.push(format!("{name} ({reason})"));
            }
            drop(all); // A log that blocks must not block the other connections.
            if count <= MAX_LOGGED {
                let (server, reason) = (Arc::clone(server), reason.clone());
                log(&self.shutdown, move || {
                    warn!(name = &*server, request = name, reason = &*reason, "response cut");
                });
            }
        }
    }

    /// Returns an error that counts and names the responses which have been cut, unless the last call
    /// has done so.
    pub(crate) fn report(&self) -> Result<(), String> {
        let mut all = self.counts();
        if all.count == all.reported {
            return Ok(());
        }
        all.reported = all.count;
        let unlogged = all.count.saturating_sub(MAX_LOGGED);
        drop(all);
        if unlogged > 0 {
            let server = Arc::clone(&self.server);
            log(&self.shutdown, move || warn!(name = &*server, more = unlogged, "responses cut"));
        }
        Err(self.summary().unwrap_or_default())
    }

    /// Counts and names the responses that have been cut: `2 responses cut: GET /a (…), GET /b (…)`.
    pub(crate) fn summary(&self) -> Option<String> {
        let all = self.counts();
        let named = all.names.join(", ");
        let more = all.count.saturating_sub(all.names.len());
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let noun = if all.count == 1 { "response" } else { "responses" };
        (all.count > 0).then(|| format!("{} {noun} cut: {named}{rest}", all.count))
    }
}

// === impl CutReason ===

impl CutReason {
    fn text(self) -> Cow<'static, str> {
        match self {
            Self::Stalled(most) => format!("the client read nothing for {most:?}").into(),
            Self::ClientGone => "the client does not acknowledge".into(),
            Self::WindowElapsed => "not finished when the window ended".into(),
        }
    }
}
