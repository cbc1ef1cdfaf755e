//! A table in a folder, for several processes on one machine.

mod versions;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::adapter::{BootClock, lock};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use self::versions::{Stamp, Versions};
use super::table::Table;
use super::{
    Changes, Commit, Committed, Reply, Revision, Session, Snapshot, Standing, Store, StoreError,
    Update,
};

const NAME: &str = "files";

/// How often a reader polls for changes.
const POLL: Duration = Duration::from_millis(20);

/// How many changes the table keeps. Every version has them all, so they are few: a reader polls often,
/// and one that is further behind loads the table.
const MOST_CHANGES: usize = 256;

/// How many of the runtime's blocking threads may wait for the disk at a time.
const THREADS: usize = 4;

/// A table in a folder, for several processes on one machine. It needs no server, and survives
/// crashes and reboots.
///
/// Each version of the table is a file of its own. A process writes the next version under another
/// name and then links it to its number, which succeeds for one process only. So there is no lock:
/// a process that is killed or suspended at any instant neither damages the table nor delays other
/// processes.
///
/// Sessions are measured by the time since the start of the machine, which does not change when the
/// date is set. After a restart of the machine all sessions have ended, and revisions continue.
///
/// # What it is not for
///
/// - Several machines: not on a network file system.
/// - More than a few hundred commits in a second: each writes the whole table.
/// - On systems other than Linux the clock is the time of day, and setting the date may end sessions.
#[derive(Clone, Debug)]
pub struct Files {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    versions: Versions,
    /// The newest version that this process has read or written. Locked while a request reads and
    /// writes, so that requests of one process do not compete with each other.
    newest: Mutex<(Option<Stamp>, Arc<Table>)>,
    clock: BootClock,
    threads: Arc<Semaphore>,
}

/// The contents of one version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Contents {
    /// The boot of the machine in which the sessions were measured.
    boot: String,
    table: Table,
}

/// Whether the future of a request still exists.
struct Waits(Arc<AtomicBool>);

struct FileChanges {
    files: Files,
    prefix: String,
    after: Revision,
    /// The version in which there were no changes.
    seen: Option<u64>,
    /// When the next session ends, if none is kept.
    next_end: Option<Duration>,
    next_look: Instant,
}

// === impl Files ===

impl Files {
    /// Returns the table in this folder, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// If the path is empty, or the folder cannot be created or written to.
    pub fn open(folder: impl AsRef<Path>) -> io::Result<Self> {
        let folder = folder.as_ref();
        let versions = Versions::open(folder).map_err(|error| {
            let problem = format!("failed to open the table in {}: {error}", folder.display());
            io::Error::new(error.kind(), problem)
        })?;
        let shared = Shared {
            versions,
            newest: Mutex::default(),
            clock: BootClock::new(),
            threads: Arc::new(Semaphore::new(THREADS)),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Runs `act` on a thread that may block.
    async fn on_thread<T: Send + 'static>(
        &self,
        verb: &'static str,
        act: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        let permit = Arc::clone(&shared.threads).acquire_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            act(&shared)
        });
        done.await.map_err(|error| StoreError::unavailable(NAME, verb, error))?
    }

    /// Changes the table. `act` may run several times, each time on a newer table.
    async fn change<T: Send + 'static>(
        &self,
        verb: &'static str,
        act: impl Fn(&mut Table, Duration) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let waits = Waits(Arc::new(AtomicBool::new(true)));
        let still_waits = Arc::clone(&waits.0);
        let done = self.on_thread(verb, move |shared| {
            shared.change(verb, act, || still_waits.load(Ordering::Relaxed))
        });
        done.await
    }
}

