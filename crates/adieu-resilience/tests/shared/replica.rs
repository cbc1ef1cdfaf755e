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
    let breaker = Breaker::at(0.5).of(20).opens_for(Duration::from_millis(500));
    let policy = match role.as_str() {
        "even" | "hopping" | "hog" => Policy::new("p").rate(Rate::per_second(500).burst(50)),
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
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    println!("@ended clean={}", report.is_clean());
}
