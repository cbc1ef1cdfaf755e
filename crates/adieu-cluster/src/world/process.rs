//! One simulated process: a node's machine, the actions of its driver, and its faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{MILLI, SECOND, Time};
use crate::member::{Answer, Declared, Goal, Next, Stage};
use crate::node::Node;
use crate::proposal::{Purpose, Wake};
use crate::records::{
    ConfigRecord, Drain, Keys, NodeId, NodeRecord, NodeState, RegionConfig, RegionKind, ShardId,
};
use crate::region::ShardState;
use crate::settings::Settings;
use crate::store::{Commit, Committed, Revision, Session, SessionId, Snapshot, Standing, Update};

/// How long each phase of a shutdown may take.
const PHASE: Duration = Duration::from_secs(10);

pub(super) struct Start {
    pub(super) id: NodeId,
    pub(super) generation: u32,
    pub(super) rate: f64,
    pub(super) build: String,
    pub(super) ready: bool,
}

pub(super) struct Process {
    start: Start,
    settings: Settings,
    keys: Keys,
    pub(super) rate: f64,
    pub(super) state: State,
    pub(super) faults: Faults,
    pub(super) session: Option<Session>,
    node: Option<Node>,
    /// The requests that are not answered yet.
    pending: BTreeMap<u64, (Pending, Instant)>,
    next_number: u64,
    /// The number of the open watch.
    pub(super) watch: Option<u32>,
    watches: u32,
    /// Whether the watch has missed changes. It receives none until the table is loaded again.
    pub(super) is_deaf: bool,
    pub(super) last_change: Time,
    pub(super) wake_at: Option<Time>,
    draining: BTreeSet<(ShardId, Revision)>,
    /// The current phase of its shutdown, and when that phase ends.
    leaving: Option<(Phase, Instant)>,
    retry_load: Option<Instant>,
    stage: Option<Stage>,
    /// How long work takes to end; random unless it is set.
    pub(super) drain_takes: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Paused { until: Time },
    Ended,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) is_cut: bool,
    pub(super) hangs: bool,
    pub(super) delay: Time,
    pub(super) loses: f64,
    pub(super) late: f64,
}

/// The phases of a shutdown that concern the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Regions,
    Leave,
    Acknowledgement,
    Singletons,
    Removal,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Open,
    Keep,
    Close,
    Load,
    Commit,
}

pub(super) enum Request {
    Open(Duration),
    Keep(SessionId),
    Close(SessionId),
    Load,
    Commit(Purpose, Commit),
}

pub(super) enum Response {
    Opened(Session),
    Kept(Standing),
    Closed,
    Loaded(Snapshot),
    Committed(Committed),
    NoSession,
    /// No response arrived in time.
    None,
}

pub(super) enum Outgoing {
    Send { number: u64, request: Request, patience: Duration },
    Wake(Instant),
    Drain { shard: ShardId, epoch: Revision, takes: Time },
    Note(String),
}

// === impl Process ===

