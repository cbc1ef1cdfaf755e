//! Output that cannot be written, and readers that have seen enough.

use std::fs::OpenOptions;
use std::io::Read;
use std::process::{Command, Stdio};

use adieu::{Readiness, Stage};

use super::service::Service;
use super::{Ran, command, ran};

/// Every command that prints without a service, and changes nothing.
const COMMANDS: [&[&str]; 10] = [
    &["plan"],
    &["plan", "--format", "svg"],
    &["check", "--config", "manifests/service.toml", "--manifest", "manifests/good.yaml"],
    &["manifest"],
    &["report", "golden/report-after.json"],
    &["completions", "bash"],
    &["man"],
    &["--help"],
    &["plan", "--help"],
    &["--version"],
];

/// Runs it with a standard output that is closed.
fn closed(args: &[&str]) -> Ran {
    let inner = command(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(inner.get_program()).args(inner.get_args());
    shell.current_dir(inner.get_current_dir().unwrap());
    ran(&shell.stdin(Stdio::null()).output().unwrap())
}

/// Runs it on a disk that is full.
fn full(args: &[&str]) -> Ran {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    ran(&command(args).stdout(full).output().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn s320_output_that_cannot_be_written_is_exit_code_3() {
    for args in COMMANDS {
        let Ran { code, stderr, .. } = closed(args);
        let expected = "adieu: failed to write the output: Bad file descriptor (os error 9)\n";
        assert_eq!((code, stderr.as_str()), (3, expected), "{args:?} >&-");
        let Ran { code, stderr, .. } = full(args);
        let expected = "adieu: failed to write the output: No space left on device (os error 28)\n";
        assert_eq!((code, stderr.as_str()), (3, expected), "{args:?} > /dev/full");
    }
    // A null device that was asked for is not a closed output, however it was opened.
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    assert!(command(&["plan"]).stdout(null).status().unwrap().success());
}

#[cfg(target_os = "linux")]
#[test]
fn s320_a_change_is_made_although_its_output_cannot_be_written() {
    let service = Service::start();
    let url = service.url();
    assert_eq!(closed(&["status", &url]).code, 3);
    assert_eq!(full(&["watch", &url]).code, 3);
    assert_eq!(full(&["watch", &url, "--json"]).code, 3);
    assert_eq!(full(&["cordon", &url]).code, 3);
    assert_eq!(service.shutdown.readiness(), Readiness::Cordoned);
    assert_eq!(closed(&["drain", &url, "--yes"]).code, 3);
    let pass = service.shutdown.uncordon().then(|| service.orders.enter().unwrap());
    let Ran { code, stderr, .. } = full(&["drain", &url, "--yes", "--wait", "300ms"]);
    assert_eq!(code, 1, "it waited, and something was still in flight: {stderr}");
    drop(pass);
    assert_eq!(full(&["stop", &url, "--yes", "--watch"]).code, 3);
    assert_eq!(service.shutdown.stage(), Stage::ShuttingDown);
}

#[test]
fn s321_a_reader_that_closes_the_pipe_is_no_error() {
    for args in COMMANDS {
        let mut child =
            command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn s321_stop_begins_the_shutdown_with_its_output_closed() {
    let service = Service::start();
    let mut stop = command(&["stop", &service.url(), "--yes", "--watch"]);
    let mut stop = stop.stdout(Stdio::piped()).spawn().unwrap();
    drop(stop.stdout.take());
    assert_eq!(stop.wait().unwrap().code(), Some(0));
    assert_eq!(service.shutdown.stage(), Stage::ShuttingDown);
}

#[test]
fn lints_are_those_of_the_workspace_but_for_unsafe_code() {
    let lints = |manifest: &str, from: &str| -> Vec<String> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest);
        let text = std::fs::read_to_string(path).unwrap();
        let lists = text.split_once(from).unwrap().1.split("\n[profile").next().unwrap().to_owned();
        let without_remark = |line: &str| line.split('#').next().unwrap().trim().to_owned();
        let is_shared = |line: &String| {
            !line.is_empty() && !line.starts_with("unsafe_code") && !line.starts_with('[')
        };
        lists.lines().map(without_remark).filter(is_shared).collect()
    };
    assert_eq!(
        lints("Cargo.toml", "\n[lints.rust]"),
        lints("../../Cargo.toml", "\n[workspace.lints.rust]"),
    );
}
