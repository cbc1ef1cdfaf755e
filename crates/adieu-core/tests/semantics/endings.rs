//! How a shutdown ends: its reason, its error, its waiters, and the exit guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_core::{
    AwaitError, Config, CustomReason, Format, Outcome, Phase, PhaseSpec, Reason, Shutdown, Signal,
    UncleanShutdown,
};
use adieu_testkit::faults;

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Ends with `?`, as a program does.
async fn ends_with_question_mark(shutdown: &Shutdown) -> Result<(), Box<dyn std::error::Error>> {
    shutdown.run(Reason::Unknown).await?.into_result()?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s300_into_result_returns_an_error_that_names_the_failed_tasks() {
    let clean = Shutdown::new();
    ends_with_question_mark(&clean).await.unwrap();

    let aborted = Shutdown::new();
    aborted.add_phase(PhaseSpec::new("flush").recover(false)).unwrap();
    aborted.add_task("flush", "push", async |_| Err::<(), _>("no route")).unwrap();
    for name in ["pool", "store"] {
        aborted.add_task(Phase::ACTOR_SYSTEM_TERMINATE, name, async |_| ()).unwrap();
    }
    let error = ends_with_question_mark(&aborted).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "shutdown aborted by phase flush: flush/push failed: no route; 2 tasks did not run"
    );
    let error = error.downcast_ref::<UncleanShutdown>().unwrap();
    assert_eq!((error.exit_code(), error.report().exit_code), (71, 71));

    let unclean = Shutdown::new();
    for n in 0..7 {
        let name = format!("task {n}");
        unclean.add_task(Phase::SERVICE_STOP, name, async |_| -> () { panic!("no luck") }).unwrap();
    }
    let error = unclean.run(Reason::Unknown).await.unwrap().into_result().unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("shutdown was not clean: service-stop/task 0 panicked: no luck, "),
        "{text}"
    );
    assert!(text.ends_with("task 4 panicked: no luck and 2 more"), "{text}");
    // `anyhow::Error` requires these bounds.
    let _: Box<dyn std::error::Error + Send + Sync + 'static> = Box::new(error);
}

#[derive(Debug, PartialEq)]
struct Asked {
    by: &'static str,
}

impl CustomReason for Asked {
    fn name(&self) -> &str {
        "asked"
    }
}

#[derive(Debug, PartialEq)]
struct AlsoAsked {
    by: &'static str,
}

impl CustomReason for AlsoAsked {
    fn name(&self) -> &str {
        "asked"
    }
}

/// Calls the shutdown whenever its name or its signal is requested.
#[derive(Debug)]
struct Curious {
    shutdown: Shutdown,
}

impl PartialEq for Curious {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl CustomReason for Curious {
    fn name(&self) -> &str {
        let _ = (self.shutdown.status().stage, self.shutdown.tasks(), self.shutdown.gates());
        "curious"
    }

    fn signal(&self) -> Option<Signal> {
        let _ = (self.shutdown.plan(), self.shutdown.deadline());
        None
    }
}

// If a lock were held, this would wait for ever.
#[test]
fn s551_a_reason_of_the_application_is_called_without_a_lock() {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        shutdown.add_task(Phase::SERVICE_STOP, "fails", async |_| Err::<(), _>("no")).unwrap();
        let report = shutdown.run(Curious { shutdown: shutdown.clone() }).wait().unwrap();
        done.send((report.reason.clone(), shutdown.status().reason)).unwrap();
    });
    let (reported, shown) = ended.recv_timeout(Duration::from_secs(20)).expect("no deadlock");
    assert_eq!((reported.as_str(), shown.as_deref()), ("curious", Some("curious")));
}

#[test]
fn s301_reasons_with_equal_signals_or_data_are_equal() {
    let signal = Reason::ProcessTerminate;
    assert_eq!(Reason::ProcessExit, Reason::ProcessExit);
    assert_ne!(Reason::ProcessExit, Reason::Unknown);
    assert_eq!(signal(Signal::TERM), signal(Signal::TERM));
    assert_ne!(signal(Signal::TERM), signal(Signal::INT));
    let ops = Reason::from(Asked { by: "ops" });
    assert_eq!(ops, Reason::from(Asked { by: "ops" }));
    assert_eq!(ops, ops.clone());
    assert_ne!(ops, Reason::from(Asked { by: "eve" }));
    assert_ne!(ops, Reason::from(AlsoAsked { by: "ops" }), "different types");
    assert_ne!(ops, Reason::Unknown);
}

