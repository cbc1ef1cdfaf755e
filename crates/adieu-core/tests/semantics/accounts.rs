//! Accepted work that was not finished is in the report, whatever the phases did.

#![expect(clippy::disallowed_methods, reason = "work inside gates runs in tasks")]

use std::future::pending;
use std::sync::Mutex;
use std::time::Duration;

use adieu_core::adapter::{WorkSource, account_for};
use adieu_core::{
    Config, DrainClass, Format, Lifecycle, LoopCx, Periodic, Phase, Reason, Report, Shutdown, Step,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

fn configured(toml: &str) -> Shutdown {
    Shutdown::configured(Config::parse(toml, Format::Toml).unwrap()).unwrap()
}

fn without(phases: &[Phase]) -> Shutdown {
    let disabled = phases.iter().map(|phase| format!("[phases.{phase}]\nenabled = false\n"));
    configured(&format!("lame-duck = \"0s\"\n{}", disabled.collect::<String>()))
}

/// Checks that the report is not clean and contains all of `parts`.
#[track_caller]
fn assert_reports(report: &Report, parts: &[&str]) {
    let text = report.to_string();
    assert!(!report.is_clean() && report.exit_code == 70, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn s780_work_that_is_cut_because_its_phase_is_disabled_is_reported() {
    let shutdown = without(&[Phase::SERVICE_REQUESTS_DONE]);
    let gate = shutdown.add_gate("orders").unwrap();
    let pass = gate.enter().unwrap().labelled("export 7");
    let work = tokio::spawn(async move { pass.cancelled().await });
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    work.await.unwrap();
    assert_reports(&report, &["1 in flight when the gate was cut", "export 7"]);
}

#[tokio::test(start_paused = true)]
async fn s780_also_if_the_shutdown_begins_at_a_later_phase() {
    for phase in [Phase::SERVICE_STOP, Phase::CLUSTER_LEAVE, Phase::CLOSE_RESOURCES] {
        let shutdown = Shutdown::new();
        let gate = shutdown.add_gate("orders").unwrap();
        let pass = gate.enter().unwrap().labelled("export 7");
        let report = shutdown.run_from(phase, Reason::Unknown).unwrap().await.unwrap();
        assert_reports(&report, &["1 in flight", "export 7"]);
        drop(pass);
    }
}

#[tokio::test(start_paused = true)]
async fn s780_work_that_is_inside_at_the_end_of_an_aborted_shutdown_is_reported() {
    let shutdown = configured("[phases.service-unbind]\nrecover = false\n");
    let gate = shutdown.add_gate("orders").unwrap();
    shutdown.add_task(Phase::SERVICE_UNBIND, "fails", async |_| Err::<(), _>("no")).unwrap();
    let _pass = gate.enter().unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(&*report.findings[0].name, "orders");
    assert_eq!(report.findings[0].what, "1 in flight when the shutdown ended");
}

#[tokio::test(start_paused = true)]
async fn s780_work_that_a_task_has_reported_is_not_reported_again() {
    let shutdown = configured("lame-duck = \"0s\"\ndrain-timeout = \"1s\"\n");
    let gate = shutdown.add_gate("orders").unwrap();
    let _pass = gate.enter().unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(!report.is_clean());
    let text = report.to_string();
    assert_eq!(text.matches("1 in flight").count(), 1, "{text}");
    assert!(report.findings.is_empty(), "{text}");
}

#[tokio::test(start_paused = true)]
async fn s1411_work_that_ends_when_its_gate_closes_is_finished() {
    let shutdown = without(&[Phase::SERVICE_REQUESTS_DONE]);
    let gate = shutdown.add_gate("events").unwrap();
    let pass = gate.enter_as(DrainClass::CloseNow).unwrap();
    let work = tokio::spawn(async move {
        pass.cancelled().await;
        sleep(Duration::from_millis(10)).await;
    });
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    work.await.unwrap();
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s780_without_work_a_shutdown_with_any_phase_disabled_is_clean() {
    for phase in Phase::BUILT_IN {
        let shutdown = without(std::slice::from_ref(phase));
        shutdown.add_gate("orders").unwrap();
        shutdown.add_loop("worker", async |cx: LoopCx| cx.takes_no_more().await).unwrap();
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        assert!(report.is_clean(), "{report}");
    }
}

#[tokio::test(start_paused = true)]
async fn s781_when_the_shutdown_is_over_its_gates_admit_no_work() {
    let shutdown = Shutdown::new();
    let gate = shutdown.add_gate("orders").unwrap();
    let report = shutdown.run_from(Phase::CLOSE_RESOURCES, Reason::Unknown).unwrap().await.unwrap();
    assert!(report.is_clean() && gate.enter().is_err(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s782_a_job_that_is_cut_by_the_end_of_its_loop_is_reported() {
    let phases = [Phase::SERVICE_REQUESTS_DONE, Phase::SERVICE_STOP];
    for shutdown in [without(&phases), Shutdown::new()] {
        let working = async |cx: LoopCx| {
            let pass = cx.enter().unwrap();
            pass.scope(cx.stops_now()).await;
        };
        shutdown.add_loop("worker", working).unwrap();
        sleep(Duration::from_secs(1)).await;
        let from = Phase::BEFORE_CLUSTER_SHUTDOWN;
        let report = if shutdown.plan().phase(Phase::SERVICE_STOP).unwrap().is_enabled() {
            shutdown.run_from(from, Reason::Unknown).unwrap().await.unwrap()
        } else {
            shutdown.run(Reason::Unknown).await.unwrap()
        };
        assert_reports(&report, &["leave worker", "1 in flight when the gate was cut"]);
    }
}

#[tokio::test(start_paused = true)]
async fn s782_a_loop_that_no_phase_has_ended_is_reported() {
    let shutdown = Shutdown::new();
    shutdown.add_loop("worker", async |_: LoopCx| pending::<()>().await).unwrap();
    sleep(Duration::from_secs(1)).await;
    let report = shutdown.run_from(Phase::CLOSE_RESOURCES, Reason::Unknown).unwrap().await.unwrap();
    assert_reports(&report, &["worker: the loop was not ended"]);
}

#[tokio::test(start_paused = true)]
async fn s782_a_loop_that_failed_after_its_gate_closed_is_reported_without_its_phases() {
    let shutdown = without(&[Phase::BEFORE_CLUSTER_SHUTDOWN, Phase::BEFORE_ACTOR_SYSTEM_TERMINATE]);
    let failing = async |cx: LoopCx| {
        cx.takes_no_more().await;
        Err::<(), _>("commit lost")
    };
    shutdown.add_loop("worker", failing).unwrap();
    sleep(Duration::from_secs(1)).await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_reports(&report, &["worker: commit lost"]);
}

#[tokio::test(start_paused = true)]
async fn s782_steps_that_are_up_and_were_not_stopped_are_reported() {
    let shutdown = configured("[phases.stop-steps]\nenabled = false\n");
    let started = || Step::new("pool").start(async |_| ()).stop(async |_| ());
    let lifecycle = Lifecycle::builder().step(started()).build().unwrap();
    lifecycle.start(&shutdown).await.unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_reports(&report, &["lifecycle: 1 not stopped: pool"]);
}

#[tokio::test(start_paused = true)]
async fn s783_the_work_that_an_adapter_accounts_for_is_reported() {
    let shutdown = Shutdown::new();
    let mailer = WorkSource::new("mailer").remaining(|| Some("3 mails not sent".into()));
    account_for(&shutdown, mailer);
    account_for(&shutdown, WorkSource::new("idle"));
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_reports(&report, &["mailer: 3 mails not sent"]);
    assert_eq!(report.findings.len(), 1, "{report}");
    let error = report.into_result().unwrap_err();
    assert_eq!(error.to_string(), "shutdown was not clean: mailer: 3 mails not sent");
}

#[tokio::test(start_paused = true)]
async fn s1007_a_source_of_work_whose_account_panics_makes_the_outcome_unclean() {
    let shutdown = Shutdown::new();
    account_for(&shutdown, WorkSource::new("broken").lost(|| panic!("no answer")));
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_reports(&report, &["broken: unfinished work is not known"]);
}

/// Adds a task that closes a resource, during which work ends.
fn close_pool(shutdown: &Shutdown, ends: CancellationToken) {
    let close = async move |_| {
        ends.cancel();
        sleep(Duration::from_millis(100)).await;
    };
    shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", close).unwrap();
}

#[tokio::test(start_paused = true)]
async fn s1006_work_inside_a_gate_when_resources_close_is_reported_even_if_it_ends_then() {
    let undrained = [Phase::SERVICE_REQUESTS_DONE, Phase::SERVICE_STOP];
    for (shutdown, from) in [
        (without(&undrained), Phase::BEFORE_SERVICE_UNBIND),
        (Shutdown::new(), Phase::CLOSE_RESOURCES),
    ] {
        let (gate, ends) = (shutdown.add_gate("orders").unwrap(), CancellationToken::new());
        let pass = gate.enter().unwrap().labelled("export 7");
        let work = {
            let ends = ends.clone();
            tokio::spawn(async move {
                ends.cancelled().await;
                sleep(Duration::from_millis(10)).await;
                drop(pass);
            })
        };
        close_pool(&shutdown, ends);
        let report = shutdown.run_from(from, Reason::Unknown).unwrap().await.unwrap();
        work.await.unwrap();
        let text = "orders: 1 in flight when resources began to close";
        assert_reports(&report, &[text, "export 7"]);
        assert_eq!(report.findings.len(), 1, "the work has ended: {report}");
    }
}

#[tokio::test(start_paused = true)]
async fn s1006_a_loop_that_runs_when_resources_close_is_reported_even_if_it_ends_then() {
    let shutdown = Shutdown::new();
    let working = async |cx: LoopCx| {
        cx.takes_no_more().await;
        sleep(Duration::from_millis(10)).await;
    };
    shutdown.add_loop("worker", working).unwrap();
    sleep(Duration::from_secs(1)).await;
    close_pool(&shutdown, CancellationToken::new());
    let report = shutdown.run_from(Phase::CLOSE_RESOURCES, Reason::Unknown).unwrap().await.unwrap();
    let text =
        "worker: the loop was not ended: its phases did not run when resources began to close";
    assert_reports(&report, &[text]);
}

#[tokio::test(start_paused = true)]
async fn s1006_gates_admit_no_work_when_resources_close() {
    let shutdown = Shutdown::new();
    let gate = shutdown.add_gate("orders").unwrap();
    let entering = async move |_| gate.enter().is_err().then_some(()).ok_or("work was admitted");
    shutdown.add_task(Phase::CLOSE_RESOURCES, "enter", entering).unwrap();
    let report = shutdown.run_from(Phase::CLOSE_RESOURCES, Reason::Unknown).unwrap().await.unwrap();
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s1006_work_that_a_phase_has_waited_for_or_cut_is_not_reported_again() {
    let shutdown = configured("lame-duck = \"0s\"\ndrain-timeout = \"1s\"\n");
    let gate = shutdown.add_gate("orders").unwrap();
    let _pass = gate.enter().unwrap();
    close_pool(&shutdown, CancellationToken::new());
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(!report.is_clean() && report.findings.is_empty(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s1008_a_resumed_shutdown_reports_lost_work_again_and_finished_work_not() {
    let shutdown = configured("[phases.service-unbind]\nrecover = false\n");
    let gate = shutdown.add_gate("orders").unwrap();
    shutdown.add_task(Phase::SERVICE_UNBIND, "fails", async |_| Err::<(), _>("no")).unwrap();
    let mails = Mutex::new(Some("3 mails lost".to_owned()));
    account_for(&shutdown, WorkSource::new("mailer").lost(move || mails.lock().unwrap().take()));
    let pass = gate.enter().unwrap();
    let aborted = shutdown.run(Reason::Unknown).await.unwrap();
    let text = aborted.to_string();
    assert!(text.contains("orders: 1 in flight") && text.contains("3 mails lost"), "{text}");
    drop(pass);
    let resumed = shutdown.resume_from(Phase::SERVICE_REQUESTS_DONE).unwrap().await.unwrap();
    assert_eq!(resumed.findings.len(), 1, "{resumed}");
    assert_eq!(resumed.findings[0].what, "3 mails lost");
}

#[tokio::test(start_paused = true)]
async fn s784_a_tick_that_fails_after_gates_have_closed_is_reported() {
    for panics in [false, true] {
        let shutdown = configured("lame-duck = \"0s\"\n");
        let every = Periodic::new("sync", Duration::from_secs(1)).splay(Duration::ZERO);
        let tick = move |cx: LoopCx| async move {
            cx.takes_no_more().await;
            assert!(!panics, "no luck");
            Err::<(), _>("no route")
        };
        shutdown.add_periodic(every, tick).unwrap();
        sleep(Duration::from_millis(100)).await;
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        let error = if panics { "tick failed: panicked: no luck" } else { "tick failed: no route" };
        assert_reports(&report, &["leave sync", error]);
    }
}

#[tokio::test(start_paused = true)]
async fn s1000_the_error_of_a_task_that_returns_it_after_its_time_is_in_the_report() {
    let shutdown = Shutdown::new();
    let late = async |cx: adieu_core::TaskCx| {
        cx.cancelled().await;
        Err::<(), _>("20 messages lost")
    };
    shutdown.add_task(Phase::SERVICE_STOP, "late", late).unwrap();
    let described = adieu_core::TaskSpec::new("described").describe(|| "3 queued".into());
    shutdown.add_task(Phase::SERVICE_STOP, described, late).unwrap();
    let panics = async |cx: adieu_core::TaskCx| -> () {
        cx.cancelled().await;
        panic!("on purpose");
    };
    shutdown.add_task(Phase::SERVICE_STOP, "panics", panics).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let phase = report.phase(Phase::SERVICE_STOP).unwrap();
    for (task, detail) in [
        ("late", "20 messages lost"),
        ("described", "20 messages lost; 3 queued"),
        ("panics", "panicked: on purpose"),
    ] {
        let task = phase.task(task).unwrap();
        assert!(matches!(task.outcome, adieu_core::Outcome::TimedOut { .. }), "{report}");
        assert_eq!(task.detail.as_deref(), Some(detail), "{report}");
    }
}

/// When work panics.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Panics {
    BeforeTheShutdown,
    InTheLameDuck,
    InTheDrain,
}

async fn panics(pass: adieu_core::Pass, gate: adieu_core::Gate, when: Panics) {
    let _pass = pass;
    match when {
        Panics::BeforeTheShutdown => {}
        Panics::InTheLameDuck => sleep(Duration::from_secs(1)).await,
        Panics::InTheDrain => gate.closed_token().cancelled().await,
    }
    assert_eq!(gate.is_closed(), when == Panics::InTheDrain);
    panic!("on purpose");
}

/// Runs a shutdown with a lame duck while work panics inside a gate.
async fn with_panic(in_scope: bool, when: Panics) -> std::sync::Arc<Report> {
    let shutdown = configured("lame-duck = \"5s\"\nlame-duck-min = \"3s\"\n");
    let gate = shutdown.add_gate("orders").unwrap();
    let pass = gate.enter().unwrap().labelled("export 7");
    let work = if in_scope {
        // Also holds a clone, which is not counted in addition.
        let clone = pass.clone();
        tokio::spawn(pass.scope(panics(clone, gate, when)))
    } else {
        tokio::spawn(panics(pass, gate, when))
    };
    if when == Panics::BeforeTheShutdown {
        assert!(work.await.unwrap_err().is_panic());
        return shutdown.run(Reason::Unknown).await.unwrap();
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let panic = work.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"), "{when:?}");
    report
}

#[tokio::test(start_paused = true)]
async fn s1005_work_that_panics_after_its_gate_has_closed_is_not_finished() {
    for in_scope in [false, true] {
        let report = with_panic(in_scope, Panics::InTheDrain).await;
        assert_reports(&report, &["1 cut off: export 7 panicked"]);
        for when in [Panics::BeforeTheShutdown, Panics::InTheLameDuck] {
            let report = with_panic(in_scope, when).await;
            assert!(report.is_clean(), "{when:?} a panic is an ordinary failure: {report}");
        }
    }
}
