//! `adieu breaker`, with two replicas in this process.

use std::net::SocketAddr;
use std::time::Duration;

use adieu::http::{Admin, AdminHandle};
use adieu::resilience::{Breaker, Memory, Policies, Policy, Rate};
use adieu::{Config, Shutdown};
use tokio::runtime::Runtime;

use super::{adieu, shows, until};

struct Replica {
    policies: Policies,
    _shutdown: Shutdown,
    _admin: AdminHandle,
    addr: SocketAddr,
}

fn start(runtime: &Runtime, memory: Option<&Memory>) -> Replica {
    runtime.block_on(async {
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap().start().unwrap();
        let payments = Policy::new("payments").breaker(Breaker::at(0.5)).start(&shutdown).unwrap();
        let search = Policy::new("search").rate(Rate::per_second(5)).start(&shutdown).unwrap();
        let mut policies: Policies = [payments, search].into_iter().collect();
        if let Some(memory) = memory {
            policies = policies.shared(memory.clone(), "checkout").unwrap();
        }
        shutdown.mark_started();
        let addr = admin.local_addr();
        Replica { policies, _shutdown: shutdown, _admin: admin, addr }
    })
}

#[test]
fn s930_breaker_lists_opens_and_releases_policies_in_all_replicas() {
    let runtime = Runtime::new().unwrap();
    let memory = runtime.block_on(async { Memory::new() });
    let (one, other) = (start(&runtime, Some(&memory)), start(&runtime, Some(&memory)));
    let url = one.addr.to_string();
    until("both are seen", || one.policies.store().is_some_and(|store| store.replicas == 2));
    let shared = "shared as checkout by 2 replicas";
    let expected = format!("payments  breaker closed; {shared}\nsearch    no breaker; {shared}\n");
    assert_eq!(shows(&["breaker", "list", &url]), expected);
    // Nothing is opened without consent.
    let asked = adieu(&["breaker", "open", "payments", &url, "--for", "10m"]);
    assert_eq!(asked.code, 2, "{}", asked.stderr);
    let opened =
        shows(&["breaker", "open", "payments", &url, "--for", "10m", "--by", "ops 7", "--yes"]);
    assert_eq!(opened, "payments is open for 10m, in all replicas of checkout\n");
    // The replica that was asked shows it at once, the other after its next report.
    let listed = shows(&["breaker", "list", &url]);
    assert!(listed.starts_with("payments  forced open for 9m "), "{listed}");
    let forced = || other.policies.get("payments").unwrap().status();
    until("the other replica refuses", || forced().forced.is_some());
    assert_eq!(forced().forced_by.as_deref(), Some("ops 7"));
    assert!(forced().forced.unwrap() > Duration::from_secs(500));
    let listed = shows(&["breaker", "list", &other.addr.to_string()]);
    assert!(listed.starts_with("payments  forced open for 9m "), "{listed}");
    assert!(listed.contains(" by ops 7; breaker closed;"), "{listed}");
    let released = shows(&["breaker", "release", "payments", &other.addr.to_string()]);
    assert_eq!(released, "payments is released, in all replicas of checkout\n");
    let listed = shows(&["breaker", "list", &other.addr.to_string()]);
    assert!(listed.starts_with("payments  breaker closed;"), "{listed}");
    until("it is released", || one.policies.get("payments").unwrap().status().forced.is_none());
    let unknown = adieu(&["breaker", "release", "payment", &url]);
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("there is no policy payment: known are payments, search"));
    runtime.shutdown_background();
}

#[test]
fn s930_a_policy_that_is_not_shared_is_opened_in_its_process() {
    let runtime = Runtime::new().unwrap();
    let alone = start(&runtime, None);
    let url = alone.addr.to_string();
    let opened = shows(&["breaker", "open", "payments", &url, "--for", "5m", "-y"]);
    assert_eq!(opened, "payments is open for 5m, in this process\n");
    assert!(alone.policies.get("payments").unwrap().status().forced.is_some());
    runtime.shutdown_background();
}
