//! Processes whose `main` ends with an exit guard, on several kinds of runtime.

use adieu::{ExitCode, Outcome, Phase, Signal};
use adieu_testkit::process::Ended;

use super::process::{check_code, start};

const GUARDS: [&str; 3] = ["guard", "guard on one thread", "guard without a runtime"];

/// The output of the two tasks.
const SAID: &str = "stopping\nclosed\n";

fn run(scenario: &str, ends: &str, vars: &[(&str, &str)]) -> Ended {
    let vars: Vec<_> = [("ENDS", ends)].into_iter().chain(vars.iter().copied()).collect();
    start(scenario, &vars).wait()
}

#[track_caller]
fn check_clean(ended: &Ended, reason: &str) {
    let report = ended.report.as_ref().unwrap_or_else(|| panic!("no report: {ended:#?}"));
    assert!(report.is_clean() && report.reason == reason, "{ended:#?}");
    assert!(ended.stdout.ends_with(SAID), "{ended:#?}");
}

/// Checks the report of a process whose main thread has panicked; see S1003.
#[track_caller]
fn check_unwound(ended: &Ended) {
    let report = ended.report.as_ref().unwrap_or_else(|| panic!("no report: {ended:#?}"));
    assert!(!report.is_clean() && report.exit_code == 101, "{ended:#?}");
    assert!(report.to_string().contains("main: panicked"), "{ended:#?}");
    assert!(ended.stdout.ends_with(SAID), "{ended:#?}");
}

#[test]
fn s307_the_guard_runs_the_shutdown_when_main_returns_fails_or_unwinds() {
    for scenario in GUARDS {
        for (ends, code, expected) in [
            ("returns", 0, ""),
            ("fails", 1, "Error: \"no database\""),
            ("unwinds", 101, "no database"),
        ] {
            let ended = run(scenario, ends, &[]);
            check_code(&ended, code);
            match ends {
                "unwinds" => check_unwound(&ended),
                _ => check_clean(&ended, "process-exit"),
            }
            assert!(ended.stderr.contains(expected), "{ended:#?}");
        }
    }
}

#[test]
fn s307_the_guard_does_not_repeat_a_completed_shutdown() {
    for scenario in GUARDS {
        let ended = run(scenario, "is over", &[]);
        check_code(&ended, 0);
        check_clean(&ended, "unknown");
        assert_eq!(ended.stdout, SAID, "once");
    }
}

#[test]
fn s307_the_guard_waits_for_a_shutdown_that_a_signal_has_begun() {
    for scenario in ["guard", "guard that finishes", "guard without a runtime"] {
        let mut process = start(scenario, &[("ENDS", "is notified")]);
        process.wait_for("ready");
        process.signal(Signal::TERM);
        let ended = process.wait();
        check_code(&ended, 0);
        check_clean(&ended, "SIGTERM");
    }
    // The started task is on the runtime whose only thread leaves. It still has its timeout.
    let vars = [("ENDS", "is notified"), ("ADIEU__PHASES__SERVICE_STOP__TIMEOUT", "300ms")];
    let mut process = start("guard on one thread", &vars);
    process.wait_for("ready");
    process.signal(Signal::TERM);
    let ended = process.wait();
    check_code(&ended, 0);
    assert!(ended.stdout.ends_with("closed\n"), "{ended:#?}");
    let report = ended.report.unwrap();
    let closed = report.phase(Phase::CLOSE_RESOURCES).unwrap().task("closed").unwrap();
    assert_eq!(closed.outcome, Outcome::Finished);
}

#[test]
fn s308_a_setting_prevents_the_shutdown_at_the_end_of_the_process() {
    let off = [("ADIEU__RUN_BY_CLR_SHUTDOWN_HOOK", "off")];
    for scenario in GUARDS.into_iter().chain(["guard that finishes"]) {
        for (ends, code) in [("returns", 0), ("fails", 1)] {
            let ended = run(scenario, ends, &off);
            check_code(&ended, code);
            assert_eq!(ended.stdout, "", "{ended:#?}");
            assert!(ended.report.is_none());
        }
        let ended = run(scenario, "is over", &off);
        check_code(&ended, 0);
        check_clean(&ended, "unknown");
    }
    for (scenario, code) in [
        ("returning body", 0),
        ("failing body", ExitCode::FAILED),
        ("panicking body", ExitCode::FAILED),
    ] {
        let ended = start(scenario, &off).wait();
        check_code(&ended, code);
        assert_eq!(ended.stdout, "", "{ended:#?}");
        assert!(ended.report.is_none());
    }
}

#[test]
fn s309_a_finished_guard_returns_the_exit_code_of_the_report() {
    let bad = [("BAD_TASK", "no luck")];
    let finished = |ends, vars: &[(&str, &str)]| run("guard that finishes", ends, vars);
    check_code(&finished("returns", &[]), ExitCode::CLEAN);
    check_code(&finished("returns", &bad), ExitCode::UNCLEAN);
    check_code(&finished("returns", &[("ADIEU__EXIT_CODE", "9")]), 9);
    let failed = finished("fails", &bad);
    check_code(&failed, ExitCode::FAILED);
    check_unwound(&finished("unwinds", &[]));
    // Without the guard's code, the exit code is that of `main`, unless the process ends with the
    // last phase.
    check_code(&run("guard", "returns", &bad), 0);
    let exits = [bad[0], ("ADIEU__EXIT_PROCESS", "on")];
    check_code(&run("guard", "returns", &exits), ExitCode::UNCLEAN);
    // A panic, and an error that is passed to the guard, are not a clean end.
    let exits = [("ADIEU__EXIT_PROCESS", "on")];
    check_code(&run("guard", "unwinds", &exits), 101);
    check_code(&finished("fails", &exits), ExitCode::FAILED);
    check_code(&finished("returns", &exits), ExitCode::CLEAN);
}

// `#[tokio::main]` waits for such a thread when `main` has returned.
#[test]
fn s317_the_watchdog_ends_a_process_that_hangs_after_its_guard() {
    for (scenario, code) in [
        ("guard", ExitCode::WATCHDOG),
        ("guard on one thread", ExitCode::WATCHDOG),
        ("guard that finishes", ExitCode::CLEAN), // The outcome is known by then.
    ] {
        let ended = run(scenario, "returns", &[("HANGS", "yes"), ("ADIEU__RESERVE", "200ms")]);
        check_code(&ended, code);
        if code == ExitCode::CLEAN {
            check_clean(&ended, "process-exit");
            continue;
        }
        // S785: the report file agrees, although every handle was dropped.
        let report = ended.report.as_ref().unwrap();
        assert!(!report.is_clean() && report.exit_code == code, "{ended:#?}");
        assert!(report.to_string().contains("watchdog: "), "{ended:#?}");
    }
}

/// A limit that the guard's documentation describes.
#[test]
fn exit_runs_no_guard() {
    let ended = run("guard", "exits", &[]);
    check_code(&ended, 3);
    assert_eq!((ended.stdout.as_str(), ended.report), ("", None));
}
