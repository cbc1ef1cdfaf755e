//! Contains the panics of the application's code: subscribers, recorders, destructors, descriptions.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::sync::assert_none_held;

/// Runs `work`. Returns the message if `work` panics.
pub(crate) fn shielded<T>(work: impl FnOnce() -> T) -> Result<T, Arc<str>> {
    assert_none_held("ran code of the application");
    catch_unwind(AssertUnwindSafe(work)).map_err(message_of)
}

/// Drops a value whose destructor may panic. Returns the message if it panics.
pub(crate) fn drop_shielded<T>(value: T) -> Option<Arc<str>> {
    shielded(|| drop(value)).err()
}

/// Drops all values, even if some of their destructors panic.
pub(crate) fn drop_each_shielded<T>(values: impl IntoIterator<Item = T>) {
    for value in values {
        drop_shielded(value);
    }
}

/// Returns the message of a panic. Drops the payload, whose destructor may panic as well.
pub(crate) fn message_of(panic: Box<dyn Any + Send>) -> Arc<str> {
    let message = if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).into()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.as_str().into()
    } else {
        "a panic without a message".into()
    };
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Leaked: a payload that panics when it is dropped may contain another one.
        std::mem::forget(again);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb(usize);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }

    #[test]
    fn a_payload_that_panics_when_dropped_is_contained() {
        let message = shielded(|| std::panic::panic_any(Bomb(3))).unwrap_err();
        assert_eq!(&*message, "a panic without a message");
        assert!(drop_shielded(Bomb(3)).is_some());
        assert_eq!(drop_shielded(Bomb(0)), None);
        assert_eq!(shielded(|| panic!("no {}", "luck")), Err::<(), _>("no luck".into()));
    }
}
