//! Whole services in a cluster: the guide's program and its commands, and a service under load.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu::Signal;
use adieu_testkit::ledger::{Fact, Ledger};
use adieu_testkit::process::Process;
use adieu_tests::load::Connection;
use adieu_tests::plan::Client;
use http::StatusCode;

use super::documents::{command, first_block, read};

/// Waits until something is the case, for up to a minute.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut waited = 0;
    while !is_so() {
        std::thread::sleep(Duration::from_millis(20));
        waited += 1;
        assert!(waited < 3_000, "{what}: not within a minute");
    }
}

#[test]
fn s867_the_program_of_the_cluster_guide_is_the_example() {
    assert_eq!(first_block(&read("docs/cluster.md"), "rust"), read("examples/16_cluster.rs"));
}

#[test]
fn s1471_the_second_program_of_the_cluster_guide_is_the_example() {
    let entities = read("docs/cluster.md");
    let entities = entities.split_once("\n## Entities\n").unwrap().1;
    let example = read("examples/18_entities.rs");
    assert_eq!(first_block(entities, "rust"), example);
    assert!(example.lines().count() < 60, "the program has become long");
}

/// The processes that the guide starts, by their names.
struct Guide {
    folder: tempfile::TempDir,
    /// The ports in the guide may be in use here.
    ports: BTreeMap<u16, u16>,
    processes: BTreeMap<String, Process>,
    ended: Vec<(String, adieu_testkit::process::Ended)>,
}

impl Guide {
    fn new() -> Self {
        let free = |port| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            (port, listener.local_addr().unwrap().port())
        };
        // All at once, so that no two are the same.
        let ports = [7071, 7072, 8081, 8082, 8083, 8558, 8559, 8560].map(free).into();
        let folder = tempfile::tempdir().unwrap();
        Self { folder, ports, processes: BTreeMap::new(), ended: Vec::new() }
    }

    /// Runs a line of the guide.
    fn run(&mut self, line: &str) {
        let mut line = line.to_owned();
        for (shown, free) in &self.ports {
            line = line.replace(&format!(":{shown}"), &format!(":{free}"));
        }
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["shop", node, address, admin, "&"] => {
                if let Some(before) = self.processes.remove(node) {
                    self.ended.push((node.to_owned(), before.wait()));
                }
                let mut shop = self.shop(node, address, admin);
                self.processes.insert(node.to_owned(), Process::start(&mut shop));
            }
            ["carts", node, ref addresses @ .., "&"] => {
                let mut carts = Command::new(env!("CARGO_BIN_EXE_entities-guide"));
                carts.arg(node).args(addresses).current_dir(self.folder.path());
                carts.env("ADIEU__KILL_AFTER", "90s").env("ADIEU__LAME_DUCK", "none");
                self.processes.insert(node.to_owned(), Process::start(&mut carts));
            }
            ["adieu", ref args @ ..] => self.succeeds(&command(), args),
            ["curl", ref args @ ..] => self.succeeds(Path::new("curl"), args),
            _ => panic!("the guide has a line that this test cannot run: {line}"),
        }
    }

    /// Runs the commands of a part of the guide.
    fn run_all(&mut self, text: &str) {
        for block in text.split("```console\n").skip(1) {
            let block = block.split_once("```").unwrap().0;
            for line in block.lines() {
                self.run(line.strip_prefix("$ ").unwrap());
            }
        }
    }

    fn shop(&self, node: &str, address: &str, admin: &str) -> Command {
        let mut shop = Command::new(env!("CARGO_BIN_EXE_cluster-guide"));
        shop.args([node, address, admin]).current_dir(self.folder.path());
        shop.env("ADIEU__KILL_AFTER", "90s").env("ADIEU__LAME_DUCK", "none");
        shop
    }

    fn succeeds(&self, program: &Path, args: &[&str]) {
        let output = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
}