impl Process {
    pub(super) fn new(start: Start, settings: Settings, keys: Keys) -> Self {
        Self {
            rate: start.rate,
            start,
            settings,
            keys,
            state: State::Running,
            faults: Faults::default(),
            session: None,
            node: None,
            pending: BTreeMap::new(),
            next_number: 0,
            watch: None,
            watches: 0,
            is_deaf: false,
            last_change: 0,
            wake_at: None,
            draining: BTreeSet::new(),
            leaving: None,
            retry_load: None,
            stage: None,
            drain_takes: None,
        }
    }

    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.start.id, self.start.generation)
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.id)
    }

    pub(super) fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    pub(super) fn is_member(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.stage() == Stage::Up)
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Returns the shards in which work runs now, by this process's own clock.
    pub(super) fn running(&self, now: Instant) -> impl Iterator<Item = (&ShardId, Revision)> {
        let node = self.node.as_ref().filter(|node| node.is_good(now));
        let node = node.filter(|_| self.state != State::Ended);
        let held = node.into_iter().flat_map(Node::held);
        held.filter(|(_, held)| held.state != ShardState::Drained)
            .map(|(shard, held)| (shard, held.epoch))
    }

    /// Returns whether it is up, ready, and can host shards of a region.
    pub(super) fn hosts(&self, region: &str) -> bool {
        let node = self.node.as_ref().filter(|_| self.state == State::Running);
        node.is_some_and(|node| crate::allocate::is_candidate(node.view(), region, &self.start.id))
    }

    pub(super) fn set_ready(&mut self, ready: bool) {
        self.start.ready = ready;
    }

    pub(super) fn begin_to_leave(&mut self, now: Instant) {
        if self.leaving.is_none() {
            self.leaving = Some((Phase::Regions, now + PHASE));
        }
    }

    pub(super) fn drained(&mut self, shard: &ShardId, epoch: Revision) {
        if let Some(node) = &mut self.node {
            node.drained(shard, epoch);
        }
        self.draining.remove(&(shard.clone(), epoch));
    }

    pub(super) fn changed(&mut self, update: Update, now: Instant) {
        let Some(node) = &mut self.node else { return };
        match update {
            Update::Changed { revision, changes } => {
                node.changed(now, revision, &changes).expect("all builds are the same");
            }
            Update::Compacted => self.watch = None,
        }
    }

    /// Processes an answer. Returns false if the process no longer waits for it.
    pub(super) fn answer(&mut self, number: u64, response: Response, now: Instant) -> bool {
        if self.state == State::Ended {
            return false;
        }
        let Some((pending, sent)) = self.pending.remove(&number) else { return false };
        let node = self.node.as_mut();
        match (pending, response) {
            (Pending::Open, Response::Opened(session)) => {
                let declared = declared(&self.start, session.id);
                self.session = Some(session);
                self.node = Some(Node::new(self.settings, self.keys.clone(), declared, sent));
            }
            (Pending::Keep, response) => {
                let answer = match response {
                    Response::Kept(Standing::Kept) => Answer::Kept,
                    Response::Kept(Standing::Ended) => Answer::Ended,
                    _ => Answer::None,
                };
                node.expect("a session is kept for a node").kept(now, sent, answer);
            }
            (Pending::Load, Response::Loaded(snapshot)) => {
                // The driver opens the watch at the revision that it has loaded.
                self.watches += 1;
                self.watch = Some(self.watches);
                self.is_deaf = false;
                let node = node.expect("a table is loaded for a node");
                node.loaded(now, &snapshot).expect("all builds are the same");
            }
            (Pending::Load, _) => {
                self.retry_load = Some(now + self.settings.ttl / 20);
                node.expect("a table is loaded for a node").load_failed();
            }
            (Pending::Commit, response) => {
                let node = node.expect("a commit is sent for a node");
                match response {
                    Response::Committed(committed) => node.committed(now, Some(committed)),
                    Response::NoSession => node.session_ended(now),
                    _ => node.committed(now, None),
                }
            }
            (Pending::Open | Pending::Close, _) => {}
        }
        true
    }

    /// Does the work that is due, as the driver would.
    pub(super) fn step(&mut self, now: Instant, rng: &mut fastrand::Rng) -> Vec<Outgoing> {
        let mut out = Vec::new();
        let Some(mut node) = self.node.take() else {
            if self.leaving.is_some() {
                self.state = State::Ended;
            } else if !self.is_pending(Pending::Open) {
                let request = Request::Open(self.settings.ttl);
                out.push(self.send(Pending::Open, request, self.settings.ttl / 3, now));
            }
            return out;
        };
        let mut wake = Wake::default();
        node.member.set_ready(self.start.ready && self.leaving.is_none());
        self.go_through_phases(&mut node, now, &mut wake, &mut out);
        if self.state == State::Ended {
            self.node = Some(node);
            return out;
        }
        match node.keep(now) {
            Next::Wait(until) => wake.at(until),
            Next::Keep(patience) if !self.is_pending(Pending::Keep) => {
                let session = self.session().expect("a node has a session");
                out.push(self.send(Pending::Keep, Request::Keep(session), patience, now));
            }
            Next::Keep(_) | Next::Lost => {}
        }
        // A node that was removed no longer keeps its session, so the end of the session is no event.
        if node.stage() != Stage::Removed {
            wake.at(node.valid_until().max(now + Duration::from_micros(1)));
        }
        if !self.is_pending(Pending::Load)
            && (node.needs_load(now, &mut wake) || self.watch.is_none())
        {
            match self.retry_load.filter(|retry| now < *retry) {
                Some(retry) => wake.at(retry),
                None => {
                    node.load_started();
                    out.push(self.send(Pending::Load, Request::Load, self.settings.ttl / 3, now));
                }
            }
        }
        if let Some(proposal) = node.next(now, &mut wake) {
            let request = Request::Commit(proposal.what, proposal.commit);
            out.push(self.send(Pending::Commit, request, self.settings.ttl / 3, now));
        }
        for (shard, held) in node.held() {
            let key = (shard.clone(), held.epoch);
            if held.state == ShardState::Closing && self.draining.insert(key) {
                let takes = rng.u64(0..500 * MILLI);
                let takes =
                    if rng.u8(0..20) == 0 { takes + rng.u64(0..15 * SECOND) } else { takes };
                let takes = self.drain_takes.unwrap_or(takes);
                out.push(Outgoing::Drain { shard: shard.clone(), epoch: held.epoch, takes });
            }
        }
        if self.stage != Some(node.stage()) {
            self.stage = Some(node.stage());
            out.push(Outgoing::Note(format!("{} {:?}", node.stage(), node.member.loss())));
        }
        out.extend(wake.get().map(Outgoing::Wake));
        self.node = Some(node);
        out
    }

    /// Runs the tasks of the cluster's phases. Each ends when its goal is reached, or its time is up.
    fn go_through_phases(
        &mut self,
        node: &mut Node,
        now: Instant,
        wake: &mut Wake,
        out: &mut Vec<Outgoing>,
    ) {
        if node.stage() == Stage::Down {
            self.state = State::Ended;
            out.push(Outgoing::Note(format!("ends: {:?}", node.member.loss())));
            return;
        }
        if self.leaving.is_none() && node.is_asked_to_leave() {
            self.leaving = Some((Phase::Regions, now + PHASE));
        }
        while let Some((phase, until)) = self.leaving {
            let me = node.me();
            let owns = |kind: Option<RegionKind>| {
                let owned = me.iter().flat_map(|me| node.view().owned_by(&me.id, me.incarnation));
                let mut regions = owned.map(|(shard, _)| node.view().kind(&shard.region));
                regions.any(|of| kind.is_none_or(|kind| of == kind))
            };
            let stage = node.stage();
            let drain = me.as_ref().and_then(|me| node.view().node(&me.id, me.incarnation));
            let drain = drain.map_or(Drain::Nothing, |record| record.value.drain);
            let (goal, is_done) = match phase {
                _ if stage == Stage::Outside && !self.is_pending(Pending::Commit) => {
                    (Goal::DrainRegions, true)
                }
                Phase::Regions => {
                    (Goal::DrainRegions, drain >= Drain::Regions && !owns(Some(RegionKind::Region)))
                }
                Phase::Leave => (Goal::Leave, stage >= Stage::Leaving),
                Phase::Acknowledgement => (Goal::Leave, stage >= Stage::Exiting),
                Phase::Singletons => {
                    (Goal::DrainSingletons, drain == Drain::Singletons && !owns(None))
                }
                Phase::Removal => (Goal::BeRemoved, stage == Stage::Removed),
                Phase::Close => (Goal::BeRemoved, !self.is_pending(Pending::Close)),
            };
            node.member.raise_goal(goal);
            if !is_done && now < until {
                wake.at(until);
                return;
            }
            let next = match phase {
                Phase::Regions => Phase::Leave,
                Phase::Leave => Phase::Acknowledgement,
                Phase::Acknowledgement => Phase::Singletons,
                Phase::Singletons => Phase::Removal,
                Phase::Removal => {
                    // If work still runs, its session is not closed but left to expire.
                    if self.running(now).next().is_none()
                        && node.held().all(|(_, held)| held.state == ShardState::Drained)
                    {
                        let session = self.session().expect("a node has a session");
                        let patience = self.settings.ttl / 3;
                        out.push(self.send(Pending::Close, Request::Close(session), patience, now));
                    }
                    Phase::Close
                }
                Phase::Close => {
                    self.state = State::Ended;
                    out.push(Outgoing::Note(format!("has left ({stage})")));
                    return;
                }
            };
            self.leaving = Some((next, now + PHASE));
        }
    }

    fn is_pending(&self, what: Pending) -> bool {
        self.pending.values().any(|(pending, _)| *pending == what)
    }

    fn send(
        &mut self,
        pending: Pending,
        request: Request,
        patience: Duration,
        now: Instant,
    ) -> Outgoing {
        self.next_number += 1;
        self.pending.insert(self.next_number, (pending, now));
        Outgoing::Send { number: self.next_number, request, patience }
    }

    /// Checks, long after the last fault, that the process has reached the state that it aims for.
    /// Returns whether it is up.
    pub(super) fn is_settled(
        &self,
        now: Instant,
        is_cluster_running: bool,
    ) -> Result<bool, String> {
        if self.state == State::Ended {
            return Ok(false);
        }
        let Some(node) = &self.node else { return Err("has no session".to_owned()) };
        if self.leaving.is_some() {
            return Err(format!("is to leave, but is {}", node.stage()));
        }
        match node.stage() {
            Stage::Up if node.is_good(now) => {
                let record = node.me().and_then(|me| node.view().nodes.get(&me.id).cloned());
                Ok(record.is_some_and(|it| it.value.ready && it.value.state == NodeState::Up))
            }
            Stage::Joining if !self.start.ready => Ok(false),
            Stage::Outside | Stage::Joining if !is_cluster_running => Ok(false),
            // Another process has taken the name.
            Stage::Outside if node.view().nodes.contains_key(&self.start.id) => Ok(false),
            stage => Err(format!("is {stage}, session good: {}", node.is_good(now))),
        }
    }
}

