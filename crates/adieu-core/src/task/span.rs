//! `tracing` spans of the shutdown, its phases and its tasks. Events that a task logs are inside all
//! three, and an OpenTelemetry layer shows the shutdown as a trace.
//!
//! A subscriber is code of the application: it may panic, and may block. So spans are opened inside
//! tasks, never by the driver, and closed on the log thread. If a subscriber panics, only the span is
//! lost. While a line blocks the subscriber on the log thread, no span is opened or entered: such a
//! subscriber, for example one that writes spans to a pipe that is not read, would block the worker.

use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::{Level, Span, info_span};

use super::context::{PhaseCx, RunCx};
use super::end::TaskId;
use crate::log_thread::LogProgress;
use crate::shield::{drop_shielded, shielded};

/// The span of one task. Boxed, because most tasks have none, and spawning copies the whole task.
#[derive(Default)]
pub(super) struct TaskSpan(Option<Box<OpenSpan>>);

struct OpenSpan {
    span: Span,
    log: LogProgress,
}

/// Returns whether a subscriber may be interested in spans. Calls no code of the application.
pub(crate) fn are_wanted() -> bool {
    LevelFilter::current() >= Level::INFO
}

// === impl TaskSpan ===

impl TaskSpan {
    pub(super) fn open(phase: &PhaseCx, task: TaskId) -> Self {
        let Some(name) = phase.name_of(task) else { return Self(None) };
        if phase.run.log.wait_until_blocked() {
            return Self(None);
        }
        let parent = phase.span.get(|| {
            let shutdown = phase.run.span.get(|| shutdown_span(&phase.run));
            info_span!(target: "adieu", parent: id_of(shutdown), "phase", phase = %phase.name)
        });
        let open = || info_span!(target: "adieu", parent: id_of(parent), "task", task = &**name);
        let span = shielded(open).ok().filter(|span| !span.is_disabled());
        Self(span.map(|span| Box::new(OpenSpan { span, log: phase.run.log.clone() })))
    }

    /// Calls `f` inside the span. Returns the message if `f` panics.
    pub(super) fn enter<T>(&mut self, f: impl FnOnce() -> T) -> Result<T, Arc<str>> {
        let Some(open) = self.0.as_ref().filter(|open| !open.log.is_blocked()) else {
            return shielded(f);
        };
        let Ok(entered) = shielded(|| open.span.enter()) else {
            drop_shielded(self.0.take());
            return shielded(f);
        };
        let result = shielded(f);
        drop_shielded(entered);
        result
    }
}

impl Drop for TaskSpan {
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            drop_shielded(span);
        }
    }
}

fn shutdown_span(run: &RunCx) -> Span {
    info_span!(target: "adieu", parent: None, "shutdown", reason = %run.reason)
}

fn id_of(span: Option<Arc<Span>>) -> Option<tracing::Id> {
    span.and_then(|span| span.id())
}
