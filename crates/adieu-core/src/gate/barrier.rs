//! A memory barrier that is cheap for the frequent side and expensive for the rare side.
//!
//! `enter` stores a count and then loads the state; `close` stores the state and then loads the
//! counts. Without a full barrier between the two steps on both sides, both threads could miss each
//! other's store. A full barrier costs more than the rest of `enter`. So in *asymmetric* mode the
//! closing thread makes every thread of the process execute one (`membarrier`), and `enter` only keeps
//! the compiler from reordering. In *fenced* mode, both sides execute a fence.
//!
//! A sandbox can take `membarrier` away after gates were opened in asymmetric mode. The threads that
//! are inside `enter` at that moment cannot be made to execute a barrier. [`heavy`] then fails, and the
//! gate never counts as drained.

use crate::sync::{Ordering, fence};

/// How the two sides of a gate are ordered. Fixed for as long as a gate is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// `light` on one side, `heavy` on the other.
    Asymmetric,
    /// A fence on both sides.
    Fenced,
}

/// The system refused to execute a barrier in every thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// Orders the steps of the frequent side, if the rare side calls [`heavy`] in asymmetric mode.
#[inline(always)]
pub(super) fn light() {
    #[cfg(all(test, adieu_loom))]
    model::interruption_point();
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Orders the steps of the rare side. In asymmetric mode, every other thread has executed a full
/// barrier when this returns.
///
/// # Errors
///
/// If the system refuses. The steps of the two sides are then not ordered.
pub(super) fn heavy(mode: Mode) -> Result<(), Refused> {
    fence(Ordering::SeqCst);
    match mode {
        Mode::Asymmetric => system::barrier_in_every_thread(),
        Mode::Fenced => Ok(()),
    }
}

/// Returns whether [`heavy`] has failed in this process.
pub(super) fn was_refused() -> bool {
    system::was_refused()
}

/// Returns the mode for a gate that is opened now.
pub(super) fn mode() -> Mode {
    if system::has_barrier() { Mode::Asymmetric } else { Mode::Fenced }
}

#[cfg(all(target_os = "linux", not(adieu_loom), not(miri)))]
mod system {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
    use tracing::{Level, error};

    use super::Refused;
    use crate::log_thread::log_aside;

    /// Whether the barrier worked when the first gate was opened.
    static WORKS: OnceLock<bool> = OnceLock::new();
    /// Whether the barrier has been refused since. Filters can be added but not removed, so gates
    /// that are opened later use fences.
    static WAS_REFUSED: AtomicBool = AtomicBool::new(false);

    pub(super) fn has_barrier() -> bool {
        let works = WORKS.get_or_init(|| {
            let can = membarrier_query().contains_command(MembarrierCommand::PrivateExpedited);
            let registered = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            // A sandbox may allow the registration and refuse the barrier itself.
            let passed = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
            can && registered() && passed()
        });
        *works && !was_refused()
    }

    pub(super) fn was_refused() -> bool {
        WAS_REFUSED.load(Ordering::Relaxed)
    }

    pub(super) fn barrier_in_every_thread() -> Result<(), Refused> {
        let Err(error) = membarrier(MembarrierCommand::PrivateExpedited) else { return Ok(()) };
        if !WAS_REFUSED.swap(true, Ordering::Relaxed) {
            let effect = "gates that were opened before cannot be drained";
            let advice = "allow membarrier, or install the filter before the first gate is opened";
            let log = move || error!(%error, effect, advice, "membarrier was refused");
            log_aside(Level::ERROR, || log);
        }
        Err(Refused)
    }
}

#[cfg(all(test, adieu_loom))]
mod system {
    use super::{Refused, model};

    pub(super) fn has_barrier() -> bool {
        false
    }

    pub(super) fn was_refused() -> bool {
        false
    }

    pub(super) fn barrier_in_every_thread() -> Result<(), Refused> {
        model::interrupt();
        Ok(())
    }
}

#[cfg(not(any(all(target_os = "linux", not(adieu_loom), not(miri)), all(test, adieu_loom))))]
mod system {
    use super::Refused;

    pub(super) fn has_barrier() -> bool {
        false
    }

    pub(super) fn was_refused() -> bool {
        false
    }

    pub(super) fn barrier_in_every_thread() -> Result<(), Refused> {
        Err(Refused)
    }
}

/// `membarrier` for loom: the thread that can be interrupted executes a fence, and the caller waits until
/// it has done so or has ended. A model may contain one such thread and one heavy barrier.
///
/// The kernel can interrupt a thread between any two instructions. In the model, a thread can be
/// interrupted before its operation, between its two steps (in [`light`]), and after its operation. Other
/// points make no difference, because an operation has only these two steps.
#[cfg(all(test, adieu_loom))]
pub(super) mod model {
    use std::cell::Cell;

    use loom::sync::atomic::{AtomicBool, Ordering, fence};
    use loom::thread::JoinHandle;

    #[derive(Default)]
    struct Interrupt {
        /// Whether there is a thread that can be interrupted.
        is_possible: AtomicBool,
        is_pending: AtomicBool,
        has_fenced: AtomicBool,
    }

    loom::lazy_static! {
        static ref INTERRUPT: Interrupt = Interrupt::default();
    }

    loom::thread_local! {
        static IS_INTERRUPTIBLE: Cell<bool> = Cell::new(false);
    }

    /// Spawns the thread that can be interrupted.
    pub(in crate::gate) fn spawn<T: 'static>(work: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        INTERRUPT.is_possible.store(true, Ordering::Relaxed);
        loom::thread::spawn(move || {
            IS_INTERRUPTIBLE.with(|is| is.set(true));
            interruption_point();
            let returned = work();
            interruption_point();
            execute_fence(); // The end of a thread is a barrier, too.
            returned
        })
    }

    pub(super) fn interruption_point() {
        if IS_INTERRUPTIBLE.with(Cell::get) && INTERRUPT.is_pending.load(Ordering::Relaxed) {
            execute_fence();
        }
    }

    fn execute_fence() {
        fence(Ordering::SeqCst);
        INTERRUPT.has_fenced.store(true, Ordering::Release);
    }

    pub(super) fn interrupt() {
        if !INTERRUPT.is_possible.load(Ordering::Relaxed) {
            return;
        }
        INTERRUPT.is_pending.store(true, Ordering::Relaxed);
        while !INTERRUPT.has_fenced.load(Ordering::Acquire) {
            loom::thread::yield_now();
        }
        fence(Ordering::SeqCst);
    }
}