/// Returns the regions that a process of this name declares. They differ between processes.
fn regions(id: &NodeId) -> BTreeMap<Arc<str>, RegionConfig> {
    let region = |kind, shards| RegionConfig { kind, shards };
    let is_odd = id.as_str().ends_with(['1', '3']);
    let is_second = id.as_str().ends_with('2');
    let regions = [
        Some(("alpha", region(RegionKind::Singleton, 1))),
        is_odd.then_some(("beta", region(RegionKind::Singleton, 1))),
        Some(("cart", region(RegionKind::Region, 3))),
        is_second.then_some(("delta", region(RegionKind::Singleton, 1))),
        (!is_odd).then_some(("user", region(RegionKind::Region, 1))),
    ];
    regions.into_iter().flatten().map(|(name, config)| (name.into(), config)).collect()
}

fn declared(start: &Start, session: SessionId) -> Declared {
    let regions = regions(&start.id);
    Declared {
        id: start.id.clone(),
        session,
        record: NodeRecord {
            state: NodeState::Joining,
            ready: start.ready,
            drain: Drain::Nothing,
            address: None,
            build: start.build.clone(),
            zone: None,
            weight: 1,
            hosts: regions.keys().cloned().collect(),
            protocol: (1, 1),
        },
        config: ConfigRecord { protocol: 1, regions },
    }
}
