//! The time axis: its length, its ticks at round times, and whether it shows the deadline.

use std::time::Duration;

use crate::duration::short;

/// The longest axis: years. No shutdown takes that long, but a file can contain such a value.
const LONGEST: Duration = Duration::from_secs(100_000_000);

/// A time axis that begins at zero.
pub(super) struct Axis {
    end: Duration,
    step: Duration,
    /// The deadline, if it is near enough to be shown.
    pub(super) deadline: Option<Duration>,
}

impl Axis {
    /// Returns an axis that ends at this time, with about this many ticks.
    pub(super) fn new(last: Duration, allowed: Duration, ticks: u32) -> Self {
        let last = last.clamp(Duration::from_millis(1), LONGEST);
        // A deadline that is far away would leave little room for the bars.
        let near = last.saturating_mul(5).checked_div(2).unwrap_or(last);
        let deadline = (allowed <= near).then_some(allowed);
        let end = last.max(deadline.unwrap_or_default());
        // Some room after the last tick, so that its line is not the frame.
        let end = end.saturating_add(end / 50);
        Self { end, step: round_step(end / ticks.max(1)), deadline }
    }

    /// Returns the position of a time on the axis, from 0 to 1.
    pub(super) fn at(&self, time: Duration) -> f64 {
        (time.as_secs_f64() / self.end.as_secs_f64()).min(1.0)
    }

    /// Returns the ticks: position and label.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let tick = |number| self.step.checked_mul(number).filter(|time| *time <= self.end);
        (0..).map_while(tick).map(|time| (self.at(time), short(time))).collect()
    }
}

/// Returns the next 1, 2 or 5 times a power of ten; from a minute on, the divisions of a clock.
fn round_step(least: Duration) -> Duration {
    const MINUTE: u64 = 60_000_000;
    let least = u64::try_from(least.as_micros()).unwrap_or(u64::MAX).max(1);
    let decimal = (0..8).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let clock = [1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1_440].map(|minutes| minutes * MINUTE);
    let steps = decimal.take_while(|step| *step < MINUTE / 2).chain([MINUTE / 2]).chain(clock);
    let step = steps.into_iter().find(|step| *step >= least);
    // Days, in steps that double.
    let days = || least.div_ceil(1_440 * MINUTE).saturating_mul(1_440 * MINUTE);
    Duration::from_micros(step.unwrap_or_else(days))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let ticks = |millis, allowed| {
            let ms = Duration::from_millis;
            let axis = Axis::new(ms(millis), ms(allowed), 6);
            let names: Vec<_> = axis.ticks().into_iter().map(|(_, name)| name).collect();
            (names.join(" "), axis.deadline.is_some())
        };
        assert_eq!(ticks(6_900, 75_000), ("0s 2s 4s 6s".into(), false));
        assert_eq!(ticks(18_000, 27_000), ("0s 5s 10s 15s 20s 25s".into(), true));
        assert_eq!(ticks(0, 75_000), ("0s 200us 400us 600us 800us 1ms".into(), false));
        assert_eq!(ticks(290_000, 300_000), ("0s 1m 2m 3m 4m 5m".into(), true));
        for exponent in 0..19 {
            let axis = Axis::new(Duration::from_millis(10_u64.pow(exponent)), Duration::ZERO, 6);
            assert!((2..=8).contains(&axis.ticks().len()), "{exponent}: {:?}", axis.ticks());
        }
    }
}
