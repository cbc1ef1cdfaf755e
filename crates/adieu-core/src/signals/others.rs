//! Whether anything else in this process listens to a signal.
//!
//! signal-hook's registry, which tokio uses, too, does not tell. But it numbers its registrations,
//! and the kernel tells which signals have a handler. A registration by others either brings a
//! handler for a signal that had none, or adds to one that is there: if there are more registrations
//! than new handlers, something was added to a signal that had a handler already.

use std::hash::{Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The registrations of others that brought no handler of their own, up to some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Additions(i128);

/// Counts what this library registers itself.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    own: i128,
    /// The signals whose handlers this library has brought.
    brought: u64,
}

// === impl Registrations ===

impl Registrations {
    /// Counts what `register` does, for a signal that may not have had a handler before.
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
        // Without the second probe, which counted itself.
        self.own += after - before - 1;
        for &signal in signals {
            self.brought |= bit(signal) & !caught;
        }
        registered
    }

    /// How many registrations of others have been added to handlers that were there.
    pub(super) fn additions(&mut self, signal: i32) -> io::Result<Additions> {
        let registrations = self.number(signal)? - self.own;
        let handlers = (caught_signals() & !self.brought).count_ones();
        Ok(Additions(registrations - i128::from(handlers)))
    }

    /// The number of a registration that is made now and taken back.
    fn number(&mut self, signal: i32) -> io::Result<i128> {
        let id = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
        signal_hook::low_level::unregister(id);
        self.own += 1;
        let mut number = NumberIn::default();
        id.hash(&mut number);
        Ok(i128::try_from(number.0).unwrap_or(i128::MAX))
    }
}

/// Whether something in this process handles or ignores the signal.
pub(super) fn is_caught(signal: i32) -> bool {
    caught_signals() & bit(signal) != 0
}

fn bit(signal: i32) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0)
}

/// The signals that have a handler or are ignored, a bit for each; none where the system does not
/// tell.
fn caught_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigCgt:").or_else(|| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask)
}

/// The number in a `SigId`, which only hashes it.
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
    fn registrations_have_numbers_in_a_row() {
        let mut registrations = Registrations::default();
        let (a, b) = (registrations.number(10).unwrap(), registrations.number(10).unwrap());
        assert_eq!(b, a + 1, "what `SigId` hashes has changed");
        let _: signal_hook::SigId = signal_hook::flag::register(10, Arc::default()).unwrap();
        assert_eq!(registrations.number(10).unwrap(), b + 2);
    }
}