#[test]
fn s867_the_commands_of_the_cluster_guide_restart_three_processes_and_stop_them() {
    let text = read("docs/cluster.md");
    let mut guide = Guide::new();
    guide.run_all(text.split_once("\n## Entities\n").unwrap().0);
    let last = std::mem::take(&mut guide.processes);
    guide.ended.extend(last.into_iter().map(|(node, process)| (node, process.wait())));
    assert_eq!(guide.ended.len(), 6);
    let mut fences = Vec::new();
    for (node, ended) in &guide.ended {
        assert_eq!(ended.status.code(), Some(0), "{node}: {ended:#?}");
        assert_eq!(ended.report.as_ref().unwrap().reason, "cluster-leaving", "{node}");
        let found = |what: &str| -> Vec<u64> {
            let lines = ended.stdout.lines().filter(|line| line.contains(what));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
        };
        assert_eq!(found(" sweeps with "), found(" has swept with "), "{node}: {ended:#?}");
        fences.extend(found(" sweeps with "));
    }
    fences.sort_unstable();
    assert!(fences.len() > 1, "the singleton has moved: {fences:?}");
    fences.dedup();
    let begun: usize =
        guide.ended.iter().map(|it| it.1.stdout.matches(" sweeps with ").count()).sum();
    assert_eq!(begun, fences.len(), "no fence twice: {fences:?}");
}

#[test]
fn s1471_the_commands_of_the_guide_to_entities_move_a_cart_that_keeps_its_total() {
    let text = read("docs/cluster.md");
    let mut guide = Guide::new();
    guide.run_all(text.split_once("\n## Entities\n").unwrap().1);
    let mut carts = Vec::new();
    for (node, process) in std::mem::take(&mut guide.processes) {
        let ended = process.wait();
        assert_eq!(ended.status.code(), Some(0), "{node}: {ended:#?}");
        let rests = ended.stdout.lines().filter(|line| line.starts_with("cart tea rests"));
        carts.extend(rests.map(|line| format!("{node}: {line}")));
    }
    assert_eq!(carts, ["carts-1: cart tea rests at 7", "carts-2: cart tea rests at 12"]);
}

/// A node, and a second process of its name, which joins for as long as the first is there.
#[test]
fn s1279_processes_that_lose_their_place_or_cannot_join_exit_as_the_guide_states() {
    let mut guide = Guide::new();
    guide.run("shop shop-1 127.0.0.1:8081 127.0.0.1:8558 &");
    guide.run("curl -fsS --retry 60 --retry-delay 1 --retry-connrefused 127.0.0.1:8558/readyz");
    let admin = format!("127.0.0.1:{}", guide.ports[&8559]);
    let address = format!("127.0.0.1:{}", guide.ports[&8082]);
    let twin = |guide: &Guide| guide.shop("shop-1", &address, &admin);

    let mut joins = Process::start(&mut twin(&guide));
    until("it joins", || {
        let status = Command::new(command()).args(["cluster", "status", &admin]).output().unwrap();
        String::from_utf8_lossy(&status.stdout).contains("until the earlier node shop-1 is gone")
    });
    joins.signal(Signal::TERM);
    let ended = joins.wait();
    assert_eq!(ended.status.code(), Some(0), "terminated while it joined: {ended:#?}");

    let mut late = twin(&guide);
    let ended = Process::start(late.env("ADIEU__CLUSTER__JOIN_DEADLINE", "1s")).wait();
    assert_eq!(ended.status.code(), Some(1), "joined too late: {ended:#?}");
    assert!(ended.stderr.contains("failed to join cluster shop within 1s"), "{ended:#?}");

    guide.run("adieu cluster out shop-1 127.0.0.1:8558 --yes");
    let ended = guide.processes.remove("shop-1").unwrap().wait();
    assert_eq!(ended.status.code(), Some(255), "lost its place: {ended:#?}");
}

/// A process of the service, and what its clients were promised.
struct Branch {
    process: Process,
    at: SocketAddr,
    ledger: Arc<Ledger>,
}

