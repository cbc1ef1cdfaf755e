//! Decides what systemd is told.
//!
//! `now` and what can be seen come in, messages go out; it knows no clock and sends nothing.
//!
//! # Invariants
//!
//! 1. Ready and stopping are said at most once, and ready never after stopping.
//! 2. More time is asked for only if something has ended since it was last asked for, and never
//!    more than the shutdown has left.
//! 3. What is due is never due already: whoever waits for it does not spin.

use std::collections::BTreeSet;
use std::fmt;

use crate::coordinator::Seen;
use crate::readiness::Readiness;
use crate::status::Stage;
use crate::time::{Duration, Instant};

/// How much more time is asked for at once. Whoever gets nothing done for so long has hung.
const EXTENSION: Duration = Duration::from_secs(30);

/// How often it is asked for at most.
const EXTENDS: Duration = Duration::from_secs(1);

/// How often it is said what is waited for, while that is the same.
const REMINDS: Duration = Duration::from_secs(5);

/// What systemd is told.
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
    /// The phases that were waited for when that was last said, and when to say it again.
    phases: BTreeSet<String>,
    reminds: Option<Instant>,
    ended: usize,
    inside: usize,
    /// Something has ended since more time was last asked for.
    moved: bool,
    extended: Option<Instant>,
    /// How often systemd is told that we are alive, and when next.
    watchdog: Option<(Duration, Instant)>,
}

// === impl Machine ===

impl Machine {
    /// systemd expects a sign of life within `watchdog`.
    pub(super) fn new(now: Instant, watchdog: Option<Duration>) -> Self {
        Self {
            ready: false,
            stopping: false,
            readiness: None,
            phases: BTreeSet::new(),
            reminds: None,
            ended: 0,
            inside: 0,
            moved: false,
            extended: None,
            watchdog: watchdog.map(|within| (within / 2, now)),
        }
    }

    pub(super) fn on(&mut self, now: Instant, seen: &Seen) -> Vec<Message> {
        let mut messages = Vec::new();
        if let Some((every, due)) = &mut self.watchdog
            && now >= *due
        {
            *due = now + *every;
            messages.push(Message::Watchdog);
        }
        if seen.stage != Stage::ShuttingDown {
            (self.reminds, self.moved) = (None, false);
        }
        match seen.stage {
            Stage::Up => self.up(seen, &mut messages),
            Stage::ShuttingDown => self.shutting_down(now, seen, &mut messages),
            Stage::Over => {}
        }
        messages
    }

    fn up(&mut self, seen: &Seen, messages: &mut Vec<Message>) {
        if self.readiness.replace(seen.readiness) == Some(seen.readiness) {
            return;
        }
        if seen.readiness.is_ready() && !self.ready {
            self.ready = true;
            messages.push(Message::Ready);
        }
        messages.push(Message::Status(seen.readiness.to_string()));
    }

    fn shutting_down(&mut self, now: Instant, seen: &Seen, messages: &mut Vec<Message>) {
        if !self.stopping {
            self.stopping = true;
            messages.push(Message::Stopping);
        }
        if seen.phases.is_empty() {
            // Between two phases there is nothing to say.
            self.reminds = None;
        } else if seen.phases != self.phases || self.reminds.is_none_or(|due| now >= due) {
            self.phases.clone_from(&seen.phases);
            self.reminds = Some(now + REMINDS);
            messages.push(Message::Status(seen.waiting_for.replace('\n', " ")));
        }
        self.moved |= seen.moves.ended > self.ended || seen.inside < self.inside;
        (self.ended, self.inside) = (seen.moves.ended, seen.inside);
        let extension = EXTENSION.min(seen.left);
        if self.moved && self.may_extend(now) {
            self.moved = false;
            self.extended = Some(now);
            if !extension.is_zero() {
                messages.push(Message::Extend(extension));
            }
        }
    }

    fn may_extend(&self, now: Instant) -> bool {
        self.extended.is_none_or(|at| now >= at + EXTENDS)
    }

    /// When there is next something to say, even if nothing happens.
    pub(super) fn due(&self) -> Option<Instant> {
        let alive = self.watchdog.map(|(_, due)| due);
        let extends = self.extended.filter(|_| self.moved).map(|at| at + EXTENDS);
        [alive, self.reminds, extends].into_iter().flatten().min()
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
