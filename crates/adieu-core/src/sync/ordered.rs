//! Mutexes with a fixed order, so that no two threads can wait for each other.
//!
//! A thread that holds one of these mutexes may lock only mutexes with a later place. Builds with debug
//! assertions check this at each lock, and also that no code of the application runs, and no line is
//! logged, while one is held. Release builds store nothing and check nothing.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

use super::lock;

/// The place of a mutex in the order.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(debug_assertions), expect(dead_code, reason = "only debug builds check the order"))]
pub(crate) struct Place {
    number: u8,
    name: &'static str,
}

pub(crate) struct OrderedMutex<T> {
    place: Place,
    value: Mutex<T>,
}

/// Unlocks the mutex when it is dropped.
pub(crate) struct OrderedGuard<'a, T> {
    value: MutexGuard<'a, T>,
    _held: Held,
}

/// Records that the current thread holds a mutex.
struct Held {
    #[cfg(debug_assertions)]
    number: u8,
}

// === impl Place ===

impl Place {
    /// The number of the mutex that serialises the steps of a driver. It is held for a whole step, in
    /// which lines are logged and tasks are started.
    const STEP: u8 = 0;
    const LEAF: u8 = u8::MAX;

    /// Comes before all others, and may be held while lines are logged and code of the application runs.
    pub(crate) const fn outermost(name: &'static str) -> Self {
        Self { number: Self::STEP, name }
    }

    /// Comes after all places with lower numbers. The numbers are 1 to 254.
    pub(crate) const fn numbered(number: u8, name: &'static str) -> Self {
        Self { number, name }
    }

    /// Comes last: while it is held, no other mutex of the order may be locked.
    pub(crate) const fn leaf(name: &'static str) -> Self {
        Self { number: Self::LEAF, name }
    }
}

// === impl OrderedMutex ===

impl<T> OrderedMutex<T> {
    pub(crate) const fn new(place: Place, value: T) -> Self {
        Self { place, value: Mutex::new(value) }
    }

    /// Locks the mutex, also after a panic; see [`lock`].
    pub(crate) fn lock(&self) -> OrderedGuard<'_, T> {
        let held = Held::new(self.place); // First: a wrong order is an error, not a deadlock.
        OrderedGuard { value: lock(&self.value), _held: held }
    }
}

// === impl OrderedGuard ===

impl<T> Deref for OrderedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for OrderedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(debug_assertions)]
mod checks {
    use std::cell::RefCell;

    use super::{Held, Place};

    thread_local! {
        static HELD: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
    }

    impl Held {
        pub(super) fn new(place: Place) -> Self {
            // A thread that is ending has no list, and is not checked.
            let _ = HELD.try_with(|held| {
                let last = held.borrow().last().copied();
                // A second panic while the thread unwinds would abort the process.
                if let Some(last) = last.filter(|_| !std::thread::panicking()) {
                    let (name, before) = (place.name, last.name);
                    assert!(place.number > last.number, "locked {name} while {before} was locked");
                }
                held.borrow_mut().push(place);
            });
            Self { number: place.number }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // Guards may be dropped in any order.
            let _ = HELD.try_with(|held| held.borrow_mut().retain(|at| at.number != self.number));
        }
    }

    pub(crate) fn assert_none_held(what: &str) {
        let held = HELD.try_with(|held| held.borrow().last().copied()).ok().flatten();
        if let Some(held) = held.filter(|held| held.number > Place::STEP)
            && !std::thread::panicking()
        {
            panic!("{what} while {} was locked", held.name);
        }
    }
}

#[cfg(not(debug_assertions))]
mod checks {
    use super::{Held, Place};

    impl Held {
        #[inline]
        pub(super) fn new(_: Place) -> Self {
            Self {}
        }
    }

    #[inline]
    pub(crate) fn assert_none_held(_: &str) {}
}

/// Panics, in builds with debug assertions, if this thread holds a mutex of the order other than the
/// outermost one. `what` names the operation that must not happen under a lock.
pub(crate) use checks::assert_none_held;

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::shield::shielded;

    static STEP: OrderedMutex<()> = OrderedMutex::new(Place::outermost("step"), ());
    static FIRST: OrderedMutex<()> = OrderedMutex::new(Place::numbered(1, "first"), ());
    static SECOND: OrderedMutex<()> = OrderedMutex::new(Place::numbered(2, "second"), ());
    static LEAF: OrderedMutex<()> = OrderedMutex::new(Place::leaf("leaf"), ());

    fn panics(work: impl FnOnce()) -> Option<String> {
        shielded(work).err().map(|message| message.to_string())
    }

    #[test]
    fn a_thread_locks_in_order_or_panics() {
        let in_order = || {
            let _held = (STEP.lock(), FIRST.lock(), SECOND.lock(), LEAF.lock());
        };
        assert_eq!(panics(in_order), None);
        let backwards = || {
            let _held = (SECOND.lock(), FIRST.lock());
        };
        assert_eq!(panics(backwards).unwrap(), "locked first while second was locked");
        let twice = || {
            let _held = (LEAF.lock(), LEAF.lock());
        };
        assert_eq!(panics(twice).unwrap(), "locked leaf while leaf was locked");
        assert_eq!(panics(in_order), None, "a panic leaves nothing locked");
    }

    #[test]
    fn a_line_may_be_logged_under_the_outermost_mutex_only() {
        let log = || assert_none_held("logged");
        let in_step = || {
            let _held = STEP.lock();
            log();
        };
        assert_eq!(panics(in_step), None);
        let in_first = || {
            let _held = FIRST.lock();
            log();
        };
        assert_eq!(panics(in_first).unwrap(), "logged while first was locked");
    }
}
