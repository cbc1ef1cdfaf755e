//! Durations, as each platform writes them.

use std::time::Duration;

use adieu_core::adapter::LONGEST_TIME;

/// Units by their names, in seconds.
type Units = &'static [(&'static str, f64)];

/// The units of Go, and the two that compose adds: days and weeks.
const COMPOSE: Units = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
    ("w", 604_800.0),
];

/// The units of Go's durations.
const GO: Units = COMPOSE.split_at(7).0;

const SYSTEMD: Units = &[
    ("usec", 1e-6),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("msec", 1e-3),
    ("ms", 1e-3),
    ("seconds", 1.0),
    ("second", 1.0),
    ("sec", 1.0),
    ("s", 1.0),
    ("", 1.0),
    ("minutes", 60.0),
    ("minute", 60.0),
    ("min", 60.0),
    ("m", 60.0),
    ("hours", 3_600.0),
    ("hour", 3_600.0),
    ("hr", 3_600.0),
    ("h", 3_600.0),
    ("days", 86_400.0),
    ("day", 86_400.0),
    ("d", 86_400.0),
    ("weeks", 604_800.0),
    ("week", 604_800.0),
    ("w", 604_800.0),
    ("months", 2_629_800.0),
    ("month", 2_629_800.0),
    ("M", 2_629_800.0),
    ("years", 31_557_600.0),
    ("year", 31_557_600.0),
    ("y", 31_557_600.0),
];

const SLEEP: Units = &[("", 1.0), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];

/// Parses a duration of Go: `1m30s`, `500ms`, `1.5m`. As in Go, a number without a unit is refused,
/// and so are spaces.
pub(crate) fn go(text: &str) -> Result<Duration, String> {
    without_spaces(text, GO)
}

/// Parses a duration of compose: like Go's, with days and weeks.
pub(crate) fn compose(text: &str) -> Result<Duration, String> {
    without_spaces(text, COMPOSE)
}

fn without_spaces(text: &str, units: Units) -> Result<Duration, String> {
    if text.parse::<f64>().is_ok() {
        return Err(format!("{text} has no unit: write {text}s"));
    }
    let is_one = !text.contains(char::is_whitespace);
    sum(text, units).filter(|_| is_one).ok_or_else(|| not_one(text))
}

/// Parses a duration of systemd: `90`, `1min 30s`, `infinity`. Returns `None` for a duration without
/// end, which is written as `infinity` or zero.
pub(crate) fn systemd(text: &str) -> Result<Option<Duration>, String> {
    if text == "infinity" {
        return Ok(None);
    }
    let span = sum(text, SYSTEMD).ok_or_else(|| not_one(text))?;
    Ok(Some(span).filter(|span| !span.is_zero()))
}

/// Parses one argument of the program `sleep`: `10`, `2.5`, `1m`.
pub(crate) fn sleep(text: &str) -> Option<Duration> {
    // The notation of C: `1e1` is ten seconds.
    let is_of_number = |c: char| c.is_ascii_digit() || ".e+-".contains(c);
    if text.contains('e') && text.starts_with(|c: char| c.is_ascii_digit()) {
        let seconds = text.parse().ok().filter(|_| text.chars().all(is_of_number))?;
        return Duration::try_from_secs_f64(seconds).ok();
    }
    sum(text, SLEEP).filter(|_| !text.contains(' '))
}

/// Parses a duration of the command line. It needs a unit, and has the same maximum as in a
/// configuration.
pub(crate) fn argument(text: &str) -> Result<Duration, String> {
    let span = go(text).or_else(|problem| humantime::parse_duration(text).map_err(|_| problem))?;
    if span > LONGEST_TIME { Err("a year is the most".into()) } else { Ok(span) }
}

/// Adds up numbers with units.
fn sum(text: &str, units: Units) -> Option<Duration> {
    let (mut rest, mut seconds) = (text.trim(), 0.0);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let digits = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let (number, more) = rest.split_at(digits);
        let more = more.trim_start();
        let letters = more.find(|c: char| is_number(c) || c == ' ').unwrap_or(more.len());
        let (unit, more) = more.split_at(letters);
        let (_, one) = units.iter().find(|(name, _)| *name == unit)?;
        seconds += number.parse::<f64>().ok()? * one;
        rest = more.trim_start();
    }
    // Rounded to microseconds, because a sum of fractions such as 0.1 is not exact.
    let span = Duration::try_from_secs_f64(seconds).ok()?;
    let micros = (span.subsec_nanos() + 500) / 1_000;
    Duration::from_secs(span.as_secs()).checked_add(Duration::from_micros(micros.into()))
}

fn not_one(text: &str) -> String {
    format!("{text} is no duration: write one such as 45s or 1m30s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_platform_has_its_own_way() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(go("1m30s").ok(), seconds(90));
        assert_eq!(go("1.5m").ok(), seconds(90));
        assert!(go("90").unwrap_err().contains("90s"));
        assert!(go("60 s").is_err() && compose("60 s").is_err() && go("1d").is_err());
        assert_eq!(compose("1d").ok(), seconds(86_400));
        for (text, span) in [
            ("90", seconds(90)),
            ("1min 30s", seconds(90)),
            ("1min30s", seconds(90)),
            ("1.5min", seconds(90)),
            ("5min 20sec", seconds(320)),
            ("1500ms", Some(Duration::from_millis(1_500))),
            ("infinity", None),
            ("0", None),
        ] {
            assert_eq!(systemd(text), Ok(span), "{text}");
        }
        for text in ["", "soon", "-3", "1e400", "9999999999999999999999s", "1..2s"] {
            assert!(systemd(text).is_err() && go(text).is_err(), "{text}");
        }
        assert_eq!(
            (sleep("1m"), sleep("2.5"), sleep("1min")),
            (seconds(60), Some(Duration::from_millis(2_500)), None)
        );
    }
}
