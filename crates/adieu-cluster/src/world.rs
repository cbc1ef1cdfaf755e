//! A simulated cluster: the machines of several nodes, the table of the memory store, a network and
//! processes that fail. One thread, one seed, no waiting; the same seed is the same run.
//!
//! `ADIEU_WORLD_SEEDS=100000 cargo test --release -p adieu-cluster --lib s600` runs that many
//! seeds.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test is about some cases, and fails on others"
)]

mod host;
mod judge;
mod ledger;
mod links;
mod messages;
mod owner;
mod plan;
mod process;
mod scenarios;
mod search;
mod traffic;
mod upkeep;
mod wires;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use judge::Judge;
use plan::{Fault, Plan};
use process::{Outgoing, Process, Request, Response, State};
use traffic::{Signal, Traffic};

use crate::allocate::is_candidate;
use crate::commits::Target;
use crate::moving;
use crate::proposal::Purpose;
use crate::records::{Keys, Mode, NodeId, NodeState, ShardId};
use crate::settings::Settings;
use crate::store::commit::Compare;
use crate::store::table::Table;
use crate::store::{Commit, Committed, Revision, Update};

/// Microseconds since the world began, by the store's clock.
type Time = u64;

const MILLI: Time = 1_000;
const SECOND: Time = 1_000 * MILLI;

/// More events than any world needs.
const MOST_EVENTS: u64 = 2_000_000;

/// A comparison that is removed from the commits of one kind, to see that the judge notices.
#[derive(Clone, Copy)]
struct Broken {
    what: Purpose,
    compare: fn(&Compare) -> bool,
}

struct World {
    rng: fastrand::Rng,
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    events: std::collections::BTreeMap<u64, Event>,
    sequence: u64,
    keys: Keys,
    settings: Settings,
    table: Table,
    /// The newest revision that the watches have reported.
    reported: Revision,
    processes: Vec<Process>,
    judge: Judge,
    traffic: Traffic,
    broken: Option<Broken>,
    log: Option<Vec<String>>,
}

enum Event {
    /// A process checks its timers.
    Wake(usize),
    /// A request arrives at the store.
    Request(usize, u64, Request),
    /// An answer arrives at a process.
    Response(usize, u64, Response),
    /// A request was not answered in time.
    TimedOut(usize, u64),
    /// Changes arrive at a process.
    Changes(usize, u32, Update),
    /// The work in a shard has ended.
    Drained(usize, ShardId, Revision),
    /// A session may have ended.
    Expire,
    Traffic(Signal),
    Fault(Fault),
}

// === impl World ===

