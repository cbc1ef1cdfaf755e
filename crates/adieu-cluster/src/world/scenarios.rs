//! Runs many seeds, and worlds that each show one property.

mod akka;
mod delivery;

use std::collections::BTreeMap;

use super::plan::{Fault, settings};
use super::*;

/// Returns how many seeds to try, and which is the first.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("ADIEU_WORLD_FIRST").unwrap_or(0);
    first..first + number("ADIEU_WORLD_SEEDS").unwrap_or(1_000)
}

#[test]
fn s600_no_seed_shows_two_owners_or_a_leave_that_does_not_end() {
    let (failed, applied) = first_failure(seeds(), None);
    if let Some((seed, verdict)) = failed {
        let log = run(seed, None, true).log;
        panic!("seed {seed}: {verdict}\n{}", log.join("\n"));
    }
    // A kind of commit that no seed reaches was not checked.
    let rare: Vec<_> = ALL.iter().filter(|what| !applied.contains_key(what)).collect();
    assert!(rare.is_empty(), "never committed: {rare:?}");
}

/// In this seed, a process that had been removed woke for ever when its session ended while it closed
/// that session.
#[test]
fn s600_a_removed_process_whose_session_ends_comes_to_rest() {
    assert_eq!(run(91_346, None, false).verdict, None);
}

const ALL: [Purpose; 18] = [
    Purpose::SetMode,
    Purpose::Configure,
    Purpose::Join,
    Purpose::Announce,
    Purpose::Leave,
    Purpose::Remove,
    Purpose::Lead,
    Purpose::Up,
    Purpose::Exiting,
    Purpose::Place,
    Purpose::RequestMove,
    Purpose::HandOver,
    Purpose::GiveBack,
    Purpose::Take,
    Purpose::Free,
    Purpose::Dead,
    Purpose::Forget,
    Purpose::Beat,
];

/// Runs the seeds on all processors. Returns a seed that fails, and how many commits of each kind
/// were applied.
fn first_failure(
    seeds: std::ops::Range<u64>,
    broken: Option<Broken>,
) -> (Option<(u64, String)>, BTreeMap<Purpose, u64>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let found = std::sync::Mutex::new(None::<(u64, String)>);
    let applied = std::sync::Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end || found.lock().unwrap().is_some() {
                        return;
                    }
                    let outcome = run(seed, broken, false);
                    for (what, count) in outcome.applied {
                        *applied.lock().unwrap().entry(what).or_default() += count;
                    }
                    if let Some(verdict) = outcome.verdict {
                        let mut found = found.lock().unwrap();
                        if found.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                            *found = Some((seed, verdict));
                        }
                    }
                }
            });
        }
    });
    (found.into_inner().unwrap(), applied.into_inner().unwrap())
}

const fn is(what: Purpose, compare: fn(&Compare) -> bool) -> Broken {
    Broken { what, compare }
}

fn on_node(compare: &Compare) -> bool {
    compare.key().contains("/node/")
}

fn is_absent(compare: &Compare) -> bool {
    matches!(compare, Compare::Absent(_))
}

fn is_created_at(compare: &Compare) -> bool {
    matches!(compare, Compare::CreatedAt(..))
}

fn is_unchanged(compare: &Compare) -> bool {
    matches!(compare, Compare::Unchanged(..))
}

fn on_shard(compare: &Compare) -> bool {
    compare.key().contains("/shard/")
}

fn on_leader(compare: &Compare) -> bool {
    compare.key().ends_with("/leader")
}

fn on_gone(compare: &Compare) -> bool {
    compare.key().contains("/gone/")
}

fn is_not_created_at(compare: &Compare) -> bool {
    matches!(compare, Compare::NotCreatedAt(..))
}

fn on_config(compare: &Compare) -> bool {
    compare.key().ends_with("/config")
}

