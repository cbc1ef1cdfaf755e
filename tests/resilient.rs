//! The guide to policies: its program, its commands, and the same program under load.

mod conserved;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu::Signal;
use adieu_testkit::process::Process;
use adieu_testkit::servers::Server;
use adieu_tests::load::Connection;
use adieu_tests::plan::Client;

use super::clustered::until;
use super::documents::{command, first_block, read};

#[test]
fn s1240_the_program_of_the_guide_to_policies_is_the_example() {
    assert_eq!(first_block(&read("docs/resilience.md"), "rust"), read("examples/17_resilience.rs"));
}

/// The processes that the guide starts, and what its commands printed.
struct Guide {
    folder: tempfile::TempDir,
    /// The ports in the guide may be in use here.
    ports: BTreeMap<u16, u16>,
    redis: Server,
    processes: Vec<Process>,
    printed: Vec<(String, String)>,
}

impl Guide {
    fn new() -> Self {
        let redis = Server::redis();
        let listeners = [8080, 8081, 8082, 8557, 8558, 8559]
            .map(|port| (port, std::net::TcpListener::bind("127.0.0.1:0").unwrap()));
        // All at once, so that no two are the same.
        let free = |(port, listener): &(u16, std::net::TcpListener)| {
            (*port, listener.local_addr().unwrap().port())
        };
        let mut ports: BTreeMap<_, _> = listeners.iter().map(free).collect();
        ports.insert(6379, redis.port());
        let folder = tempfile::tempdir().unwrap();
        Self { folder, ports, redis, processes: Vec::new(), printed: Vec::new() }
    }

    /// Runs a line of the guide.
    fn run(&mut self, shown: &str) {
        let mut line = shown.to_owned();
        for (shown, free) in &self.ports {
            line = line.replace(&format!(":{shown}"), &format!(":{free}"));
        }
        let words: Vec<_> = line.split_whitespace().map(|it| it.trim_matches('\'')).collect();
        match words[..] {
            // The test has one already, on a free port.
            ["redis-server", .., "&"] => assert!(self.redis.port() > 0),
            ["shop", ref args @ .., "&"] => {
                let mut shop = Command::new(env!("CARGO_BIN_EXE_resilience-guide"));
                shop.args(args).current_dir(self.folder.path());
                shop.env("ADIEU__KILL_AFTER", "90s").env("ADIEU__LAME_DUCK", "none");
                self.processes.push(Process::start(&mut shop));
            }
            ["adieu", "breaker", "list", _] if shown.ends_with(":8559") => {
                // It has received that at most 250 ms later, on a machine that is not busy.
                while !self.printed.last().is_some_and(|(_, it)| it.contains("breaker open")) {
                    self.succeeds(shown, &command(), &words[1..]);
                }
            }
            ["adieu", ref args @ ..] => self.succeeds(shown, &command(), args),
            ["curl", ref args @ ..] => self.succeeds(shown, Path::new("curl"), args),
            _ => panic!("the guide has a line that this test cannot run: {line}"),
        }
    }

    fn succeeds(&mut self, shown: &str, program: &Path, args: &[&str]) {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{shown}: {output:?}");
        self.printed.push((shown.to_owned(), String::from_utf8(output.stdout).unwrap()));
    }

    /// Returns the last output of this command line.
    fn printed(&self, line: &str) -> &str {
        &self.printed.iter().rev().find(|(shown, _)| shown == line).unwrap().1
    }
}

#[test]
fn s1240_the_commands_of_the_guide_to_policies_open_a_breaker_in_two_replicas() {
    let text = read("docs/resilience.md");
    let mut guide = Guide::new();
    for block in text.split("```console\n").skip(1) {
        let block = block.split_once("```").unwrap().0;
        for line in block.lines() {
            guide.run(line.strip_prefix("$ ").unwrap());
        }
    }
    assert_eq!(guide.printed("curl -fsS 127.0.0.1:8081/order"), "ordered\n");
    let before = guide.printed("adieu breaker list 127.0.0.1:8558");
    assert!(before.contains("payments  breaker closed"), "{before}");
    // The second replica has made no call.
    let after = guide.printed("adieu breaker list 127.0.0.1:8559");
    assert!(after.contains("payments  breaker open"), "{after}");
    assert_eq!(guide.processes.len(), 3);
    for process in guide.processes {
        let ended = process.wait();
        assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
        assert!(ended.report.as_ref().unwrap().is_clean(), "{ended:#?}");
    }
}

