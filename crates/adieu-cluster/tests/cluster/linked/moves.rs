//! An operator moves shards from process to process, under load.

use std::time::Duration;

use super::child::SHARDS;
use super::stage::Stage;

const KEYS: u64 = 64;
const MOVES: usize = 60;

/// Each ask has a reply, although its shard is moved several times.
#[test]
fn s1505_asks_survive_moves_of_their_shards() {
    let stage = Stage::new(Duration::from_secs(10));
    let nodes = ["one", "two", "three"].map(|name| stage.up(&stage.host(name)));
    let sender = stage.up(&stage.sender(stage.load(KEYS, Duration::from_millis(5))));
    stage.until_all_run_again(KEYS);
    let mut moves = 0;
    for step in 0..2 * MOVES {
        let shard = u32::try_from(step * 7).unwrap() % SHARDS;
        moves += usize::from(stage.moves(shard, ["one", "two", "three"][step % 3]));
    }
    assert!(moves >= MOVES, "only {moves} moves");
    stage.until_all_run_again(KEYS);
    let sender = stage.finish(sender);
    for node in nodes {
        stage.leaves(node);
    }
    stage.leaves(sender);
    let tally = stage.judge();
    assert!(tally.not_run.is_empty() && tally.unknown.is_empty(), "{tally}");
    assert!(tally.rejected.is_empty(), "{tally}");
    assert!(tally.moves >= MOVES, "the entities have not moved: {tally}");
}
