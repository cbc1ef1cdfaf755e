//! The signal ladder: the meaning of repeated signals.
//!
//! ```text
//! SIGINT   graceful ------------------> hard stop -> exit
//! others   graceful -> end waiting ---> hard stop -> exit
//! ```
//!
//! A second SIGINT comes from a person without patience. A second SIGTERM may come from a kubelet
//! that was restarted and sends it again, so it only ends waits in which no work is done.

use crate::rung::Rung;
use crate::signals::Signal;
use crate::time::Instant;

/// The position on the ladder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ladder {
    rung: Option<Rung>,
    last: Option<(Signal, Instant)>,
}

// === impl Ladder ===

impl Ladder {
    /// Returns the rung that this signal leads to, or `None` if it is an echo of the last signal.
    pub(crate) fn climb(&mut self, now: Instant, signal: Signal) -> Option<Rung> {
        let echo = self.last.is_some_and(|(last, at)| {
            last == signal && now.saturating_duration_since(at) < Signal::ECHO
        });
        self.last = Some((signal, now));
        if echo {
            return None;
        }
        let next = match self.rung {
            None => Rung::Graceful,
            Some(rung) => rung.next(signal),
        };
        self.rung = Some(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn climb(signals: &[Signal]) -> Vec<Option<Rung>> {
        let mut ladder = Ladder::default();
        let start = crate::time::real_now();
        let at = |step: usize| start + 2 * Signal::ECHO * u32::try_from(step).unwrap();
        signals.iter().enumerate().map(|(step, signal)| ladder.climb(at(step), *signal)).collect()
    }

    #[test]
    fn sigint_climbs_faster_than_sigterm() {
        use Rung::{EndWaiting, Exit, Graceful, HardStop};
        let (int, term) = (Signal::INT, Signal::TERM);
        let cases = [
            (vec![int, int, int, int], vec![Graceful, HardStop, Exit, Exit]),
            (vec![term, term, term, term], vec![Graceful, EndWaiting, HardStop, Exit]),
            (vec![term, int, int], vec![Graceful, HardStop, Exit]),
            (vec![int, term, int], vec![Graceful, EndWaiting, HardStop]),
        ];
        for (signals, rungs) in cases {
            assert_eq!(climb(&signals), rungs.into_iter().map(Some).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_echo_is_not_a_second_signal() {
        let mut ladder = Ladder::default();
        let start = crate::time::real_now();
        assert_eq!(ladder.climb(start, Signal::INT), Some(Rung::Graceful));
        assert_eq!(ladder.climb(start + Signal::ECHO / 2, Signal::INT), None);
        assert_eq!(ladder.climb(start + Signal::ECHO / 2, Signal::TERM), Some(Rung::EndWaiting));
        let term = start + Signal::ECHO / 2;
        assert_eq!(ladder.climb(term + Signal::ECHO, Signal::TERM), Some(Rung::HardStop));
    }
}