impl World {
    fn new(seed: u64, settings: Settings, broken: Option<Broken>) -> Self {
        let keys = Keys::new("world").unwrap();
        Self {
            rng: fastrand::Rng::with_seed(seed),
            now: 0,
            queue: BinaryHeap::new(),
            events: std::collections::BTreeMap::new(),
            sequence: 0,
            judge: Judge::new(keys.clone(), settings.rest),
            keys,
            settings,
            table: Table::default(),
            reported: Revision::default(),
            processes: Vec::new(),
            traffic: Traffic::new(seed, false),
            broken,
            log: None,
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((at.max(self.now), self.sequence)));
        self.events.insert(self.sequence, event);
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>9.3}s {}", self.now as f64 / SECOND as f64, text()));
        }
    }

    /// Runs until `end`, or until the judge has found something.
    fn run_until(&mut self, end: Time) {
        while let Some(Reverse((at, number))) = self.queue.peek().copied() {
            if at > end || self.judge.verdict().is_some() {
                break;
            }
            self.queue.pop();
            self.now = self.now.max(at);
            if self.sequence > MOST_EVENTS {
                self.judge.found(self.now, "the world does not come to rest");
            }
            if let Some(event) = self.events.remove(&number) {
                self.happen(event);
                self.look();
            }
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, event: Event) {
        // Events for a suspended process are delivered when it resumes.
        if let Event::Wake(at)
        | Event::Response(at, ..)
        | Event::TimedOut(at, _)
        | Event::Changes(at, ..)
        | Event::Drained(at, ..) = &event
            && let State::Paused { until } = self.processes[*at].state
        {
            if until > self.now {
                return self.schedule(until, event);
            }
            self.processes[*at].state = State::Running;
        }
        if let Event::Traffic(signal) = &event
            && let Some(process) = self.processes.get_mut(signal.at())
            && let State::Paused { until } = process.state
        {
            if until > self.now {
                self.deferred(signal, until);
                return self.schedule(until, event);
            }
            process.state = State::Running;
        }
        match event {
            Event::Wake(at) => {
                if self.processes[at].wake_at.is_some_and(|wake| wake <= self.now) {
                    self.processes[at].wake_at = None;
                    self.step(at);
                }
            }
            Event::Request(at, number, request) => self.serve(at, number, request),
            Event::Response(at, number, response) => {
                let now = self.local(at);
                let loaded = match &response {
                    Response::Loaded(snapshot) => Some(snapshot.revision),
                    _ => None,
                };
                if self.processes[at].answer(number, response, now) {
                    loaded.into_iter().for_each(|after| self.watch(at, after));
                    self.step(at);
                }
            }
            Event::TimedOut(at, number) => {
                let now = self.local(at);
                if self.processes[at].answer(number, Response::None, now) {
                    self.step(at);
                }
            }
            Event::Changes(at, watch, update) => {
                let now = self.local(at);
                let process = &mut self.processes[at];
                if process.watch == Some(watch) && process.state != State::Ended {
                    process.changed(update, now);
                    self.step(at);
                }
            }
            Event::Drained(at, shard, epoch) => {
                self.processes[at].drained(&shard, epoch);
                self.step(at);
            }
            Event::Expire => {
                self.table.expire(Duration::from_micros(self.now));
                self.after_table();
            }
            Event::Traffic(signal) => self.happens_to_message(signal),
            Event::Fault(fault) => self.inflict(fault),
        }
    }

    /// A process has loaded the table, and watches it from there.
    fn watch(&mut self, at: usize, after: Revision) {
        let Some(watch) = self.processes[at].watch else { return };
        if self.processes[at].faults.hangs {
            self.processes[at].is_deaf = true;
            return;
        }
        if let Some(update) = self.table.changes(self.keys.prefix(), after) {
            let delay = self.rng.u64(MILLI..20 * MILLI);
            self.processes[at].last_change = self.now + delay;
            self.schedule(self.now + delay, Event::Changes(at, watch, update));
        }
    }

    /// A process's own clock.
    fn local(&self, at: usize) -> Instant {
        local(self.now, self.processes[at].rate)
    }

    /// Lets a process do the work that is due.
    fn step(&mut self, at: usize) {
        if self.processes[at].state == State::Running {
            self.act(at);
        }
        self.refresh(at);
    }

    fn act(&mut self, at: usize) {
        let now = self.local(at);
        let outgoing = self.processes[at].step(now, &mut self.rng);
        for outgoing in outgoing {
            match outgoing {
                Outgoing::Send { number, request, patience } => {
                    let rate = self.processes[at].rate;
                    let patience = (patience.as_micros() as f64 / rate) as Time;
                    self.schedule(self.now + patience, Event::TimedOut(at, number));
                    if let Some(delay) = self.network(at) {
                        self.schedule(self.now + delay, Event::Request(at, number, request));
                    }
                }
                Outgoing::Wake(instant) => {
                    let when = self.when(at, instant);
                    let wake = &mut self.processes[at].wake_at;
                    if wake.is_none_or(|before| when < before) {
                        *wake = Some(when);
                        self.schedule(when, Event::Wake(at));
                    }
                }
                Outgoing::Drain { shard, epoch, takes } => {
                    if self.traffic.is_on && matches!(&*shard.region, "cart" | "user") {
                        continue; // Messages run in it.
                    }
                    self.schedule(self.now + takes, Event::Drained(at, shard, epoch));
                }
                Outgoing::Note(text) => {
                    let name = self.processes[at].name();
                    self.note(|| format!("{name}: {text}"));
                }
            }
        }
    }

    /// Returns when a process's own clock shows an instant.
    fn when(&self, at: usize, instant: Instant) -> Time {
        let since = instant.saturating_duration_since(*ORIGIN);
        let when = (since.as_micros() as f64 / self.processes[at].rate).ceil() as Time + 1;
        when.max(self.now + 1)
    }

    /// Returns how long a message between a process and the store takes; `None` if it is lost.
    fn network(&mut self, at: usize) -> Option<Time> {
        let faults = self.processes[at].faults;
        if faults.is_cut || self.rng.f64() < faults.loses {
            return None;
        }
        let usual = self.rng.u64(MILLI / 2..20 * MILLI);
        if self.rng.f64() < faults.late {
            return Some(usual + self.rng.u64(0..8 * SECOND));
        }
        Some(usual + faults.delay)
    }

    fn serve(&mut self, at: usize, number: u64, request: Request) {
        let now = Duration::from_micros(self.now);
        self.table.expire(now);
        self.after_table();
        let response = match request {
            Request::Open(ttl) => {
                let session = self.table.open(ttl, now);
                self.schedule_expiry();
                Response::Opened(session)
            }
            Request::Keep(session) => {
                let standing = self.table.keep(session, now);
                self.schedule_expiry();
                Response::Kept(standing)
            }
            Request::Close(session) => {
                self.table.end(session);
                self.after_table();
                Response::Closed
            }
            Request::Load => {
                let snapshot = self.table.load(self.keys.prefix());
                Response::Loaded(snapshot)
            }
            Request::Commit(what, commit) => self.commit(at, what, &commit),
        };
        if let Some(delay) = self.network(at) {
            self.schedule(self.now + delay, Event::Response(at, number, response));
        }
    }

    fn commit(&mut self, at: usize, what: Purpose, commit: &Commit) -> Response {
        let mut commit = commit.clone();
        if let Some(missing) = crate::commits::tests::missing_comparison(what, &commit) {
            self.judge.found(self.now, format!("{what:?} without a comparison: {missing}"));
        }
        if let Some(broken) = self.broken.filter(|broken| broken.what == what) {
            commit.compares.retain(|compare| !(broken.compare)(compare));
        }
        let session = self.processes[at].session();
        let name = self.processes[at].name();
        let answer = match self.table.commit(&commit) {
            Ok(Committed::Done(revision)) => {
                self.note(|| format!("store: {what:?} of {name} committed as {revision}"));
                self.judge.committed(self.now, what, &commit, session);
                Response::Committed(Committed::Done(revision))
            }
            Ok(Committed::Conflict) => {
                self.note(|| format!("store: {what:?} of {name} conflicts"));
                Response::Committed(Committed::Conflict)
            }
            Err(_) => Response::NoSession,
        };
        self.after_table();
        answer
    }

    fn schedule_expiry(&mut self) {
        if let Some(end) = self.table.next_end() {
            self.schedule(end.as_micros() as Time, Event::Expire);
        }
    }

    /// Reports the changes to the judge and to all watches.
    fn after_table(&mut self) {
        let Some(update) = self.table.changes(self.keys.prefix(), self.reported) else { return };
        let Update::Changed { revision, changes } = &update else { unreachable!() };
        self.judge.truth_changed(*revision, changes);
        self.reported = *revision;
        for at in 0..self.processes.len() {
            let Some(watch) = self.processes[at].watch else { continue };
            let faults = self.processes[at].faults;
            if faults.is_cut || faults.hangs {
                // A watch does not report missed changes later.
                self.processes[at].is_deaf = true;
                continue;
            }
            if self.processes[at].is_deaf {
                continue;
            }
            let delay = self.rng.u64(MILLI / 2..20 * MILLI) + faults.delay;
            let arrives = (self.now + delay).max(self.processes[at].last_change);
            self.processes[at].last_change = arrives;
            self.schedule(arrives, Event::Changes(at, watch, update.clone()));
        }
    }

    /// Two nodes must never run the same shard, by their own clocks.
    fn look(&mut self) {
        for (at, process) in self.processes.iter().enumerate() {
            for (shard, epoch) in process.running(local(self.now, process.rate)) {
                self.judge.runs(self.now, shard, epoch, at);
            }
        }
        self.judge.looked();
        self.look_at_work();
    }

    fn inflict(&mut self, fault: Fault) {
        self.note(|| format!("fault: {fault:?}"));
        match fault {
            Fault::Start { name, generation, ready } => {
                let plan = process::Start {
                    id: NodeId::new(format!("n{name}")).unwrap(),
                    generation,
                    rate: 0.95 + self.rng.f64() * 0.1,
                    build: format!("b{generation}"),
                    ready,
                };
                self.processes.push(Process::new(plan, self.settings, self.keys.clone()));
                self.traffic.start();
                let at = self.processes.len() - 1;
                self.step(at);
            }
            Fault::Crash { at } => {
                if at < self.processes.len() && self.processes[at].state != State::Ended {
                    self.has_crashed(at);
                }
                self.on(at, |process, _| process.state = State::Ended);
            }
            Fault::Pause { at, until } => self.on(at, |process, _| {
                if process.state == State::Running {
                    process.state = State::Paused { until };
                }
            }),
            Fault::Cut { at, is_cut } => self.on(at, |process, _| {
                process.faults.is_cut = is_cut;
                process.is_deaf |= is_cut;
            }),
            Fault::Hang { at, hangs } => self.on(at, |process, _| {
                process.faults.hangs = hangs;
                process.is_deaf |= hangs;
            }),
            Fault::Slow { at, delay } => self.on(at, |process, _| process.faults.delay = delay),
            Fault::Lossy { at, loses, late } => self.on(at, |process, _| {
                process.faults.loses = loses;
                process.faults.late = late;
            }),
            Fault::Ready { at, ready } => self.on(at, |process, _| process.set_ready(ready)),
            Fault::Leave { at } => self.on(at, |process, now| process.begin_to_leave(now)),
            Fault::Compact => self.table.compact(),
            Fault::Revoke { at } => {
                if let Some(session) = self.processes.get(at).and_then(Process::session) {
                    self.table.end(session);
                    self.after_table();
                }
            }
            Fault::OperatorLeave { name } => self.operate(Purpose::Leave, |commits, view| {
                let id = NodeId::new(format!("n{name}")).unwrap();
                let node = view.nodes.get(&id)?;
                (node.value.state <= NodeState::Up).then(|| commits.request_leave(&id, node))
            }),
            Fault::OperatorOut { name } => self.operate(Purpose::Leave, |commits, view| {
                let id = NodeId::new(format!("n{name}")).unwrap();
                Some(commits.out(&id, view.nodes.get(&id)?))
            }),
            Fault::StopAll => self.operate(Purpose::SetMode, |commits, view| {
                Some(commits.set_mode(view.mode.as_ref(), Mode::Stopping))
            }),
            Fault::Move { entity, pick } => self.operate(Purpose::RequestMove, |commits, view| {
                let id = traffic::shard_of(entity);
                let owner = &view.shards.get(&id)?.value.ownership()?.owner;
                let can = |node: &&NodeId| *node != owner && is_candidate(view, &id.region, node);
                let targets: Vec<&NodeId> = view.nodes.keys().filter(can).collect();
                let target = *targets.get(pick % targets.len().max(1))?;
                let target = Target { id: target, record: view.nodes.get(target)? };
                moving::request(commits, view, &id, target).ok()?
            }),
            Fault::BreakLink { from, to } => {
                let notices = self.rng.u64(0..2 * SECOND);
                self.breaks(from, to, notices);
            }
            Fault::CutLink { from, to, is_cut } => self.cuts(from, to, is_cut),
            Fault::CloseLink { from, to } => self.closes_idle(from, to),
        }
    }

    fn on(&mut self, at: usize, act: impl FnOnce(&mut Process, Instant)) {
        if at < self.processes.len() {
            let now = self.local(at);
            act(&mut self.processes[at], now);
            self.step(at);
        }
    }

    /// An operator commits something, from the newest view.
    fn operate(
        &mut self,
        what: Purpose,
        commit: impl FnOnce(&crate::commits::Commits, &crate::view::View) -> Option<Commit>,
    ) {
        let commits = crate::commits::Commits::new(self.keys.clone());
        let Some(commit) = commit(&commits, self.judge.truth()) else { return };
        if let Ok(Committed::Done(_)) = self.table.commit(&commit) {
            match what {
                // It is the commit of the leader, and judged in the same way.
                Purpose::RequestMove => {
                    if let Some(missing) = crate::commits::tests::missing_comparison(what, &commit)
                    {
                        self.judge.found(self.now, format!("operator: no comparison: {missing}"));
                    }
                    self.judge.committed(self.now, what, &commit, None);
                }
                _ => self.judge.operated(what),
            }
        }
        self.after_table();
    }
}

