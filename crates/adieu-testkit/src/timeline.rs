//! Events and their times, as text.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::adapter::lock;
use tokio::time::Instant;

/// Records events with the time since its creation, on tokio's clock.
///
/// Clones record to the same timeline.
#[derive(Clone, Debug)]
pub struct Timeline {
    began: Instant,
    notes: Arc<Mutex<Vec<(Duration, String)>>>,
}

/// An event with a duration. Dropping the span records that it is over, or that it was dropped
/// before [`Span::over`].
#[derive(Debug)]
pub struct Span {
    timeline: Timeline,
    name: String,
    over: bool,
}

// === impl Timeline ===

impl Timeline {
    /// Creates a timeline that begins now.
    #[must_use]
    pub fn new() -> Self {
        Self { began: Instant::now(), notes: Arc::default() }
    }

    /// Records an event.
    pub fn note(&self, what: impl Into<String>) {
        let mut notes = lock(&self.notes);
        notes.push((self.began.elapsed(), what.into()));
    }

    /// Records that something started.
    #[must_use = "dropping the span records its end"]
    pub fn start(&self, name: impl Into<String>) -> Span {
        let name = name.into();
        self.note(format!("{name} started"));
        Span { timeline: self.clone(), name, over: false }
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let notes = lock(&self.notes);
        for (at, what) in notes.iter() {
            // Tokio's timers are late by up to a millisecond, by design.
            let at = Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
            writeln!(f, "{} {what}", humantime::format_duration(at))?;
        }
        Ok(())
    }
}

// === impl Span ===

impl Span {
    /// Marks the span as over, and records that.
    pub fn over(mut self) {
        self.over = true;
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let end = if self.over { "over" } else { "dropped" };
        self.timeline.note(format!("{} {end}", self.name));
    }
}
