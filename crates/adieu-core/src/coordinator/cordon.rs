//! Makes the process refuse work for a while, without a shutdown.

use std::sync::Arc;

use super::Shutdown;
use super::drains::Drains;
use super::shared::Shared;
use crate::gate::Gate;
use crate::status::Stage;

// === impl Shutdown ===

impl Shutdown {
    /// Refuses work from now on: the process is not ready, and the gates that this shutdown drains refuse
    /// work. Does nothing once the shutdown has begun.
    ///
    /// Routers that have not read the readiness since then see refusals; see
    /// [`Shutdown::cordon_gradually`].
    pub fn cordon(&self) {
        self.shared().set_cordon(true);
    }

    /// Returns whether the process is cordoned. [`Shutdown::readiness`] shows that only if nothing else
    /// makes the process unready.
    #[must_use]
    pub fn is_cordoned(&self) -> bool {
        self.shared().progress.is_cordoned()
    }

    /// Refuses work after a lame duck: the process is not ready from this call on, and the gates refuse
    /// work when routers have had time to move away. See `lame-duck` in [`config`](crate::config).
    ///
    /// The future returns true when the gates refuse work. It returns false if the cordon was removed or
    /// the shutdown began before that. If the future is dropped, the process stays not ready and admits
    /// work.
    #[must_use = "gates continue to admit work unless this is awaited"]
    pub fn cordon_gradually(&self) -> impl Future<Output = bool> + Send + 'static {
        let shared = Arc::clone(self.shared());
        let change = shared.announce_cordon();
        async move {
            if let Some(change) = change {
                shared.routers_move_away().await;
                shared.complete_cordon(change);
            }
            shared.drains.lock().refuses
        }
    }

    /// Removes the cordon. Returns false once the shutdown has begun, which is final.
    #[must_use = "a shutdown that has begun stays begun"]
    pub fn uncordon(&self) -> bool {
        self.shared().set_cordon(false);
        self.stage() == Stage::Up
    }

    /// Returns whether a gate that this shutdown drains admits work.
    #[must_use]
    pub fn is_admitting(&self) -> bool {
        self.shared().drains.lock().is_admitting()
    }

    /// Returns the gates that this shutdown closes and a cordon affects: those of requests, then those of
    /// loops. Each has its name and the number of passes inside.
    #[must_use]
    pub fn gates(&self) -> Vec<Gate> {
        self.shared().drains.lock().gates().cloned().collect()
    }
}

// === impl Shared ===

impl Shared {
    /// Makes the process not ready. Returns the number of this change of the cordon, or `None` if the
    /// gates refuse work already.
    fn announce_cordon(&self) -> Option<u64> {
        let mut drains = self.drains.lock();
        drains.cordon_changes += 1;
        self.progress.change_facts(|facts| facts.cordoned = true);
        (!drains.refuses).then_some(drains.cordon_changes)
    }

    /// Makes the gates refuse work, unless the cordon has been changed since.
    fn complete_cordon(&self, change: u64) {
        let mut drains = self.drains.lock();
        if drains.cordon_changes == change {
            self.set_refuses(&mut drains, true);
        }
    }

    fn set_cordon(&self, cordoned: bool) {
        // Under the lock from start to end, so that readiness and the gates agree after concurrent calls.
        let mut drains = self.drains.lock();
        drains.cordon_changes += 1;
        // A router must not see "ready" and then be refused. So readiness is the first to change when
        // gates close, and the last when they open.
        if cordoned {
            self.progress.change_facts(|facts| facts.cordoned = true);
        }
        self.set_refuses(&mut drains, cordoned);
        if !cordoned {
            self.progress.change_facts(|facts| facts.cordoned = false);
        }
    }

    fn set_refuses(&self, drains: &mut Drains, refuses: bool) {
        if self.progress.stage() == Stage::Up {
            drains.set_refuses(refuses);
        }
    }
}
