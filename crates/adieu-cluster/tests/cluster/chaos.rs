//! Random faults against whole nodes: driver, phases and singletons, on the memory store and the
//! paused clock. The simulated world judges the machines; this judges the driver around them.

use std::time::Duration;

use adieu_cluster::Stage;
use adieu_cluster::store::Memory;
use tokio::time::{Instant, sleep};

use crate::stage::{History, SECOND, TTL, TestNode, node};

const NODES: usize = 4;

/// Runs one seed.
async fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (store, history) = (Memory::new(), History::default());
    let mut nodes: Vec<TestNode> = Vec::new();
    let mut leaves = Vec::new();
    let begun = Instant::now();
    let mut started = 0;
    while begun.elapsed() < 60 * SECOND {
        let up = nodes.iter().filter(|it| it.shutdown.reason().is_none()).count();
        if up < NODES && (up == 0 || rng.u8(0..3) == 0) {
            started += 1;
            let node = node(&store, &format!("n{started}")).sweeper(&history);
            let joins = node.cluster.clone();
            leaves.push(tokio::task::spawn_local(async move { drop(joins.join().await) }));
            nodes.push(node);
        }
        let node = &nodes[rng.usize(0..nodes.len())];
        let faults = node.store.faults();
        match rng.u8(0..16) {
            0 => faults.cut(true),
            1..=3 => faults.cut(false),
            4 | 5 => faults.lose_answers(rng.u32(1..6)),
            6 => faults.hang_changes(true),
            7 | 8 => faults.hang_changes(false),
            9 => faults.delay(Duration::from_millis(rng.u64(0..1_500))),
            10 => faults.delay(Duration::ZERO),
            11 => store.compact(),
            12 => {
                let completed = node.shutdown.run(adieu_core::Reason::Unknown);
                leaves.push(tokio::task::spawn_local(async move { drop(completed.await) }));
            }
            13 => drop(node.cluster.request_leave(node.cluster.id()).await),
            _ => {}
        }
        sleep(Duration::from_millis(rng.u64(1..2_000))).await;
        history.assert_sound();
    }
    for node in &nodes {
        node.store.faults().cut(false);
        node.store.faults().hang_changes(false);
        node.store.faults().lose_answers(0);
        node.store.faults().delay(Duration::ZERO);
    }
    sleep(6 * TTL).await;
    for task in leaves {
        tokio::time::timeout(60 * SECOND, task).await.expect("it ends").unwrap();
    }
    history.assert_sound();
    let up: Vec<String> = nodes
        .iter()
        .filter(|it| it.cluster.stage() == Stage::Up)
        .map(|it| it.cluster.id().to_string())
        .collect();
    for node in &nodes {
        let (stage, reason) = (node.cluster.stage(), node.shutdown.reason());
        let has_ended = reason.is_some() && node.shutdown.report().is_some();
        let is_settled = if stage == Stage::Up { reason.is_none() } else { has_ended };
        assert!(is_settled, "{} is {stage}, shutdown: {reason:?}", node.cluster.id());
    }
    let running = history.running();
    if up.is_empty() {
        assert!(running.is_empty(), "{running:?}");
    } else {
        assert_eq!(running.len(), 1, "{up:?}");
        assert!(up.contains(&running[0]), "{running:?} of {up:?}");
    }
}

#[test]
fn s600_whole_nodes_survive_random_faults() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("ADIEU_CHAOS_FIRST").unwrap_or(0);
    for seed in first..first + number("ADIEU_CHAOS_SEEDS").unwrap_or(25) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        println!("seed {seed}");
        tokio::task::LocalSet::new().block_on(&runtime, run(seed));
    }
}