/// A process's own clock. Rates differ by five percent at most.
fn local(now: Time, rate: f64) -> Instant {
    *ORIGIN + Duration::from_micros((now as f64 * rate) as u64)
}

pub(crate) static ORIGIN: LazyLock<Instant> =
    LazyLock::new(|| tokio::time::Instant::now().into_std());

/// The result of the world of one seed.
struct Outcome {
    /// The violation that the judge has found.
    verdict: Option<String>,
    log: Vec<String>,
    applied: std::collections::BTreeMap<Purpose, u64>,
}

/// Runs the world of one seed.
fn run(seed: u64, broken: Option<Broken>, logs: bool) -> Outcome {
    let plan = Plan::of(seed);
    let mut world = World::new(seed, plan.settings, broken);
    world.log = logs.then(Vec::new);
    for (at, fault) in plan.faults {
        world.schedule(at, Event::Fault(fault));
    }
    world.run_until(plan.ends);
    world.final_look();
    let verdict = world.judge.verdict().map(str::to_owned);
    Outcome { verdict, log: world.log.unwrap_or_default(), applied: world.judge.applied }
}

impl World {
    /// Checks the world long after the last fault: every node that was leaving has left, and the nodes
    /// that are up serve every shard.
    fn final_look(&mut self) {
        if self.judge.verdict().is_some() {
            return;
        }
        let mut found = Vec::new();
        let truth = self.judge.truth();
        let is_running = truth.mode() == Mode::Running;
        let mut up = 0;
        for process in &self.processes {
            let now = local(self.now, process.rate);
            match process.is_settled(now, is_running) {
                Ok(is_up) => up += usize::from(is_up),
                Err(problem) => found.push(format!("{}: {problem}", process.name())),
            }
        }
        if up > 0 && is_running {
            for shard in truth.shards.keys() {
                let is_hosted = |process: &Process| process.hosts(&shard.region);
                if !self.processes.iter().any(is_hosted) {
                    continue;
                }
                let runs = |process: &&Process| {
                    let now = local(self.now, process.rate);
                    process.running(now).any(|(running, _)| running == shard)
                };
                if !self.processes.iter().any(|process| runs(&process)) {
                    found.push(format!("{shard} runs nowhere: {:?}", truth.shards.get(shard)));
                }
            }
        }
        found.extend(self.final_look_at_messages());
        if let Some(problem) = found.into_iter().next() {
            self.judge.found(self.now, format!("at the end, {problem}"));
        }
    }
}
