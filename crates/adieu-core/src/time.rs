//! The one door to the clock.
//!
//! Everything in this crate that needs the time takes it from here or is handed it, so that a
//! test which pauses tokio's clock pauses the whole engine. The watchdog is the exception: it
//! exists for the case in which the runtime, and so tokio's clock, has stopped.

pub(crate) mod millis;

pub(crate) use std::time::{Duration, Instant};

/// The time on tokio's clock, which tests can pause.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time on the operating system's clock, which nothing can pause.
#[expect(clippy::disallowed_methods, reason = "the watchdog runs when tokio's clock does not")]
pub(crate) fn real_now() -> Instant {
    Instant::now()
}

/// The time of day, for reports: never used to measure anything.
#[expect(clippy::disallowed_methods, reason = "a report says when it happened, in wall time")]
pub(crate) fn wall_clock() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// A duration as an operator reads it: `850ms`, `6.9s`, `2m 5s`. For the other crates of this
/// workspace, too.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Short(pub Duration);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let duration = self.0;
        let text = if duration.is_zero() {
            "0s".to_owned()
        } else if duration < Duration::from_millis(1) {
            format!("{}us", duration.as_micros())
        } else if duration < Duration::from_secs(1) {
            format!("{}ms", duration.as_millis())
        } else if duration < Duration::from_millis(59_950) {
            let tenths = (duration.as_millis() + 50) / 100;
            match tenths % 10 {
                0 => format!("{}s", tenths / 10),
                rest => format!("{}.{rest}s", tenths / 10),
            }
        } else {
            // Whole seconds, rounded down: what is left is never more than it says. What tenths round
            // up to is a minute.
            humantime::format_duration(Duration::from_secs(duration.as_secs().max(60))).to_string()
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        let cases = [
            (Duration::ZERO, "0s"),
            (Duration::from_micros(12), "12us"),
            (Duration::from_millis(850), "850ms"),
            (Duration::from_millis(999), "999ms"),
            (Duration::from_millis(6_900), "6.9s"),
            (Duration::from_secs(27), "27s"),
            (Duration::from_millis(59_949), "59.9s"),
            (Duration::from_millis(59_960), "1m"),
            (Duration::from_millis(60_700), "1m"),
            (Duration::from_secs(125), "2m 5s"),
        ];
        for (duration, text) in cases {
            assert_eq!(Short(duration).to_string(), text);
        }
    }
}
