//! The deadline of a drain, which callers may shorten.

mod alarm;

use std::sync::OnceLock;
use std::time::Duration;

use adieu_core::Deadline;
use alarm::Alarm;
use tokio::sync::watch;
use tokio::time::Instant;

/// The deadline of a drain, and of the grace after it. Both are only ever shortened.
#[derive(Debug)]
pub(crate) struct Countdown {
    limits: watch::Sender<Limits>,
    alarm: OnceLock<Option<Alarm>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limits {
    deadline: Option<Deadline>,
    /// When the grace after the deadline ends, even if it is shorter then than it should be.
    end: Option<Deadline>,
}

// === impl Countdown ===

impl Countdown {
    pub(crate) fn new() -> Self {
        Self { limits: watch::Sender::new(Limits::default()), alarm: OnceLock::new() }
    }

    pub(crate) fn until(deadline: Deadline) -> Self {
        let countdown = Self::new();
        countdown.shorten(deadline);
        countdown
    }

    pub(crate) fn shorten(&self, to: Deadline) {
        self.limits.send_if_modified(|limits| shorten(&mut limits.deadline, to));
    }

    /// Ends the grace after the deadline at this instant at the latest: from then on there is no time
    /// left to report.
    pub(crate) fn shorten_grace(&self, end: Deadline) {
        self.limits.send_if_modified(|limits| shorten(&mut limits.end, end));
    }

    /// Returns the remaining time, or `None` if there is no deadline.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.limits.borrow().deadline.map(Deadline::remaining)
    }

    /// Returns when three quarters of the grace have passed, if it was shortened.
    pub(crate) fn most_of_grace(&self) -> Option<Deadline> {
        let Limits { deadline, end } = *self.limits.borrow();
        let (deadline, end) = (deadline?.instant(), end?.instant());
        let most = deadline + end.saturating_duration_since(deadline) * 3 / 4;
        Some(Deadline::at(most.into_std()))
    }

    /// Waits until the deadline. Never resolves if there is none.
    pub(crate) async fn passed(&self) {
        self.reached(|Limits { deadline, .. }| Some(deadline?.instant())).await;
    }

    /// Waits until this many quarters of the grace have elapsed since the deadline. Never resolves if
    /// there is no deadline.
    pub(crate) async fn grace_passed(&self, grace: Duration, quarters: u32) {
        self.reached(|Limits { deadline, end }| {
            let deadline = deadline?.instant();
            let longest = end.map(|end| end.instant().saturating_duration_since(deadline));
            let grace = longest.map_or(grace, |longest| longest.min(grace));
            deadline.checked_add(grace * quarters / 4)
        })
        .await;
    }

    /// Waits until three quarters of the time from `began` to the deadline have passed. Never
    /// resolves if there is no deadline.
    ///
    /// Until then a drain waits for accepted work. The last quarter is kept for stopping.
    pub(crate) async fn three_quarters_passed(&self, began: Instant) {
        self.reached(|Limits { deadline, .. }| {
            Some(began + deadline?.instant().saturating_duration_since(began) * 3 / 4)
        })
        .await;
    }

    /// Waits until the instant that `instant` computes from the limits. If they are shortened
    /// meanwhile, the instant is computed again.
    async fn reached(&self, instant: impl Fn(Limits) -> Option<Instant>) {
        let mut limits = self.limits.subscribe();
        loop {
            let seen = *limits.borrow_and_update();
            let reached = async {
                match instant(seen) {
                    Some(at) => self.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // It cannot fail: `self` holds the sender.
            let shortened = async { drop(limits.wait_for(|now| *now != seen).await) };
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

/// Replaces a deadline by a nearer one. Returns whether it is nearer.
fn shorten(deadline: &mut Option<Deadline>, to: Deadline) -> bool {
    let is_nearer = deadline.is_none_or(|now| to < now);
    if is_nearer {
        *deadline = Some(to);
    }
    is_nearer
}
