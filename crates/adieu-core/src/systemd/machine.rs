//! Decides which messages systemd gets.
//!
//! Input: the time and the state of the shutdown. Output: messages. The machine reads no clock and
//! sends nothing.
//!
//! # Invariants
//!
//! 1. `READY=1` and `STOPPING=1` are sent at most once, and ready never after stopping.
//! 2. More time is requested only if a task or a pass has ended since the last request, and never
//!    more than the shutdown has left.
//! 3. The next due instant is never in the past, so a driver that waits for it does not spin.

use std::collections::BTreeSet;
use std::fmt;

use crate::coordinator::SupervisorView;
use crate::journal::PROGRESS_INTERVAL;
use crate::readiness::Readiness;
use crate::status::Stage;
use crate::time::{Duration, Instant};

/// The time that one request adds. A shutdown without progress for that long counts as hung.
const EXTENSION: Duration = Duration::from_secs(30);

/// The minimum time between two requests for more time.
const EXTENSION_INTERVAL: Duration = Duration::from_secs(1);

/// A message to systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Ready,
    Stopping,
    Status(String),
    Extend(Duration),
    Watchdog,
}

pub(super) struct Machine {
    ready: bool,
    stopping: bool,
    readiness: Option<Readiness>,
    /// The running phases in the last status.
    phases: BTreeSet<String>,
    /// When the status is repeated.
    next_status: Option<Instant>,
    ended: usize,
    inside: usize,
    /// A task or a pass has ended since more time was last requested.
    has_progressed: bool,
    last_extension: Option<Instant>,
    /// The interval of signs of life, and when the next one is due.
    watchdog: Option<(Duration, Instant)>,
}

// === impl Machine ===

impl Machine {
    /// Creates a machine. systemd expects signs of life at intervals of at most `watchdog`.
    pub(super) fn new(now: Instant, watchdog: Option<Duration>) -> Self {
        Self {
            ready: false,
            stopping: false,
            readiness: None,
            phases: BTreeSet::new(),
            next_status: None,
            ended: 0,
            inside: 0,
            has_progressed: false,
            last_extension: None,
            watchdog: watchdog.map(|within| (within / 2, now)),
        }
    }

    pub(super) fn on(&mut self, now: Instant, seen: &SupervisorView) -> Vec<Message> {
        let mut messages = Vec::new();
        if let Some((every, due)) = &mut self.watchdog
            && now >= *due
        {
            *due = now + *every;
            messages.push(Message::Watchdog);
        }
        if seen.stage != Stage::ShuttingDown {
            (self.next_status, self.has_progressed) = (None, false);
        }
        match seen.stage {
            Stage::Up => self.up(seen, &mut messages),
            Stage::ShuttingDown => self.shutting_down(now, seen, &mut messages),
            Stage::Over => {}
        }
        messages
    }

    fn up(&mut self, seen: &SupervisorView, messages: &mut Vec<Message>) {
        if self.readiness.replace(seen.readiness) == Some(seen.readiness) {
            return;
        }
        if seen.readiness.is_ready() && !self.ready {
            self.ready = true;
            messages.push(Message::Ready);
        }
        messages.push(Message::Status(seen.readiness.to_string()));
    }

    fn shutting_down(&mut self, now: Instant, seen: &SupervisorView, messages: &mut Vec<Message>) {
        if !self.stopping {
            self.stopping = true;
            messages.push(Message::Stopping);
        }
        if seen.phases.is_empty() {
            // No status between two phases.
            self.next_status = None;
        } else if seen.phases != self.phases || self.next_status.is_none_or(|due| now >= due) {
            self.phases.clone_from(&seen.phases);
            self.next_status = Some(now + PROGRESS_INTERVAL);
            messages.push(Message::Status(seen.waiting_for.replace('\n', " ")));
        }
        self.has_progressed |= seen.counts.ended > self.ended || seen.inside < self.inside;
        (self.ended, self.inside) = (seen.counts.ended, seen.inside);
        let extension = EXTENSION.min(seen.left);
        if self.has_progressed && self.may_extend(now) {
            self.has_progressed = false;
            self.last_extension = Some(now);
            if !extension.is_zero() {
                messages.push(Message::Extend(extension));
            }
        }
    }

    fn may_extend(&self, now: Instant) -> bool {
        self.last_extension.is_none_or(|at| now >= at + EXTENSION_INTERVAL)
    }

    /// Returns when the next message is due if nothing changes.
    pub(super) fn due(&self) -> Option<Instant> {
        let alive = self.watchdog.map(|(_, due)| due);
        let extends =
            self.last_extension.filter(|_| self.has_progressed).map(|at| at + EXTENSION_INTERVAL);
        [alive, self.next_status, extends].into_iter().flatten().min()
    }
}

// === impl Message ===

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("READY=1"),
            Self::Stopping => f.write_str("STOPPING=1"),
            Self::Status(text) => write!(f, "STATUS={text}"),
            Self::Extend(by) => write!(f, "EXTEND_TIMEOUT_USEC={}", by.as_micros()),
            Self::Watchdog => f.write_str("WATCHDOG=1"),
        }
    }
}

#[cfg(test)]
mod tests;
