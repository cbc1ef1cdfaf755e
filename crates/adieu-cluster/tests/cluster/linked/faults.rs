//! Nodes that are killed, suspended or cut off under load. No ask runs twice, and each outcome is true.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use adieu_testkit::process::Process;
use adieu_testkit::proxy::Proxy;
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM};
use tokio::time::Instant;

use super::appends::Tally;
use super::child::Order;
use super::load::{ASKED_AT_ONCE, End, Load, Outcome};
use super::stage::{Stage, send};
use crate::real::child::Place;
use crate::served::url;

/// Sessions end early enough for a test, and late enough for a busy machine.
const TTL: Duration = Duration::from_secs(5);

const KEYS: u64 = 24;

/// Longer than the shards of a dead node take to run elsewhere.
const LONG: Duration = Duration::from_secs(60);

/// The node that is killed, suspended or cut off.
const VICTIM: &str = "victim";

/// The victim, three other hosts, and a node that asks. All entities run.
struct Running {
    stage: Stage,
    victim: Process,
    others: Vec<Process>,
    sender: Process,
    /// The entities that run on the victim.
    its_keys: BTreeSet<String>,
}

// === impl Running ===

impl Running {
    fn start(stage: Stage, victim: &Order, within: Duration) -> Self {
        // The first node receives all shards, and spreads them when it leaves.
        let first = stage.up(&stage.host("first"));
        let victim = stage.up(victim);
        let others = ["one", "two", "three"].map(|name| stage.up(&stage.host(name))).into();
        let load = Load { within, ..stage.load(KEYS, Duration::from_millis(5)) };
        let sender = stage.up(&stage.sender(load));
        stage.until_all_run_again(KEYS);
        stage.leaves(first);
        let before = stage.appends().len();
        stage.until_all_run_again(KEYS);
        let after = stage.appends().split_off(before);
        let its_keys = after.into_iter().filter(|it| it.node == VICTIM).map(|it| it.key).collect();
        Self { stage, victim, others, sender, its_keys }
    }

    /// Ends the load and the other nodes, and judges. Asks may have failed only at the entities of the
    /// victim.
    fn end(self) -> Tally {
        let Self { stage, mut victim, others, sender, its_keys } = self;
        // If it is still alive, it may be the leader, which must not vanish while others leave.
        send(&mut victim, SIGTERM);
        let _ = victim.wait(); // Each test has its own expectation of how it ends.
        let sender = stage.finish(sender);
        others.into_iter().for_each(|node| stage.leaves(node));
        stage.leaves(sender);
        let outcomes = stage.outcomes();
        let failed = |ask: &&Outcome| ask.end != End::Ran && !its_keys.contains(&ask.key);
        let failed: Vec<_> = outcomes.iter().filter(failed).collect();
        assert!(failed.is_empty(), "{failed:?}");
        let keys = 1..KEYS as usize;
        assert!(keys.contains(&its_keys.len()), "the victim had {} entities", its_keys.len());
        stage.judge()
    }
}

#[test]
fn s1177_a_killed_node_leaves_only_asks_in_flight_unknown() {
    let stage = Stage::new(TTL);
    let victim = stage.host(VICTIM);
    let mut running = Running::start(stage, &victim, LONG);
    send(&mut running.victim, SIGKILL);
    running.stage.until_all_run_again(KEYS);
    let its_keys = running.its_keys.len();
    let tally = running.end();
    // Asks that were not sent yet are kept for the next owner.
    assert!(tally.not_run.is_empty(), "{tally}");
    assert!(tally.unknown.values().sum::<usize>() <= ASKED_AT_ONCE * its_keys, "{tally}");
    assert!(tally.rejected.is_empty(), "{tally}");
}

#[test]
fn s1178_a_suspended_node_appends_nothing_when_it_wakes() {
    let stage = Stage::new(TTL);
    let victim = stage.host(VICTIM);
    let mut running = Running::start(stage, &victim, LONG);
    send(&mut running.victim, SIGSTOP);
    let begun = Instant::now();
    running.stage.until_all_run_again(KEYS);
    std::thread::sleep((3 * TTL).saturating_sub(begun.elapsed()));
    let before = running.stage.appends().len();
    send(&mut running.victim, SIGCONT);
    running.victim.wait_for("@ended cluster-downing");
    let after = running.stage.appends().split_off(before);
    let its_keys = running.its_keys.len();
    let of_victim: Vec<_> = after.iter().filter(|it| it.node == VICTIM).collect();
    // If the process was suspended between the check and the write of an append, it sends the append
    // when it wakes. Only the fence rejects that append. There is at most one for each entity.
    assert!(of_victim.iter().all(|it| !it.accepted), "{of_victim:?}");
    assert!(of_victim.len() <= its_keys, "{of_victim:?}");
    let tally = running.end();
    assert!(tally.unknown.values().sum::<usize>() <= ASKED_AT_ONCE * its_keys, "{tally}");
    assert_eq!(tally.rejected.len(), of_victim.len(), "{tally}");
    // Asks that were not sent yet are kept for the next owner.
    assert!(tally.not_run.is_empty(), "{tally}");
}

/// The other nodes cannot reach the victim; all reach the store.
#[test]
fn s1179_a_node_that_others_cannot_reach_keeps_its_entities() {
    let stage = Stage::new(TTL);
    let listen = free_address();
    let proxy = stage.runtime.block_on(Proxy::new(listen));
    let address = Some(proxy.address().to_string());
    let victim = Order { listen: listen.to_string(), address, ..stage.host(VICTIM) };
    let mut running = Running::start(stage, &victim, Duration::from_secs(2));
    proxy.cut();
    // Asks that were sent end as unknown at their deadlines. When the link is known to be dead, further
    // asks are kept, and end as not run.
    running.sender.wait_for("@unknown");
    running.sender.wait_for("@not run");
    proxy.mend();
    running.stage.until_all_run_again(KEYS);
    let owners = |its: &super::appends::Appended| its.node == VICTIM;
    let last = running.stage.appends();
    let is_there = |key: &String| last.iter().rfind(|it| it.key == *key).is_some_and(owners);
    assert!(running.its_keys.iter().all(is_there), "entities have moved");
    let tally = running.end();
    assert!(tally.rejected.is_empty(), "{tally}");
}

/// The victim cannot reach the store; the nodes reach each other.
#[test]
fn s1180_a_node_without_its_store_stops_before_the_next_owner_appends() {
    let stage = Stage::new(TTL);
    let proxy = stage.runtime.block_on(Proxy::new(stage.etcd.address()));
    let victim = Order { store: Place::Etcd(url(proxy.port())), ..stage.host(VICTIM) };
    let mut running = Running::start(stage, &victim, LONG);
    proxy.cut();
    running.victim.wait_for("@ended cluster-downing");
    running.stage.until_all_run_again(KEYS);
    let its_keys = running.its_keys.len();
    let tally = running.end();
    assert!(tally.unknown.values().sum::<usize>() <= its_keys, "only asks in hand: {tally}");
    // Those that waited behind it in the mailbox.
    let behind = (ASKED_AT_ONCE - 1) * its_keys;
    assert!(tally.not_run.values().sum::<usize>() <= behind, "{tally}");
    assert!(tally.rejected.is_empty(), "{tally}");
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}