fn start(folder: &Path, node: &str) -> Branch {
    let mut command = Command::new(env!("CARGO_BIN_EXE_branch"));
    command.arg(folder).arg(node);
    command.env("ADIEU__KILL_AFTER", "90s").env("ADIEU__LAME_DUCK", "300ms");
    let mut process = Process::start(&mut command);
    let line = process.wait_for("listening on ");
    let at = line.trim_start_matches("listening on ").parse().unwrap();
    Branch { process, at, ledger: Arc::new(Ledger::new()) }
}

/// Sends orders without a pause, until it is over, or the process is gone.
async fn order(
    at: SocketAddr,
    ledger: Arc<Ledger>,
    next: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
) {
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut connection) = Connection::open(Client::Http1, at).await else { return };
        while !is_over.load(Ordering::Relaxed) {
            let id = format!("order-{}", next.fetch_add(1, Ordering::Relaxed));
            match connection.send("POST", &format!("/orders/{id}")).await {
                Ok((StatusCode::ACCEPTED, _)) => ledger.accepted("order", &id),
                Ok(_) => ledger.refused("order", &id),
                // Unknown whether the order was accepted.
                Err(_) => break,
            }
        }
    }
}

/// Reads what the instances of the singleton wrote: which began, in order. Fails if two overlapped.
fn audited(text: &str) -> Vec<(String, u64)> {
    let (mut begun, mut current) = (Vec::new(), None);
    for line in text.lines() {
        let [what, node, fence] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("half a line: {line}")
        };
        let instance = (node.to_owned(), fence.parse::<u64>().unwrap());
        match what {
            "begin" => {
                assert_eq!(current, None, "{line}: the instance before has not ended");
                let rises = begun.last().is_none_or(|(_, before)| *before < instance.1);
                assert!(rises, "{line}: the fence does not rise: {begun:?}");
                begun.push(instance.clone());
                current = Some(instance);
            }
            "tick" => assert_eq!(current, Some(instance), "{line}"),
            "end" => assert_eq!(current.take(), Some(instance), "{line}"),
            _ => panic!("{line}"),
        }
    }
    begun
}

#[test]
fn s868_a_service_in_a_cluster_loses_no_order_and_its_singleton_never_overlaps() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    let read_audit = || std::fs::read_to_string(&audit).unwrap_or_default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let next = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let clients = Mutex::new(tokio::task::JoinSet::new());
    let load = |branch: &Branch| {
        for _ in 0..3 {
            let (ledger, next) = (Arc::clone(&branch.ledger), Arc::clone(&next));
            let client = order(branch.at, ledger, next, Arc::clone(&is_over));
            clients.lock().unwrap().spawn_on(client, runtime.handle());
        }
    };
    let one = start(folder.path(), "one");
    until("the singleton runs", || read_audit().contains("tick one "));
    let two = start(folder.path(), "two");
    load(&one);
    load(&two);
    let accepted = |branch: &Branch| branch.ledger.count(Fact::Accepted, "order");
    until("both are under load", || accepted(&one) >= 300 && accepted(&two) >= 300);

    let before = accepted(&two);
    let mut reports = Vec::new();
    let mut stop = |mut branch: Branch| {
        branch.process.signal(Signal::TERM);
        let ended = branch.process.wait();
        until("clients have ended", || Arc::strong_count(&branch.ledger) == 1);
        reports.push((ended, branch.ledger));
    };
    stop(one);
    until("the singleton runs elsewhere", || read_audit().contains("tick two "));
    until("the other serves meanwhile", || accepted(&two) > before + 100);
    stop(two);
    is_over.store(true, Ordering::Relaxed);
    runtime.block_on(async { while clients.lock().unwrap().try_join_next().is_some() {} });

    for (node, (ended, ledger)) in ["one", "two"].into_iter().zip(&reports) {
        ledger.read(folder.path().join(node)).unwrap();
        let verdict = ledger.judge(&ended.into());
        assert!(verdict.is_honest() && verdict.is_lossless(), "{node}: {verdict}\n{ended:#?}");
        assert_eq!(ended.status.code(), Some(0), "{node}: {ended:#?}");
    }
    let nodes: Vec<_> = audited(&read_audit()).into_iter().map(|(node, _)| node).collect();
    assert_eq!(nodes, ["one", "two"]);
}
