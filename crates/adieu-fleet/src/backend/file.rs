//! Locks in a folder, for several processes on one machine.

mod clock;
mod record;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use self::clock::Clock;
use self::record::{Record, encoded};
use crate::lock_backend::{
    Attempt, BackendError, Claim, ClaimStatus, Fence, Holder, LockBackend, Marker, Reply,
};
use crate::names::{Key, Owner};

/// Locks in a folder, for several processes on one machine. They need no server, and survive crashes
/// and reboots.
///
/// Each key has two files. One is locked (`flock`) for the short time in which the other is read and
/// replaced, so a killed process leaves no partial change. Times are on the machine's clock since
/// boot, which setting the date does not change. After a reboot all leases have ended, and fences
/// continue to rise.
///
/// # Limits
///
/// - One machine only. Do not put the folder on a network file system, even one that supports locks.
/// - On systems other than Linux the wall clock is used, and setting the date may end a lease.
/// - Containers with their own time namespace cannot share the folder.
///
/// **What stays for ever:** two files for each key, `.lock` and `.lease`. The second contains the fence
/// and the markers. Delete them only when no process uses them and no stored data carries the fence.
///
/// A process that is stopped (not killed) in that short time blocks the others until it continues:
/// their requests fail, but no lock is granted wrongly.
#[derive(Clone, Debug)]
pub struct Files {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    clock: Clock,
    /// Limits how many blocking threads of the runtime wait for the disk.
    threads: Arc<Semaphore>,
}

/// The files of one key, locked against other processes and threads.
struct Locked<'a> {
    shared: &'a Shared,
    path: PathBuf,
    _lock: File,
}

const NAME: &str = "file";
/// The longest file name, without its extension.
const LONGEST: usize = 200;
/// How many of the runtime's blocking threads may access the folder at the same time.
const THREADS: usize = 4;
/// How long to wait for another process that has locked the files. Longer than a disk access takes.
const PATIENCE: Duration = Duration::from_secs(2);

// === impl Files ===

impl Files {
    /// Opens the locks in this folder, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// If the path is empty, or the folder cannot be created or written to.
    pub fn open(folder: impl AsRef<Path>) -> io::Result<Self> {
        let folder = folder.as_ref().to_owned();
        if folder.as_os_str().is_empty() {
            let problem = "failed to open a folder for locks: its path is empty";
            return Err(io::Error::new(ErrorKind::InvalidInput, problem));
        }
        probe(&folder).map_err(|error| {
            let problem = format!("failed to open {} for locks: {error}", folder.display());
            io::Error::new(error.kind(), problem)
        })?;
        let threads = Arc::new(Semaphore::new(THREADS));
        Ok(Self { shared: Arc::new(Shared { folder, clock: Clock::default(), threads }) })
    }

    /// Accesses the files of a key on a blocking thread.
    fn with<T: Send + 'static>(
        &self,
        verb: &'static str,
        key: &Key,
        act: impl FnOnce(&Locked<'_>) -> io::Result<T> + Send + 'static,
    ) -> Reply<'static, T> {
        let (shared, key) = (Arc::clone(&self.shared), key.clone());
        Box::pin(async move {
            let failed = failed(verb);
            let permit = Arc::clone(&shared.threads).acquire_owned().await;
            let done = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                act(&Locked::new(&shared, &key)?)
            });
            match done.await {
                Ok(done) => done.map_err(failed),
                Err(error) => Err(failed(io::Error::other(error))),
            }
        })
    }

    /// Changes the record if the claim holds the lock.
    fn as_holder(
        &self,
        verb: &'static str,
        claim: &Claim,
        change: impl FnOnce(&mut Record, &Clock) + Send + 'static,
    ) -> Reply<'static, ClaimStatus> {
        let claim = claim.clone();
        self.with(verb, &claim.key.clone(), move |locked| {
            let mut record = locked.read()?;
            let holder = locked.holder(&record);
            let is_held =
                holder.is_some_and(|it| it.owner == claim.owner && it.fence == claim.fence);
            if is_held {
                change(&mut record, &locked.shared.clock);
                locked.write(&record)?;
            }
            Ok(ClaimStatus::held_if(is_held))
        })
    }
}

