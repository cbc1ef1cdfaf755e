//! A table within one process, on tokio's clock, with faults on request.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adieu_core::adapter::lock;
use tokio::sync::watch;
use tokio::time::Instant;

use super::table::Table;
use super::{
    Changes, Commit, Committed, Reply, Revision, Session, SessionId, Snapshot, Standing, Store,
    StoreError, Update,
};

const NAME: &str = "memory";
const COMMIT: &str = "commit";

/// A table within one process, on tokio's clock: for tests, and for services that have one node.
///
/// Each value is one connection to the table, with [`Faults`] of its own; [`Memory::connect`] makes
/// another. Clones are the same connection.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    origin: Instant,
    /// Counts the changes of the table.
    changed: watch::Sender<u64>,
}

/// The faults of one connection to a [`Memory`]. There are none until a test sets them.
#[derive(Debug)]
pub struct Faults {
    settings: watch::Sender<Settings>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    is_cut: bool,
    lost_answers: u32,
    hangs_changes: bool,
    delay: Duration,
}

struct MemoryChanges {
    memory: Memory,
    prefix: String,
    after: Revision,
    changed: watch::Receiver<u64>,
}

// === impl Memory ===

impl Memory {
    /// Returns a connection to a new table.
    #[must_use]
    pub fn new() -> Self {
        let shared = Shared {
            table: Mutex::default(),
            origin: Instant::now(),
            changed: watch::Sender::new(0),
        };
        Self { shared: Arc::new(shared), faults: Arc::default() }
    }

    /// Returns another connection to the same table, without faults.
    #[must_use]
    pub fn connect(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), faults: Arc::default() }
    }

    /// Returns the faults of this connection.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Forgets the history, so that every reader that is behind must load the table.
    pub fn compact(&self) {
        self.shared.with(Table::compact);
    }

    /// Ends a session before its time, as a faulty server may do.
    pub fn revoke(&self, session: SessionId) {
        self.shared.with(|table| table.end(session));
    }

    async fn act<T>(
        &self,
        verb: &'static str,
        act: impl FnOnce(&mut Table, Duration) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let unavailable = |problem: &str| StoreError::unavailable(NAME, verb, problem.to_owned());
        let Settings { is_cut, delay, .. } = *self.faults.settings.borrow();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if is_cut {
            return Err(unavailable("the connection is cut"));
        }
        let now = self.shared.now();
        let answer = self.shared.with(|table| act(table, now))?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.faults.lose_one() || self.faults.settings.borrow().is_cut {
            let problem = "the answer was lost";
            return Err(match verb {
                COMMIT => StoreError::unknown(NAME, problem),
                _ => unavailable(problem),
            });
        }
        Ok(answer)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for Memory {
    fn name(&self) -> &'static str {
        NAME
    }

    fn shortest_ttl(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn open(&self, ttl: Duration) -> Reply<'_, Session> {
        Box::pin(self.act("open a session", move |table, now| Ok(table.open(ttl, now))))
    }

    fn keep<'a>(&'a self, session: &'a Session) -> Reply<'a, Standing> {
        Box::pin(self.act("keep a session", |table, now| Ok(table.keep(session.id, now))))
    }

    fn close<'a>(&'a self, session: &'a Session) -> Reply<'a, ()> {
        Box::pin(self.act("close a session", |table, _| {
            table.end(session.id);
            Ok(())
        }))
    }

    fn load<'a>(&'a self, prefix: &'a str) -> Reply<'a, Snapshot> {
        Box::pin(self.act("load a table", |table, _| Ok(table.load(prefix))))
    }

    fn changes<'a>(&'a self, prefix: &'a str, after: Revision) -> Reply<'a, Box<dyn Changes>> {
        Box::pin(self.act("watch a table", move |_, _| {
            let changed = self.shared.changed.subscribe();
            let (memory, prefix) = (self.clone(), prefix.to_owned());
            Ok(Box::new(MemoryChanges { memory, prefix, after, changed }) as Box<dyn Changes>)
        }))
    }

    fn commit<'a>(&'a self, commit: &'a Commit) -> Reply<'a, Committed> {
        Box::pin(self.act(COMMIT, |table, _| {
            commit.check(NAME)?;
            let no_session = |session| StoreError::NoSession { store: NAME, session };
            table.commit(commit).map_err(no_session)
        }))
    }
}

// === impl Shared ===

impl Shared {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Ends the sessions whose time is up, and then acts.
    fn with<T>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table();
        table.expire(self.now());
        let done = act(&mut table);
        drop(table);
        self.changed.send_modify(|count| *count += 1);
        done
    }
}

// === impl Faults ===

impl Faults {
    /// Cuts the connection, or mends it. While it is cut, every request fails, and changes fail.
    pub fn cut(&self, is_cut: bool) {
        self.settings.send_modify(|settings| settings.is_cut = is_cut);
    }

    /// Applies the next requests, and loses the answers of this many.
    pub fn lose_answers(&self, count: u32) {
        self.settings.send_modify(|settings| settings.lost_answers = count);
    }

    /// Reports no changes from now on, and no error either; or reports them again.
    pub fn hang_changes(&self, hangs: bool) {
        self.settings.send_modify(|settings| settings.hangs_changes = hangs);
    }

    /// Delays each request and each answer by this.
    pub fn delay(&self, delay: Duration) {
        self.settings.send_modify(|settings| settings.delay = delay);
    }

    fn lose_one(&self) -> bool {
        self.settings.send_if_modified(|settings| {
            let loses = settings.lost_answers > 0;
            settings.lost_answers = settings.lost_answers.saturating_sub(1);
            loses
        })
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self { settings: watch::Sender::new(Settings::default()) }
    }
}

// === impl Changes ===

impl Changes for MemoryChanges {
    fn next(&mut self) -> Reply<'_, Update> {
        Box::pin(async {
            let Self { memory, prefix, after, changed } = self;
            let (shared, faults) = (&memory.shared, &memory.faults);
            let mut settings = faults.settings.subscribe();
            loop {
                let seen = *changed.borrow_and_update();
                let Settings { is_cut, hangs_changes, .. } = *settings.borrow_and_update();
                if is_cut {
                    let problem = "the connection is cut";
                    return Err(StoreError::unavailable(NAME, "watch a table", problem));
                }
                if !hangs_changes {
                    let mut table = shared.table();
                    table.expire(shared.now());
                    if let Some(update) = table.changes(prefix, *after) {
                        if let Update::Changed { revision, .. } = &update {
                            *after = *revision;
                        }
                        return Ok(update);
                    }
                }
                let end = shared.table().next_end().map(|end| shared.origin + end);
                let ends = async {
                    match end {
                        Some(end) => tokio::time::sleep_until(end).await,
                        None => std::future::pending().await,
                    }
                };
                // The senders belong to `memory`, so neither wait can fail.
                tokio::select! {
                    _ = changed.wait_for(|count| *count != seen) => {}
                    _ = settings.wait_for(|now| {
                        now.is_cut != is_cut || now.hangs_changes != hangs_changes
                    }) => {}
                    () = ends, if !hangs_changes => {}
                }
            }
        })
    }
}
