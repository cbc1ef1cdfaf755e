//! How long a call pauses before a retry.

use std::time::Duration;

use crate::classify::Class;

/// The upper bounds of the first pause, of the first pause after the backend requested fewer calls,
/// and of all pauses.
const FIRST: Duration = Duration::from_millis(50);
const FIRST_THROTTLED: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);

/// If the backend names a longer pause, the call is not repeated, and the caller gets the error.
const LONGEST_NAMED: Duration = Duration::from_secs(60);

/// Returns the pause before retry number `retry` (from one). `random` is from zero to one.
///
/// If the backend has named a pause, this is it, or `None` if it is too long. Otherwise the pause is
/// between zero and a bound that doubles with each retry (full jitter).
pub(crate) fn before(retry: u32, class: &Class, random: f64) -> Option<Duration> {
    if let Some(pause) = class.pause() {
        return (pause <= LONGEST_NAMED).then_some(pause);
    }
    let first = if class.is_throttled() { FIRST_THROTTLED } else { FIRST };
    let span = first.saturating_mul(1 << retry.saturating_sub(1).min(16)).min(LONGEST);
    Some(span.mul_f64(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn s735_pauses_are_random_up_to_a_span_that_doubles() {
        let before = |retry, class: &Class, random| before(retry, class, random).unwrap();
        let spans = |class: Class| [1, 2, 3, 8, 40].map(|retry| before(retry, &class, 1.0));
        assert_eq!(spans(Class::sick()), [50, 100, 200, 5_000, 5_000].map(ms));
        assert_eq!(spans(Class::throttled()), [1_000, 2_000, 4_000, 5_000, 5_000].map(ms));
        assert_eq!(before(2, &Class::sick(), 0.25), ms(25));
        assert_eq!(before(2, &Class::sick(), 0.0), Duration::ZERO);
    }

    #[test]
    fn s735_the_pause_that_the_backend_names_wins() {
        for (class, pause) in [(Class::sick(), 7), (Class::throttled(), 60_000)] {
            assert_eq!(before(3, &class.retry_after(ms(pause)), 0.5), Some(ms(pause)));
        }
        assert_eq!(before(1, &Class::sick().retry_after(ms(60_001)), 0.5), None);
    }
}
