//! Real processes whose logs, destructors and signals do what they should not.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adieu::{ExitCode, Outcome, Phase, Report};
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// How often a race is tried.
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
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended before it was ready");
    }
    // Nobody reads any more, but the pipe is still there.
    child.stderr = Some(stderr.into_inner());
    child
}

/// Sends SIGTERM, and checks that the process ends as if it could log.
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