#[tokio::test(start_paused = true)]
async fn s302_a_signal_has_one_name_in_report_status_and_overrides() {
    let config = |text: &str| Config::parse(text, Format::Toml).unwrap();
    let by_name = config("reason-overrides.SIGTERM.exit-code = 9");
    let shutdown = Shutdown::configured(by_name).unwrap();
    let term = Reason::ProcessTerminate(Signal::TERM);
    assert_eq!(shutdown.policy(&term).exit_code, 9);
    assert_eq!(shutdown.policy(&Reason::ProcessTerminate(Signal::INT)).exit_code, 0);
    let completed = shutdown.run(term.clone());
    assert_eq!(shutdown.status().reason.as_deref(), Some(term.name()));
    let report = completed.await.unwrap();
    assert_eq!((report.reason.as_str(), report.exit_code), (term.name(), 9));

    // An override for all signals, and one for a single signal.
    let all = config(
        "reason-overrides.process-terminate = { exit-code = 4, exit-process = true }\n\
         reason-overrides.SIGINT.exit-code = 5",
    );
    let shutdown = Shutdown::configured(all).unwrap();
    let code = |signal| {
        let policy = shutdown.policy(&Reason::ProcessTerminate(signal));
        assert!(policy.exit_process);
        policy.exit_code
    };
    assert_eq!((code(Signal::TERM), code(Signal::INT), code(Signal::new(40))), (4, 5, 4));

    // The key of a variable is in lower case.
    let vars = [("ADIEU__REASON_OVERRIDES__SIGTERM__EXIT_CODE".to_owned(), "6".to_owned())];
    let by_variable = Config::parse_with_vars("", Format::Toml, vars).unwrap();
    assert_eq!(Shutdown::configured(by_variable).unwrap().policy(&term).exit_code, 6);

    let error = Config::parse("reason-overrides.SIGTREM.exit-code = 9", Format::Toml).unwrap_err();
    assert_eq!(
        error.to_string(),
        "reason-overrides.SIGTREM: SIGTREM is not a signal: write its name, such as SIGTERM"
    );
}

#[test]
fn s303_a_panic_of_the_driver_is_an_error_for_the_waiters() {
    // Without timers the driver panics at once.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime
        .block_on(async {
            let shutdown = Shutdown::new();
            shutdown.add_task(Phase::SERVICE_STOP, "nothing", async |_| ()).unwrap();
            shutdown.run(Reason::Unknown).await
        })
        .unwrap_err();
    assert_eq!(error, AwaitError::DriverPanicked);
    assert!(error.to_string().contains("enable_time"), "{error}");
}

#[test]
fn s303_dropping_the_last_handle_is_an_error_for_the_waiters() {
    let completed = Shutdown::new().completed();
    assert_eq!(completed.wait().unwrap_err(), AwaitError::NeverBegun);
}

#[test]
fn s318_a_thread_of_the_blocking_pool_may_wait() {
    current_thread().block_on(async {
        let shutdown = Shutdown::new();
        let waiting = shutdown.run(Reason::Unknown);
        let report = tokio::task::spawn_blocking(|| waiting.wait()).await.unwrap();
        assert!(report.unwrap().is_clean());
    });
}

#[test]
fn s318_wait_in_a_blocking_task_of_the_shutdown_is_an_error() {
    current_thread().block_on(async {
        let shutdown = Shutdown::new();
        let inside = shutdown.clone();
        let wait = move |_| {
            assert_eq!(inside.completed().wait().unwrap_err(), AwaitError::InsideTask);
        };
        shutdown.add_blocking_task(Phase::SERVICE_STOP, "waits", wait).unwrap();
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        assert!(report.is_clean(), "{report}");
    });
}

// Created outside of a runtime and begun inside one: then it runs on that runtime.
#[test]
fn s318_wait_on_the_only_thread_of_the_runtime_is_an_error() {
    let shutdown = Shutdown::new();
    current_thread().block_on(async {
        assert_eq!(shutdown.run(Reason::Unknown).wait().unwrap_err(), AwaitError::OnlyThread);
        assert!(shutdown.completed().await.unwrap().is_clean());
    });
}

#[test]
fn s319_waiting_for_a_runtime_that_no_thread_runs_fails_at_the_deadline() {
    let runtime = current_thread();
    let kill_after = adieu_core::KillAfter::After(Duration::from_secs(1));
    let config = Config::for_tests().kill_after(kill_after);
    let shutdown = runtime.block_on(async { Shutdown::configured(config).unwrap() });
    assert_eq!(shutdown.run(Reason::Unknown).wait().unwrap_err(), AwaitError::StandsStill);
    assert!(runtime.block_on(shutdown.completed()).is_ok(), "a report, now that the runtime runs");
}

