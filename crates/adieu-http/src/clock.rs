//! A clock that costs requests next to nothing: a counter that the server's driver advances.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How often the clock ticks while a server has connections.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// Counts the ticks since the server has started.
#[derive(Debug)]
pub(crate) struct TickingClock {
    start: Instant,
    ticks: AtomicU32,
}

/// An instant, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick(u32);

impl TickingClock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), ticks: AtomicU32::new(0) }
    }

    #[inline]
    pub(crate) fn now(&self) -> Tick {
        Tick(self.ticks.load(Ordering::Relaxed))
    }

    /// Sets the clock to the real time. Returns when it is to be called next.
    pub(crate) fn tick(&self, now: Instant) -> Instant {
        let elapsed = now.saturating_duration_since(self.start);
        let ticks = (elapsed.as_millis() / TICK.as_millis()) as u32;
        self.ticks.store(ticks, Ordering::Relaxed);
        self.start + TICK * (ticks + 1)
    }

    /// Returns the earliest and the latest instant at which the clock has shown this tick.
    pub(crate) fn bounds(&self, tick: Tick) -> (Instant, Instant) {
        let earliest = self.start + TICK * tick.0;
        (earliest, earliest + 2 * TICK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_less_than_half_a_second_ago() {
        let clock = TickingClock::new();
        for ms in [0, 499, 500, 1_730, 86_400_000] {
            let now = clock.start + Duration::from_millis(ms);
            let next = clock.tick(now);
            let (earliest, latest) = clock.bounds(clock.now());
            assert!(earliest <= now && now < latest && now - earliest < TICK, "{ms} ms");
            assert!(now < next && next - now <= TICK, "{ms} ms");
        }
    }
}
