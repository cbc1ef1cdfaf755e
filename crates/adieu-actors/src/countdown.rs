//! The deadline of a drain, which callers may shorten.

mod alarm;

use std::sync::OnceLock;
use std::time::Duration;

use adieu_core::Deadline;
use alarm::Alarm;
use tokio::sync::watch;
use tokio::time::Instant;

/// The deadline of a drain. It is only ever shortened.
#[derive(Debug)]
pub(crate) struct Countdown {
    deadline: watch::Sender<Option<Deadline>>,
    alarm: OnceLock<Option<Alarm>>,
}

// === impl Countdown ===

impl Countdown {
    pub(crate) fn new() -> Self {
        Self { deadline: watch::Sender::new(None), alarm: OnceLock::new() }
    }

    pub(crate) fn until(deadline: Deadline) -> Self {
        Self { deadline: watch::Sender::new(Some(deadline)), alarm: OnceLock::new() }
    }

    pub(crate) fn shorten(&self, to: Deadline) {
        self.deadline.send_if_modified(|deadline| {
            let is_nearer = deadline.is_none_or(|now| to < now);
            if is_nearer {
                *deadline = Some(to);
            }
            is_nearer
        });
    }

    /// Returns the remaining time, or `None` if there is no deadline.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.deadline.borrow().map(Deadline::remaining)
    }

    /// Waits until `after` has elapsed since the deadline. Never resolves if there is no deadline.
    pub(crate) async fn passed(&self, after: Duration) {
        self.reached(|deadline| deadline.checked_add(after)).await;
    }

    /// Waits until three quarters of the time from `began` to the deadline have passed. Never
    /// resolves if there is no deadline.
    ///
    /// Until then a drain waits for accepted work. The last quarter is kept for stopping.
    pub(crate) async fn three_quarters_passed(&self, began: Instant) {
        self.reached(|deadline| Some(began + deadline.saturating_duration_since(began) * 3 / 4))
            .await;
    }

    /// Waits until the instant that `instant` computes from the deadline. If the deadline is
    /// shortened meanwhile, the instant is computed again.
    async fn reached(&self, instant: impl Fn(Instant) -> Option<Instant>) {
        let mut deadlines = self.deadline.subscribe();
        loop {
            let seen = *deadlines.borrow_and_update();
            let reached = async {
                match seen.and_then(|at| instant(at.instant())) {
                    Some(at) => self.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // It cannot fail: `self` holds the sender.
            let shortened = async { drop(deadlines.wait_for(|now| *now != seen).await) };
            tokio::select! {
                biased;
                () = reached => return,
                () = shortened => {}
            }
        }
    }

    async fn sleep_until(&self, at: Instant) {
        match self.alarm.get_or_init(Alarm::new) {
            Some(alarm) => tokio::select! {
                () = tokio::time::sleep_until(at) => {}
                () = alarm.sleep_until(at) => {}
            },
            None => tokio::time::sleep_until(at).await,
        }
    }
}
