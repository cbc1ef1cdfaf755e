//! Rolling restarts under load: real replicas, a real HAProxy, real clients. Nothing may fail.

mod fleet;
mod haproxy;
mod http2;
mod under_way;

use std::io::Write;
use std::process::{Command, Stdio};

use fleet::{Fleet, Kind};
use haproxy::Haproxy;

const REQUESTS: u64 = 50_000;

/// What a load over kept-alive connections came to.
#[derive(Debug)]
struct Seen {
    requests: u64,
    failed: u64,
    said: String,
}

/// Restarts every replica in turn behind HAProxy, while `wrk` asks without a pause.
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
    let said = String::from_utf8(load.join().unwrap().stdout).unwrap();
    fleet.stop();
    Seen::read(said)
}

impl Seen {
    /// Reads what `wrk` says.
    fn read(said: String) -> Self {
        let first = |text: &str| -> u64 {
            let digits: String = text.trim().chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or_default()
        };
        let number =
            |line: &str, after: &str| line.split_once(after).map_or(0, |(_, text)| first(text));
        let mut seen = Self { requests: 0, failed: 0, said: said.clone() };
        for line in said.lines() {
            if line.contains(" requests in ") {
                seen.requests = first(line);
            } else if line.contains("Socket errors") {
                let of = |what: &str| number(line, what);
                seen.failed += of("connect ") + of("read ") + of("write ") + of("timeout ");
            } else if line.contains("Non-2xx") {
                seen.failed += number(line, "responses:");
            }
        }
        assert!(seen.requests > 0, "{said}");
        seen
    }
}

#[test]
fn s100_a_rolling_restart_behind_a_proxy_drops_nothing() {
    let seen = behind_haproxy(Kind::Adieu);
    tell(&format!("adieu: {} of {} requests failed", seen.failed, seen.requests));
    assert_eq!(seen.failed, 0, "{}", seen.said);
    assert!(seen.requests >= REQUESTS, "{}", seen.said);
}

/// That the test above can fail: the same, with what axum itself has.
#[test]
fn the_same_restart_with_plain_axum_drops_requests() {
    let seen = behind_haproxy(Kind::Plain);
    tell(&format!("plain axum: {} of {} requests failed", seen.failed, seen.requests));
    assert!(seen.failed > 0, "{}", seen.said);
}

#[test]
fn s100_a_rolling_restart_without_a_proxy_drops_nothing_over_http2() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut fleet = Fleet::start(Kind::Adieu, 3);
    let load = runtime.block_on(async { http2::Load::start(fleet.addrs(), 4) });
    for replica in (0..3).cycle() {
        fleet.restart(replica);
        // At least once each.
        if replica == 2 && load.requests() >= REQUESTS {
            break;
        }
    }
    let seen = runtime.block_on(load.stop());
    fleet.stop();
    tell(&format!("adieu, HTTP/2: {} of {} requests failed", seen.failed, seen.requests));
    assert_eq!(seen.failed, 0, "{}", seen.said);
    assert!(seen.said.lines().count() >= 3, "every replica was left by somebody: {}", seen.said);
}

/// `scripts/test` shows it at the end.
fn tell(line: &str) {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/rolling.txt");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    writeln!(file.unwrap(), "{line}").unwrap();
}
