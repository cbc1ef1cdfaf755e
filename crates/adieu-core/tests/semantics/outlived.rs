//! Processes that do not end although their shutdown is over.

use std::process::Command;
use std::time::Duration;

use adieu_core::{Config, ExitCode, Shutdown, Signal};
use adieu_testkit::process::Process;

#[test]
fn s1805_the_watchdog_ends_a_signalled_process_that_outlives_its_shutdown() {
    let mut process = Process::start(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "outlived::hangs", "--ignored", "--nocapture"])
            .env("ADIEU__KILL_AFTER", "2s"),
    );
    process.wait_for("ready");
    process.signal(Signal::TERM);
    process.wait_for("over: clean");
    let ended = process.wait();
    assert_eq!(ended.status.code(), Some(i32::from(ExitCode::WATCHDOG)), "{ended:#?}");
    assert!(ended.took < Duration::from_secs(20), "{ended:#?}");
    let report = ended.report.as_ref().unwrap();
    assert_eq!(report.exit_code, ExitCode::WATCHDOG);
    assert!(report.to_string().contains("the process did not exit after the shutdown"), "{report}");
    assert!(ended.stderr.contains("waiting_for=\"the process to exit\""), "{ended:#?}");
}

/// The child process, a program with a `main` of its own.
#[test]
#[ignore = "the test above starts it in a child process"]
fn hangs() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let shutdown = Shutdown::configured(Config::from_env().unwrap()).unwrap();
        shutdown.install_signals().unwrap();
        shutdown.start_watchdog().unwrap();
        eprintln!("ready");
        let report = shutdown.completed().await.unwrap();
        eprintln!("over: {}", report.outcome);
        loop {
            std::thread::sleep(Duration::from_secs(60));
        }
    });
}
