//! At a terminal: colours, questions, and redrawing in place.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex};

use adieu::{Readiness, Reason, Stage};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::command;
use super::service::Service;
use super::tmux::Tmux;
use super::until;

/// The command at a terminal of 90 columns.
struct Terminal {
    child: Child,
    keyboard: File,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn of(args: &[&str], no_color: bool) -> Self {
        let size = Winsize { ws_row: 30, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(&size, None).unwrap();
        let mut command = command(args);
        command.env("TERM", "xterm-256color");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        let child = command.spawn().unwrap();
        // The test must not hold the command's end of the terminal open.
        drop(command);
        let mut screen = File::from(master.try_clone().unwrap());
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // When the other end is closed, reading fails.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                seen.lock().unwrap().extend(&bytes[..count]);
            }
        });
        Self { child, keyboard: File::from(master), shown }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    #[track_caller]
    fn until(&self, text: &str) {
        until(text, || self.shown().contains(text));
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Returns the exit code, after all output has been read.
    #[track_caller]
    fn end(&mut self, last: &str) -> i32 {
        let mut ended = None;
        until("its end", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        self.until(last);
        ended.and_then(|status| status.code()).unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether the output contains a colour or another style, not only movements of the cursor.
fn has_color(shown: &str) -> bool {
    shown.split("\u{1b}[").skip(1).any(|sequence| {
        sequence.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
    })
}

const HIDE: &str = "\u{1b}[?25l";
const SHOW: &str = "\u{1b}[?25h";

#[test]
fn s188_colours_are_for_terminals_without_no_color() {
    let report = ["report", "golden/report-after.json"];
    let mut colored = Terminal::of(&report, false);
    assert_eq!(colored.end("still running\r\n"), 0);
    assert!(has_color(&colored.shown()), "{}", colored.shown());
    let mut plain = Terminal::of(&report, true);
    assert_eq!(plain.end("still running\r\n"), 0);
    assert!(!plain.shown().contains('\u{1b}'), "{}", plain.shown());
    // The chart is as wide as the terminal. Names and errors below it are not cut.
    let chart = plain.shown();
    let chart = chart.split("Failures").next().unwrap();
    let widest = chart.lines().map(|line| line.chars().count()).max().unwrap();
    assert_eq!(widest, 90, "{chart}");
}

#[test]
fn s187_consent_is_asked_for() {
    let service = Service::start();
    let _pass = service.orders.enter();
    let url = service.url();
    let mut asked = Terminal::of(&["stop", &url], false);
    asked.until("? It is ready, 1 in flight: orders 1. [y/N] ");
    asked.types("\n");
    assert_eq!(asked.end("nothing was changed"), 1);
    assert_eq!(service.shutdown.readiness(), Readiness::Ready);

    let mut asked = Terminal::of(&["stop", &url], false);
    asked.until("[y/N] ");
    asked.types("y\n");
    assert_eq!(asked.end("is shutting down"), 0);
    assert_eq!(service.shutdown.stage(), Stage::ShuttingDown);
}

#[test]
fn watch_draws_in_place_and_ends_with_the_report() {
    let service = Service::start();
    let mut watching = Terminal::of(&["watch", &service.url()], true);
    watching.until("+ ready");
    drop(service.shutdown.run(Reason::Unknown));
    watching.until("service-stop / flush");
    service.flush.cancel();
    assert_eq!(watching.end("Phases that decided the duration"), 0);
    let shown = watching.shown();
    assert!(!has_color(&shown), "NO_COLOR is set: {shown}");
    let (hidden, restored) = (shown.find(HIDE).unwrap(), shown.rfind(SHOW).unwrap());
    assert!(hidden < restored, "{shown}");
    assert!(shown.contains("A\r\u{1b}[J"), "each frame replaces the one before: {shown}");
}

#[test]
fn s322_ctrl_c_leaves_the_last_frame() {
    let service = Service::start();
    let terminal = Tmux::open("ctrl-c", &[]);
    terminal.adieu(&format!("watch {}", service.url()));
    terminal.until("0 in flight");
    terminal.press("C-c");
    let screen = terminal.until("code=");
    assert!(screen.contains("code=130"), "{screen}");
    assert!(screen.contains("+ ready") && screen.contains("0 in flight"), "{screen}");
    assert!(terminal.has_cursor());

    terminal.adieu(&format!("stop {} --yes --watch", service.url()));
    terminal.until("service-stop / flush");
    terminal.press("C-c");
    let screen = terminal.until("code=");
    assert!(screen.contains("code=130"), "{screen}");
    assert!(screen.contains("service-stop / flush"), "{screen}");
    assert!(screen.contains("continues to shut down: adieu watch follows it"), "{screen}");
    assert_eq!(service.shutdown.stage(), Stage::ShuttingDown);
}

#[test]
fn ctrl_c_gives_the_cursor_back() {
    let service = Service::start();
    let mut watching = Terminal::of(&["watch", &service.url()], false);
    watching.until("ready");
    assert!(watching.shown().contains(HIDE));
    // The byte that a terminal sends for Ctrl-C.
    kill(Pid::from_raw(watching.child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(watching.end(SHOW), 130);
    assert_eq!(service.shutdown.stage(), Stage::Up, "watching changes nothing");
}
