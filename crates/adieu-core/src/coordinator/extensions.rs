//! Values that adapters share on one shutdown. The engine is independent of their types.

use std::any::Any;
use std::sync::Arc;

use super::Shutdown;

#[derive(Default)]
pub(super) struct Extensions(Vec<Arc<dyn Any + Send + Sync>>);

// === impl Shutdown ===

impl Shutdown {
    pub(crate) fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let Extensions(values) = &mut *self.shared().extensions.lock();
        let found = values.iter().find_map(|value| Arc::clone(value).downcast::<T>().ok());
        found.unwrap_or_else(|| {
            let value = Arc::new(T::default());
            values.push(Arc::clone(&value) as Arc<dyn Any + Send + Sync>);
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, AtomicU16};

    use super::*;

    #[test]
    fn each_type_has_one_value_on_each_shutdown() {
        let (one, other) = (Shutdown::new(), Shutdown::new());
        assert!(Arc::ptr_eq(&one.extension::<AtomicU8>(), &one.clone().extension::<AtomicU8>()));
        assert!(!Arc::ptr_eq(&one.extension::<AtomicU8>(), &other.extension::<AtomicU8>()));
        let value = Arc::downgrade(&one.extension::<AtomicU16>());
        assert!(value.upgrade().is_some());
        drop(one);
        assert!(value.upgrade().is_none());
    }
}
