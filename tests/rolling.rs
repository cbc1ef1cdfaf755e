//! Rolling restarts under load: real replicas, a real HAProxy, real clients. Nothing may fail.

mod fleet;
mod haproxy;
mod http2;
mod in_flight;

use std::io::Write;
use std::process::{Command, Stdio};

use fleet::{Fleet, Kind};
use haproxy::Haproxy;

const REQUESTS: u64 = 50_000;

/// The result of a load over kept-alive connections.
#[derive(Debug)]
struct Seen {
    requests: u64,
    failed: u64,
    output: String,
}

/// Restarts every replica in turn behind HAProxy, while `wrk` sends requests without a pause.
fn behind_haproxy(kind: Kind) -> Seen {
    let mut fleet = Fleet::start(kind, 3);
    let proxy = Haproxy::start(&fleet.addrs());
    proxy.wait_until_up(3);
    let load = Command::new("wrk")
        .args(["--threads", "1", "--connections", "32", "--duration", "12s", "--timeout", "10s"])
        .arg(format!("http://{}/", proxy.addr))
        .stdout(Stdio::piped())
        .spawn()
        .expect("wrk, from the package of that name");
    for replica in 0..3 {
        fleet.restart(replica);
        proxy.wait_until_up(3);
    }
    let load = std::thread::spawn(move || load.wait_with_output().unwrap());
    assert!(!load.is_finished(), "the load must outlast the restarts");
    let output = String::from_utf8(load.join().unwrap().stdout).unwrap();
    fleet.stop();
    Seen::read(output)
}

impl Seen {
    /// Parses the output of `wrk`.
    fn read(output: String) -> Self {
        let first = |text: &str| -> u64 {
            let digits: String = text.trim().chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or_default()
        };
        let number =
            |line: &str, after: &str| line.split_once(after).map_or(0, |(_, text)| first(text));
        let mut seen = Self { requests: 0, failed: 0, output: output.clone() };
        for line in output.lines() {
            if line.contains(" requests in ") {
                seen.requests = first(line);
            } else if line.contains("Socket errors") {
                let of = |what: &str| number(line, what);
                seen.failed += of("connect ") + of("read ") + of("write ") + of("timeout ");
            } else if line.contains("Non-2xx") {
                seen.failed += number(line, "responses:");
            }
        }
        assert!(seen.requests > 0, "{output}");
        seen
    }
}

#[test]
fn s100_a_rolling_restart_behind_a_proxy_drops_no_request() {
    let seen = behind_haproxy(Kind::Adieu);
    note(&format!("adieu: {} of {} requests failed", seen.failed, seen.requests));
    assert_eq!(seen.failed, 0, "{}", seen.output);
    assert!(seen.requests >= REQUESTS, "{}", seen.output);
}

/// Shows that the test above can fail: the same with axum's own graceful shutdown.
#[test]
fn the_same_restart_with_plain_axum_drops_requests() {
    let seen = behind_haproxy(Kind::Plain);
    note(&format!("plain axum: {} of {} requests failed", seen.failed, seen.requests));
    assert!(seen.failed > 0, "{}", seen.output);
}

#[test]
fn s100_a_rolling_restart_without_a_proxy_drops_no_request_over_http2() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut fleet = Fleet::start(Kind::Adieu, 3);
    let load = runtime.block_on(async { http2::Load::start(fleet.addrs(), 4) });
    for replica in (0..3).cycle() {
        fleet.restart(replica);
        // Each at least once.
        if replica == 2 && load.requests() >= REQUESTS {
            break;
        }
    }
    let seen = runtime.block_on(load.stop());
    fleet.stop();
    note(&format!("adieu, HTTP/2: {} of {} requests failed", seen.failed, seen.requests));
    assert_eq!(seen.failed, 0, "{}", seen.output);
    assert!(seen.output.lines().count() >= 3, "clients have left every replica: {}", seen.output);
}

/// Writes the figures to a file that `scripts/test` prints.
fn note(line: &str) {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/rolling.txt");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    writeln!(file.unwrap(), "{line}").unwrap();
}
