//! Nodes are restarted one after another, under load.

use std::time::Duration;

use adieu_testkit::process::Process;

use super::child::Order;
use super::stage::Stage;

/// Nodes, restarts, and asks of one run.
struct Size {
    nodes: usize,
    restarts: usize,
    keys: u64,
    asks: u64,
    /// Between the asks to one entity, in milliseconds.
    pause: u64,
}

/// Each ask has a reply, although each node is restarted several times.
fn roll(size: &Size) {
    let stage = Stage::new(Duration::from_secs(10));
    let load = stage.load(size.keys, Duration::from_millis(size.pause));
    // The nodes ask, too, until they have left.
    let host = |at: usize| Order { load: Some(load.clone()), ..stage.host(&format!("node-{at}")) };
    let mut nodes: Vec<Process> = (0..size.nodes).map(|at| stage.up(&host(at))).collect();
    let least = super::load::Load { least: size.asks, ..load.clone() };
    let sender = stage.up(&stage.sender(least));
    stage.until_all_run_again(size.keys);
    for restart in 0..size.restarts {
        let at = restart % size.nodes;
        stage.leaves(nodes.remove(at));
        nodes.insert(at, stage.up(&host(at)));
    }
    stage.until_all_run_again(size.keys);
    let sender = stage.finish(sender);
    for node in nodes {
        stage.leaves(node);
    }
    stage.leaves(sender);
    let tally = stage.judge();
    assert!(tally.ran as u64 >= size.asks, "{tally}");
    assert!(tally.not_run.is_empty() && tally.unknown.is_empty(), "{tally}");
    assert!(tally.rejected.is_empty(), "{tally}");
    assert!(tally.moves >= size.restarts, "the entities have not moved: {tally}");
}

/// Runs 5 nodes, 20 restarts and 100,000 asks if `ADIEU_TEST_FULL` is set, which takes several minutes.
#[test]
fn s1175_asks_survive_rolling_restarts() {
    let is_full = std::env::var_os("ADIEU_TEST_FULL").is_some();
    roll(&match is_full {
        true => Size { nodes: 5, restarts: 20, keys: 64, asks: 100_000, pause: 5 },
        false => Size { nodes: 3, restarts: 4, keys: 24, asks: 3_000, pause: 20 },
    });
}