#[test]
fn s304_a_task_whose_runtime_was_dropped_has_failed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let shutdown = runtime.block_on(async { Shutdown::new() });
    let (began, begun) = std::sync::mpsc::channel();
    shutdown
        .add_task(Phase::SERVICE_STOP, "runs", async move |cx| {
            began.send(()).unwrap();
            faults::hang(cx).await;
        })
        .unwrap();
    shutdown.add_task(Phase::CLUSTER_LEAVE, "comes later", async |_| ()).unwrap();
    let completed = shutdown.run(Reason::Unknown);
    begun.recv().unwrap();
    runtime.shutdown_background();
    let report = completed.wait().unwrap();
    for (phase, task) in [(Phase::SERVICE_STOP, "runs"), (Phase::CLUSTER_LEAVE, "comes later")] {
        let outcome = &report.phase(phase).unwrap().task(task).unwrap().outcome;
        let Outcome::Failed { error } = outcome else { panic!("{task}: {outcome}") };
        assert!(error.starts_with("its runtime was dropped before it was over"), "{error}");
    }
}

/// Bodies and loops may also end in `loop {}`. The test is that this compiles.
#[expect(dead_code, reason = "it never ends")]
fn never_ends(shutdown: &Shutdown) {
    async fn tick() {
        tokio::task::yield_now().await;
    }
    let spin = async |_: adieu_core::LoopCx| {
        loop {
            tick().await;
        }
    };
    shutdown.add_loop("spin", spin).unwrap();
    adieu_core::main(async |_| {
        loop {
            tick().await;
        }
    });
}

#[tokio::test(start_paused = true)]
async fn s305_a_task_that_ends_in_a_loop_compiles_and_is_cancelled_at_its_timeout() {
    let shutdown = Shutdown::new();
    shutdown
        .add_task(Phase::SERVICE_STOP, "heartbeat", async |_| {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
        .unwrap();
    shutdown.add_task(Phase::CLUSTER_LEAVE, "gives up", async |_| panic!("no luck")).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let outcome =
        |phase: Phase, task| report.phase(phase).unwrap().task(task).unwrap().outcome.to_string();
    assert_eq!(outcome(Phase::SERVICE_STOP, "heartbeat"), "timed out after 5s");
    assert_eq!(outcome(Phase::CLUSTER_LEAVE, "gives up"), "panicked: no luck");
}

#[tokio::test(start_paused = true)]
async fn s306_tasks_can_be_cancelled_through_cloned_handles_and_by_name() {
    let shutdown = Shutdown::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let add = |phase: &Phase, name: &str| {
        let ran = Arc::clone(&ran);
        let count = async move |_| {
            ran.fetch_add(1, Ordering::Relaxed);
        };
        shutdown.add_task(phase, name, count).unwrap()
    };
    let (one, kept) = (add(&Phase::SERVICE_STOP, "one"), add(&Phase::SERVICE_STOP, "kept"));
    let twins: Vec<_> = (0..2).map(|_| add(&Phase::SERVICE_STOP, "twin")).collect();
    let elsewhere = add(&Phase::CLUSTER_LEAVE, "twin");

    let clone = one.clone();
    assert!(clone.cancel());
    assert!(one.is_cancelled() && one.cancel());

    assert_eq!(shutdown.cancel_tasks(Phase::SERVICE_STOP, "twin"), Ok(2));
    assert!(twins.iter().all(|twin| twin.is_cancelled() && twin.cancel()));
    assert!(!elsewhere.is_cancelled(), "another phase");
    assert_eq!(shutdown.cancel_tasks(Phase::SERVICE_STOP, "twin"), Ok(0));
    assert_eq!(shutdown.cancel_tasks(Phase::SERVICE_STOP, "nobody"), Ok(0));
    assert!(shutdown.cancel_tasks("nope", "twin").is_err());
    let left: Vec<_> = shutdown.tasks().into_iter().map(|task| task.name).collect();
    assert_eq!(left, ["kept".into(), "twin".into()]);

    shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 2);
    assert_eq!(shutdown.cancel_tasks(Phase::SERVICE_STOP, "kept"), Ok(0), "it has run");
    assert!(!kept.is_cancelled() && !kept.cancel());
}

/// Adds tasks in three phases that need timers.
fn with_tasks(shutdown: &Shutdown) {
    for phase in [Phase::SERVICE_UNBIND, Phase::SERVICE_STOP, Phase::CLOSE_RESOURCES] {
        let wait = async |_| tokio::time::sleep(Duration::from_millis(20)).await;
        shutdown.add_task(phase, "wait", wait).unwrap();
    }
}

#[track_caller]
fn check_ran_at_exit(shutdown: &Shutdown) {
    let report = shutdown.report().expect("the guard waits for the end");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.reason, "process-exit");
    assert_eq!(report.phase(Phase::CLOSE_RESOURCES).unwrap().tasks.len(), 1);
}