/// Every comparison that a property of the world needs. The others limit rival leaders and late
/// writers, and are checked where commits are built.
const COMPARISONS: [(&str, u64, Broken); 20] = [
    ("join: the record is absent", 165, is(Purpose::Join, |it| on_node(it) && is_absent(it))),
    ("up: the record is unchanged", 122, is(Purpose::Up, |it| on_node(it) && is_unchanged(it))),
    ("lead: no node leads", 0, is(Purpose::Lead, |it| on_leader(it) && is_absent(it))),
    ("place: the shard is unchanged", 1624, is(Purpose::Place, on_shard)),
    (
        "place: the target is unchanged",
        803,
        is(Purpose::Place, |it| on_node(it) && is_unchanged(it)),
    ),
    ("move: the shard is unchanged", 452, is(Purpose::RequestMove, on_shard)),
    ("move: the target is unchanged", 131, is(Purpose::RequestMove, on_node)),
    ("hand over: the shard is unchanged", 53, is(Purpose::HandOver, on_shard)),
    (
        "hand over: the target is unchanged",
        378,
        is(Purpose::HandOver, |it| on_node(it) && is_unchanged(it)),
    ),
    ("hand over: own incarnation", 1371, is(Purpose::HandOver, is_created_at)),
    ("give back: the shard is unchanged", 43, is(Purpose::GiveBack, on_shard)),
    ("give back: own incarnation", 3775, is(Purpose::GiveBack, is_created_at)),
    ("free: the shard is unchanged", 157, is(Purpose::Free, on_shard)),
    ("take: the shard is unchanged", 201, is(Purpose::Take, on_shard)),
    ("take: the target is unchanged", 502, is(Purpose::Take, |it| on_node(it) && is_unchanged(it))),
    ("leave: the record is unchanged", 792, is(Purpose::Leave, on_node)),
    ("announce: the record is unchanged", 55, is(Purpose::Announce, on_node)),
    (
        "exiting: the record is unchanged",
        17,
        is(Purpose::Exiting, |it| on_node(it) && is_unchanged(it)),
    ),
    ("remove: own incarnation", 3688, is(Purpose::Remove, |it| on_node(it) && is_created_at(it))),
    ("configure: the configuration is unchanged", 46, is(Purpose::Configure, on_config)),
];

/// The comparisons that no property of the world needs. They limit rival leaders and late writers:
/// what they prevent is repaired by another comparison of the same commit, or by a later commit.
/// Other tests check, where commits are built, that each commit has them.
const OTHERS: [(&str, Broken); 21] = [
    ("join: the configuration is unchanged", is(Purpose::Join, on_config)),
    ("lead: own incarnation", is(Purpose::Lead, on_node)),
    ("up: the leader", is(Purpose::Up, on_leader)),
    ("exiting: the leader", is(Purpose::Exiting, on_leader)),
    ("place: the leader", is(Purpose::Place, on_leader)),
    ("move: the leader", is(Purpose::RequestMove, on_leader)),
    ("take: the leader", is(Purpose::Take, on_leader)),
    ("take: the dead owner", is(Purpose::Take, is_not_created_at)),
    ("free: the leader", is(Purpose::Free, on_leader)),
    ("free: the dead owner", is(Purpose::Free, on_node)),
    ("dead: the leader", is(Purpose::Dead, on_leader)),
    ("dead: the record is absent", is(Purpose::Dead, on_node)),
    ("dead: the note is unchanged", is(Purpose::Dead, on_gone)),
    ("forget: the leader", is(Purpose::Forget, on_leader)),
    ("forget: the note is unchanged", is(Purpose::Forget, on_gone)),
    ("beat: the leader", is(Purpose::Beat, on_leader)),
    ("leave: the leader that resigns", is(Purpose::Leave, on_leader)),
    ("remove: the leader that resigns", is(Purpose::Remove, on_leader)),
    ("remove: the note is unchanged", is(Purpose::Remove, on_gone)),
    ("configure: the shard is absent", is(Purpose::Configure, on_shard)),
    ("mode: unchanged", is(Purpose::SetMode, |it| it.key().ends_with("/mode"))),
];

/// A comparison that is added to a commit is added to one of the lists.
#[test]
fn every_comparison_of_every_commit_is_in_one_list() {
    let needed = COMPARISONS.map(|(name, _, broken)| (name, broken));
    let lists: Vec<(&str, Broken)> = needed.into_iter().chain(OTHERS).collect();
    let mut seen = std::collections::BTreeSet::new();
    for (what, commit) in crate::commits::tests::every_commit() {
        for compare in &commit.compares {
            let of =
                |(_, broken): &&(&str, Broken)| broken.what == what && (broken.compare)(compare);
            let names: Vec<&str> = lists.iter().filter(of).map(|(name, _)| *name).collect();
            let [name] = names[..] else { panic!("{what:?}: {compare:?} is in {names:?}") };
            seen.insert(name);
        }
    }
    let stale: Vec<_> = lists.iter().filter(|(name, _)| !seen.contains(name)).collect();
    assert!(stale.is_empty(), "{:?}", stale.iter().map(|(name, _)| name).collect::<Vec<_>>());
}

