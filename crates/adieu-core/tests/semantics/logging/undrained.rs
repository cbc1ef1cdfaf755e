//! The warnings that a configuration prevents accepted work from being finished.

use adieu_core::adapter::{log, warn_of_undrained_actors};
use adieu_core::{Config, Format, LoopCx, Shutdown};

use super::CapturedLog;

/// Returns the warnings that two calls of `start` cause with this configuration.
fn warnings(toml: &str, start: impl Fn(&Shutdown)) -> Vec<String> {
    let (captured, _guard) = CapturedLog::listen();
    let shutdown = Shutdown::configured(Config::parse(toml, Format::Toml).unwrap()).unwrap();
    start(&shutdown);
    start(&shutdown);
    log(&shutdown, || tracing::info!("started"));
    let text = captured.wait_for(|text| text.contains("started"));
    text.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
}

/// Checks that there is one warning, with these settings and this consequence.
#[track_caller]
fn assert_warns(warnings: &[String], settings: &str, consequence: &str) {
    let [warning] = warnings else { panic!("{warnings:?}") };
    let fields =
        format!("accepted work is not drained settings=\"{settings}\" consequence=\"{consequence}");
    assert!(warning.contains(&fields), "{warning}");
}

#[tokio::test]
async fn s1010_a_disabled_drain_of_requests_is_logged_at_start_up() {
    let disabled = "[phases.service-requests-done]\nenabled = false\n";
    let gate = |shutdown: &Shutdown| drop(shutdown.add_gate("http").unwrap());
    let worker = |shutdown: &Shutdown| {
        shutdown.add_loop("worker", async |cx: LoopCx| cx.takes_no_more().await).unwrap();
    };
    for warnings in [warnings(disabled, gate), warnings(disabled, worker)] {
        let setting = "phases.service-requests-done.enabled = false";
        assert_warns(&warnings, setting, "no phase waits for work in flight");
    }
    assert!(warnings(disabled, |_| ()).is_empty() && warnings("", gate).is_empty());
}

#[tokio::test]
async fn s1011_actors_that_are_not_drained_are_logged_at_start_up() {
    let cases = [
        ("terminate-actor-system = false\n", "terminate-actor-system = off"),
        (
            "[phases.actor-system-terminate]\nenabled = false\n",
            "phases.actor-system-terminate.enabled = false",
        ),
        (
            "[reason-overrides.SIGTERM]\nterminate-actor-system = false\n",
            "reason-overrides.SIGTERM.terminate-actor-system = off",
        ),
    ];
    for (toml, setting) in cases {
        let toml = format!("run-by-actor-system-terminate = false\n{toml}");
        let warnings = warnings(&toml, warn_of_undrained_actors);
        assert_warns(&warnings, setting, "actors are not drained");
    }
    assert!(warnings("", warn_of_undrained_actors).is_empty());
}