#[test]
fn s310_the_guard_works_without_a_runtime_and_in_every_kind_of_runtime() {
    let shutdown = Shutdown::new();
    with_tasks(&shutdown);
    drop(shutdown.run_on_exit());
    check_ran_at_exit(&shutdown);

    let threaded = tokio::runtime::Builder::new_multi_thread();
    for mut builder in [threaded, tokio::runtime::Builder::new_current_thread()] {
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let shutdown = runtime.block_on(async {
            let shutdown = Shutdown::new();
            let _exit = shutdown.run_on_exit();
            with_tasks(&shutdown);
            shutdown.clone()
        });
        check_ran_at_exit(&shutdown);
    }
}

// A `main` that spawns a task for all its work.
#[test]
fn s310_the_guard_works_in_a_task_on_the_only_worker() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let ends = runtime.spawn(async {
        let shutdown = Shutdown::new();
        let _exit = shutdown.run_on_exit();
        with_tasks(&shutdown);
        shutdown.clone()
    });
    check_ran_at_exit(&runtime.block_on(ends).unwrap());
}

#[test]
fn s310_the_guard_works_if_the_runtime_was_dropped_or_is_idle() {
    let threaded = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for (runtime, is_dropped) in [
        (threaded(), true),
        (threaded(), false),
        (current_thread(), true),
        (current_thread(), false),
    ] {
        let shutdown = runtime.block_on(async { Shutdown::new() });
        let exit = shutdown.run_on_exit();
        with_tasks(&shutdown);
        let kept = (!is_dropped).then_some(runtime);
        drop(exit);
        drop(kept);
        check_ran_at_exit(&shutdown);
    }
}

// A signal has begun the shutdown, and the only thread that could run it leaves `main`.
#[test]
fn s310_the_guard_moves_a_running_shutdown_to_a_new_runtime() {
    let shutdown = current_thread().block_on(async {
        let shutdown = Shutdown::new();
        let _exit = shutdown.run_on_exit();
        with_tasks(&shutdown);
        let begun = shutdown.begun();
        drop(shutdown.run(Reason::ClusterLeaving));
        begun.await;
        tokio::task::yield_now().await; // The driver has been polled, and waits.
        shutdown.clone()
    });
    let report = shutdown.report().expect("the guard waits for the end");
    assert_eq!(report.reason, "cluster-leaving");
    let outcome = |phase: Phase| report.phase(phase).unwrap().task("wait").unwrap().outcome.clone();
    // The first task was started on the runtime that is no longer polled.
    assert!(!outcome(Phase::SERVICE_UNBIND).is_clean());
    assert_eq!(outcome(Phase::SERVICE_STOP), Outcome::Finished);
    assert_eq!(outcome(Phase::CLOSE_RESOURCES), Outcome::Finished);
}

#[tokio::test]
async fn s192_a_refused_pass_is_not_a_failure_of_the_body() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let exit = shutdown.run_on_exit();
    let gate = shutdown.add_gate("http").unwrap();
    shutdown.run(Reason::Unknown).await.unwrap();
    let refused = gate.enter().unwrap_err();
    // A wrapper that does not return its cause.
    let code = exit.finish(Err::<(), _>(std::io::Error::other(refused))).await;
    assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
}

#[cfg(target_os = "linux")]
#[test]
fn s481_the_watchdog_thread_of_a_dropped_shutdown_ends() {
    let watchdogs = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.flatten().filter(|name| name.trim() == "adieu watchdog").count()
    };
    for _ in 0..20 {
        Shutdown::new().start_watchdog().unwrap();
    }
    let kept = Shutdown::new();
    kept.start_watchdog().unwrap();
    for _ in 0..10_000 {
        if watchdogs() == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{} are left", watchdogs());
}
