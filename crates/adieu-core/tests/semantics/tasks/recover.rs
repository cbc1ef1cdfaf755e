//! Phases that recover, abort or are skipped, and the resumption of an aborted shutdown.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::{AddTaskError, Outcome, Phase, Reason, Shutdown, Stage};
use adieu_testkit::faults;
use adieu_testkit::timeline::Timeline;
use expect_test::expect;

use crate::check;

#[tokio::test(start_paused = true)]
async fn s32_with_recover_the_shutdown_continues_after_the_other_tasks_of_the_phase() {
    let shutdown = Shutdown::new();
    let timeline = Timeline::new();
    shutdown.add_task(Phase::SERVICE_STOP, "fails", faults::fail).unwrap();
    for (phase, name) in [(Phase::SERVICE_STOP, "sibling"), (Phase::CLUSTER_LEAVE, "next")] {
        let timeline = timeline.clone();
        shutdown
            .add_task(phase, name, async move |_| {
                let span = timeline.start(name);
                tokio::time::sleep(Duration::from_secs(2)).await;
                span.over();
            })
            .unwrap();
    }
    shutdown.run(Reason::Unknown).await.unwrap();
    expect![[r"
        0s sibling started
        2s sibling over
        2s next started
        4s next over
    "]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s33_without_recover_a_failure_or_timeout_skips_later_phases() {
    check(
        "bad fails fatal; beside 3s; next 1s after bad; actor-system-terminate 1s",
        expect![[r#"
            0s beside started
            0s bad started
            0s bad over
            3s beside over
            3s shutdown over: aborted by bad; bad failed: it was made to fail; next skipped: bad failed and does not recover; actor-system-terminate skipped: bad failed and does not recover
        "#]],
    )
    .await;
    check(
        "slow 9s timeout 2s fatal; next 1s after slow",
        expect![[r"
            0s slow started
            2s 200ms slow dropped
            2s 200ms shutdown over: aborted by slow; slow timed out after 2s; next skipped: slow failed and does not recover
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s34_an_aborted_shutdown_can_be_resumed() {
    use adieu_core::{Ending, PhaseSpec, ResumeError};
    let shutdown = Shutdown::new();
    let timeline = Timeline::new();
    shutdown.add_phase(PhaseSpec::new("bad").recover(false)).unwrap();
    shutdown.add_phase(PhaseSpec::new("skipped").after("bad")).unwrap();
    shutdown.add_phase(PhaseSpec::new("wanted").after("skipped")).unwrap();
    shutdown.add_task("bad", "fails", faults::fail).unwrap();
    for phase in ["skipped", "wanted", "service-stop", "actor-system-terminate"] {
        let timeline = timeline.clone();
        shutdown.add_task(phase, phase, async move |_| timeline.note(phase)).unwrap();
    }
    assert_eq!(shutdown.resume_from("wanted").unwrap_err(), ResumeError::NotAborted);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(report.outcome, Ending::Aborted { phase: "bad".into() });
    assert_eq!(report.exit_code, 71);
    assert!(matches!(shutdown.resume_from("nope"), Err(ResumeError::UnknownPhase(_))));

    // Later than any deadline of the first run.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let resumed = shutdown.resume_from("wanted").unwrap();
    assert_eq!(shutdown.stage(), Stage::ShuttingDown);
    let report = resumed.await.unwrap();
    assert_eq!(report.outcome, Ending::Unclean);
    assert_eq!(
        report.phase("skipped").unwrap().task("skipped").unwrap().outcome.to_string(),
        "skipped: bad failed and does not recover"
    );
    assert!(Arc::ptr_eq(&report, &shutdown.completed().await.unwrap()));
    assert_eq!(shutdown.resume_from("wanted").unwrap_err(), ResumeError::NotAborted);
    let mut notes: Vec<String> = timeline.to_string().lines().map(str::to_owned).collect();
    assert_eq!(notes.pop().unwrap(), "1h actor-system-terminate");
    notes.sort();
    assert_eq!(notes, ["0s service-stop", "1h wanted"]);
}

#[tokio::test(start_paused = true)]
async fn s35_a_disabled_phase_is_skipped_with_its_tasks() {
    check(
        "off 1s disabled; next 1s after off",
        expect![[r"
            0s next started
            1s next over
            1s shutdown over: clean; off skipped: disabled
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s25_a_skipped_phase_rejects_tasks() {
    let shutdown = Shutdown::new();
    let completed = shutdown.run_from(Phase::CLUSTER_LEAVE, Reason::Unknown).unwrap();
    let late = |phase| shutdown.add_task(phase, "late", async |_| ()).unwrap_err();
    assert!(matches!(late(Phase::SERVICE_STOP), AddTaskError::TooLate { .. }));
    completed.await.unwrap();
    assert!(matches!(late(Phase::SERVICE_STOP), AddTaskError::TooLate { .. }));
    assert!(shutdown.set_phase_timeout(Phase::SERVICE_STOP, Duration::from_secs(1)).is_err());
}

// On a multi-threaded runtime the driver of the aborted run may still exist at the resumption.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s34_an_aborted_shutdown_can_be_resumed_at_once() {
    for _ in 0..50 {
        let shutdown = Shutdown::new();
        shutdown.add_phase(adieu_core::PhaseSpec::new("bad").recover(false)).unwrap();
        shutdown.add_phase(adieu_core::PhaseSpec::new("next").after("bad")).unwrap();
        shutdown.add_task("bad", "bad", faults::fail).unwrap();
        shutdown
            .add_task("next", "slow", async |_| {
                tokio::time::sleep(Duration::from_millis(30)).await;
            })
            .unwrap();
        assert_eq!(shutdown.run(Reason::Unknown).await.unwrap().exit_code, 71);
        let report = shutdown.resume_from("next").unwrap().await.unwrap();
        let slow = &report.phase("next").unwrap().tasks[0];
        assert_eq!(slow.outcome, Outcome::Finished);
    }
}
