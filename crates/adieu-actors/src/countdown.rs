//! When a drain must be over.

mod alarm;

use std::sync::OnceLock;
use std::time::Duration;

use adieu_core::Deadline;
use alarm::Alarm;
use tokio::sync::watch;
use tokio::time::Instant;

/// When a drain must be over. Like every deadline it only ever comes nearer.
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

    /// Returns how long is left, or `None` if there is no deadline.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.deadline.borrow().map(Deadline::remaining)
    }

    /// Resolves that long after the deadline. Never if there is none.
    pub(crate) async fn passed(&self, after: Duration) {
        self.reached(|deadline| deadline.checked_add(after)).await;
    }

    /// Resolves when three quarters of the time since `began` have passed. Never if there is no
    /// deadline.
    ///
    /// Until then a drain waits for work that others cause; the last quarter is for stopping.
    pub(crate) async fn last_call(&self, began: Instant) {
        self.reached(|deadline| Some(began + deadline.saturating_duration_since(began) * 3 / 4))
            .await;
    }

    /// Resolves at the instant that this makes of the deadline, whenever that is shortened.
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
            // Its sender is ours, so it does not go away.
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
                () = alarm.rings(at) => {}
            },
            None => tokio::time::sleep_until(at).await,
        }
    }
}
