//! The layout of lines on stderr, for a process without a `tracing` subscriber: the time of day, the
//! event's name, and its fields as `key=value`.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::LazyLock;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// The width of the column that contains the event's name.
const NAME_WIDTH: usize = 21;

static LAYOUT: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Layout));

/// Runs `emit` so that its events are written to stderr.
pub(super) fn with_layout(emit: impl FnOnce()) {
    tracing::dispatcher::with_default(&LAYOUT, emit);
}

/// Returns the line of an event that is written without a subscriber, when the process ends.
pub(crate) fn event_line(name: &str, fields: &[(&str, &str)]) -> String {
    let mut text = Text { name: name.into(), fields: String::new() };
    for (key, value) in fields {
        text.add(key, value);
    }
    text.line()
}

/// Writes a line to stderr, with the time of day. A line that cannot be written is lost: there is no
/// other place to report that.
pub(crate) fn write_line(line: &str) {
    let now = humantime::format_rfc3339_seconds(crate::time::wall_clock()).to_string();
    let clock = now.get(11..19).unwrap_or_default();
    let _ = writeln!(std::io::stderr(), "{clock} {line}");
}

/// Writes events to stderr. Spans are ignored: the fields of the events contain the same values.
struct Layout;

/// The text of one event.
#[derive(Default)]
struct Text {
    name: String,
    fields: String,
}

// === impl Layout ===

impl Subscriber for Layout {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        write_line(&text.line());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

// === impl Text ===

impl Text {
    fn line(&self) -> String {
        let Self { name, fields } = self;
        format!("{name:<NAME_WIDTH$}{fields}").trim_end().to_owned()
    }

    fn add(&mut self, key: &str, value: &str) {
        if key == "message" {
            self.name.push_str(value);
            return;
        }
        let is_bare = !value.is_empty() && !value.contains([' ', '"', '=', '\n', '\t']);
        // Writing to a `String` cannot fail.
        let _ = if is_bare {
            write!(self.fields, " {key}={value}")
        } else {
            write!(self.fields, " {key}={value:?}")
        };
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the lines of events to a string.
    struct Lines(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            Layout.enabled(metadata)
        }
        fn event(&self, event: &Event<'_>) {
            let mut text = Text::default();
            event.record(&mut text);
            crate::sync::lock(&self.0).push(text.line());
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn s401_a_line_has_a_name_and_fields_and_quotes_values_with_spaces() {
        let lines = std::sync::Arc::default();
        tracing::subscriber::with_default(Lines(std::sync::Arc::clone(&lines)), || {
            let nothing: Option<&str> = None;
            tracing::info!(phase = %"service-stop", tasks = 3, nothing, "phase over");
            tracing::warn!(task = "close pool", error = "got \"no\"", empty = "", "task failed");
            tracing::info!("a name that is longer than its column");
            tracing::debug!("not shown");
        });
        let lines = crate::sync::lock(&lines).clone();
        assert_eq!(
            lines,
            [
                "phase over            phase=service-stop tasks=3",
                "task failed           task=\"close pool\" error=\"got \\\"no\\\"\" empty=\"\"",
                "a name that is longer than its column",
            ]
        );
    }
}
