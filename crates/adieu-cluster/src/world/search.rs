//! Every state that two owners, one shard, one sender and three messages can reach, with the machines
//! of the sender and of the owners: a breadth-first search.

mod model;
mod successors;

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use model::{Budget, State};

use super::traffic::Defect;
use crate::rules::{Rule, Rules};

/// Hashes states fast. They are no input of others.
#[derive(Default)]
struct Fast(u64);

impl Hasher for Fast {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }
}

struct Found {
    states: usize,
    problem: Option<(&'static str, Vec<String>)>,
}

/// Visits every state. Returns the first problem, with the shortest way to it.
fn search(budget: Budget, rules: Rules, defect: Option<Defect>) -> Found {
    let mut seen: HashSet<u64, BuildHasherDefault<Fast>> = HashSet::default();
    let mut ways: Vec<(usize, String)> = vec![(0, "begin".to_owned())];
    let mut queue = VecDeque::from([(0, State::new(budget, rules, defect))]);
    while let Some((way, state)) = queue.pop_front() {
        let next = state.next();
        let is_stuck = !state.has_ended() && next.iter().all(|(_, is_fair, _)| !is_fair);
        let problem = state.problem.or_else(|| is_stuck.then_some("a message has no outcome"));
        if let Some(problem) = problem {
            let (mut at, mut path) = (way, Vec::new());
            while at > 0 {
                path.push(ways[at].1.clone());
                at = ways[at].0;
            }
            path.reverse();
            return Found { states: seen.len(), problem: Some((problem, path)) };
        }
        for (label, _, state) in next {
            let mut hasher = Fast::default();
            state.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                ways.push((way, label));
                queue.push_back((ways.len() - 1, state));
            }
        }
    }
    Found { states: seen.len(), problem: None }
}

const CALM: Budget = Budget { moves: 0, leaves: 0, crashes: 0, breaks: 0, kills: 0, deadlines: 0 };

/// One fault of each kind while the shard moves, two moves, and a node that leaves.
const BUDGETS: [Budget; 6] = [
    Budget { moves: 2, ..CALM },
    Budget { leaves: 1, ..CALM },
    Budget { moves: 1, crashes: 1, ..CALM },
    Budget { moves: 1, breaks: 1, ..CALM },
    Budget { moves: 1, kills: 1, ..CALM },
    Budget { moves: 1, deadlines: 1, ..CALM },
];

#[test]
fn s1102_no_state_of_a_small_cluster_loses_doubles_or_reorders_a_message() {
    for budget in BUDGETS {
        let found = search(budget, Rules::default(), None);
        println!("{budget:?}: {} states", found.states);
        assert_eq!(found.problem, None, "{budget:?}");
        assert!(found.states > 1_000, "{budget:?}: {} states", found.states);
    }
}

/// Without a rule, some state shows it. With each: the events that must be possible for that.
#[test]
fn the_search_finds_every_rule_that_is_missing() {
    let [moves, leaves, _, breaks, _, deadlines] = BUDGETS;
    let rules = [
        (Rule::KeepOrder, moves),
        (Rule::SettleBeforeNewOwner, moves),
        (Rule::SentIsUnknown, deadlines),
        (Rule::EpochEquality, moves),
        (Rule::HoldAhead, moves),
        (Rule::EmptyBeforeHandOver, moves),
    ];
    let defects = [(Defect::NoBye, leaves), (Defect::OlderLink, breaks)];
    let rules = rules
        .map(|(it, budget)| (format!("{it:?}"), search(budget, Rules { broken: Some(it) }, None)));
    let defects =
        defects.map(|(it, budget)| (format!("{it:?}"), search(budget, Rules::default(), Some(it))));
    for (name, found) in rules.into_iter().chain(defects) {
        println!("{name}, in {} states: {:?}", found.states, found.problem);
        assert!(found.problem.is_some(), "no state shows that a rule is missing: {name}");
    }
}
