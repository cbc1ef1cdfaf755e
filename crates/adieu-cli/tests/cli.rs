//! The command as its users run it: output, errors, exit codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "cli/admin.rs"]
mod admin;
#[path = "cli/applied.rs"]
mod applied;
#[path = "cli/beside.rs"]
mod beside;
#[path = "cli/breaker.rs"]
mod breaker;
#[path = "cli/check.rs"]
mod check;
#[path = "cli/cluster.rs"]
mod cluster;
#[path = "cli/compose_files.rs"]
mod compose_files;
#[path = "cli/corpus.rs"]
mod corpus;
#[cfg(unix)]
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/documents.rs"]
mod documents;
#[path = "cli/generated.rs"]
mod generated;
#[path = "cli/keys.rs"]
mod keys;
#[path = "cli/manifest.rs"]
mod manifest;
#[cfg(unix)]
#[path = "cli/others.rs"]
mod others;
#[path = "cli/output.rs"]
mod output;
#[path = "cli/plan.rs"]
mod plan;
#[path = "cli/platforms.rs"]
mod platforms;
#[path = "cli/report.rs"]
mod report;
#[path = "cli/service.rs"]
mod service;
#[path = "cli/signs.rs"]
mod signs;
#[path = "cli/supervisors.rs"]
mod supervisors;
#[cfg(unix)]
#[path = "cli/terminal.rs"]
mod terminal;
#[cfg(unix)]
#[path = "cli/tmux.rs"]
mod tmux;
#[path = "cli/trust.rs"]
mod trust;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use expect_test::expect_file;

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

/// The command, untouched by the environment in which the tests run.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adieu"));
    command.args(args).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"));
    for name in ["ADIEU_CONFIG", "ADIEU_ADMIN_TOKEN", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

fn adieu(args: &[&str]) -> Ran {
    ran(&command(args).output().unwrap())
}

fn adieu_reads(args: &[&str], input: &str) -> Ran {
    let mut command = command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // The command may close its input before the end.
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    ran(&output)
}

fn ran(output: &Output) -> Ran {
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout.clone()).unwrap(),
        stderr: String::from_utf8(output.stderr.clone()).unwrap(),
    }
}

/// A configuration in a file that lives as long as this.
fn config(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

#[track_caller]
fn shows(args: &[&str]) -> String {
    let Ran { code, stdout, stderr } = adieu(args);
    assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
    stdout
}

/// Waits until the condition holds.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "it waits for another process, in real time")]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "timed out waiting for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn help_is_unchanged() {
    expect_file!["golden/help.txt"].assert_eq(&shows(&["--help"]));
    let commands = [
        "demo", "plan", "check", "manifest", "report", "status", "watch", "cordon", "uncordon",
        "drain", "stop", "cluster", "breaker", "man",
    ];
    for name in commands {
        expect_file![format!("golden/help-{name}.txt")].assert_eq(&shows(&[name, "--help"]));
    }
}
