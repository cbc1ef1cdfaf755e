//! How an actor ended: set by the actor while it ends, readable when it has ended.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use adieu_core::adapter::lock;
use tokio::sync::SetOnce;

use crate::node::Ended;

/// How an actor ended.
///
/// Only the actor writes here, and announces its end once, as its last act. Most actors stop
/// without an error. For them one byte is enough. It is separate from the other fields, because a
/// drain reads it for very many actors in sequence.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ending {
    state: AtomicU8,
    is_over: SetOnce<()>,
    /// Set if the actor did not simply stop.
    detail: Mutex<Option<Ended>>,
}

/// Values of `Ending::state`: one of the first two, plus `OVER` when the end was announced.
mod stored {
    /// See the detail. If there is none when the end is announced, the actor was killed.
    pub(super) const DETAIL: u8 = 0;
    /// The actor stopped, and there is no detail.
    pub(super) const STOPPED: u8 = 1;
    pub(super) const OVER: u8 = 2;
}

// === impl Ending ===

impl Ending {
    pub(crate) fn new() -> Self {
        let (state, detail) = (AtomicU8::new(stored::DETAIL), Mutex::default());
        Self { state, detail, is_over: SetOnce::new() }
    }

    /// Sets how the actor will have ended when its end is announced. The last call wins.
    pub(crate) fn set(&self, ended: Ended) {
        if ended == Ended::Stopped {
            self.state.store(stored::STOPPED, Ordering::Relaxed);
        } else {
            *lock(&self.detail) = Some(ended);
            self.state.store(stored::DETAIL, Ordering::Relaxed);
        }
    }

    /// Announces that the actor has ended.
    pub(crate) fn announce(&self) {
        let state = self.state.load(Ordering::Relaxed);
        // Release: a reader that observes the end observes everything that the actor did.
        self.state.store(state | stored::OVER, Ordering::Release);
        let _ = self.is_over.set(());
    }

    /// Returns how the actor ended, or `None` if it has not ended.
    pub(crate) fn get(&self) -> Option<Ended> {
        match self.state.load(Ordering::Acquire) {
            state if state < stored::OVER => None,
            state if state == stored::OVER | stored::STOPPED => Some(Ended::Stopped),
            _ => {
                let detail = lock(&self.detail);
                Some(detail.clone().unwrap_or(Ended::Killed))
            }
        }
    }

    /// Waits until the actor has ended.
    pub(crate) async fn wait(&self) -> Ended {
        self.is_over.wait().await;
        self.get().unwrap_or(Ended::Killed)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_last_value_wins_and_is_readable_after_the_end() {
        let failed = || Ended::Failed { error: "no".into() };
        for (values, expected) in [
            (vec![], Ended::Killed),
            (vec![Ended::Stopped], Ended::Stopped),
            (vec![failed()], failed()),
            (vec![Ended::Stopped, failed()], failed()),
            (vec![failed(), Ended::Stopped], Ended::Stopped),
        ] {
            let ending = Ending::new();
            let waiting = ending.wait().shared();
            assert!(waiting.clone().now_or_never().is_none());
            values.into_iter().for_each(|ended| ending.set(ended));
            assert_eq!(ending.get(), None, "the end was not announced");
            ending.announce();
            assert_eq!(ending.get().as_ref(), Some(&expected));
            assert_eq!(waiting.now_or_never(), Some(expected.clone()));
            assert_eq!(ending.wait().now_or_never(), Some(expected));
        }
    }
}
