//! Nodes are restarted one after another, under load.

use std::time::Duration;

use adieu_testkit::process::Process;

use super::child::Order;
use super::stage::Stage;

const NODES: usize = 5;
const RESTARTS: usize = 20;
const KEYS: u64 = 64;
const ASKS: u64 = 100_000;

/// Each ask has a reply, although each node is restarted several times.
#[test]
fn s1175_asks_survive_rolling_restarts() {
    let stage = Stage::new(Duration::from_secs(10));
    let load = stage.load(KEYS, Duration::from_millis(5));
    // The nodes ask, too, until they have left.
    let host = |at: usize| Order { load: Some(load.clone()), ..stage.host(&format!("node-{at}")) };
    let mut nodes: Vec<Process> = (0..NODES).map(|at| stage.up(&host(at))).collect();
    let least = super::load::Load { least: ASKS, ..load.clone() };
    let sender = stage.up(&stage.sender(least));
    stage.until_all_run_again(KEYS);
    for restart in 0..RESTARTS {
        let at = restart % NODES;
        stage.leaves(nodes.remove(at));
        nodes.insert(at, stage.up(&host(at)));
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
}
