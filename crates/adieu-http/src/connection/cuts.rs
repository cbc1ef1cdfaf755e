//! The answers that a server has cut before their clients had received them completely.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adieu_core::{Gate, Shutdown};

/// How many cut answers a report names. The log names all of them.
const MAX_NAMED: usize = 5;

/// The answers that a server has cut.
#[derive(Debug)]
pub(crate) struct Cuts {
    server: Arc<str>,
    shutdown: Shutdown,
    gate: Gate,
    unreported: Mutex<Vec<String>>,
}

/// Why an answer was cut.
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
        Self { server, shutdown, gate, unreported: Mutex::default() }
    }

    /// Counts and logs answers that are cut.
    pub(super) fn add(&self, names: Vec<String>, reason: CutReason) {
        self.gate.count_cut_off(names.len() as u64);
        for name in &names {
            let server = &self.server;
            self.shutdown.warn(format!(
                "answer cut            name={server} request={name:?} reason={:?}",
                reason.text()
            ));
        }
        let names = names.into_iter().map(|name| format!("{name} ({})", reason.text()));
        self.unreported.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
    }

    /// Returns an error that names the answers which have been cut since the last call.
    pub(crate) fn report(&self) -> Result<(), String> {
        let cut =
            std::mem::take(&mut *self.unreported.lock().unwrap_or_else(PoisonError::into_inner));
        if cut.is_empty() {
            return Ok(());
        }
        let more = cut.len().saturating_sub(MAX_NAMED);
        let named = cut.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let noun = if cut.len() == 1 { "answer" } else { "answers" };
        Err(format!("{} {noun} cut: {named}{rest}", cut.len()))
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
