//! Listeners to the log that misbehave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};

use crate::plan::Subscriber;

struct Panics;
struct Blocks;

/// From now on the subscriber fails. A log that fails during start-up would be noticed by a person.
static IS_STARTED: AtomicBool = AtomicBool::new(false);

/// Longer than every phase may take.
const BLOCKED: Duration = Duration::from_secs(60);

/// Start-up has ended.
pub(super) fn misbehave() {
    IS_STARTED.store(true, Ordering::Relaxed);
}

pub(super) fn install(which: Subscriber) {
    let installed = match which {
        Subscriber::Standard => Ok(()),
        Subscriber::Panics => tracing::subscriber::set_global_default(Panics),
        Subscriber::Blocks => tracing::subscriber::set_global_default(Blocks),
    };
    installed.expect("there is no other");
}

macro_rules! subscriber {
    ($name:ident, $event:expr) => {
        impl tracing::Subscriber for $name {
            fn enabled(&self, metadata: &Metadata<'_>) -> bool {
                metadata.is_event() && *metadata.level() <= tracing::Level::INFO
            }

            fn new_span(&self, _: &Attributes<'_>) -> Id {
                Id::from_u64(1)
            }

            fn record(&self, _: &Id, _: &Record<'_>) {}

            fn record_follows_from(&self, _: &Id, _: &Id) {}

            fn event(&self, _: &Event<'_>) {
                if IS_STARTED.load(Ordering::Relaxed) {
                    $event
                }
            }

            fn enter(&self, _: &Id) {}

            fn exit(&self, _: &Id) {}
        }
    };
}

subscriber!(Panics, panic!("a subscriber that panics"));
subscriber!(Blocks, std::thread::sleep(BLOCKED));
