//! The command as its users meet it: output, errors, exit codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "cli/check.rs"]
mod check;
#[cfg(unix)]
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/manifest.rs"]
mod manifest;
#[path = "cli/plan.rs"]
mod plan;
#[cfg(unix)]
#[path = "cli/terminal.rs"]
mod terminal;

use std::io::Write as _;
use std::process::{Command, Stdio};

use expect_test::expect_file;

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

fn adieu(args: &[&str]) -> Ran {
    adieu_reads(args, "")
}

fn adieu_reads(args: &[&str], input: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adieu"));
    command.args(args).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"));
    command.env_remove("ADIEU_CONFIG");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // Who has seen enough does not read to the end.
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[track_caller]
fn shows(args: &[&str]) -> String {
    let Ran { code, stdout, stderr } = adieu(args);
    assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
    stdout
}

/// Waits until something is so.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "other processes live in real time")]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed().as_secs() < 60, "not in time: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn help_is_what_it_was() {
    expect_file!["golden/help.txt"].assert_eq(&shows(&["--help"]));
    for command in ["demo", "plan", "check", "manifest"] {
        let help = shows(&[command, "--help"]);
        assert!(help.contains("Examples:"), "{help}");
        expect_file![format!("golden/help-{command}.txt")].assert_eq(&help);
    }
}