/// The responses that the clients of a replica have received.
#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    ordered: AtomicU64,
    /// Requests on a connection that was accepted, and that ended without an answer.
    lost: Mutex<Vec<String>>,
}

/// Sends orders, each on a connection of its own, until no process listens there.
async fn order(at: SocketAddr, seen: Arc<Seen>) {
    while let Ok(mut connection) = Connection::open(Client::Http1, at).await {
        match connection.send("GET", "/order").await {
            Ok((status, _)) => {
                assert!([200, 429, 503].contains(&status.as_u16()), "{status}");
                seen.answered.fetch_add(1, Relaxed);
                seen.ordered.fetch_add(u64::from(status.is_success()), Relaxed);
            }
            Err(error) => seen.lost.lock().unwrap().push(format!("{error:?}")),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A process of the guide's program.
struct Member {
    process: Process,
    at: SocketAddr,
    admin: SocketAddr,
}

impl Member {
    fn start(role: &str, more: &[String]) -> Self {
        let (at, admin) = (free_address(), free_address());
        let mut shop = Command::new(env!("CARGO_BIN_EXE_resilience-guide"));
        shop.arg(role).arg(at.to_string()).arg(admin.to_string()).args(more);
        shop.env("ADIEU__KILL_AFTER", "60s").env("ADIEU__LAME_DUCK", "300ms");
        let member = Self { process: Process::start(&mut shop), at, admin };
        until("ready", || member.page("/readyz").is_some());
        member
    }

    fn page(&self, path: &str) -> Option<String> {
        let mut curl = Command::new("curl");
        let output = curl.args(["-fsS", &format!("{}{path}", self.admin)]).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    fn has_metric(&self, line: &str) -> bool {
        self.page("/metrics").is_some_and(|text| text.lines().any(|it| it == line))
    }

    /// Ends the process with SIGTERM. It has lost nothing, and no breaker has opened.
    fn stop(mut self) {
        self.process.signal(Signal::TERM);
        let ended = self.process.wait();
        assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
        assert!(ended.report.as_ref().unwrap().is_clean(), "{ended:#?}");
        assert!(!ended.stderr.contains("breaker opened"), "{}", ended.stderr);
    }
}

#[test]
fn s1241_under_load_a_stop_and_a_redis_that_goes_away_lose_no_order_and_open_no_breaker() {
    let mut redis = Server::redis();
    let payments = Member::start("payments", &[]);
    let more = [payments.at.to_string(), format!("redis://127.0.0.1:{}/", redis.port())];
    let [one, other] = [(); 2].map(|()| Member::start("checkout", &more));
    let seen = [Arc::<Seen>::default(), Arc::<Seen>::default()];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let clients: Vec<_> = [(one.at, &seen[0]), (other.at, &seen[1])]
        .iter()
        .flat_map(|(at, seen)| [(); 4].map(|()| runtime.spawn(order(*at, Arc::clone(seen)))))
        .collect();
    let more_orders = |what: &str| {
        let ordered = || seen.each_ref().map(|seen| seen.ordered.load(Relaxed));
        let before = ordered();
        until(what, || ordered().iter().zip(before).all(|(now, before)| now - before > 100));
    };
    more_orders("with Redis");
    let store = |is_there: u8| format!("adieu_resilience_store{{service=\"checkout\"}} {is_there}");
    redis.kill();
    until("away", || one.has_metric(&store(0)) && other.has_metric(&store(0)));
    more_orders("without Redis");
    one.stop();
    redis.start();
    until("back", || other.has_metric(&store(1)));
    let line = "adieu_resilience_opened_total{policy=\"payments\",by=\"fleet\"} 0";
    assert!(other.has_metric(line), "{:?}", other.page("/metrics"));
    other.stop();
    for client in clients {
        runtime.block_on(client).unwrap();
    }
    payments.stop();
    for seen in &seen {
        let (answered, ordered) = (seen.answered.load(Relaxed), seen.ordered.load(Relaxed));
        let lost = seen.lost.lock().unwrap();
        assert!(lost.is_empty(), "{answered} answered, {ordered} ordered, lost: {lost:#?}");
    }
}
