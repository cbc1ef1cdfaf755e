//! Repeats an idempotent ask at its sender, and records whether an earlier attempt may have run.
//!
//! The route repeats messages that were sent through it. A message that went straight into a
//! mailbox of this node is unknown to the route, so the sender repeats it, and its next attempt may
//! go through the route.

use super::pause;
use crate::time::{Duration, Instant};

/// The attempts of one ask. `U` is why it is not known whether an attempt ran.
#[derive(Clone, Debug)]
pub(crate) struct Repeats<U> {
    /// Why an earlier attempt may have run.
    attempted: Option<U>,
    count: u32,
}

/// How one attempt ended without a reply.
pub(crate) enum Failed<N, U> {
    NotRun(N),
    Unknown(U),
}

/// The decision after an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<N, U> {
    /// Another one, after this pause.
    Repeat(Duration),
    /// The ask ends as not run: no attempt has run.
    NotRun(N),
    /// The ask ends as unknown: this attempt or an earlier one may have run.
    Unknown(U),
}

// === impl Repeats ===

impl<U> Default for Repeats<U> {
    fn default() -> Self {
        Self { attempted: None, count: 0 }
    }
}

impl<U> Repeats<U> {
    /// Decides what follows an attempt that has failed.
    pub(crate) fn after<N>(
        &mut self,
        failed: Failed<N, U>,
        may_repeat: bool,
        now: Instant,
        deadline: Instant,
    ) -> Next<N, U> {
        let why = match (failed, self.attempted.take()) {
            (Failed::Unknown(why), _) | (Failed::NotRun(_), Some(why)) => why,
            (Failed::NotRun(why), None) => return Next::NotRun(why),
        };
        let pause = pause::after(self.count);
        if !may_repeat || now + pause >= deadline {
            return Next::Unknown(why);
        }
        self.count += 1;
        self.attempted = Some(why);
        Next::Repeat(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::now;

    const PAUSE: Duration = pause::FIRST;
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_attempt_that_may_have_run_is_remembered_until_the_end() {
        let (now, mut repeats) = (now(), Repeats::default());
        let mut after = |failed, may_repeat| repeats.after(failed, may_repeat, now, now + SECOND);
        assert_eq!(after(Failed::Unknown("killed"), true), Next::Repeat(PAUSE));
        assert_eq!(after(Failed::NotRun("busy"), true), Next::Repeat(PAUSE * 2));
        assert_eq!(after(Failed::NotRun("moving"), false), Next::Unknown("killed"));
    }

    #[test]
    fn an_ask_of_which_no_attempt_may_have_run_did_not_run() {
        let (now, mut repeats) = (now(), Repeats::<()>::default());
        let next = repeats.after(Failed::NotRun("busy"), true, now, now + SECOND);
        assert_eq!(next, Next::NotRun("busy"));
    }

    #[test]
    fn pauses_double_and_do_not_exceed_the_deadline() {
        let (now, mut repeats) = (now(), Repeats::default());
        let mut pauses = Vec::new();
        while let Next::Repeat(pause) =
            repeats.after::<()>(Failed::Unknown(()), true, now, now + Duration::from_millis(50))
        {
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [10, 20, 40]);
    }

    #[test]
    fn s1113_pauses_between_repeats_are_at_most_a_second() {
        let (now, mut repeats) = (now(), Repeats::default());
        let mut after =
            || repeats.after::<()>(Failed::Unknown(()), true, now, now + Duration::from_secs(60));
        let pauses = [10, 20, 40, 80, 160, 320, 640].map(Duration::from_millis);
        for pause in pauses.into_iter().chain([SECOND; 40]) {
            assert_eq!(after(), Next::Repeat(pause));
        }
    }
}
