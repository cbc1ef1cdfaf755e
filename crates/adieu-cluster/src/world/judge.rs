//! Judges every commit that the store applies, and every instant.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Time;
use crate::proposal::Purpose;
use crate::records::{
    ConfigRecord, Departure, Drain, GoneRecord, Key, Keys, NodeRecord, NodeState, RegionKind,
    ShardId, ShardRecord, decode,
};
use crate::store::commit::Write;
use crate::store::{Change, Commit, Revision, SessionId};
use crate::view::{Versioned, View};

pub(super) struct Judge {
    keys: Keys,
    /// The table as it is.
    truth: View,
    /// The highest epoch that was granted, by shard, and the highest that has run.
    granted: BTreeMap<ShardId, Revision>,
    /// When a shard was last given to another owner than the one before.
    moved_at: BTreeMap<ShardId, Time>,
    /// For how long a shard stays after a move, unless an operator or its owner moves it.
    rest: Time,
    ran: BTreeMap<ShardId, Ran>,
    looks: u64,
    verdict: Option<String>,
    /// How often each shard was granted.
    pub(super) grants: BTreeMap<ShardId, u32>,
    /// How many commits of each kind were applied.
    pub(super) applied: BTreeMap<Purpose, u64>,
}

/// The last run of a shard.
#[derive(Clone, Copy)]
struct Ran {
    epoch: Revision,
    process: usize,
    /// The number of the inspection of all processes in which this was observed.
    looked: u64,
}

// === impl Judge ===

impl Judge {
    pub(super) fn new(keys: Keys, rest: Duration) -> Self {
        Self {
            keys,
            truth: View::default(),
            granted: BTreeMap::new(),
            moved_at: BTreeMap::new(),
            // The clock of the leader may be fast by five percent.
            rest: rest.div_f64(1.06).as_micros() as Time,
            ran: BTreeMap::new(),
            looks: 0,
            verdict: None,
            grants: BTreeMap::new(),
            applied: BTreeMap::new(),
        }
    }

    pub(super) fn truth(&self) -> &View {
        &self.truth
    }

    pub(super) fn verdict(&self) -> Option<&str> {
        self.verdict.as_deref()
    }

    pub(super) fn found(&mut self, now: Time, problem: impl Into<String>) {
        let seconds = now as f64 / super::SECOND as f64;
        let problem = problem.into();
        self.verdict.get_or_insert_with(|| format!("{problem} (at {seconds:.3}s)"));
    }

    pub(super) fn truth_changed(&mut self, revision: Revision, changes: &[Change]) {
        self.truth.apply(&self.keys, revision, changes).expect("all builds are the same");
    }

    pub(super) fn operated(&mut self, what: Purpose) {
        *self.applied.entry(what).or_default() += 1;
    }

    /// A shard runs now, in this process: in no other, and under no lower epoch than before.
    pub(super) fn runs(&mut self, now: Time, shard: &ShardId, epoch: Revision, process: usize) {
        let ran = match self.ran.get_mut(shard) {
            Some(ran) => ran,
            None => {
                self.ran.entry(shard.clone()).or_insert(Ran { epoch, process, looked: self.looks })
            }
        };
        let runs_elsewhere = ran.looked == self.looks && ran.process != process;
        let went_back = epoch < ran.epoch || (epoch == ran.epoch && process != ran.process);
        let before = *ran;
        *ran = Ran { epoch, process, looked: self.looks };
        if runs_elsewhere {
            let text = format!("{shard} runs in processes {} and {process}", before.process);
            self.found(now, text);
        } else if went_back {
            let text = format!("{shard} runs under fence {epoch} after {}", before.epoch);
            self.found(now, text);
        }
    }

    /// Ends an inspection of all processes.
    pub(super) fn looked(&mut self) {
        self.looks += 1;
    }

    /// Judges a commit that was applied, against the table as it was before.
    pub(super) fn committed(
        &mut self,
        now: Time,
        what: Purpose,
        commit: &Commit,
        by: Option<SessionId>,
    ) {
        *self.applied.entry(what).or_default() += 1;
        for write in &commit.writes {
            let problem = match write {
                Write::Put { key, value, .. } => match self.keys.parse(key) {
                    Some(Key::Node(id)) => {
                        let after: NodeRecord = decode(value).unwrap();
                        let before = self.truth.nodes.get(&id);
                        self.node_written(what, before, &after, by).map(|it| format!("{id}: {it}"))
                    }
                    Some(Key::Shard(shard)) => {
                        let after: ShardRecord = decode(value).unwrap();
                        let problem = self.shard_written(what, &shard, &after, by);
                        let rests = self.moved_at.get(&shard).map(|moved| moved + self.rest);
                        let is_early =
                            what == Purpose::RequestMove && rests.is_some_and(|until| now < until);
                        // A commit without a session is the request of an operator.
                        let problem = problem.or((is_early && by.is_some())
                            .then_some("moved for balance soon after it was moved"));
                        if let ShardRecord::Owned(grant) = after {
                            // Its first placement is no move.
                            let before = self.truth.shards.get(&shard);
                            if before.is_some_and(|it| it.value.ownership().is_some()) {
                                self.moved_at.insert(shard.clone(), now);
                            } else {
                                self.moved_at.remove(&shard);
                            }
                            self.granted.insert(shard.clone(), grant.epoch);
                            *self.grants.entry(shard.clone()).or_default() += 1;
                        }
                        problem.map(|it| format!("{shard}: {it}"))
                    }
                    Some(Key::Leader) => self.leader_written(by).map(str::to_owned),
                    Some(Key::Gone(id)) => {
                        let gone: GoneRecord = decode(value).unwrap();
                        let owns = self.truth.owned_by(&id, gone.incarnation).next().is_some();
                        let is_there = self.truth.node(&id, gone.incarnation).is_some();
                        let is_dead = gone.how == Departure::Down;
                        (is_dead && (owns || is_there))
                            .then(|| format!("{id} noted as dead while it is there or owns"))
                    }
                    Some(Key::Config) => {
                        let after: ConfigRecord = decode(value).unwrap();
                        let before = self.truth.config.as_ref();
                        let loses = before.is_some_and(|before| {
                            let mut regions = before.value.regions.iter();
                            regions.any(|(name, it)| after.regions.get(name) != Some(it))
                        });
                        loses.then(|| "the configuration lost a region".to_owned())
                    }
                    Some(Key::Mode | Key::Beat) | None => None,
                },
                Write::Delete { key } => match self.keys.parse(key) {
                    Some(Key::Node(id)) => self.truth.nodes.get(&id).and_then(|node| {
                        let owns = self.truth.owned_by(&id, node.created).next().is_some();
                        if node.session != by {
                            Some(format!("{id}: another process deleted the record"))
                        } else {
                            owns.then(|| format!("{id}: removed while it owns a shard"))
                        }
                    }),
                    Some(Key::Leader) => self
                        .truth
                        .leader
                        .as_ref()
                        .filter(|leader| leader.session != by)
                        .map(|_| "the lead of another process was deleted".to_owned()),
                    Some(Key::Config | Key::Mode | Key::Beat | Key::Gone(_) | Key::Shard(_))
                    | None => None,
                },
            };
            if let Some(problem) = problem {
                return self.found(now, format!("{what:?}: {problem}"));
            }
        }
    }

