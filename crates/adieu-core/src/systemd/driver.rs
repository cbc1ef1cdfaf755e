//! Observes the shutdown, and sends the messages that the machine decides to systemd.

use std::io;
use std::sync::Weak;
use std::time::Duration;

use tracing::error;

use super::NotifySettings;
use super::machine::Machine;
use super::socket::Socket;
use crate::coordinator::{Shared, SupervisorUpdates, SupervisorView};
use crate::time::{Instant, now};

/// Task ends within this time are processed together, because a phase may have thousands.
const BATCH: Duration = Duration::from_millis(50);

/// When sending is retried after the socket was full.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Unsent messages beyond this many bytes are dropped: then systemd does not read the socket.
const MAX_UNSENT: usize = 8 * 1024;

struct Driver {
    shared: Weak<Shared>,
    socket: Socket,
    machine: Machine,
    unsent: String,
    has_failed: bool,
}

/// Notifies systemd until the shutdown is dropped.
pub(super) async fn run(
    shared: Weak<Shared>,
    mut updates: SupervisorUpdates,
    settings: NotifySettings,
) {
    let NotifySettings { socket, watchdog } = settings;
    let machine = Machine::new(now(), watchdog);
    let mut driver = Driver { shared, socket, machine, unsent: String::new(), has_failed: false };
    while let Some((seen, due)) = driver.step() {
        let comes_due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = updates.changed_since(&seen, BATCH) => {}
            () = comes_due => {}
        }
    }
}

// === impl Driver ===

impl Driver {
    /// Reads the state of the shutdown and sends the messages that follow from it. Returns `None` if
    /// the shutdown was dropped.
    fn step(&mut self) -> Option<(SupervisorView, Option<Instant>)> {
        let shared = self.shared.upgrade()?;
        let seen = shared.supervisor_view();
        for message in self.machine.on(now(), &seen) {
            self.unsent.push_str(&format!("{message}\n"));
        }
        if let Err(error) = self.send()
            && !std::mem::replace(&mut self.has_failed, true)
        {
            shared.journal().log(move || error!(%error, "failed to notify systemd; retrying"));
        }
        let again = (!self.unsent.is_empty()).then(|| now() + RETRY_AFTER);
        let due = [self.machine.due(), again].into_iter().flatten().min();
        Some((seen, due))
    }

    fn send(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let sent = self.socket.send(self.unsent.trim_end());
        let is_full = sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        if !is_full || self.unsent.len() > MAX_UNSENT {
            self.unsent.clear();
        }
        sent
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
