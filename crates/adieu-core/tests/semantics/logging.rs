//! The lines of the log.

mod over_budget;
mod subscribers;
mod undrained;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{
    Config, KillAfter, LoopSpec, Periodic, Phase, Reason, Shutdown, Signal, TaskSpec,
};
use adieu_testkit::faults;
use expect_test::expect;

#[derive(Clone, Default)]
pub(super) struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl CapturedLog {
    pub(super) fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        Self::listen_after(|| ())
    }

    /// Calls `wait` before each line.
    fn listen_after(
        wait: impl Fn() + Send + Sync + 'static,
    ) -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || {
                wait();
                writer.clone()
            })
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Waits until the text has this many lines, which another thread writes, and returns it.
    pub(super) fn lines(&self, lines: usize) -> String {
        self.wait_for(|text| text.lines().count() >= lines)
    }

    /// Waits until the text fulfils the condition, and returns it.
    pub(super) fn wait_for(&self, wanted: impl Fn(&str) -> bool) -> String {
        for _ in 0..10_000 {
            let text = self.text();
            if wanted(&text) {
                return text;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("waited in vain; it logged:\n{}", self.text())
    }

    pub(super) fn text(&self) -> String {
        let bytes = self.0.lock().unwrap().clone();
        String::from_utf8(bytes)
            .unwrap()
            .lines()
            .map(|line| line.trim().to_owned() + "\n")
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn s53_each_transition_and_every_five_seconds_of_waiting_are_logged() {
    let (log, _guard) = CapturedLog::listen();
    let kill_after = KillAfter::After(Duration::from_secs(30));
    let shutdown = Shutdown::configured(Config::for_tests().kill_after(kill_after)).unwrap();
    shutdown.set_phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_secs(12)).unwrap();
    shutdown.add_task(Phase::SERVICE_UNBIND, "close", async |_| ()).unwrap();
    shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, "drain http", faults::hang).unwrap();
    shutdown.add_task(Phase::CLUSTER_LEAVE, "leave", faults::fail).unwrap();
    let _ = shutdown.receive(Signal::TERM);
    shutdown.completed().await.unwrap();
    expect![[r#"
        WARN signal received signal=SIGTERM effect=shut down gracefully if_repeated=end waiting early
        INFO shutdown initiated reason=SIGTERM deadline=27s phases=3 worst_case=22s
        INFO phase over phase=service-unbind outcome=finished took=0s tasks=1
        INFO still waiting waiting_for=service-requests-done/drain http for 5s left=7s
        INFO still waiting waiting_for=service-requests-done/drain http for 10s left=2s
        WARN task failed phase=service-requests-done task="drain http" outcome=timed out after 12s took=12.2s
        INFO phase over phase=service-requests-done outcome=timed out after 12s took=12.2s tasks=1
        WARN task failed phase=cluster-leave task="leave" outcome=failed: it was made to fail took=0s
        INFO phase over phase=cluster-leave outcome=failed: it was made to fail took=0s tasks=1
        WARN shutdown complete outcome=unclean took=12.2s
    "#]]
    .assert_eq(&log.text());
}

#[tokio::test(start_paused = true)]
async fn s53_the_logged_time_left_is_the_time_until_the_cut() {
    let (log, _guard) = CapturedLog::listen();
    let kill_after = KillAfter::After(Duration::from_secs(30));
    let shutdown = Shutdown::configured(Config::for_tests().kill_after(kill_after)).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    let _inside = gate.enter().unwrap();
    let completed = shutdown.run(Reason::Unknown);
    tokio::time::sleep(Duration::from_secs(11)).await;
    // Of 27 s, 3 s are the reserve, 2 s are for service-stop, and 800 ms for graces.
    let status = shutdown.status();
    assert_eq!(status.until_cut(), Some(Duration::from_millis(10_200)));
    assert_eq!(status.remaining, Duration::from_secs(16));
    shutdown.shorten(Duration::from_secs(1));
    completed.await.unwrap();
    let text = log.text();
    let waiting: Vec<_> = text.lines().filter(|line| line.contains("still waiting")).collect();
    expect![[r#"
        INFO still waiting waiting_for=service-requests-done/drain http for 5s (1 in flight) left=16.2s
        INFO still waiting waiting_for=service-requests-done/drain http for 10s (1 in flight) left=11.2s"#]]
    .assert_eq(&waiting.join("\n"));
}

/// The descriptions of tasks and labels are code of the application.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s569_a_description_that_panics_or_blocks_delays_only_its_line() {
    struct Bad;
    impl std::fmt::Display for Bad {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("a label that cannot be shown")
        }
    }
    let kill_after = KillAfter::After(Duration::from_secs(9));
    let mut config = Config::for_tests().kill_after(kill_after);
    for phase in [Phase::SERVICE_UNBIND, Phase::SERVICE_REQUESTS_DONE] {
        config = config.phase_timeout(phase, Duration::from_millis(300));
    }
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    let _inside = gate.enter().unwrap().labelled(Bad);
    let (freed, free) = std::sync::mpsc::channel::<()>();
    let free = std::sync::Mutex::new(free);
    let panics = TaskSpec::new("panics").describe(|| panic!("when asked"));
    let blocks = TaskSpec::new("blocks").describe(move || {
        let _ = free.lock().map(|free| free.recv());
        "at last".into()
    });
    shutdown.add_task(Phase::SERVICE_UNBIND, panics, faults::hang).unwrap();
    shutdown.add_task(Phase::SERVICE_UNBIND, blocks, faults::hang).unwrap();
    let (flush, flushed) = tokio::sync::oneshot::channel();
    shutdown
        .add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "flush", async |_| {
            flush.send(()).unwrap();
        })
        .unwrap();
    let report = tokio::time::timeout(Duration::from_secs(30), shutdown.run(Reason::Unknown));
    let report = report.await.expect("it should end").unwrap();
    flushed.await.expect("the later phase should have run");
    let detail =
        |phase: Phase, task: &str| report.phase(&phase).unwrap().task(task).unwrap().detail.clone();
    let answered = |task: &str| detail(Phase::SERVICE_UNBIND, task).unwrap();
    assert_eq!(answered("panics"), "(its description panicked)");
    assert_eq!(answered("blocks"), "(no answer when asked)");
    assert!(gate.summary().ends_with("(its description panicked)"), "{}", gate.summary());
    assert!(report.took < Duration::from_secs(5), "{report}");
    drop(freed);
}

#[tokio::test(start_paused = true)]
async fn s53_a_disabled_phase_with_tasks_is_logged_once() {
    let (log, _guard) = CapturedLog::listen();
    let config = "phases.service-stop.enabled = false\nphases.cluster-leave.enabled = false";
    let config = Config::parse(config, adieu_core::Format::Toml).unwrap();
    let shutdown = Shutdown::configured(config).unwrap();
    shutdown.add_task(Phase::SERVICE_STOP, "one", async |_| ()).unwrap();
    shutdown.add_task(Phase::SERVICE_STOP, "two", async |_| ()).unwrap();
    shutdown.run(Reason::Unknown).await.unwrap();
    let text = log.text();
    let skipped: Vec<&str> = text.lines().filter(|line| line.contains("skipped")).collect();
    assert_eq!(
        skipped,
        ["INFO phase skipped phase=service-stop outcome=skipped: disabled tasks=2"]
    );
}

#[tokio::test(start_paused = true)]
async fn s1419_each_crash_is_logged_with_the_time_until_the_restart() {
    let (log, _guard) = CapturedLog::listen();
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let spec = LoopSpec::new("worker").seed(1);
    shutdown.add_loop(spec, |_| async { Err::<(), _>("no database") }).unwrap();
    let tick = |_| async {
        if true {
            panic!("no cache");
        }
    };
    let periodic = Periodic::new("refresh", Duration::from_secs(1)).seed(1);
    shutdown.add_periodic(periodic, tick).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    expect![[r#"
        WARN loop failed name="worker" error="no database" retry_in="414ms"
        WARN loop failed name="worker" error="no database" retry_in="767ms"
        WARN tick failed name="refresh" error="panicked: no cache" retry_in="1s"
    "#]]
    .assert_eq(&log.lines(3));
}

#[tokio::test(start_paused = true)]
async fn s77_a_change_of_a_check_is_logged_once() {
    let (log, _guard) = CapturedLog::listen();
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let (database, disk) = (shutdown.add_check("database"), shutdown.add_check("disk"));
    database.mark_ready();
    for _ in 0..2 {
        database.mark_failed("connection refused");
    }
    database.mark_ready();
    drop(disk);
    expect![[r#"
        WARN check failed check="database" detail="connection refused"
        INFO check recovered check="database"
        WARN check failed check="disk" detail="the handle of this check was dropped"
    "#]]
    .assert_eq(&log.lines(3));
    shutdown.run(Reason::Unknown).await.unwrap();
    drop(database);
    assert_eq!(log.text().matches("check failed").count(), 2, "a check has failed in the shutdown");
}

// On a multi-threaded runtime another thread logs the lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn s53_a_subscriber_of_the_callers_thread_gets_the_lines() {
    let (log, guard) = CapturedLog::listen();
    let shutdown = Shutdown::new();
    let completed = shutdown.run(Reason::Unknown);
    drop(guard);
    completed.await.unwrap();
    assert!(log.text().contains("shutdown complete"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn s53_a_request_to_stop_is_not_logged_as_a_signal() {
    let (log, _guard) = CapturedLog::listen();
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    drop(shutdown.run(Reason::Unknown));
    adieu_core::adapter::receive_request(&shutdown, "admin-port");
    shutdown.completed().await.unwrap();
    let text = log.text();
    assert!(text.contains("WARN stop requested via=\"admin-port\" effect=shut down"), "{text}");
    assert!(!text.contains("SIGTERM"), "{text}");
}

// The body fails before the shutdown runs, or while it runs.
#[tokio::test(start_paused = true)]
async fn s1003_log_and_every_report_show_that_the_body_failed() {
    for is_running in [false, true] {
        let (log, _guard) = CapturedLog::listen();
        let shutdown = Shutdown::new();
        let completed = shutdown.completed();
        if is_running {
            drop(shutdown.run(Reason::Unknown));
        }
        let exit = shutdown.run_on_exit();
        let code = exit.finish(Err::<(), _>("no database")).await;
        assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::from(1)));
        for report in [completed.await.unwrap(), shutdown.report().unwrap()] {
            assert_eq!((report.exit_code, report.is_clean()), (1, false), "{report}");
            assert_eq!(report.findings.len(), 1, "{report}");
            assert_eq!(
                (&*report.findings[0].name, &*report.findings[0].what),
                ("body", "no database")
            );
        }
        let text = log.text();
        assert_eq!(text.matches("body failed").count(), 1, "{text}");
        assert!(text.contains("WARN shutdown complete outcome=unclean"), "{text}");
    }
}

// Then the futures that have resolved cannot change.
#[tokio::test(start_paused = true)]
async fn s1400_a_body_that_fails_after_the_shutdown_changes_the_report() {
    let shutdown = Shutdown::new();
    let exit = shutdown.run_on_exit();
    let before = shutdown.run(Reason::Unknown).await.unwrap();
    let _ = exit.finish(Err::<(), _>("no database")).await;
    assert_eq!((before.exit_code, shutdown.report().unwrap().exit_code), (0, 1));
    assert_eq!(shutdown.completed().await.unwrap().exit_code, 1);
}
