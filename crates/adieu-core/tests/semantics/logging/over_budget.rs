//! The warning about an exceeded budget.

use std::time::Duration;

use adieu_core::{Config, KillAfter, Phase, Reason, Shutdown};
use expect_test::expect;

use super::CapturedLog;

/// Returns a shutdown with a worst case of twelve seconds, of which the platform allows eight.
fn over_budget() -> Shutdown {
    let kill_after = KillAfter::After(Duration::from_secs(10));
    let shutdown = Shutdown::configured(Config::for_tests().kill_after(kill_after)).unwrap();
    for phase in [Phase::SERVICE_UNBIND, Phase::SERVICE_STOP] {
        shutdown.add_task(phase, "task", async |_| ()).unwrap();
    }
    shutdown
}

fn warnings(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("over budget")).collect()
}

// On the real clock, because a thread waits.
#[tokio::test]
async fn s315_an_exceeded_budget_is_logged_once_after_start_up() {
    let (log, _guard) = CapturedLog::listen();
    let shutdown = over_budget();
    // As with a lifecycle and a server: start-up ends twice, and a task is added in between.
    shutdown.mark_started();
    shutdown.add_task(Phase::CLUSTER_LEAVE, "task", async |_| ()).unwrap();
    shutdown.mark_started();
    let text = log.wait_for(|text| !warnings(text).is_empty());
    shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(warnings(&text), warnings(&log.text()), "logged once");
    expect![[r#"
        WARN over budget problem="worst case 15s (service-unbind -> service-stop -> cluster-leave) + reserve 2s = 17s exceeds the 8s allowed (kill-after 10s less its margin): shorten these phases by 9s or let the platform wait 20s before it kills; kill-after is configured"
    "#]]
    .assert_eq(&(warnings(&text).join("\n") + "\n"));
}

#[tokio::test(start_paused = true)]
async fn s315_an_exceeded_budget_is_logged_when_the_shutdown_begins() {
    let (log, _guard) = CapturedLog::listen();
    let shutdown = over_budget();
    shutdown.run(Reason::Unknown).await.unwrap();
    let text = log.text();
    assert_eq!(warnings(&text).len(), 1, "{text}");
    assert!(text.starts_with(warnings(&text)[0]), "{text}");
}

#[tokio::test]
async fn s315_an_exceeded_budget_is_logged_again_when_the_worst_case_grows() {
    let (log, _guard) = CapturedLog::listen();
    let shutdown = over_budget();
    shutdown.mark_started();
    log.wait_for(|text| warnings(text).len() == 1);
    shutdown.add_task(Phase::CLUSTER_LEAVE, "task", async |_| ()).unwrap();
    let text = log.wait_for(|text| warnings(text).len() == 2);
    assert!(warnings(&text)[1].contains("cluster-leave"), "{text}");
}
