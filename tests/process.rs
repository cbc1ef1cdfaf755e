//! Real processes that get real signals: exit code, output, report and time.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use adieu::{ExitCode, Lifecycle, Outcome, Phase, Report, Signal};
use adieu_testkit::process::{Ended, Process};

pub(super) fn start(scenario: &str, vars: &[(&str, &str)]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_victim"));
    // Not the platform of this machine.
    command.arg(scenario).env("ADIEU__KILL_AFTER", "none").env_remove("RUST_BACKTRACE");
    command.envs(vars.iter().copied());
    Process::start(&mut command)
}

pub(super) fn started(scenario: &str, vars: &[(&str, &str)]) -> Process {
    let mut process = start(scenario, vars);
    process.wait_for("ready");
    process
}

#[track_caller]
pub(super) fn check_code(ended: &Ended, code: u8) {
    assert_eq!(ended.status.code(), Some(i32::from(code)), "{ended:#?}");
}

#[track_caller]
fn report(ended: &Ended) -> &Report {
    ended.report.as_ref().unwrap_or_else(|| panic!("no report: {ended:#?}"))
}

#[track_caller]
fn outcome<'a>(ended: &'a Ended, phase: &Phase, task: &str) -> &'a Outcome {
    &report(ended).phase(phase).unwrap().task(task).unwrap().outcome
}

