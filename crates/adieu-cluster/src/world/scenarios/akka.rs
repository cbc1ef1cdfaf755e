//! The cases of Akka's sharding suites, each named after its suite: the shards of regions, on the
//! machines alone. The cases about members and singletons are in `tests/cluster/akka.rs`.

use super::*;
use crate::records::ShardRecord;

impl World {
    /// Returns the process that leads.
    fn leader(&self) -> usize {
        let leader = self.judge.truth().leader.as_ref().unwrap().value.node.to_string();
        let is_it = |process: &Process| {
            process.state == State::Running && process.name().starts_with(&format!("{leader}."))
        };
        self.processes.iter().position(is_it).unwrap()
    }

    /// Returns the shards of regions, and the names of their owners.
    fn owners(&self) -> BTreeMap<ShardId, Option<String>> {
        let truth = self.judge.truth();
        let shards = truth.shards.iter().filter(|(id, _)| &*id.region == "cart");
        let owner = |record: &ShardRecord| record.ownership().map(|it| it.owner.to_string());
        shards.map(|(id, record)| (id.clone(), owner(&record.value))).collect()
    }

    fn owned_by(&self, at: usize) -> usize {
        let id = self.processes[at].name();
        let is_its = |owner: &&Option<String>| {
            owner.as_ref().is_some_and(|owner| id.starts_with(&format!("{owner}.")))
        };
        self.owners().values().filter(is_its).count()
    }
}

/// A quiet world whose shards are spread.
fn spread(nodes: usize) -> World {
    let mut world = quiet(nodes);
    world.run_until(60 * SECOND);
    assert!(world.owners().values().all(Option::is_some), "{}", world.story());
    world.judge.grants.clear();
    world
}

#[test]
fn cluster_sharding_leaving_spec_shards_move_while_the_node_is_a_member() {
    let mut world = spread(3);
    let leader = world.leader();
    let owned = world.owned_by(leader);
    assert!(owned > 0);
    let took = world.leave(&[leader]);
    assert!(took < SECOND, "{took}:\n{}", world.story());
    assert_eq!(world.owned_by(leader), 0);
    assert!(world.owners().values().all(Option::is_some));
    assert!(world.judge.grants.values().all(|grants| *grants == 1), "{}", world.story());
}

#[test]
fn cluster_sharding_graceful_shutdown_oldest_spec_slow_stop_at_the_leader() {
    let mut world = spread(3);
    let leader = world.leader();
    world.processes[leader].drain_takes = Some(4 * SECOND);
    let took = world.leave(&[leader]);
    // Its shards first, then its singletons: each takes its time, and nothing else does.
    assert!((4 * SECOND..9 * SECOND).contains(&took), "{took}:\n{}", world.story());
    assert!(world.owners().values().all(Option::is_some));
}

#[test]
fn coordinated_shutdown_sharding_spec_two_of_three_leave() {
    let mut world = spread(3);
    let took = world.leave(&[0, 1]);
    assert!(took < 2 * SECOND, "{took}:\n{}", world.story());
    assert_eq!(world.owned_by(2), world.owners().len());
}

#[test]
fn cluster_shard_coordinator_downing_spec_shards_of_a_dead_leader_are_taken() {
    let mut world = spread(3);
    let leader = world.leader();
    world.inflict(Fault::Crash { at: leader });
    // Its session, the removal margin, and the messages.
    world.run_until(world.now + 14 * SECOND);
    assert_eq!(world.judge.verdict(), None, "{}", world.story());
    assert_eq!(world.owned_by(leader), 0, "{}", world.story());
    assert!(world.owners().values().all(Option::is_some));
}

#[test]
fn cluster_sharding_preparing_for_shutdown_spec_no_shard_moves() {
    let mut world = spread(3);
    world.inflict(Fault::StopAll);
    world.run_until(world.now + 20 * SECOND);
    assert_eq!(world.judge.verdict(), None, "{}", world.story());
    assert!(world.processes.iter().all(|it| it.state == State::Ended), "{}", world.story());
    assert!(world.judge.grants.is_empty(), "{:?}\n{}", world.judge.grants, world.story());
}

#[test]
fn rolling_update_shard_allocation_spec_shards_go_to_the_new_build() {
    let mut world = spread(3);
    world.start(10, 1);
    world.run_until(world.now + 5 * SECOND);
    let young = world.processes.len() - 1;
    assert_eq!(world.owned_by(young), 0, "nothing moves for balance during a deployment");
    let leaver = (0..3).find(|at| world.owned_by(*at) > 0).unwrap();
    let owned = world.owned_by(leaver);
    world.leave(&[leaver]);
    assert_eq!(world.owned_by(young), owned, "{}", world.story());
}
