//! Subscribers that misbehave.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};

use crate::plan::{Plan, Subscriber};

/// A subscriber, and what it does when it gets an event or a call about a span.
struct Hostile {
    on_event: fn(),
    on_span: fn(),
    /// Whether it fails when a span is opened, too, and not only when the span is entered.
    fails_at_new_span: bool,
}

/// From now on the subscriber fails. A log that fails during start-up would be noticed by a person.
static IS_STARTED: AtomicBool = AtomicBool::new(false);

/// Longer than every phase may take.
const BLOCKED: Duration = Duration::from_secs(60);

/// How often, and for how long, a subscriber blocks in spans that blocks for a while. Together it is less
/// than a phase may take.
const BLOCKS: u32 = 8;
const BLOCK: Duration = Duration::from_millis(150);

/// Start-up has ended.
pub(super) fn misbehave() {
    IS_STARTED.store(true, Ordering::Relaxed);
}

pub(super) fn install(plan: &Plan) {
    let (on_event, on_span): (fn(), fn()) = match plan.subscriber {
        Subscriber::Standard => return,
        Subscriber::Panics => (panics, nothing),
        Subscriber::Blocks => (blocks, nothing),
        Subscriber::PanicsInSpans => (nothing, panics),
        Subscriber::BlocksInSpans => (nothing, blocks_for_a_while),
        Subscriber::BlocksEverywhere => (blocks, blocks),
    };
    let fails_at_new_span = plan.seed.is_multiple_of(2);
    let hostile = Hostile { on_event, on_span, fails_at_new_span };
    let installed = tracing::subscriber::set_global_default(hostile);
    installed.expect("there is no other");
}

fn nothing() {}

fn panics() {
    panic!("a subscriber that panics");
}

fn blocks() {
    std::thread::sleep(BLOCKED);
}

fn blocks_for_a_while() {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if COUNT.fetch_add(1, Ordering::Relaxed) < BLOCKS {
        std::thread::sleep(BLOCK);
    }
}

// === impl Hostile ===

impl Hostile {
    fn event(&self) {
        if IS_STARTED.load(Ordering::Relaxed) {
            (self.on_event)();
        }
    }

    fn span(&self) {
        if IS_STARTED.load(Ordering::Relaxed) {
            (self.on_span)();
        }
    }
}

impl tracing::Subscriber for Hostile {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Spans of other libraries are opened by these, and not by adieu.
        let is_ours = metadata.is_event() || metadata.target().starts_with("adieu");
        is_ours && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // A span that could not be opened is never entered.
        if self.fails_at_new_span {
            self.span();
        }
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        self.span();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {
        self.span();
    }

    fn event(&self, _: &Event<'_>) {
        Self::event(self);
    }

    fn enter(&self, _: &Id) {
        self.span();
    }

    fn exit(&self, _: &Id) {
        self.span();
    }

    fn try_close(&self, _: Id) -> bool {
        self.span();
        true
    }
}
