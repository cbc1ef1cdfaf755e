//! The answers that were cut before their clients had got all of them.

use std::sync::{Arc, Mutex, PoisonError};

use adieu_core::{Gate, Shutdown};

/// How many are named in a report; the log names all.
const MOST: usize = 5;

/// The answers that a server has cut.
#[derive(Debug)]
pub(crate) struct Cuts {
    server: Arc<str>,
    shutdown: Shutdown,
    gate: Gate,
    /// Those that no report names yet.
    unreported: Mutex<Vec<String>>,
}

/// Why an answer was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    StoppedReading,
    OutOfTime,
}

// === impl Cuts ===

impl Cuts {
    pub(crate) fn new(server: Arc<str>, shutdown: Shutdown, gate: Gate) -> Self {
        Self { server, shutdown, gate, unreported: Mutex::default() }
    }

    /// Notes and logs answers that are cut.
    pub(crate) fn add(&self, names: Vec<String>, why: Why) {
        self.gate.count_cut_off(names.len() as u64);
        for name in &names {
            let server = &self.server;
            self.shutdown.warn(format!(
                "answer cut            name={server} request={name:?} reason={:?}",
                why.text()
            ));
        }
        let names = names.into_iter().map(|name| format!("{name} ({})", why.text()));
        self.unreported.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
    }

    /// Fails with the names of those that have been cut since this was last called.
    pub(crate) fn report(&self) -> Result<(), String> {
        let cut =
            std::mem::take(&mut *self.unreported.lock().unwrap_or_else(PoisonError::into_inner));
        if cut.is_empty() {
            return Ok(());
        }
        let more = cut.len().saturating_sub(MOST);
        let named = cut.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let noun = if cut.len() == 1 { "answer" } else { "answers" };
        Err(format!("{} {noun} cut: {named}{rest}", cut.len()))
    }
}

// === impl Why ===

impl Why {
    fn text(self) -> &'static str {
        match self {
            Self::StoppedReading => "the client stopped reading",
            Self::OutOfTime => "the window was over",
        }
    }
}
