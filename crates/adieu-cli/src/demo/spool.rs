//! A queue of orders in a folder that all replicas share. An order is a file, which is renamed from
//! state to state.
//!
//! ```text
//!            take                        ship
//! waiting/NUMBER   <->   in-progress/NUMBER   ->   shipped/NUMBER
//!            put_back
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A queue of orders in a folder.
#[derive(Debug)]
pub(super) struct Spool {
    waiting: PathBuf,
    in_progress: PathBuf,
    shipped: PathBuf,
}

/// The number of orders in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Orders {
    pub(super) waiting: usize,
    pub(super) in_progress: usize,
    pub(super) shipped: usize,
}

// === impl Spool ===

impl Spool {
    /// Opens the queue in this folder, and creates it if it does not exist.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let spool = Self {
            waiting: folder.join("waiting"),
            in_progress: folder.join("in-progress"),
            shipped: folder.join("shipped"),
        };
        for place in [&spool.waiting, &spool.in_progress, &spool.shipped] {
            fs::create_dir_all(place)?;
        }
        Ok(spool)
    }

    /// Adds an order.
    pub(super) fn put(&self, number: &str) -> io::Result<()> {
        fs::File::create_new(self.waiting.join(number)).map(drop)
    }

    /// Takes up to `most` orders. If two replicas try to take the same order, the first to rename
    /// the file gets it.
    pub(super) fn take(&self, most: usize) -> io::Result<Vec<String>> {
        let mut taken = Vec::new();
        for entry in fs::read_dir(&self.waiting)? {
            if taken.len() == most {
                break;
            }
            let number = entry?.file_name().to_string_lossy().into_owned();
            match fs::rename(self.waiting.join(&number), self.in_progress.join(&number)) {
                Ok(()) => taken.push(number),
                // Another replica was first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Returns an order that was taken to the queue.
    pub(super) fn put_back(&self, number: &str) -> io::Result<()> {
        fs::rename(self.in_progress.join(number), self.waiting.join(number))
    }

    /// Marks an order as shipped.
    pub(super) fn ship(&self, number: &str) -> io::Result<()> {
        fs::rename(self.in_progress.join(number), self.shipped.join(number))
    }

    /// Counts the orders in each state.
    pub(super) fn count(&self) -> io::Result<Orders> {
        let count = |place: &PathBuf| Ok::<_, io::Error>(fs::read_dir(place)?.count());
        Ok(Orders {
            waiting: count(&self.waiting)?,
            in_progress: count(&self.in_progress)?,
            shipped: count(&self.shipped)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_always_in_one_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::open(folder.path()).expect("a spool");
        let other = Spool::open(folder.path()).expect("the same spool");
        for number in ["a", "b", "c"] {
            spool.put(number).expect("room");
        }
        assert!(spool.put("a").is_err(), "a number is used once");
        let mine = spool.take(2).expect("two");
        let theirs = other.take(9).expect("the rest");
        assert_eq!((mine.len(), theirs.len()), (2, 1));
        spool.ship(&mine[0]).expect("mine");
        spool.put_back(&mine[1]).expect("mine");
        assert_eq!(
            spool.count().expect("a count"),
            Orders { waiting: 1, in_progress: 1, shipped: 1 }
        );
        assert_eq!(other.take(9).expect("the order that was put back"), [mine[1].clone()]);
    }
}