/// Creates the folder, and a temporary file in it, to check that both are possible.
fn probe(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    loop {
        // Random, because other processes open the folder at the same time, and in containers their
        // process ids are often equal.
        let probe = folder.join(format!(".probe-{:016x}", fastrand::u64(..)));
        match OpenOptions::new().write(true).create_new(true).open(&probe) {
            Ok(_) => return fs::remove_file(&probe),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Turns an error of the file system into one of the backend.
fn failed(verb: &'static str) -> impl Fn(io::Error) -> BackendError {
    move |error| {
        // These need a change to the folder by an operator.
        let is_permanent = matches!(
            error.kind(),
            ErrorKind::PermissionDenied
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::NotADirectory
                | ErrorKind::InvalidData
        );
        BackendError::permanent_if(is_permanent, NAME, verb, error)
    }
}

impl LockBackend for Files {
    fn name(&self) -> &'static str {
        NAME
    }

    fn has_fences(&self) -> bool {
        true
    }

    fn is_local(&self) -> Option<&'static str> {
        Some("locks in files, which no other machine sees")
    }

    fn try_acquire<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        ttl: Duration,
    ) -> Reply<'a, Attempt> {
        let (wanted, owner) = (key.clone(), owner.clone());
        self.with("acquire a lease", key, move |locked| {
            let mut record = locked.read()?;
            if let Some(holder) = locked.holder(&record) {
                return Ok(Attempt::Held(holder));
            }
            record.fence += 1;
            record.held = Some((owner.clone(), locked.shared.clock.after(ttl)));
            locked.write(&record)?;
            let fence = Fence::new(record.fence);
            Ok(Attempt::Acquired(Claim { key: wanted, owner, fence, ticket: 0 }))
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Reply<'a, ClaimStatus> {
        let owner = claim.owner.clone();
        self.as_holder("renew a lease", claim, move |record, clock| {
            record.held = Some((owner, clock.after(ttl)));
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Reply<'a, ClaimStatus> {
        self.as_holder("release a lease", claim, |record, _| record.held = None)
    }

    fn query<'a>(&'a self, key: &'a Key) -> Reply<'a, Option<Holder>> {
        self.with("query a lease", key, |locked| Ok(locked.holder(&locked.read()?)))
    }

    fn mark<'a>(
        &'a self,
        claim: &'a Claim,
        name: &'a str,
        value: &'a str,
    ) -> Reply<'a, ClaimStatus> {
        let marker = Marker { value: value.to_owned(), fence: claim.fence };
        let name = name.to_owned();
        self.as_holder("write a marker", claim, move |record, _| {
            record.markers.insert(name, marker);
        })
    }

    fn marker<'a>(&'a self, key: &'a Key, name: &'a str) -> Reply<'a, Option<Marker>> {
        let name = name.to_owned();
        self.with("read a marker", key, move |locked| Ok(locked.read()?.markers.remove(&name)))
    }
}

// === impl Locked ===

impl<'a> Locked<'a> {
    fn new(shared: &'a Shared, key: &Key) -> io::Result<Self> {
        let (mut folder, name) = (shared.folder.clone(), encoded(key.as_str()));
        // File systems limit the length of a name. Most keys are far shorter.
        let mut name = name.as_str();
        while let Some((front, rest)) = name.split_at_checked(LONGEST)
            && !rest.is_empty()
        {
            folder.push(front);
            fs::create_dir_all(&folder)?;
            name = rest;
        }
        let path = folder.join(format!("{name}.lease"));
        let lock_path = folder.join(format!("{name}.lock"));
        let lock = OpenOptions::new().create(true).append(true).open(&lock_path)?;
        let mut waited = Duration::ZERO;
        let pause = Duration::from_millis(1);
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { shared, path, _lock: lock }),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if waited >= PATIENCE => {
                    let problem = format!(
                        "{} has been locked by another process for {PATIENCE:?}; resume or kill that \
                         process",
                        lock_path.display()
                    );
                    return Err(io::Error::new(ErrorKind::TimedOut, problem));
                }
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(pause);
                    waited += pause;
                }
            }
        }
    }

    fn read(&self) -> io::Result<Record> {
        match fs::read_to_string(&self.path) {
            Ok(text) => Record::parse(&text).ok_or_else(|| {
                // A new record would start with a fence that was granted before.
                let problem = format!(
                    "{} is damaged; restore it, or delete it if no stored data carries its fence",
                    self.path.display()
                );
                io::Error::new(ErrorKind::InvalidData, problem)
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Record::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the record atomically, so that there is always a complete one.
    fn write(&self, record: &Record) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(record.to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        // A granted fence must not be granted again after a power failure.
        File::open(self.path.parent().unwrap_or(&self.shared.folder))?.sync_all()
    }

    fn holder(&self, record: &Record) -> Option<Holder> {
        let (owner, until) = record.held.as_ref()?;
        let remaining = self.shared.clock.until(until)?;
        Some(Holder { owner: owner.clone(), fence: Fence::new(record.fence), remaining })
    }
}
