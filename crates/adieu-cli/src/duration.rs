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