impl Store for Files {
    fn name(&self) -> &'static str {
        NAME
    }

    fn shortest_ttl(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn open(&self, ttl: Duration) -> Reply<'_, Session> {
        let shortest = self.shortest_ttl();
        Box::pin(async move {
            if ttl < shortest {
                return Err(StoreError::TtlTooShort { store: NAME, ttl, shortest });
            }
            self.change("open a session", move |table, now| Ok(table.open(ttl, now))).await
        })
    }

    fn keep<'a>(&'a self, session: &'a Session) -> Reply<'a, Standing> {
        let id = session.id;
        Box::pin(self.change("keep a session", move |table, now| Ok(table.keep(id, now))))
    }

    fn close<'a>(&'a self, session: &'a Session) -> Reply<'a, ()> {
        let id = session.id;
        Box::pin(self.change("close a session", move |table, _| {
            table.end(id);
            Ok(())
        }))
    }

    fn load<'a>(&'a self, prefix: &'a str) -> Reply<'a, Snapshot> {
        let prefix = prefix.to_owned();
        Box::pin(self.change("load a table", move |table, _| Ok(table.load(&prefix))))
    }

    fn changes<'a>(&'a self, prefix: &'a str, after: Revision) -> Reply<'a, Box<dyn Changes>> {
        let changes = FileChanges {
            files: self.clone(),
            prefix: prefix.to_owned(),
            after,
            seen: None,
            next_end: None,
            next_look: Instant::now(),
        };
        Box::pin(std::future::ready(Ok(Box::new(changes) as Box<dyn Changes>)))
    }

    fn commit<'a>(&'a self, commit: &'a Commit) -> Reply<'a, Committed> {
        let commit = commit.clone();
        Box::pin(async move {
            commit.check(NAME)?;
            let committed = self.change("commit", move |table, _| {
                let no_session = |session| StoreError::NoSession { store: NAME, session };
                table.commit(&commit).map_err(no_session)
            });
            // The disk may have failed after the new version got its number.
            committed.await.map_err(StoreError::or_unknown)
        })
    }
}

// === impl Waits ===

impl Drop for Waits {
    fn drop(&mut self) {
        // Relaxed, because no other memory depends on this value.
        self.0.store(false, Ordering::Relaxed);
    }
}

// === impl Shared ===

impl Shared {
    /// Changes the table, for as long as `is_wanted`: a request that was given up must not compete with
    /// those that follow it.
    fn change<T>(
        &self,
        verb: &'static str,
        act: impl Fn(&mut Table, Duration) -> Result<T, StoreError>,
        is_wanted: impl Fn() -> bool,
    ) -> Result<T, StoreError> {
        let mut newest = lock(&self.newest);
        loop {
            if !is_wanted() {
                return Err(StoreError::unavailable(NAME, verb, "the request was given up"));
            }
            let (version, before) = self.read(&mut newest, verb)?;
            let mut table = Table::clone(&before);
            let now = self.clock.now();
            table.expire(now);
            let done = act(&mut table, now)?;
            if table == *before {
                return Ok(done);
            }
            table.keep_changes(MOST_CHANGES);
            let contents = Contents { boot: self.clock.boot().to_owned(), table };
            let text = serde_json::to_vec(&contents)
                .map_err(|error| StoreError::refused(NAME, verb, error))?;
            let written = self.versions.write_next(version, &text);
            if written.map_err(|error| self.failed(verb, &error))? {
                // If the file cannot be examined, the next request reads it.
                let stamp = self.versions.stamp(version + 1).ok();
                *newest = (stamp, Arc::new(contents.table));
                return Ok(done);
            }
            // Another process was first. Its version decides what can be done now.
        }
    }

