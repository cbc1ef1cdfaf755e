//! Nodes are restarted one after another, under load.

use std::time::Duration;

use adieu_testkit::process::Process;

use super::child::Order;
use super::load::ASKED_AT_ONCE;
use super::stage::Stage;

const NODES: usize = 5;
const RESTARTS: usize = 20;
const KEYS: u64 = 64;
/// So many asks run while nodes are being restarted, with more restarts if necessary.
const ASKS: u64 = 100_000;
const MOST_RESTARTS: usize = 200;

/// Each ask has a reply, although each node is restarted several times.
#[test]
fn s1175_asks_survive_rolling_restarts() {
    let stage = Stage::new(Duration::from_secs(10));
    let load = stage.load(KEYS, Duration::from_millis(5));
    // The nodes ask, too, until they have left.
    let host = |at: usize| Order { load: Some(load.clone()), ..stage.host(&format!("node-{at}")) };
    let mut nodes: Vec<Process> = (0..NODES).map(|at| stage.up(&host(at))).collect();
    let sender = stage.up(&stage.sender(load.clone()));
    stage.until_all_run_again(KEYS);
    let before = stage.count_appends();
    let mut restarts = 0;
    while restarts < RESTARTS || stage.count_appends() - before < ASKS {
        assert!(restarts < MOST_RESTARTS, "{} asks ran", stage.count_appends() - before);
        let at = restarts % NODES;
        stage.leaves(nodes.remove(at));
        nodes.insert(at, stage.up(&host(at)));
        restarts += 1;
    }
    stage.until_all_run_again(KEYS);
    let sender = stage.finish(sender);
    for node in nodes {
        stage.leaves(node);
    }
    stage.leaves(sender);
    let tally = stage.judge();
    assert!(tally.ran as u64 >= ASKS, "{tally}");
    assert!(tally.not_run.is_empty() && tally.unknown.is_empty(), "{tally}");
    assert!(tally.rejected.is_empty(), "{tally}");
    assert!(tally.moves >= RESTARTS, "the entities have not moved: {tally}");
    // The asks of a node end with it: at most one round of each of its askers.
    let most = (restarts + NODES) * usize::try_from(KEYS).unwrap() * ASKED_AT_ONCE;
    assert!(tally.outside <= most, "more than {most}: {tally}");
}
