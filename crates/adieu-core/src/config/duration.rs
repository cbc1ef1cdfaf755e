//! Parses durations in the common notation and in HOCON's.

use std::time::Duration;

use humantime::DurationError as Error;

/// Parses `5s`, `20 s`, `250 millis`, `1m 30s`, `1.5s`.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if ["infinite", "inf", "infinity", "undefined"].contains(&text.to_lowercase().as_str()) {
        return Err(format!("{text} is longer than the maximum (one year): write one such as 30s"));
    }
    if text.starts_with('-') {
        return Err(format!("{text} is negative: write a duration such as 5s"));
    }
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    if is_number {
        return Err(format!("{text} has no unit: write {text}s or {text}ms"));
    }
    humantime::parse_duration(&with_short_units(text)).map_err(|error| match error {
        Error::UnknownUnit { unit, .. } if !unit.is_empty() => format!(
            "{text:?} has the unknown unit {unit}: write ns, us, ms, s, m, h or d, as in 250ms"
        ),
        Error::NumberOverflow => format!("{text:?} is longer than the maximum (one year)"),
        Error::UnknownUnit { .. }
        | Error::InvalidCharacter(_)
        | Error::NumberExpected(_)
        | Error::Empty => {
            format!("{text:?} is not a duration: write one such as 5s, 250ms or 1m 30s")
        }
    })
}

/// Replaces the units of HOCON that humantime does not support.
fn with_short_units(text: &str) -> String {
    let units = [
        ("nanoseconds", "ns"),
        ("nanosecond", "ns"),
        ("nano", "ns"),
        ("microseconds", "us"),
        ("microsecond", "us"),
        ("micros", "us"),
        ("micro", "us"),
        ("milliseconds", "ms"),
        ("millisecond", "ms"),
        ("milli", "ms"),
    ];
    let unit_from = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_from);
    match units.iter().find(|(long, _)| *long == unit.trim_end()) {
        Some((_, short)) => format!("{number}{short}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use std::time::Duration;

    #[test]
    fn all_units_of_hocon_and_humantime_are_parsed() {
        let ms = Duration::from_millis;
        for (text, duration) in [
            ("5s", ms(5_000)),
            ("20 s", ms(20_000)),
            ("10 seconds", ms(10_000)),
            ("250 millis", ms(250)),
            ("1 millisecond", ms(1)),
            ("3 milliseconds", ms(3)),
            ("7 milli", ms(7)),
            ("2000 micros", ms(2)),
            ("1500us", Duration::from_micros(1_500)),
            ("9 nanoseconds", Duration::from_nanos(9)),
            ("1m 30s", ms(90_000)),
            ("2 minutes", ms(120_000)),
            ("1h", ms(3_600_000)),
            ("1.5s", ms(1_500)),
        ] {
            assert_eq!(parse(text), Ok(duration), "{text}");
        }
        for text in ["", "5", "-3s", "infinite", "Inf", "5 parsecs", "s", "99999999999999999999s"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