    /// Reads the newest version, unless this process has it already.
    fn read(
        &self,
        newest: &mut (Option<Stamp>, Arc<Table>),
        verb: &'static str,
    ) -> Result<(u64, Arc<Table>), StoreError> {
        let (read, known) = newest;
        let found = self.versions.newest_unless(*read);
        let found = found.map_err(|error| self.failed(verb, &error))?;
        let (stamp, text) = match (found, &*read) {
            (Some(found), _) => found,
            (None, Some(stamp)) => return Ok((stamp.version, Arc::clone(known))),
            (None, None) => return Ok((0, Arc::clone(known))),
        };
        let version = stamp.version;
        if text.is_empty() {
            return Ok((version, Arc::default()));
        }
        let contents: Contents = serde_json::from_slice(&text).map_err(|error| {
            // An empty table would reuse revisions, which are fences.
            let problem = format!(
                "{} is damaged ({error}); restore it, or delete the folder if no resource stores \
                 its fences",
                self.versions.path(version).display()
            );
            StoreError::refused(NAME, verb, problem)
        })?;
        let Contents { boot, mut table } = contents;
        if boot != self.clock.boot() {
            table.end_all();
        }
        *newest = (Some(stamp), Arc::new(table));
        Ok((version, Arc::clone(&newest.1)))
    }

    /// Returns the error of a failed operation, with the folder: errors of the operating system, such as a
    /// full disk, do not contain the path.
    fn failed(&self, verb: &'static str, error: &io::Error) -> StoreError {
        let problem = format!("folder {}: {error}", self.versions.folder().display());
        StoreError::unavailable(NAME, verb, problem)
    }
}

// === impl FileChanges ===

impl FileChanges {
    /// Returns the changes since the last call, or `None` if there are none.
    async fn look(&mut self) -> Result<Option<Update>, StoreError> {
        let verb = "watch a table";
        let (seen, next_end) = (self.seen, self.next_end);
        let (prefix, after) = (self.prefix.clone(), self.after);
        let looked = self.files.on_thread(verb, move |shared| {
            let is_over = next_end.is_some_and(|end| end <= shared.clock.now());
            if seen.is_some_and(|seen| !is_over && !shared.versions.has_next(seen)) {
                return Ok(None);
            }
            // Ends sessions whose time is up; then the newest version has all changes.
            shared.change(verb, |_, _| Ok(()), || true)?;
            let mut newest = lock(&shared.newest);
            let (version, table) = shared.read(&mut newest, verb)?;
            drop(newest);
            Ok(Some((version, table.next_end(), table.changes(&prefix, after))))
        });
        let Some((version, next_end, update)) = looked.await? else { return Ok(None) };
        (self.seen, self.next_end) = (Some(version), next_end);
        if let Some(Update::Changed { revision, .. }) = &update {
            self.after = *revision;
        }
        Ok(update)
    }
}

impl Changes for FileChanges {
    fn next(&mut self) -> Reply<'_, Update> {
        Box::pin(async {
            loop {
                sleep_until(self.next_look).await;
                if let Some(update) = self.look().await? {
                    return Ok(update);
                }
                self.next_look = Instant::now() + POLL;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    fn commit(number: usize) -> Commit {
        Commit::new().create(format!("k-{number}"), "0")
    }

    #[test]
    fn s1266_requests_of_one_process_do_not_compete() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path()).unwrap();
        let attempts = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..8 {
                let (shared, attempts) = (&files.shared, &attempts);
                scope.spawn(move || {
                    let act = |table: &mut Table, _| {
                        attempts.fetch_add(1, Ordering::Relaxed);
                        // Long enough for the other threads to read the same version.
                        thread::sleep(Duration::from_millis(5));
                        Ok(table.commit(&commit(number)).unwrap())
                    };
                    assert!(matches!(
                        shared.change("commit", act, || true),
                        Ok(Committed::Done(_))
                    ));
                });
            }
        });
        assert_eq!(attempts.into_inner(), 8, "attempts lost to a request of the same process");
    }

    #[test]
    fn s1266_a_request_that_was_given_up_is_not_carried_out() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path()).unwrap();
        let act = |table: &mut Table, _| Ok(table.commit(&commit(0)).unwrap());
        assert!(files.shared.change("commit", act, || false).is_err());
        let act = |table: &mut Table, _| Ok(table.load(""));
        assert!(files.shared.change("load", act, || true).unwrap().records.is_empty());
    }
}
