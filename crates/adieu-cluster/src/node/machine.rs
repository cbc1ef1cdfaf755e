//! One node: its session, its membership, its shards, its leadership, and the one commit that it may
//! have in flight. Pure: the time, views and answers come in; proposals go out.
//!
//! # Invariants
//!
//! 1. A node decides from a view that is at least as new as its own last commit. After a conflict it
//!    waits for a newer view; after a lost answer it loads the table before it decides anything.
//! 2. A node whose session is bad by its own clock proposes nothing and holds nothing.
//! 3. The table only goes forward. A node that sees an earlier state than before loses its place: the
//!    fences that come next have been used already.

use std::time::{Duration, Instant};

use crate::allocate::Eligible;
use crate::commits::{BATCH, Commits, Me};
use crate::leader::{Known, Leader};
use crate::member::{Answer, Declared, Heartbeat, Loss, Member, Next, Stage};
use crate::observed::Observed;
use crate::proposal::{Proposal, Wake};
use crate::records::{Keys, NodeId, ShardId};
use crate::region::{Held, Regions};
use crate::settings::Settings;
use crate::store::{Change, Committed, Revision, Snapshot};
use crate::view::{UnreadableRecord, View};

/// One node of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    settings: Settings,
    keys: Keys,
    commits: Commits,
    view: View,
    observed: Observed,
    heartbeat: Heartbeat,
    pub(crate) member: Member,
    leader: Leader,
    regions: Regions,
    flight: Flight,
    /// The revision of the view when the last load began. The table that is loaded is not older.
    load_began: Revision,
    /// When the table last reported anything.
    heard: Instant,
    batch: usize,
}

/// The state of the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    /// The commit is settled, and the view includes it.
    Settled,
    /// It was sent, from the view of this revision.
    Sent(Revision),
    /// The commit is settled, and the view is older than the commit.
    Behind { needs: Revision, since: Instant },
    /// Its answer was lost, and the table has not been loaded since.
    Unknown,
    /// Its answer was lost, and the table is being loaded.
    Loading,
}

// === impl Node ===

impl Node {
    /// A node whose session was requested at `sent`.
    pub(crate) fn new(settings: Settings, keys: Keys, declared: Declared, sent: Instant) -> Self {
        Self {
            heartbeat: Heartbeat::new(settings.ttl, settings.margin, sent),
            settings,
            commits: Commits::new(keys.clone()),
            keys,
            view: View::default(),
            observed: Observed::default(),
            member: Member::new(declared),
            leader: Leader::default(),
            regions: Regions::default(),
            // Nothing is decided before the table was loaded.
            flight: Flight::Unknown,
            load_began: Revision::default(),
            heard: sent,
            batch: BATCH,
        }
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    pub(crate) fn stage(&self) -> Stage {
        self.member.stage(&self.view)
    }

    pub(crate) fn is_asked_to_leave(&self) -> bool {
        self.member.is_asked_to_leave(&self.view)
    }

    /// Returns this node as it is in the table, if it is.
    pub(crate) fn me(&self) -> Option<Me> {
        self.member.me()
    }

    /// The end of the session, if it is not kept again.
    pub(crate) fn valid_until(&self) -> Instant {
        self.heartbeat.valid_until()
    }

    /// When the last successful request to keep the session was sent.
    pub(crate) fn renewed(&self) -> Instant {
        self.heartbeat.proven()
    }

    /// When the table last reported anything.
    pub(crate) fn heard(&self) -> Instant {
        self.heard
    }

    /// Returns the nodes that vanished without having left, and since when.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&NodeId, Instant)> {
        self.observed.missing().map(|(id, _, since)| (id, since))
    }

    /// Returns whether this node may act, by its own clock.
    pub(crate) fn is_good(&self, now: Instant) -> bool {
        self.heartbeat.is_good(now) && self.member.loss().is_none()
    }