/// Without any one comparison, the judge finds something. The seed of each is one that shows it; when
/// the machines change, another may be needed: `ADIEU_WORLD_BREAK=1` prints which.
#[test]
fn the_judge_finds_every_comparison_that_is_missing() {
    if std::env::var("ADIEU_WORLD_BREAK").is_ok() {
        let needed = COMPARISONS.map(|(name, _, broken)| (name, broken));
        for (name, broken) in needed.into_iter().chain(OTHERS) {
            let (found, _) = first_failure(seeds(), Some(broken));
            println!("{name}: {found:?}");
        }
        return;
    }
    for (name, seed, broken) in COMPARISONS {
        assert_eq!(run(seed, None, false).verdict, None, "{name}");
        let found = run(seed, Some(broken), false).verdict.is_some();
        assert!(
            found || first_failure(0..2_000, Some(broken)).0.is_some(),
            "no seed shows that this comparison is missing: {name}"
        );
    }
}

/// A world without faults, with this many nodes that are up. Work ends within ten milliseconds.
fn quiet(nodes: usize) -> World {
    let mut world = World::new(7, settings(), None);
    world.log = Some(Vec::new());
    for name in 0..nodes {
        world.start(name, 0);
    }
    world.run_until(20 * SECOND);
    assert_eq!(world.judge.verdict(), None);
    world
}

impl World {
    fn start(&mut self, name: usize, generation: u32) {
        self.inflict(Fault::Start { name, generation, ready: true });
        let last = self.processes.len() - 1;
        self.processes[last].drain_takes = Some(10 * MILLI);
    }

    /// Lets processes leave at the same instant. Returns how long the last of them took.
    fn leave(&mut self, leavers: &[usize]) -> Time {
        let begun = self.now;
        for at in leavers {
            self.inflict(Fault::Leave { at: *at });
        }
        let has_ended = |world: &Self, at: &usize| world.processes[*at].state == State::Ended;
        while !leavers.iter().all(|at| has_ended(self, at)) {
            assert!(self.now < begun + 60 * SECOND, "does not end:\n{}", self.story());
            self.run_until(self.now + MILLI);
        }
        assert_eq!(self.judge.verdict(), None, "{}", self.story());
        self.now - begun
    }

    fn story(&self) -> String {
        self.log.as_ref().map(|log| log.join("\n")).unwrap_or_default()
    }
}

#[test]
fn s611_a_single_node_leaves_at_once() {
    let mut world = quiet(1);
    let took = world.leave(&[0]);
    // Each commit takes a network round trip of at most 40 ms, and its change as long again.
    assert!(took < SECOND, "{took}:\n{}", world.story());
}

#[test]
fn s612_nodes_that_leave_together_do_not_wait_for_each_other() {
    for leavers in [&[0, 1][..], &[1, 2], &[0, 1, 2]] {
        let mut world = quiet(3);
        let took = world.leave(leavers);
        assert!(took < 2 * SECOND, "{leavers:?} took {took}:\n{}", world.story());
    }
}

#[test]
fn s620_a_leave_ends_while_the_leader_is_dead() {
    let mut world = quiet(3);
    let leader = world.judge.truth().leader.as_ref().unwrap().value.node.clone();
    let at = world.processes.iter().position(|it| it.name() == format!("{leader}.0")).unwrap();
    world.inflict(Fault::Crash { at });
    let took = world.leave(&[(at + 1) % 3]);
    // The session of the leader lasts ten seconds at most; the next leader acknowledges.
    assert!(took < 13 * SECOND, "{took}:\n{}", world.story());
}

#[test]
fn s602_in_a_surge_deployment_of_machines_each_shard_moves_once() {
    let nodes = 3;
    let mut world = quiet(nodes);
    // Let the load be even before the deployment.
    world.run_until(60 * SECOND);
    world.judge.grants.clear();
    for at in 0..nodes {
        world.start(at + 10, 1);
        world.run_until(world.now + 5 * SECOND);
        world.leave(&[at]);
    }
    world.run_until(world.now + SECOND);
    let grants = &world.judge.grants;
    assert_eq!(grants.len(), world.judge.truth().shards.len(), "{grants:?}");
    assert!(grants.values().all(|count| *count == 1), "{grants:?}\n{}", world.story());
}
