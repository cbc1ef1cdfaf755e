//! A queue of orders in a folder, shared by all replicas: an order is a file, and moves.
//!
//! ```text
//! waiting/NUMBER   ->   under-way/NUMBER   ->   shipped/NUMBER
//!            taken, or given back         done
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A queue of orders in a folder.
#[derive(Debug)]
pub(super) struct Spool {
    waiting: PathBuf,
    under_way: PathBuf,
    shipped: PathBuf,
}

/// How many orders are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Orders {
    pub(super) waiting: usize,
    pub(super) under_way: usize,
    pub(super) shipped: usize,
}

// === impl Spool ===

impl Spool {
    /// Opens the one in this folder, and makes it if there is none.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let spool = Self {
            waiting: folder.join("waiting"),
            under_way: folder.join("under-way"),
            shipped: folder.join("shipped"),
        };
        for place in [&spool.waiting, &spool.under_way, &spool.shipped] {
            fs::create_dir_all(place)?;
        }
        Ok(spool)
    }

    /// Puts an order on it.
    pub(super) fn put(&self, number: &str) -> io::Result<()> {
        fs::File::create_new(self.waiting.join(number)).map(drop)
    }

    /// Takes up to `most` orders. Whoever moves a file first has it.
    pub(super) fn take(&self, most: usize) -> io::Result<Vec<String>> {
        let mut taken = Vec::new();
        for entry in fs::read_dir(&self.waiting)? {
            if taken.len() == most {
                break;
            }
            let number = entry?.file_name().to_string_lossy().into_owned();
            match fs::rename(self.waiting.join(&number), self.under_way.join(&number)) {
                Ok(()) => taken.push(number),
                // Another replica was first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Gives back one that was taken.
    pub(super) fn give_back(&self, number: &str) -> io::Result<()> {
        fs::rename(self.under_way.join(number), self.waiting.join(number))
    }

    /// It has been shipped.
    pub(super) fn ship(&self, number: &str) -> io::Result<()> {
        fs::rename(self.under_way.join(number), self.shipped.join(number))
    }

    /// How many orders are where.
    pub(super) fn count(&self) -> io::Result<Orders> {
        let count = |place: &PathBuf| Ok::<_, io::Error>(fs::read_dir(place)?.count());
        Ok(Orders {
            waiting: count(&self.waiting)?,
            under_way: count(&self.under_way)?,
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
        spool.give_back(&mine[1]).expect("mine");
        assert_eq!(
            spool.count().expect("a count"),
            Orders { waiting: 1, under_way: 1, shipped: 1 }
        );
        assert_eq!(other.take(9).expect("what was given back"), [mine[1].clone()]);
    }
}
