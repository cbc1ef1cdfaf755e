//! Replicas: processes that run this test program, and log what their policy does.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use adieu_core::{Config, Reason, Shutdown};
use adieu_resilience::{Breaker, BreakerState, CallError, Code, Policies, Policy, Rate, Redis};
use adieu_testkit::process::Process;

use crate::lag::Lag;

/// Starts a replica with a role. It logs to the file `log`.
pub(crate) fn start(role: &str, number: usize, redis: u16, log: &Path) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "replica::replica", "--nocapture", "--test-threads=1"])
        .env("ADIEU_REPLICA", role)
        .env("ADIEU_NUMBER", number.to_string())
        .env("ADIEU_REDIS", redis.to_string())
        .env("ADIEU_LOG", log);
    Process::start(&mut command)
}

/// Microseconds on the clock that all processes share.
#[expect(clippy::disallowed_methods, reason = "processes have no other clock in common")]
pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// Not a test: the entry point of the replicas.
#[tokio::test]
async fn replica() {
    let Ok(role) = std::env::var("ADIEU_REPLICA") else { return };
    let number: u64 = var("ADIEU_NUMBER").parse().unwrap();
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    shutdown.install_signals().unwrap();
    let break_ = if role.starts_with("trip") { 100 } else { 500 };
    let breaker = Breaker::at(0.5).of(20).opens_for(Duration::from_millis(break_));
    let policy = match role.as_str() {
        "even" | "hopping" | "hog" | "measure" => {
            Policy::new("p").rate(Rate::per_second(500).burst(50))
        }
        _ => Policy::new("p").breaker(breaker).timeout(Duration::from_millis(500)),
    };
    let policy = policy.start(&shutdown).unwrap();
    let policies: Policies = [policy.clone()].into_iter().collect();
    let redis = Redis::connect(&format!("redis://127.0.0.1:{}/", var("ADIEU_REDIS"))).await;
    let policies = policies.shared(redis.unwrap(), "checkout").unwrap();
    shutdown.mark_started();
    println!("@there");
    match role.as_str() {
        "even" | "hopping" | "hog" => load(&role, number, &policies, &policy).await,
        "measure" => measure(&shutdown, &policies, &policy).await,
        "trip-caller" | "trip-idle" => trip(&role, number, &policy).await,
        _ => serve(&role, &shutdown, &policy).await,
    }
}

/// Calls three times as often as the fleet's rate allows, for five seconds.
async fn load(role: &str, number: u64, policies: &Policies, policy: &Policy) {
    while policies.store().unwrap().replicas < 5 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut log = OpenOptions::new().append(true).open(var("ADIEU_LOG")).unwrap();
    let began = micros();
    let mut lines = String::new();
    loop {
        let passed = micros() - began;
        if passed > 5_000_000 {
            break;
        }
        let per_second = match (role, number) {
            ("even", _) => 300,
            ("hog", 0) => 1_100,
            ("hog", _) => 100,
            // All of it moves from replica to replica, every 200 ms of the common clock.
            _ if micros() / 200_000 % 5 == number => 1_500,
            _ => 0,
        };
        if per_second == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        // Timers are not fine enough for single calls.
        for _ in 0..per_second / 100 {
            let before = micros();
            let admitted = policy.call(async |_| Ok::<_, ()>(micros())).await;
            if let Ok(after) = admitted {
                lines.push_str(&format!("{before} {after}\n"));
            }
        }
        tokio::time::sleep(Duration::from_millis(9)).await;
    }
    log.write_all(lines.as_bytes()).unwrap();
    println!("@alone {}", policies.store().unwrap().decided_alone);
}

