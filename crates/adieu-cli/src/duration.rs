//! Durations as people read and write them.

use std::time::Duration;

/// As an operator reads it: `850ms`, `6.9s`, `2m 5s`.
pub(crate) fn short(duration: Duration) -> String {
    if duration.is_zero() {
        "0s".into()
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
        // Rounded, as tenths are.
        let rounded = duration.saturating_add(Duration::from_millis(500)).as_secs();
        humantime::format_duration(Duration::from_secs(rounded)).to_string()
    }
}

/// How much longer or shorter: `+1.2s`, `-300ms`, `=`. What is less than a millisecond is noise.
pub(crate) fn difference(before: Duration, after: Duration) -> String {
    let (sign, apart) = if after >= before { ('+', after - before) } else { ('-', before - after) };
    if apart < Duration::from_millis(1) { "=".into() } else { format!("{sign}{}", short(apart)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        let cases = [
            (0, "0s"),
            (12, "12us"),
            (850_000, "850ms"),
            (6_900_000, "6.9s"),
            (59_949_000, "59.9s"),
            (59_960_000, "1m"),
            (125_000_000, "2m 5s"),
        ];
        for (micros, text) in cases {
            assert_eq!(short(Duration::from_micros(micros)), text);
        }
        let ms = Duration::from_millis;
        assert_eq!(difference(ms(500), ms(1_700)), "+1.2s");
        assert_eq!(difference(ms(500), ms(200)), "-300ms");
        assert_eq!(difference(ms(500), ms(500)), "=");
    }
}
