//! Real processes with logs that block or fail, destructors that panic, and conflicting signals.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adieu::{ExitCode, Outcome, Phase, Report, Signal};
use adieu_testkit::process::Process;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::process::{check_code, start, started};

/// How often a race is repeated.
const RUNS: usize = 12;

/// Starts the scenario, and waits until it is ready to be signalled.
fn start_logging(vars: &[(&str, &str)], report: &std::path::Path) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_victim"))
        .arg("logging")
        .env("ADIEU__KILL_AFTER", "20s")
        .env("ADIEU__REPORT_FILE", report)
        .env_remove("RUST_LOG")
        .envs(vars.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "the process ended before it was ready");
    }
    // The pipe stays open, but is no longer read.
    child.stderr = Some(stderr.into_inner());
    child
}

/// Sends SIGTERM, and checks that the process ends as it would with a working log.
#[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
fn check_clean_end(mut child: Child, report: &std::path::Path) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let since = Instant::now();
    kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(i32::from(ExitCode::CLEAN)), "after {:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(10), "it took {:?}", since.elapsed());
    let report: Report = serde_json::from_reader(std::fs::File::open(report).unwrap()).unwrap();
    assert!(report.is_clean(), "{report}");
    for phase in
        [Phase::BEFORE_SERVICE_UNBIND, Phase::SERVICE_STOP, Phase::BEFORE_ACTOR_SYSTEM_TERMINATE]
    {
        let work = report.phase(&phase).unwrap().task("work").unwrap();
        assert_eq!(work.outcome, Outcome::Finished, "{report}");
    }
    assert!(report.took < Duration::from_secs(1), "{report}");
}

#[test]
fn s190_with_stdout_and_stderr_broken_the_shutdown_is_clean() {
    let report = tempfile::NamedTempFile::new().unwrap();
    for _ in 0..RUNS {
        let mut child = start_logging(&[], report.path());
        // As `service 2>&1 | tee log` when `tee` dies.
        drop((child.stdout.take(), child.stderr.take()));
        check_clean_end(child, report.path());
    }
}

#[test]
fn s191_with_a_log_that_is_never_read_the_shutdown_is_clean() {
    let report = tempfile::NamedTempFile::new().unwrap();
    for _ in 0..RUNS {
        let child = start_logging(&[("STUFF", "yes")], report.path());
        check_clean_end(child, report.path());
    }
}

#[test]
fn s192_an_error_that_only_reports_the_shutdown_is_not_a_failure() {
    let task = "task close pool";
    for (declares, named) in [
        ("task", Some(task)),
        ("task, transparent", Some(task)),
        ("task, with cause", Some(task)),
        ("task, as text", Some(task)),
        ("loop", None),
        ("gate", None),
        ("phase", Some("phase late")),
        ("timeout", Some("phase service-stop")),
        ("lifecycle", Some("the shutdown has begun")),
    ] {
        let mut process = started("late start-up", &[("DECLARES", declares)]);
        process.signal(Signal::TERM);
        let ended = process.wait();
        assert_eq!(ended.status.code(), Some(i32::from(ExitCode::CLEAN)), "{declares}: {ended:#?}");
        assert!(!ended.stderr.contains("body failed"), "{declares}: {ended:#?}");
        if let Some(named) = named {
            assert!(ended.stderr.contains(named), "{declares}: {ended:#?}");
        }
    }
    // An error with another cause is a failure, also during the shutdown.
    let mut process = started("late start-up", &[("DECLARES", "no database")]);
    process.signal(Signal::TERM);
    check_code(&process.wait(), ExitCode::FAILED);
}

#[test]
fn s193_a_task_that_is_added_too_late_is_in_the_report() {
    let mut process = started("late start-up", &[("DECLARES", "task")]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    let report = ended.report.as_ref().unwrap();
    let phase = report.phase(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE).unwrap();
    let task = phase.task("close pool").unwrap_or_else(|| panic!("{report}"));
    assert_eq!(task.outcome.to_string(), "skipped: added after the phase had started");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn s45_removing_signals_leaves_listeners_of_the_application_alone() {
    for listens in ["before", "meanwhile", "after"] {
        let mut process = started("own listener", &[("LISTENS", listens)]);
        process.signal(Signal::TERM);
        process.wait_for("once");
        process.signal(Signal::TERM);
        process.wait_for("twice");
        process.signal(Signal::TERM);
        let ended = process.wait();
        assert_eq!(ended.status.code(), Some(0), "{listens}: {ended:#?}");
    }
}

#[test]
fn s194_when_the_shutdown_is_over_one_signal_ends_the_process() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut process = started("living on", &[]);
        process.signal(Signal::TERM);
        process.wait_for("over");
        process.signal(signal);
        let ended = process.wait();
        check_code(&ended, signal.exit_code());
        let expected =
            format!("{signal:<21} the shutdown is over, exit code {}", signal.exit_code());
        assert!(ended.stderr.contains(&expected), "{ended:#?}");
    }
}

/// Runs the scenario as the first process of its own namespace, as in a container.
fn start_as_first(scenario: &str) -> (Process, Pid) {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--kill-child", env!("CARGO_BIN_EXE_victim"), scenario]);
    let mut process = Process::start(command.env("ADIEU__KILL_AFTER", "none"));
    process.wait_for("ready");
    let unshare = process.id();
    let children = format!("/proc/{unshare}/task/{unshare}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let first = children.split_whitespace().next().unwrap().parse().unwrap();
    (process, Pid::from_raw(first))
}

#[test]
fn s195_a_removed_signal_ends_process_1() {
    for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGINT] {
        let (process, first) = start_as_first("signals removed");
        kill(first, signal).unwrap();
        let ended = process.wait();
        assert_eq!(ended.status.signal(), None, "{ended:#?}");
        assert_eq!(ended.status.code(), Some(128 + signal as i32), "{ended:#?}");
    }
}

#[test]
fn s50_a_hang_at_the_end_fits_into_a_short_reserve() {
    for scenario in ["blocking pool", "hanging guard"] {
        for vars in [
            &[("ADIEU__RESERVE", "150ms")][..],
            &[("ADIEU__RESERVE", "100ms")],
            &[("ADIEU__KILL_AFTER", "1s"), ("ADIEU__RESERVE", "150ms")],
        ] {
            let mut process = started(scenario, vars);
            process.signal(Signal::TERM);
            let ended = process.wait();
            assert_eq!(
                ended.status.code(),
                Some(i32::from(ExitCode::CLEAN)),
                "{scenario} {vars:?}: {ended:#?}"
            );
        }
    }
}

#[test]
fn s196_a_destructor_that_panics_does_not_cancel_exit_process() {
    check_code(&start("panicking destructor", &[]).wait(), 5);
}

#[test]
fn s196_a_guard_that_panics_does_not_keep_other_guards_from_running() {
    let mut process = started("panicking guards", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    assert!(ended.stdout.ends_with("guard dropped\n"), "{ended:#?}");
}

#[test]
fn s196_a_body_that_panics_when_it_is_dropped_has_failed_and_guards_are_dropped() {
    let mut process = started("panicking body destructor", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::FAILED);
    assert!(ended.stdout.ends_with("guard dropped\n"), "{ended:#?}");
    assert!(ended.stderr.contains("a destructor that panics: body"), "{ended:#?}");
}
