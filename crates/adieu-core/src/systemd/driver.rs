//! Looks at the shutdown, and says to systemd what the machine decides.

use std::io;
use std::sync::Weak;
use std::time::Duration;

use tracing::error;

use super::Asked;
use super::machine::Machine;
use super::socket::Socket;
use crate::coordinator::{Lookout, Seen, Shared};
use crate::time::{Instant, now};

/// How long tasks may end without being looked at. A phase may have thousands.
const GATHERS: Duration = Duration::from_millis(50);

/// When it is tried again to say what could not be said, because too much waits to be heard.
const AGAIN: Duration = Duration::from_millis(100);

/// What could not be said is forgotten when it is more than this: nobody listens.
const MOST_UNSAID: usize = 8 * 1024;

struct Driver {
    shared: Weak<Shared>,
    socket: Socket,
    machine: Machine,
    unsaid: String,
    has_failed: bool,
}

/// Tells systemd how it stands until the shutdown is gone.
pub(super) async fn attend(shared: Weak<Shared>, mut lookout: Lookout, asked: Asked) {
    let Asked { socket, watchdog } = asked;
    let machine = Machine::new(now(), watchdog);
    let mut driver = Driver { shared, socket, machine, unsaid: String::new(), has_failed: false };
    while let Some((seen, due)) = driver.step() {
        let comes_due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = lookout.until_other_than(&seen, GATHERS) => {}
            () = comes_due => {}
        }
    }
}

// === impl Driver ===

impl Driver {
    /// Looks, and says what there is to say. `None` when the shutdown is gone.
    fn step(&mut self) -> Option<(Seen, Option<Instant>)> {
        let shared = self.shared.upgrade()?;
        let seen = shared.look();
        for message in self.machine.on(now(), &seen) {
            self.unsaid.push_str(&format!("{message}\n"));
        }
        if let Err(error) = self.say()
            && !std::mem::replace(&mut self.has_failed, true)
        {
            shared.journal().log(move || error!(%error, "failed to notify systemd; retrying"));
        }
        let again = (!self.unsaid.is_empty()).then(|| now() + AGAIN);
        let due = [self.machine.due(), again].into_iter().flatten().min();
        Some((seen, due))
    }

    fn say(&mut self) -> io::Result<()> {
        if self.unsaid.is_empty() {
            return Ok(());
        }
        let said = self.socket.send(self.unsaid.trim_end());
        let waits = said.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        if !waits || self.unsaid.len() > MOST_UNSAID {
            self.unsaid.clear();
        }
        said
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
