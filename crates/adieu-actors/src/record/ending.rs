//! How an actor ends: said by itself while it does, and known to others when it is gone.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::SetOnce;

use crate::node::Ended;

/// How an actor ends.
///
/// The actor alone writes here, and says that it is gone once, at its very end. Of most it need
/// not be said more than that they stopped, so that is one byte, apart from the rest: very many are
/// looked at, one after the other.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ending {
    state: AtomicU8,
    is_over: SetOnce<()>,
    /// If there is more to say.
    words: Mutex<Option<Ended>>,
}

/// What is stored: one of the first two, and whether it is over.
mod stored {
    /// See the words. If there are none when it is over, it was killed.
    pub(super) const WORDS: u8 = 0;
    /// It stopped, and there is no more to say.
    pub(super) const STOPPED: u8 = 1;
    pub(super) const OVER: u8 = 2;
}

// === impl Ending ===

impl Ending {
    pub(crate) fn new() -> Self {
        let (state, words) = (AtomicU8::new(stored::WORDS), Mutex::default());
        Self { state, words, is_over: SetOnce::new() }
    }

    /// Says how it will have ended, when it is over. The last word counts.
    pub(crate) fn say(&self, ended: Ended) {
        if ended == Ended::Stopped {
            self.state.store(stored::STOPPED, Ordering::Relaxed);
        } else {
            *self.words.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
            self.state.store(stored::WORDS, Ordering::Relaxed);
        }
    }

    /// It is gone.
    pub(crate) fn over(&self) {
        let said = self.state.load(Ordering::Relaxed);
        // Release: who sees this sees all that the actor did.
        self.state.store(said | stored::OVER, Ordering::Release);
        let _ = self.is_over.set(());
    }

    /// How it ended, if it is over.
    pub(crate) fn get(&self) -> Option<Ended> {
        match self.state.load(Ordering::Acquire) {
            state if state < stored::OVER => None,
            state if state == stored::OVER | stored::STOPPED => Some(Ended::Stopped),
            _ => {
                let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
                Some(words.clone().unwrap_or(Ended::Killed))
            }
        }
    }

    /// Waits until it is over.
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
    fn the_last_word_counts_and_is_heard_when_it_is_over() {
        let failed = || Ended::Failed { error: "no".into() };
        for (said, heard) in [
            (vec![], Ended::Killed),
            (vec![Ended::Stopped], Ended::Stopped),
            (vec![failed()], failed()),
            (vec![Ended::Stopped, failed()], failed()),
            (vec![failed(), Ended::Stopped], Ended::Stopped),
        ] {
            let ending = Ending::new();
            let waiting = ending.wait().shared();
            assert!(waiting.clone().now_or_never().is_none());
            said.into_iter().for_each(|ended| ending.say(ended));
            assert_eq!(ending.get(), None, "it is still there");
            ending.over();
            assert_eq!(ending.get().as_ref(), Some(&heard));
            assert_eq!(waiting.now_or_never(), Some(heard.clone()));
            assert_eq!(ending.wait().now_or_never(), Some(heard));
        }
    }
}
