//! A fleet: replicas that serve the same requests, and are restarted one after another.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::adapter::lock;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::member::{Keeper, Member, Spec, start};
use super::replica::Kind;
use crate::ending::Failure;

/// Replicas that serve the same requests.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) kind: Kind,
    /// The number of replicas that serve at the same time.
    size: usize,
    /// The folder that all replicas share.
    folder: PathBuf,
    /// The folder of reports and logs.
    reports: PathBuf,
    began: Instant,
    /// All members, in the order in which they were started, including those that have ended.
    members: Mutex<Vec<Arc<Member>>>,
    keepers: Mutex<JoinSet<()>>,
    /// Counts the calls of `pick`, which takes the ready members in turn.
    turn: AtomicUsize,
    restarts: AtomicUsize,
}

// === impl Fleet ===

impl Fleet {
    pub(super) fn new(
        kind: Kind,
        size: usize,
        folder: PathBuf,
        reports: PathBuf,
        began: Instant,
    ) -> Self {
        Self {
            kind,
            size,
            folder,
            reports,
            began,
            members: Mutex::default(),
            keepers: Mutex::default(),
            turn: AtomicUsize::new(0),
            restarts: AtomicUsize::new(0),
        }
    }

    /// Starts every replica, and waits until all are ready.
    pub(super) async fn start(&self) -> Result<(), Failure> {
        let mut members = Vec::new();
        for slot in 1..=self.size {
            members.push(self.start_one(slot, "a").await?);
        }
        for member in members {
            self.until_ready(&member).await?;
        }
        Ok(())
    }

    /// Replaces every replica, one after another. A replica is signalled to stop when its successor
    /// is ready. The first is replaced at `begins`, the others at least `apart` from each other.
    pub(super) async fn restart(&self, begins: Instant, apart: Duration) -> Result<(), Failure> {
        let mut next = begins;
        for slot in 1..=self.size {
            tokio::time::sleep_until(next).await;
            next = Instant::now() + apart;
            self.replace(slot, Duration::ZERO, Member::stop).await?;
        }
        Ok(())
    }

    /// Starts the successor of a replica, and ends the replica when the successor has been ready for
    /// that long.
    pub(super) async fn replace(
        &self,
        slot: usize,
        overlap: Duration,
        end: fn(&Member),
    ) -> Result<(), Failure> {
        let old = self.members().get(slot - 1).map(Arc::clone);
        let new = self.start_one(slot, "b").await?;
        self.until_ready(&new).await?;
        tokio::time::sleep(overlap).await;
        if let Some(old) = old {
            end(&old);
            old.until_gone().await;
        }
        self.restarts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Signals all members to stop, and waits until they have ended.
    pub(super) async fn end(&self) {
        let members = self.members();
        members.iter().for_each(|member| member.stop());
        for member in members {
            member.until_gone().await;
        }
    }

    /// Kills all members that run.
    pub(super) fn kill(&self) {
        self.members().iter().for_each(|member| member.kill());
    }

    /// Returns all members, in the order in which they were started.
    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        lock(&self.members).clone()
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns how many replicas have been replaced.
    pub(super) fn restarts(&self) -> usize {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Returns a member that is ready, each in turn.
    pub(super) fn pick(&self) -> Option<Arc<Member>> {
        let members = lock(&self.members);
        let ready: Vec<&Arc<Member>> = members.iter().filter(|member| member.is_ready()).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        ready.get(turn.checked_rem(ready.len())?).map(|member| Arc::clone(member))
    }

    async fn start_one(&self, slot: usize, generation: &str) -> Result<Arc<Member>, Failure> {
        let name = &format!("{}-{slot}{generation}", self.kind.service());
        let file = |ending: &str| self.reports.join(format!("{name}.{ending}"));
        let spec = Spec {
            kind: self.kind,
            name: name.to_owned(),
            folder: self.folder.clone(),
            report: file("json"),
            log: file("log"),
        };
        let started = start(spec, self.began).await;
        let (member, keeper): (_, Keeper) =
            started.map_err(|error| Failure::unable(format!("failed to start {name}: {error}")))?;
        lock(&self.keepers).spawn(keeper.keep());
        lock(&self.members).push(Arc::clone(&member));
        Ok(member)
    }

    async fn until_ready(&self, member: &Member) -> Result<(), Failure> {
        let ready = tokio::time::timeout(super::KILL_AFTER, member.until_ready()).await;
        if ready.unwrap_or(false) {
            return Ok(());
        }
        let log = self.reports.join(format!("{}.log", member.name));
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let last = log.lines().last().unwrap_or("its log is empty").to_owned();
        Err(Failure::unable(format!("failed to start {}: it is not ready: {last}", member.name)))
    }
}
