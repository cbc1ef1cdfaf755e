//! Seeds, and worlds in which one thing is to be seen.

use super::plan::{Fault, settings};
use super::process::State;
use super::*;

/// How many seeds to try, and which is the first.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("ADIEU_WORLD_FIRST").unwrap_or(0);
    first..first + number("ADIEU_WORLD_SEEDS").unwrap_or(1_000)
}

#[test]
fn s600_no_seed_shows_two_owners_or_a_leave_that_does_not_end() {
    let failed = first_failure(seeds(), None);
    if let Some((seed, verdict)) = failed {
        let (_, log) = run(seed, None, true);
        panic!("seed {seed}: {verdict}\n{}", log.join("\n"));
    }
}

/// Runs the seeds on all processors. Returns the lowest that fails.
fn first_failure(seeds: std::ops::Range<u64>, broken: Option<Broken>) -> Option<(u64, String)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let found = std::sync::Mutex::new(None::<(u64, String)>);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end || found.lock().unwrap().is_some() {
                        return;
                    }
                    if let (Some(verdict), _) = run(seed, broken, false) {
                        let mut found = found.lock().unwrap();
                        if found.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                            *found = Some((seed, verdict));
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

const fn is(what: What, compare: fn(&Compare) -> bool) -> Broken {
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

fn is_not_created_at(compare: &Compare) -> bool {
    matches!(compare, Compare::NotCreatedAt(..))
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

fn on_config(compare: &Compare) -> bool {
    compare.key().ends_with("/config")
}

/// Every comparison that a property of the world needs. The others limit rival leaders and late
/// writers, and are checked where commits are built.
const COMPARISONS: [(&str, Broken); 18] = [
    ("join: the record is absent", is(What::Join, |it| on_node(it) && is_absent(it))),
    ("up: the record is unchanged", is(What::Up, |it| on_node(it) && is_unchanged(it))),
    ("lead: no node leads", is(What::Lead, |it| on_leader(it) && is_absent(it))),
    ("lead: own incarnation", is(What::Lead, |it| on_node(it) && is_created_at(it))),
    ("place: the shard is unchanged", is(What::Place, on_shard)),
    ("place: the target is unchanged", is(What::Place, |it| on_node(it) && is_unchanged(it))),
    ("move: the shard is unchanged", is(What::RequestMove, on_shard)),
    ("move: the target is unchanged", is(What::RequestMove, on_node)),
    ("hand over: the shard is unchanged", is(What::HandOver, on_shard)),
    (
        "hand over: the target is unchanged",
        is(What::HandOver, |it| on_node(it) && is_unchanged(it)),
    ),
    ("give back: the shard is unchanged", is(What::GiveBack, on_shard)),
    ("take: the shard is unchanged", is(What::Take, on_shard)),
    ("take: the target is unchanged", is(What::Take, |it| on_node(it) && is_unchanged(it))),
    ("leave: the record is unchanged", is(What::Leave, on_node)),
    ("announce: the record is unchanged", is(What::Announce, on_node)),
    ("exiting: the record is unchanged", is(What::Exiting, |it| on_node(it) && is_unchanged(it))),
    ("remove: own incarnation", is(What::Remove, |it| on_node(it) && is_created_at(it))),
    ("configure: the configuration is unchanged", is(What::Configure, on_config)),
];

#[test]
fn table_of_broken_comparisons() {
    if std::env::var("ADIEU_WORLD_BREAK").is_err() {
        return;
    }
    for (name, broken) in COMPARISONS {
        let found = first_failure(seeds(), Some(broken));
        println!("{name}: {found:?}");
    }
}

/// A world without faults, with this many nodes that are up.
fn quiet(nodes: usize) -> World {
    let mut world = World::new(7, settings(), None);
    world.log = Some(Vec::new());
    for name in 0..nodes {
        world.schedule(0, Event::Fault(Fault::Start { name, generation: 0, ready: true }));
    }
    world.run_until(20 * SECOND);
    assert_eq!(world.judge.verdict(), None);
    world
}

fn log(world: &World) -> String {
    world.log.as_ref().map(|log| log.join("\n")).unwrap_or_default()
}