    /// Returns the shards that this node owns. Work may run in those that are open or closing while
    /// [`Node::is_good`] holds.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&ShardId, Held)> {
        self.regions.held()
    }

    // --- events ---

    /// Notes that the table is being loaded. The result of a load that began earlier may be older than
    /// a commit whose answer was lost, so only a load that begins now settles that commit.
    pub(crate) fn load_started(&mut self) {
        self.load_began = self.view.revision;
        if self.flight == Flight::Unknown {
            self.flight = Flight::Loading;
        }
    }

    /// Records that the table could not be loaded.
    pub(crate) fn load_failed(&mut self) {
        if self.flight == Flight::Loading {
            self.flight = Flight::Unknown;
        }
    }

    /// Processes a table that was loaded.
    pub(crate) fn loaded(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
    ) -> Result<(), UnreadableRecord> {
        if snapshot.revision < self.load_began {
            self.went_back(now);
            return Ok(());
        }
        // Changes that arrived while the table was loaded may be newer.
        if snapshot.revision >= self.view.revision {
            self.view = View::load(&self.keys, snapshot)?;
        }
        if self.flight == Flight::Loading {
            self.flight = Flight::Settled;
        }
        self.see(now);
        Ok(())
    }

    /// Processes changes of the table.
    pub(crate) fn changed(
        &mut self,
        now: Instant,
        revision: Revision,
        changes: &[Change],
    ) -> Result<(), UnreadableRecord> {
        // Changes that a load has overtaken would bring old versions back.
        let newer: Vec<Change> = changes
            .iter()
            .filter(|change| change.revision() > self.view.revision)
            .cloned()
            .collect();
        self.view.apply(&self.keys, revision, &newer)?;
        self.see(now);
        Ok(())
    }

    fn see(&mut self, now: Instant) {
        self.heard = now;
        self.catch_up();
        self.observed.see(now, &self.view);
        self.member.see(&self.view);
        self.fence(now);
        match self.member.me() {
            Some(me) if self.is_good(now) => self.regions.see(&me, &self.view),
            _ => self.regions.lose_all(),
        }
    }

    /// Processes the answer to the commit in flight: `None` if it failed or was not answered.
    pub(crate) fn committed(&mut self, now: Instant, answer: Option<Committed>) {
        let Flight::Sent(decided) = self.flight else { return };
        if let Some(Committed::Done(revision)) = answer
            && revision < decided
        {
            self.went_back(now);
        }
        self.flight = match answer {
            Some(Committed::Done(revision)) => {
                self.batch = (self.batch * 2).min(BATCH);
                Flight::Behind { needs: revision, since: now }
            }
            Some(Committed::Conflict) => {
                // A commit of many shards fails if one of them has changed, so smaller commits follow.
                self.batch = (self.batch / 2).max(1);
                let needs = Revision::new(decided.get() + 1);
                Flight::Behind { needs, since: now }
            }
            None => Flight::Unknown,
        };
        self.catch_up();
    }

    fn catch_up(&mut self) {
        if let Flight::Behind { needs, .. } = self.flight
            && needs <= self.view.revision
        {
            self.flight = Flight::Settled;
        }
    }

    /// Processes the answer to a request to keep the session.
    pub(crate) fn kept(&mut self, now: Instant, sent: Instant, answer: Answer) {
        if answer == Answer::Ended {
            self.member.lose(Loss::Ended);
        }
        self.heartbeat.answered(now, sent, answer);
        self.fence(now);
    }

    /// Processes an answer of the store that the session has ended.
    pub(crate) fn session_ended(&mut self, now: Instant) {
        self.member.lose(Loss::Ended);
        self.fence(now);
    }

    fn went_back(&mut self, now: Instant) {
        self.member.lose(Loss::WentBack);
        self.fence(now);
    }

    /// Marks the session as lost, because another task of this process has seen first that its time is
    /// up.
    pub(crate) fn expire(&mut self) {
        self.member.lose(Loss::Expired);
        self.heartbeat.lose();
        self.regions.lose_all();
    }

    /// Everything that ran in a shard under this epoch has ended.
    pub(crate) fn drained(&mut self, shard: &ShardId, epoch: Revision) {
        self.regions.drained(shard, epoch);
    }

    /// Loses the node's place if its session is bad, and all its shards with it.
    fn fence(&mut self, now: Instant) {
        if !self.heartbeat.is_good(now) {
            self.member.lose(Loss::Expired);
        }
        if self.member.loss().is_some() {
            self.heartbeat.lose();
            self.regions.lose_all();
        }
    }

    // --- what to do ---

    /// Returns what to do about the session.
    pub(crate) fn keep(&mut self, now: Instant) -> Next {
        self.fence(now);
        self.heartbeat.next(now)
    }

    /// Returns whether the table must be loaded: the last answer was lost, or the watch is late.
    pub(crate) fn needs_load(&self, now: Instant, wake: &mut Wake) -> bool {
        let mut is_over = |since: Instant, patience: Duration| {
            let until = since + patience;
            if now < until {
                wake.at(until);
            }
            until <= now
        };
        let is_silent = is_over(self.heard, self.settings.ttl);
        match self.flight {
            Flight::Unknown => true,
            Flight::Behind { since, .. } => is_over(since, self.settings.ttl / 10) || is_silent,
            Flight::Settled | Flight::Sent(_) => is_silent,
            Flight::Loading => false,
        }
    }

    /// Returns the commit to send now, if there is one. Its answer goes to [`Node::committed`].
    pub(crate) fn next(&mut self, now: Instant, wake: &mut Wake) -> Option<Proposal> {
        self.fence(now);
        if self.flight != Flight::Settled || self.member.loss().is_some() {
            return None;
        }
        let proposal = self.decide(now, wake)?;
        self.flight = Flight::Sent(self.view.revision);
        Some(proposal)
    }

    fn decide(&mut self, now: Instant, wake: &mut Wake) -> Option<Proposal> {
        let Self { settings, commits, view, observed, member, leader, regions, batch, .. } = self;
        let Some(me) = member.me() else { return member.decide(view, commits) };
        if member.stage(view) == Stage::Removed {
            return None;
        }
        let (fresh, _) = observed.fresh(now, settings.settle);
        let eligible = Eligible { fresh: &fresh, without: Some(&me.id) };
        let hand_over = regions.decide(&me, view, eligible, commits, *batch);
        let own = hand_over.or_else(|| member.decide(view, commits));
        own.or_else(|| {
            let known = Known { now, me: &me, view, observed, settings, commits, batch: *batch };
            leader.decide(known, wake)
        })
    }
}

#[cfg(test)]
mod tests;
