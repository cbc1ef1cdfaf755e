//! Durations as people read and write them.

use std::time::Duration;

/// Returns the duration as logs and reports write it: `850ms`, `6.9s`, `2m 5s`.
pub(crate) fn short(duration: Duration) -> String {
    adieu_core::Short(duration).to_string()
}

/// Returns the difference: `+1.2s`, `-300ms`, `=`. Differences below a millisecond are noise.
pub(crate) fn difference(before: Duration, after: Duration) -> String {
    let (sign, apart) = if after >= before { ('+', after - before) } else { ('-', before - after) };
    if apart < Duration::from_millis(1) { "=".into() } else { format!("{sign}{}", short(apart)) }
}

/// Returns a duration as text, to the millisecond.
pub(crate) fn span(span: Duration) -> String {
    time(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// Returns a duration in milliseconds as text.
pub(crate) fn time(millis: u64) -> String {
    match millis {
        millis if millis % 1_000 == 0 => format!("{}s", millis / 1_000),
        millis if millis > 1_000 => {
            let exact = format!("{}.{:03}", millis / 1_000, millis % 1_000);
            format!("{}s", exact.trim_end_matches('0'))
        }
        millis => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_below_a_millisecond_do_not_count() {
        let ms = Duration::from_millis;
        assert_eq!(difference(ms(500), ms(1_700)), "+1.2s");
        assert_eq!(difference(ms(500), ms(200)), "-300ms");
        assert_eq!(difference(ms(500), ms(500)), "=");
        assert_eq!(difference(ms(500), Duration::from_micros(500_900)), "=");
    }
}
