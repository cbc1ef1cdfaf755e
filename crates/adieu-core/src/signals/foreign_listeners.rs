//! Infers whether other code in this process listens to a signal.
//!
//! signal-hook's registry, which tokio also uses, cannot be queried. But it numbers its
//! registrations, and the kernel lists the signals that have a handler. Each registration by other
//! code either installs a handler for a signal that had none (visible in `/proc/self/status`), or
//! is appended to an existing handler (not visible). So registrations minus new handlers is the
//! number of appended listeners.

use std::hash::{Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The number of registrations by other code that were added to existing handlers, at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Additions(i128);

/// Counts the registrations of this library.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    own: i128,
    /// The signals whose handlers this library has installed, a bit for each.
    brought: u64,
}

// === impl Registrations ===

impl Registrations {
    /// Calls `register`, and counts its registrations and the handlers that it installs.
    pub(super) fn count<T>(
        &mut self,
        signals: &[i32],
        register: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let caught = caught_signals();
        let first = signals.first().copied().unwrap_or_default();
        let before = self.number(first)?;
        let registered = register();
        let after = self.number(first)?;
        // The second probe has counted itself.
        self.own += after - before - 1;
        for &signal in signals {
            self.brought |= bit(signal) & !caught;
        }
        registered
    }

    /// Returns how many registrations by other code were added to existing handlers.
    pub(super) fn additions(&mut self, signal: i32) -> io::Result<Additions> {
        let registrations = self.number(signal)? - self.own;
        let handlers = (caught_signals() & !self.brought).count_ones();
        Ok(Additions(registrations - i128::from(handlers)))
    }

    /// Returns the number of a registration that is made now and removed.
    fn number(&mut self, signal: i32) -> io::Result<i128> {
        let id = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
        signal_hook::low_level::unregister(id);
        self.own += 1;
        let mut number = NumberIn::default();
        id.hash(&mut number);
        Ok(i128::try_from(number.0).unwrap_or(i128::MAX))
    }
}

/// Returns whether this process handles or ignores the signal.
pub(super) fn is_caught(signal: i32) -> bool {
    caught_signals() & bit(signal) != 0
}

fn bit(signal: i32) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0)
}

/// Returns the signals that have a handler or are ignored, a bit for each. Returns none if the system
/// does not list them.
fn caught_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigCgt:").or_else(|| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask)
}

/// Extracts the number from a `SigId`, which only exposes it to hashers.
#[derive(Default)]
struct NumberIn(u128);

impl Hasher for NumberIn {
    fn write(&mut self, _: &[u8]) {}

    fn write_i32(&mut self, _: i32) {}

    fn write_u128(&mut self, number: u128) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrations_have_consecutive_numbers() {
        let mut registrations = Registrations::default();
        let (a, b) = (registrations.number(10).unwrap(), registrations.number(10).unwrap());
        assert_eq!(b, a + 1, "`SigId` no longer hashes its number");
        let _: signal_hook::SigId = signal_hook::flag::register(10, Arc::default()).unwrap();
        assert_eq!(registrations.number(10).unwrap(), b + 2);
    }
}
