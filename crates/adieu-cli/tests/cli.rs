//! The command as its users meet it: output, errors, exit codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "cli/admin.rs"]
mod admin;
#[path = "cli/generated.rs"]
mod generated;
#[path = "cli/plan.rs"]
mod plan;
#[path = "cli/report.rs"]
mod report;
#[path = "cli/service.rs"]
mod service;
#[cfg(unix)]
#[path = "cli/terminal.rs"]
mod terminal;

use std::process::{Command, Output};

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
    command.stdin(std::process::Stdio::null());
    command
}

fn adieu(args: &[&str]) -> Ran {
    ran(&command(args).output().unwrap())
}

fn ran(output: &Output) -> Ran {
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout.clone()).unwrap(),
        stderr: String::from_utf8(output.stderr.clone()).unwrap(),
    }
}

#[track_caller]
fn shows(args: &[&str]) -> String {
    let Ran { code, stdout, stderr } = adieu(args);
    assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
    stdout
}

#[test]
fn help_is_what_it_was() {
    expect_file!["golden/help.txt"].assert_eq(&shows(&["--help"]));
    for name in ["plan", "report", "status", "watch", "cordon", "uncordon", "drain", "stop", "man"]
    {
        expect_file![format!("golden/help-{name}.txt")].assert_eq(&shows(&[name, "--help"]));
    }
}
