//! Loops that belong to somebody who may have to end them before the shutdown does.

use std::sync::{Arc, Mutex, Weak};

use super::keeper::Ending;
use crate::sync::lock;

/// The loops of one owner. It does not keep them: the shutdown does.
#[derive(Default)]
pub(crate) struct OwnedLoops(Mutex<Vec<Weak<Ending>>>);

impl OwnedLoops {
    pub(crate) fn add(&self, ending: &Arc<Ending>) {
        let mut all = lock(&self.0);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(ending));
    }

    /// Those that there are now.
    pub(crate) fn all(&self) -> Vec<Arc<Ending>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}
