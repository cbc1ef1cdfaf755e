//! Numbered versions of one file, of which each can be written once.
//!
//! Version n+1 is written under a name of its own and then linked to its number. A link never
//! replaces a file, so of several writers one succeeds. Old versions are deleted, in ascending
//! order. A writer that was stopped for long could therefore link a number that was used and
//! deleted; it notices that because version n, which is deleted before n+1, is then gone.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// How many versions are kept: a slow reader must find the file that it was about to read.
const KEPT: u64 = 16;

#[derive(Debug)]
pub(super) struct Versions {
    folder: PathBuf,
    /// A version that was the newest a moment ago.
    known: AtomicU64,
}

/// One version that was read. If the folder was emptied or a file was restored, the contents have
/// changed although the number may be the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) version: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

// === impl Versions ===

impl Versions {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        if folder.as_os_str().is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the path of the folder is empty"));
        }
        fs::create_dir_all(folder)?;
        let versions = Self { folder: folder.to_owned(), known: AtomicU64::new(0) };
        // Fails here, not at the first commit, if the folder cannot be written to.
        fs::remove_file(versions.write_aside(b"")?)?;
        Ok(versions)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn path(&self, version: u64) -> PathBuf {
        self.folder.join(format!("table-{version}.json"))
    }

    pub(super) fn has_next(&self, version: u64) -> bool {
        self.path(version + 1).exists()
    }

    /// Returns the newest version with its contents; 0 and nothing if there is none.
    #[cfg(test)]
    pub(super) fn newest(&self) -> io::Result<(u64, Vec<u8>)> {
        let newest = self.newest_unless(None)?;
        Ok(newest.map(|(stamp, contents)| (stamp.version, contents)).unwrap_or_default())
    }

    /// Returns the newest version with its contents, or `None` if that is the version that the caller
    /// has read.
    pub(super) fn newest_unless(
        &self,
        read: Option<Stamp>,
    ) -> io::Result<Option<(Stamp, Vec<u8>)>> {
        loop {
            let mut version = self.known.load(Ordering::Relaxed);
            if version == 0 || !self.path(version).exists() {
                version = self.list()?;
            }
            while self.has_next(version) {
                version += 1;
            }
            if version == 0 {
                return Ok(Some((Stamp::default(), Vec::new())));
            }
            // Before the contents: if they are replaced in between, the next stamp differs.
            let newest = self.stamp(version).and_then(|stamp| match read == Some(stamp) {
                true => Ok(None),
                false => Ok(Some((stamp, fs::read(self.path(version))?))),
            });
            match newest {
                Ok(newest) => {
                    self.known.fetch_max(version, Ordering::Relaxed);
                    return Ok(newest);
                }
                // This process was suspended until the version was deleted: read the folder again.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.known.store(0, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the stamp of a version, which differs from that of another file with the same number.
    pub(super) fn stamp(&self, version: u64) -> io::Result<Stamp> {
        let metadata = fs::metadata(self.path(version))?;
        let (bytes, modified) = (metadata.len(), metadata.modified().ok());
        Ok(Stamp { version, bytes, modified })
    }

    /// Writes the version after `version`. Returns false if another process has done so.
    pub(super) fn write_next(&self, version: u64, contents: &[u8]) -> io::Result<bool> {
        let aside = self.write_aside(contents)?;
        let next = self.path(version + 1);
        let linked = fs::hard_link(&aside, &next);
        fs::remove_file(&aside)?;
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(error),
        }
        if version > 0 && !self.path(version).exists() {
            // The number was used before, and deleted: see above.
            fs::remove_file(&next)?;
            self.known.store(0, Ordering::Relaxed);
            return Ok(false);
        }
        // A commit that was answered must not be gone after a power cut.
        File::open(&self.folder)?.sync_all()?;
        self.known.fetch_max(version + 1, Ordering::Relaxed);
        self.delete_old(version + 1);
        Ok(true)
    }

    /// Writes a file under a name that no other process uses, and returns its path.
    fn write_aside(&self, contents: &[u8]) -> io::Result<PathBuf> {
        loop {
            // Not the process id: containers that share a folder may have the same ones.
            let path = self.folder.join(format!("new-{:016x}", fastrand::u64(..)));
            match File::create_new(&path) {
                Ok(mut file) => {
                    let written = file.write_all(contents).and_then(|()| file.sync_all());
                    if written.is_err() {
                        // Otherwise the attempts to write fill a disk that is full already.
                        drop(fs::remove_file(&path));
                    }
                    return written.map(|()| path);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the highest number in the folder.
    fn list(&self) -> io::Result<u64> {
        let mut newest = 0;
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = name
                .to_str()
                .and_then(|name| name.strip_prefix("table-")?.strip_suffix(".json")?.parse().ok());
            newest = newest.max(number.unwrap_or(0));
        }
        Ok(newest)
    }

    /// Deletes versions that no reader needs, in ascending order. What cannot be deleted stays.
    fn delete_old(&self, newest: u64) {
        let end = newest.saturating_sub(KEPT);
        let mut first = end;
        while first > 0 && self.path(first).exists() {
            first -= 1;
        }
        for version in first + 1..=end {
            if fs::remove_file(self.path(version)).is_err_and(|it| it.kind() != ErrorKind::NotFound)
            {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Versions::open(folder.path()).unwrap();
        let wins = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let versions = open();
                    for _ in 0..50 {
                        let (version, _) = versions.newest().unwrap();
                        if versions.write_next(version, version.to_string().as_bytes()).unwrap() {
                            wins.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let (newest, contents) = open().newest().unwrap();
        assert_eq!(newest, wins.into_inner() as u64);
        assert_eq!(contents, (newest - 1).to_string().as_bytes());
        let files = fs::read_dir(folder.path()).unwrap().count() as u64;
        assert!(files <= KEPT + 1, "{files} files are left");
    }

    #[test]
    fn a_writer_that_was_stopped_for_long_does_not_reuse_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let (slow, fast) =
            (Versions::open(folder.path()).unwrap(), Versions::open(folder.path()).unwrap());
        assert!(slow.write_next(0, b"first").unwrap());
        let (stale, _) = slow.newest().unwrap();
        for _ in 0..3 * KEPT {
            let (version, _) = fast.newest().unwrap();
            assert!(fast.write_next(version, b"later").unwrap());
        }
        assert!(!slow.path(stale + 1).exists(), "the number is free again");
        assert!(!slow.write_next(stale, b"stale").unwrap());
        let (version, contents) = slow.newest().unwrap();
        assert_eq!((version, contents), (3 * KEPT + 1, b"later".to_vec()));
    }

    #[test]
    fn an_empty_path_is_an_error() {
        assert_eq!(Versions::open(Path::new("")).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