    fn node_written(
        &self,
        what: Purpose,
        before: Option<&Versioned<NodeRecord>>,
        after: &NodeRecord,
        by: Option<SessionId>,
    ) -> Option<&'static str> {
        let Some(before) = before else {
            return (what != Purpose::Join).then_some("written after it was gone");
        };
        let own = matches!(what, Purpose::Announce | Purpose::Leave);
        let owns_region = |id| {
            let mut owned = self.truth.owned_by(id, before.created);
            owned.any(|(shard, _)| self.truth.kind(&shard.region) == RegionKind::Region)
        };
        let id = self.truth.nodes.iter().find(|(_, it)| it.created == before.created)?.0;
        match () {
            () if what == Purpose::Join => Some("joined twice"),
            () if own && before.session != by => Some("another process wrote the record"),
            () if after.state < before.value.state => Some("the state went back"),
            () if after.drain < before.value.drain => Some("the drain went back"),
            () if what == Purpose::Up && !before.value.ready => Some("up before it was ready"),
            () if after.state == NodeState::Exiting && owns_region(id) => {
                Some("exiting while it owns a shard of a region")
            }
            () => None,
        }
    }

    fn leader_written(&self, by: Option<SessionId>) -> Option<&'static str> {
        if self.truth.leader.is_some() {
            return Some("the lead was taken from a leader");
        }
        let is_there = self.truth.nodes.values().any(|node| node.session == by);
        (!is_there).then_some("a node leads that has no record")
    }

    fn shard_written(
        &self,
        what: Purpose,
        shard: &ShardId,
        after: &ShardRecord,
        by: Option<SessionId>,
    ) -> Option<&'static str> {
        let before = self.truth.shards.get(shard).map(|it| &it.value);
        let owner = before.and_then(ShardRecord::ownership);
        let owner_record = owner.and_then(|it| self.truth.node(&it.owner, it.incarnation));
        let can_receive = |id, incarnation: Option<Revision>| {
            self.truth.nodes.get(id).is_some_and(|node| {
                incarnation.is_none_or(|it| node.created == it)
                    && node.value.state == NodeState::Up
                    && node.value.drain == Drain::Nothing
                    && node.value.ready
            })
        };
        let wrong = match what {
            Purpose::Configure => before.map(|_| "created while it was there"),
            Purpose::Place => {
                (before != Some(&ShardRecord::Free)).then_some("placed while it was not free")
            }
            Purpose::Take | Purpose::Free => match (owner, owner_record) {
                (None, _) => Some("taken while no node owned it"),
                (_, Some(_)) => Some("taken from the living"),
                _ => None,
            },
            Purpose::HandOver | Purpose::GiveBack => {
                // Only the session that owns the shard may write this.
                match owner_record {
                    Some(record) if record.session == by => None,
                    _ => Some("handed over by a process that does not own it"),
                }
            }
            Purpose::RequestMove => match (before, after) {
                (Some(ShardRecord::Owned(before)), ShardRecord::Moving { ownership, .. })
                    if before == ownership =>
                {
                    None
                }
                // Only an operator gives a move another target.
                (
                    Some(ShardRecord::Moving { ownership: before, .. }),
                    ShardRecord::Moving { ownership, .. },
                ) if before == ownership && by.is_none() => None,
                _ => Some("a move changed the owner"),
            },
            _ => Some("written by a commit that is not about shards"),
        };
        let granted = self.granted.get(shard).copied().unwrap_or_default();
        wrong.or(match after {
            ShardRecord::Free => None,
            ShardRecord::Owned(grant) if !can_receive(&grant.owner, Some(grant.incarnation)) => {
                Some("given to a node that cannot receive it")
            }
            ShardRecord::Owned(grant) => {
                (grant.epoch <= granted).then_some("the fence did not rise")
            }
            ShardRecord::Moving { to, .. } => {
                (!can_receive(to, None)).then_some("moving to a node that cannot receive it")
            }
        })
    }
}
