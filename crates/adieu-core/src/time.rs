//! The clocks of this crate.
//!
//! All code of this crate reads the time here or gets it as an argument, so that a test that pauses
//! tokio's clock pauses the whole engine. The watchdog is the exception: it must work when the
//! runtime, and with it tokio's clock, has stopped.

pub(crate) mod boot;
pub(crate) mod millis;

pub(crate) use std::time::{Duration, Instant};

/// Returns the time of tokio's clock, which tests can pause.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the time of the operating system's clock, which cannot be paused.
#[expect(clippy::disallowed_methods, reason = "the watchdog runs when tokio's clock does not")]
pub(crate) fn real_now() -> Instant {
    Instant::now()
}

/// Returns the time of day, for reports. It is never used to measure a duration.
#[expect(clippy::disallowed_methods, reason = "a report contains the wall time")]
pub(crate) fn wall_clock() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// Displays a duration in a short form: `850ms`, `6.9s`, `2m 5s`. The other crates of this workspace
/// use it as well.
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
            // Whole seconds, rounded down, so that a remaining time is never shown too long. The
            // tenths just below a minute round up to one.
            humantime::format_duration(Duration::from_secs(duration.as_secs().max(60))).to_string()
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_displayed_in_a_short_form() {
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
