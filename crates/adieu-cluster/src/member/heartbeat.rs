//! Decides when to keep a session, and until when it is good. Pure: the time and the answers are
//! arguments.
//!
//! # Invariants
//!
//! 1. A session is good from when its last successful request was *sent*: the store cannot have
//!    counted from an earlier instant, so the session lasts at least as long there as here.
//! 2. Once bad, a session stays bad, whatever answer arrives later.

use std::time::{Duration, Instant};

/// The known state of this node's session.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    ttl: Duration,
    /// How much earlier than at the end of `ttl` the session is bad here, because clocks run at
    /// different speeds.
    margin: Duration,
    /// When the last successful request was sent.
    proven: Instant,
    next: Instant,
    is_lost: bool,
}

/// How a request to keep the session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Kept,
    Ended,
    /// It failed, or no answer arrived in time.
    None,
}

/// The next step for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait(Instant),
    /// Keep the session, and give up waiting for the answer after this.
    Keep(Duration),
    Lost,
}

// === impl Heartbeat ===

impl Heartbeat {
    /// A session whose opening was requested at `sent`.
    pub(crate) fn new(ttl: Duration, margin: Duration, sent: Instant) -> Self {
        Self { ttl, margin, proven: sent, next: sent + ttl / 3, is_lost: false }
    }

    /// When the last successful request was sent.
    pub(crate) fn proven(&self) -> Instant {
        self.proven
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.proven + self.ttl.saturating_sub(self.margin)
    }

    /// Returns whether the session is good, by this node's clock.
    pub(crate) fn is_good(&self, now: Instant) -> bool {
        !self.is_lost && now < self.valid_until()
    }

    /// Marks the session as lost, for good.
    pub(crate) fn lose(&mut self) {
        self.is_lost = true;
    }

    pub(crate) fn next(&mut self, now: Instant) -> Next {
        self.is_lost |= !self.is_good(now);
        match () {
            () if self.is_lost => Next::Lost,
            () if now < self.next => Next::Wait(self.next.min(self.valid_until())),
            () => {
                let left = self.valid_until().saturating_duration_since(now);
                Next::Keep(left.min(self.ttl / 3))
            }
        }
    }

    /// Records the result of a request that was sent at `sent`.
    pub(crate) fn answered(&mut self, now: Instant, sent: Instant, answer: Answer) {
        self.is_lost |= !self.is_good(now);
        match answer {
            Answer::Kept if !self.is_lost => {
                self.proven = self.proven.max(sent);
                self.next = sent + self.ttl / 3;
            }
            Answer::Kept => {}
            Answer::Ended => self.is_lost = true,
            Answer::None => {
                // Short enough to leave time for one more attempt.
                let left = self.valid_until().saturating_duration_since(now);
                self.next = now + (self.ttl / 20).min((left / 2).max(self.ttl / 100));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const MARGIN: Duration = Duration::from_secs(2);

    fn at(millis: u64) -> Instant {
        static ORIGIN: std::sync::LazyLock<Instant> =
            std::sync::LazyLock::new(|| tokio::time::Instant::now().into_std());
        *ORIGIN + Duration::from_millis(millis)
    }

    #[test]
    fn s601_a_session_counts_from_when_the_request_was_sent() {
        let mut beat = Heartbeat::new(TTL, MARGIN, at(0));
        assert!(beat.is_good(at(7_999)));
        assert!(!beat.is_good(at(8_000)));
        beat.answered(at(7_000), at(4_000), Answer::Kept);
        assert!(beat.is_good(at(11_999)));
        assert!(!beat.is_good(at(12_000)));
    }

    #[test]
    fn s601_a_late_answer_does_not_make_a_session_good_again() {
        let mut beat = Heartbeat::new(TTL, MARGIN, at(0));
        beat.answered(at(8_000), at(7_900), Answer::Kept);
        assert!(!beat.is_good(at(8_000)));
        assert_eq!(beat.next(at(8_001)), Next::Lost);
    }

    #[test]
    fn a_session_that_has_ended_is_bad_at_once() {
        let mut beat = Heartbeat::new(TTL, MARGIN, at(0));
        beat.answered(at(4_000), at(3_900), Answer::Ended);
        assert!(!beat.is_good(at(4_000)));
    }

    proptest! {
        /// For all answers at all times: a session that is good was proven less than
        /// `ttl - margin` ago, and no session recovers.
        #[test]
        fn good_means_proven_recently_and_bad_is_final(
            steps in proptest::collection::vec((0_u64..4_000, 0_u64..4_000, 0_u8..3), 1..60),
        ) {
            let mut beat = Heartbeat::new(TTL, MARGIN, at(0));
            let (mut now, mut last_sent, mut was_bad) = (0, 0, false);
            for (wait, took, answer) in steps {
                now += wait;
                let sent = now;
                let next = beat.next(at(now));
                if let Next::Keep(patience) = next {
                    prop_assert!(at(now) + patience <= beat.valid_until());
                    now += took;
                    let answer = [Answer::Kept, Answer::Ended, Answer::None][usize::from(answer)];
                    beat.answered(at(now), at(sent), answer);
                    if answer == Answer::Kept {
                        last_sent = sent;
                    }
                }
                if let Next::Wait(until) = next {
                    prop_assert!(until > at(sent) && until <= beat.valid_until());
                }
                let good = beat.is_good(at(now));
                prop_assert!(!(good && was_bad), "a bad session recovered");
                prop_assert!(!good || now < last_sent + 8_000);
                was_bad |= !good;
            }
        }
    }
}