#[test]
fn s48_sigterm_once_is_a_clean_end() {
    let mut process = started("clean", &[("ADIEU__KILL_AFTER", "30s")]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    assert_eq!(ended.stdout, "ready\nbegun: SIGTERM\nguard dropped\n");
    for expected in [
        "deadline              kill_after=30s source=configured",
        "shutdown initiated    reason=SIGTERM deadline=27s phases=1 worst_case=5s",
        "phase over            phase=service-unbind outcome=finished",
        "shutdown complete     outcome=clean",
    ] {
        assert!(ended.stderr.contains(expected), "{expected}\n{}", ended.stderr);
    }
    assert!(report(&ended).is_clean());
    assert_eq!(report(&ended).reason, "SIGTERM");
}

#[test]
fn s1414_a_third_sigint_exits_immediately() {
    let mut process = started("slow task", &[("ADIEU__RESERVE", "30s")]);
    process.signal(Signal::INT);
    process.wait_for("if_repeated=\"cancel running tasks and run only the closing phases\"");
    process.wait_for("slow task started");
    process.signal(Signal::INT);
    process.wait_for("if_repeated=\"exit at once\"");
    process.signal(Signal::INT);
    let ended = process.wait();
    check_code(&ended, 130);
    assert!(
        ended.stderr.contains("SIGINT                exit at once, exit code 130"),
        "{ended:#?}"
    );
    assert_eq!(report(&ended).exit_code, 130);
}

#[test]
fn s46_a_second_sigint_runs_closing_phases_and_drops_guards() {
    let mut process = started("slow task", &[]);
    process.signal(Signal::INT);
    process.wait_for("slow task started");
    process.signal(Signal::INT);
    let ended = process.wait();
    check_code(&ended, ExitCode::UNCLEAN);
    assert!(ended.stdout.contains("flushed\n"), "{ended:#?}");
    assert!(ended.stdout.ends_with("guard dropped\n"), "{ended:#?}");
    assert_eq!(*outcome(&ended, &Phase::SERVICE_STOP, "slow"), Outcome::Aborted);
    assert_eq!(*outcome(&ended, &Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "flush"), Outcome::Finished);
}

#[test]
fn s41_kill_after_two_seconds_ends_a_task_of_sixty() {
    let mut process = started("slow task", &[("ADIEU__KILL_AFTER", "2s")]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::UNCLEAN);
    // Everything ends after 2 s less a margin of 0.5 s. The reserve before that is for closing.
    assert!(ended.took < Duration::from_secs(2), "killed by the platform: {ended:#?}");
    assert!(ended.took > Duration::from_millis(900), "{ended:#?}");
    assert!(ended.stdout.contains("flushed\n"), "{ended:#?}");
    assert!(ended.stdout.ends_with("guard dropped\n"), "{ended:#?}");
    let slow = outcome(&ended, &Phase::SERVICE_STOP, "slow");
    assert!(matches!(slow, Outcome::TimedOut { .. }), "{slow}");
    assert!(
        ended.stderr.contains("phase=service-stop task=slow outcome=\"timed out after"),
        "{ended:#?}"
    );
    assert!(ended.stderr.contains("over budget"), "{ended:#?}");
}

#[test]
fn s315_an_assumed_budget_is_warned_about_once_with_advice() {
    let vars = [
        ("ADIEU__KILL_AFTER", "auto"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("ADIEU__PHASES__SERVICE_UNBIND__TIMEOUT", "20s"),
        ("ADIEU__PHASES__SERVICE_STOP__TIMEOUT", "20s"),
    ];
    let mut process = started("supervised", &vars);
    process.wait_for("over budget");
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    let warnings: Vec<_> =
        ended.stderr.lines().filter(|line| line.contains("over budget")).collect();
    assert_eq!(warnings.len(), 1, "{ended:#?}");
    assert!(
        warnings[0].contains(
            "wait 48s before it kills; assuming 30s for platform kubernetes: set \
             terminationGracePeriodSeconds: 48 in the manifest, and ADIEU__KILL_AFTER=48s"
        ),
        "{}",
        warnings[0]
    );
}

#[test]
fn s47_sigterm_is_handled_while_every_worker_is_blocked() {
    let mut process = started("wedged", &[("ADIEU__KILL_AFTER", "4s")]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::UNCLEAN);
    assert!(ended.took < Duration::from_secs(4), "killed by the platform: {ended:#?}");
    assert_eq!(*outcome(&ended, &Phase::SERVICE_STOP, "never polled"), Outcome::Abandoned);
    assert_eq!(*outcome(&ended, &Phase::SERVICE_STOP, "on its thread"), Outcome::Finished);
    assert!(
        ended.stderr.contains("task=\"never polled\" outcome=\"abandoned: still running"),
        "{ended:#?}"
    );
    assert!(ended.stdout.contains("begun: SIGTERM"), "{ended:#?}");
}

#[test]
fn s51_the_watchdog_logs_the_unfinished_tasks_and_ends_the_process() {
    let mut process = started("wedged body", &[("ADIEU__KILL_AFTER", "2s")]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    // The phases have ended, so the outcome is known.
    check_code(&ended, ExitCode::UNCLEAN);
    assert!(ended.took < Duration::from_secs(2), "killed by the platform: {ended:#?}");
    assert!(
        ended.stderr.contains("deadline passed       exit_code=70 waiting_for=\"the body"),
        "{ended:#?}"
    );
}

#[test]
fn s49_sigterm_during_start_up_runs_registered_tasks() {
    let mut process = started("start-up", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    assert_eq!(ended.stdout, "ready\nstopped\n");
}

#[test]
fn s31_a_blocking_task_that_never_ends_does_not_keep_the_process_alive() {
    let mut process = started("blocking task", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::UNCLEAN);
    assert_eq!(*outcome(&ended, &Phase::SERVICE_STOP, "stuck"), Outcome::Abandoned);
    assert!(ended.stderr.contains("task=stuck outcome=\"abandoned: still running"), "{ended:#?}");
}

#[test]
fn s50_a_blocking_thread_or_a_guard_that_hangs_does_not_keep_the_process_alive() {
    for scenario in ["blocking pool", "hanging guard"] {
        let mut process = started(scenario, &[]);
        process.signal(Signal::TERM);
        let ended = process.wait();
        check_code(&ended, ExitCode::CLEAN);
        assert!(ended.took < Duration::from_secs(10), "{ended:#?}");
    }
}

#[test]
fn s482_a_main_thread_that_hangs_after_a_clean_shutdown_exits_with_its_code() {
    for vars in [&[("ADIEU__KILL_AFTER", "10s")][..], &[("WAITS", "yes")]] {
        let mut process = started("hanging body destructor", vars);
        process.signal(Signal::TERM);
        let ended = process.wait();
        check_code(&ended, ExitCode::CLEAN);
        assert!(ended.took < Duration::from_secs(6), "{ended:#?}");
        assert!(report(&ended).is_clean());
        assert!(ended.stdout.ends_with("guard dropped\n"), "{ended:#?}");
        assert!(ended.stderr.contains("exit_code=0 waiting_for=\"the body, or a destructor"));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
fn s482_a_report_file_that_cannot_be_written_does_not_hang_the_exit() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("report.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_victim"));
    command.arg("returning body").env("ADIEU__KILL_AFTER", "none");
    let began = std::time::Instant::now();
    let ended = command.env("ADIEU__REPORT_FILE", &pipe).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "{ended:?}");
    let logged = String::from_utf8_lossy(&ended.stderr);
    assert!(logged.contains("report-file was not written within"), "{logged}");
}

#[test]
fn s29_a_panicking_task_is_a_failure_of_that_task_alone() {
    let mut process = started("panicking task", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::UNCLEAN);
    assert!(ended.stdout.contains("next\n"), "{ended:#?}");
    assert!(
        ended.stderr.contains("phase=service-stop task=bang outcome=\"panicked: bang"),
        "{ended:#?}"
    );
    let bang = outcome(&ended, &Phase::SERVICE_STOP, "bang");
    assert_eq!(*bang, Outcome::Panicked { message: "bang".into() });
}

#[test]
fn s48_the_body_returns_fails_or_panics_and_the_shutdown_runs() {
    for (scenario, code, expected) in [
        ("returning body", ExitCode::CLEAN, "reason=process-exit"),
        ("failing body", ExitCode::FAILED, "body failed           error=\"no database\""),
        (
            "panicking body",
            ExitCode::FAILED,
            "body failed           error=\"panicked: no database\"",
        ),
    ] {
        let ended = start(scenario, &[]).wait();
        check_code(&ended, code);
        assert_eq!(ended.stdout, "stopped\n", "{ended:#?}");
        assert!(ended.stderr.contains(expected), "{ended:#?}");
        assert_eq!(report(&ended).is_clean(), code == ExitCode::CLEAN, "{ended:#?}");
    }
}

/// Checks that the report file has the exit code of the process, and contains all of `parts`.
#[track_caller]
fn check_report(ended: &Ended, code: u8, parts: &[&str]) {
    check_code(ended, code);
    let report = report(ended);
    assert!(!report.is_clean() && report.exit_code == code, "{ended:#?}");
    let text = report.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
}

#[test]
fn s1404_the_report_of_a_body_that_failed_has_the_exit_code_of_the_process() {
    let failed = start("failing body", &[]).wait();
    check_report(&failed, ExitCode::FAILED, &["body: no database"]);
    let panicked = start("panicking body", &[]).wait();
    check_report(&panicked, ExitCode::FAILED, &["body: panicked: no database"]);
}

#[test]
fn s1003_log_report_and_exit_code_of_a_body_that_failed_agree() {
    for (scenario, code) in
        [("failing body", ExitCode::FAILED), ("panicking body", ExitCode::FAILED)]
    {
        let ended = start(scenario, &[]).wait();
        check_report(&ended, code, &["body: "]);
        let complete = ended.stderr.lines().find(|line| line.contains("shutdown complete"));
        let complete = complete.unwrap_or_else(|| panic!("{ended:#?}"));
        assert!(complete.contains("unclean"), "{ended:#?}");
    }
}

#[test]
fn s1004_a_forced_exit_is_logged_with_its_code() {
    let vars = [("ADIEU__RESERVE", "30s"), ("SUBSCRIBES", "yes")];
    let mut process = started("request", &vars);
    for reached in ["shutdown initiated", "hard stop", ""] {
        process.signal(Signal::INT);
        process.wait_for(reached);
    }
    let ended = process.wait();
    check_report(&ended, 130, &["signal: SIGINT ended the process"]);
    assert!(ended.stderr.contains("process exits exit_code=130 cause=\"signal\""), "{ended:#?}");
    assert!(!ended.stderr.contains("shutdown complete"), "{ended:#?}");

    let vars = [("ADIEU__KILL_AFTER", "2s"), ("SUBSCRIBES", "yes")];
    let mut process = started("wedged in a request", &vars);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_report(&ended, ExitCode::WATCHDOG, &["watchdog: "]);
    assert!(ended.stderr.contains("process exits exit_code=72 cause=\"watchdog\""), "{ended:#?}");
    assert!(!ended.stderr.contains("shutdown complete"), "{ended:#?}");
}

#[test]
fn s1300_a_signal_while_the_process_exits_does_not_change_its_exit_code() {
    for (scenario, vars) in [
        ("signalled after main", &[][..]),
        ("signalled after finish", &[("ENDS", "is notified")][..]),
    ] {
        let mut process = started(scenario, vars);
        process.signal(Signal::TERM);
        let ended = process.wait();
        check_code(&ended, ExitCode::CLEAN);
        assert!(report(&ended).is_clean() && report(&ended).exit_code == 0, "{ended:#?}");
        assert!(ended.stdout.ends_with("sent: true\n"), "{ended:#?}");
    }
}

#[test]
fn s1301_a_signal_after_an_exit_guard_is_in_the_report() {
    let mut process = started("signalled after guard", &[("ENDS", "is notified")]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_report(&ended, Signal::TERM.exit_code(), &["signal: SIGTERM ended the process"]);
}

#[test]
fn s786_the_watchdog_writes_a_report_with_the_work_that_is_not_finished() {
    let mut process = started("wedged in a request", &[("ADIEU__KILL_AFTER", "2s")]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    let waiting = "watchdog: deadline passed, waiting for";
    check_report(&ended, ExitCode::WATCHDOG, &[waiting, "1 in flight", "export 7"]);
}

#[test]
fn s786_a_forced_exit_writes_a_report_with_the_work_that_is_not_finished() {
    let mut process = started("request", &[("ADIEU__RESERVE", "30s")]);
    process.signal(Signal::INT);
    process.wait_for("shutdown initiated");
    process.signal(Signal::INT);
    process.wait_for("hard stop");
    process.signal(Signal::INT);
    let ended = process.wait();
    check_report(&ended, 130, &["signal: SIGINT ended the process", "1 in flight", "export 7"]);
}

#[test]
fn s787_after_a_hard_stop_the_report_names_the_work_that_is_not_finished() {
    // The first hard stop comes in the lame duck, the second while the request drains.
    for (lame_duck, reached) in [("20s", "shutdown initiated"), ("0s", "phase=service-unbind")] {
        let vars = [("ADIEU__LAME_DUCK", lame_duck), ("ADIEU__LAME_DUCK_MIN", lame_duck)];
        let mut process = started("request", &[&vars[..], &[("CLOSES", "yes")]].concat());
        process.signal(Signal::INT);
        process.wait_for(reached);
        process.signal(Signal::INT);
        let ended = process.wait();
        check_report(&ended, ExitCode::UNCLEAN, &["1 in flight", "export 7"]);
    }
}

#[test]
fn s1405_a_process_with_very_little_time_writes_its_report() {
    for kill_after in ["200ms", "300ms", "500ms"] {
        for scenario in ["clean", "slow task", "request"] {
            let mut process = started(scenario, &[("ADIEU__KILL_AFTER", kill_after)]);
            process.signal(Signal::TERM);
            let ended = process.wait();
            let code = ended.status.code().unwrap();
            assert_eq!(i32::from(report(&ended).exit_code), code, "{ended:#?}");
        }
    }
}

#[test]
fn s785_exit_process_without_main_writes_the_report() {
    let mut process = started("exit-process with a report", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    assert!(report(&ended).is_clean());
}

#[test]
fn s48_the_shutdown_runs_on_a_current_thread_runtime() {
    let variables = [("ADIEU__KILL_AFTER", "10s")];
    let ended = start("returning on one thread", &variables).wait();
    check_code(&ended, ExitCode::CLEAN);
    assert_eq!(ended.stdout, "worked\n", "{ended:#?}");
    assert!(report(&ended).is_clean());
}

#[test]
fn s48_the_body_may_end_after_the_shutdown() {
    let mut process = started("last word", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    assert!(ended.stdout.contains("shutdown clean in"), "{ended:#?}");
}

#[test]
fn s1712_a_body_that_is_dropped_is_logged() {
    let mut process = started("start-up", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    let line =
        "body dropped          why=\"it was running when the shutdown was over\" waited=100ms";
    assert!(ended.stderr.contains(line), "{ended:#?}");
    let mut process = started("last word", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    assert!(!ended.stderr.contains("body dropped"), "{ended:#?}");
}

#[test]
fn s48_an_invalid_configuration_fails_before_the_body_runs() {
    let ended = start("clean", &[("ADIEU__KILL_AFTR", "5s")]).wait();
    check_code(&ended, ExitCode::FAILED);
    assert_eq!(ended.stdout, "");
    assert!(
        ended
            .stderr
            .contains("unknown key kill-aftr (set by ADIEU__KILL_AFTR); did you mean kill-after?"),
        "{ended:#?}"
    );
}

#[test]
fn s44_other_signals_can_be_chosen() {
    let mut process = started("other signal", &[]);
    process.signal(Signal::USR2);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    assert_eq!(report(&ended).reason, "SIGUSR2");
}

#[test]
fn s45_removing_signals_restores_the_default_action() {
    let mut process = started("signals removed", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    assert_eq!(ended.status.signal(), Some(Signal::TERM.number()), "{ended:#?}");

    let mut process = started("signals installed again", &[]);
    process.signal(Signal::INT);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    assert!(ended.stdout.contains("SIGINT"), "{ended:#?}");
}

#[test]
fn s51_exit_process_ends_a_process_whose_main_continues() {
    let mut process = started("exit-process", &[]);
    process.signal(Signal::TERM);
    check_code(&process.wait(), 5);
}

#[test]
fn s45_dropping_a_shutdown_restores_the_default_action() {
    let mut process = started("dropped", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    assert_eq!(ended.status.signal(), Some(Signal::TERM.number()), "{ended:#?}");
}

#[test]
fn s50_exit_process_lets_main_return_in_time() {
    let mut process = started("clean", &[("ADIEU__EXIT_PROCESS", "on")]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    assert!(ended.stdout.ends_with("guard dropped\n"), "{ended:#?}");
    assert!(report(&ended).is_clean());
}

#[test]
fn s34_the_body_may_resume_an_aborted_shutdown() {
    let ended = start("resuming body", &[]).wait();
    check_code(&ended, ExitCode::UNCLEAN);
    assert_eq!(ended.stdout, "resumed\n", "{ended:#?}");
}

// Its stderr is not read, so writing there blocks.
#[test]
fn s46_a_log_that_blocks_does_not_disable_the_ladder() {
    use std::io::{BufRead, BufReader};
    let mut child = Command::new(env!("CARGO_BIN_EXE_victim"))
        .arg("full stderr")
        .env("ADIEU__KILL_AFTER", "none")
        .env("ADIEU__RESERVE", "1h")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    for _ in 0..3 {
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        std::thread::sleep(4 * Signal::ECHO);
    }
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
}

// A detected deadline does not apply to a shutdown that the process started itself, until a signal
// shows that the platform has started to count.
#[test]
fn s41_a_detected_deadline_counts_from_the_signal() {
    let vars = [("ADIEU__KILL_AFTER", "auto"), ("TERMINATION_GRACE_PERIOD_SECONDS", "4")];
    let mut process = started("returning to a slow task", &vars);
    process.wait_for("reason=process-exit deadline=\"1h");
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::UNCLEAN);
    assert!(ended.took < Duration::from_secs(4), "killed by the platform: {ended:#?}");
    // Of the 3 s that are then allowed, an early phase has a quarter, because of the reserve.
    assert!(ended.took > Duration::from_millis(500), "{ended:#?}");
    let slow = outcome(&ended, &Phase::SERVICE_STOP, "slow");
    assert!(matches!(slow, Outcome::TimedOut { .. }), "{slow}");
}

#[test]
fn s107_a_signal_during_start_up_is_a_clean_end() {
    let mut process = started("lifecycle", &[]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, ExitCode::CLEAN);
    assert_eq!(ended.stdout, "postgres up\nready\npostgres down\n");
    assert!(report(&ended).is_clean());
    assert_eq!(outcome(&ended, &Lifecycle::PHASE, "stop postgres"), &Outcome::Finished);
}

#[test]
fn s105_a_failed_start_up_ends_the_process_and_reports_why() {
    let ended = start("lifecycle", &[("BROKER_TIMEOUT_MS", "100")]).wait();
    check_code(&ended, ExitCode::FAILED);
    assert_eq!(ended.stdout, "postgres up\nready\npostgres down\n");
    let expected = "failed to start up: step broker did not start: timed out after 100ms";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}