/// Calls a backend whose state is the file `log`: `well`, `sick` or `hang`. Writes each change of the
/// own breaker to the standard output, with how often it was in that state.
async fn serve(role: &str, shutdown: &Shutdown, policy: &Policy) {
    let backend = var("ADIEU_LOG");
    let gate = shutdown.add_gate("work").unwrap();
    let pass = gate.enter().unwrap();
    let (mut last, mut counts) = (String::new(), HashMap::<String, u32>::new());
    while shutdown.stage() == adieu_core::Stage::Up {
        let state = std::fs::read_to_string(&backend).unwrap();
        // A replica that is idle makes no call, and looks only at the state of its breaker.
        let says = if role == "idle" {
            let is_closed = policy.status().breaker == Some(BreakerState::Closed);
            if is_closed { "closed".to_owned() } else { "open".to_owned() }
        } else {
            let called = policy
                .call(async |_| match state.as_str() {
                    "sick" => Err(()),
                    // Only this replica cannot reach the backend.
                    _ if role == "broken" => Err(()),
                    "hang" => {
                        println!("@probing");
                        std::future::pending().await
                    }
                    _ => Ok(()),
                })
                .await;
            match called {
                Ok(()) => "passed".into(),
                Err(CallError::Refused(refused)) => {
                    assert_eq!(refused.code(), Code::Open);
                    "refused".into()
                }
                Err(_) => "failed".to_owned(),
            }
        };
        if says != last {
            let count = counts.entry(says.clone()).or_default();
            *count += 1;
            println!("@{says}-{count} {}", micros());
            last = says;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // While it drains, more of its calls fail than open a breaker.
    if role == "call" {
        for _ in 0..40 {
            let _ = policy.call(async |_| Err::<(), _>(())).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!("@failing");
    }
    drop(pass);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    println!("@ended clean={}", report.is_clean());
}

/// A call that has ended.
struct Measured {
    before: u64,
    after: u64,
    lag: u64,
    /// Whether the store was away for all of it.
    is_away: bool,
}

/// Calls 200 times a second for as long as the file `log` requests it. The file names the current
/// stage; when it changes, this writes the figures of the last one: the admissions, how often the
/// store went away, and the calls that waited although the machine was not busy and the store was
/// away, or for longer than a call may.
async fn measure(shutdown: &Shutdown, policies: &Policies, policy: &Policy) {
    let (file, lag) = (var("ADIEU_LOG"), Lag::start());
    let (mut stage, mut calls) = (String::new(), Vec::<Measured>::new());
    let (mut admitted, mut away_before) = (Vec::new(), 0);
    loop {
        let next = std::fs::read_to_string(&file).unwrap();
        if next != stage {
            let away = times_away(shutdown);
            // Woken 5 ms late at the worst, a call that took longer than 20 ms has waited. One that
            // took longer than 35 ms has waited for more than 25 ms.
            let took = |it: &Measured, millis: u64| {
                it.after - it.before > millis * 1_000 && it.lag < 5_000
            };
            let waited = calls.iter().filter(|it| it.is_away && took(it, 20)).count();
            let too_long = calls.iter().filter(|it| took(it, 35)).count();
            let worst = calls.iter().map(|it| it.after - it.before).max().unwrap_or(0);
            let lag = calls.iter().map(|it| it.lag).max().unwrap_or(0);
            let (made, is_away) = (calls.len(), policies.store().unwrap().is_away);
            let times: Vec<String> = admitted.iter().map(u64::to_string).collect();
            println!(
                "@stage {stage} made={made} waited={waited} too_long={too_long} worst={worst} lag={lag} \
                 away={} is_away={is_away} admitted={}",
                away - away_before,
                times.join(",")
            );
            (stage, away_before) = (next, away);
            calls.clear();
            admitted.clear();
        }
        if stage == "end" {
            return;
        }
        lag.take();
        let away = || policies.store().unwrap().is_away.then(|| times_away(shutdown));
        let (was_away, before) = (away(), micros());
        let result = policy.call(async |_| Ok::<_, ()>(micros())).await;
        let after = micros();
        admitted.extend(result.ok());
        let is_away = was_away.is_some() && away() == was_away;
        calls.push(Measured { before, after, lag: lag.take(), is_away });
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
}

fn times_away(shutdown: &Shutdown) -> u64 {
    let (_, page) = adieu_core::adapter::pages(shutdown).remove(0);
    let mut metrics = adieu_core::adapter::Metrics::default();
    page.metrics(&mut metrics);
    let text = metrics.to_string();
    let line = text.lines().find(|line| line.starts_with("adieu_resilience_store_away_total"));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// The file `log` contains `sick N` or `well N`. On `sick`, callers make as many failing calls as
/// the fleet needs to open the breaker: in even runs the first caller all 20, so that its own
/// breaker opens; in odd runs the first two 10 each, so that only the fleet opens. All others wait
/// until they refuse.
async fn trip(role: &str, number: u64, policy: &Policy) {
    let (file, lag) = (var("ADIEU_LOG"), Lag::start());
    let is_closed = || policy.status().breaker == Some(BreakerState::Closed);
    let mut last = String::new();
    loop {
        let state = std::fs::read_to_string(&file).unwrap();
        if state == last {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        let (word, run) = state.split_once(' ').unwrap();
        let calls = match (role, number, run.parse::<u64>().unwrap() % 2) {
            ("trip-caller", 0, 0) => 20,
            ("trip-caller", _, 1) => 10,
            _ => 0,
        };
        lag.take();
        if word == "sick" {
            for _ in 0..calls {
                let _ = policy.call(async |_| Err::<(), _>(())).await;
            }
            let called = if calls > 0 { micros() } else { 0 };
            while is_closed() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            println!("@sick-{run} {called} {} {}", lag.take(), micros());
        } else {
            while !is_closed() {
                if number == 0 {
                    let _ = policy.call(async |_| Ok::<_, ()>(())).await;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            println!("@well-{run}");
        }
        last = state;
    }
}
