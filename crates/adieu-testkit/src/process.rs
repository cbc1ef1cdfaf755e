//! A real process: starts it, waits for its output, signals it, and collects its results.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use adieu_core::{Report, Signal};

/// How long the harness waits for anything before it kills the process and fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process under test. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: std::process::Child,
    lines: Receiver<Line>,
    seen: Vec<Line>,
    report_file: tempfile::TempPath,
    signalled: Option<Instant>,
}

/// How a process ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The exit status.
    pub status: ExitStatus,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
    /// The report, if the process wrote one.
    pub report: Option<Report>,
    /// The time from the first signal, or else from the start of the wait, to the end.
    pub took: Duration,
}

#[derive(Clone, Debug)]
struct Line {
    stderr: bool,
    text: String,
}

// === impl Process ===

impl Process {
    /// Starts a process. The variable `ADIEU__REPORT_FILE` names the file for its report.
    ///
    /// # Panics
    ///
    /// If the process cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let report_file =
            tempfile::NamedTempFile::new().expect("a temporary file").into_temp_path();
        let mut child = command
            .env("ADIEU__REPORT_FILE", &report_file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        let (sender, lines) = channel();
        let outputs: [(bool, Option<Box<dyn Read + Send>>); 2] = [
            (false, child.stdout.take().map(|out| Box::new(out) as _)),
            (true, child.stderr.take().map(|err| Box::new(err) as _)),
        ];
        for (stderr, output) in outputs {
            let (sender, output) = (sender.clone(), output.expect("a piped output"));
            std::thread::spawn(move || {
                for text in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(Line { stderr, text }).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, lines, seen: Vec::new(), report_file, signalled: None }
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process has written a line that contains `text`, to either output, and returns
    /// the line.
    ///
    /// Earlier lines count as well, because the order of lines of several threads is not defined.
    ///
    /// # Panics
    ///
    /// If the process ends first, or does not write such a line within a minute.
    #[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
    pub fn wait_for(&mut self, text: &str) -> String {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.seen.iter().find(|line| line.text.contains(text)) {
                return line.text.clone();
            }
            match self.lines.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("timed out waiting for {text:?}; the process wrote:\n{}", self.written())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the process ended without {text:?}; it wrote:\n{}", self.written())
                }
            }
        }
    }

    /// Returns whether the process has written a line that ends with `text`, to either output.
    pub fn has_written(&mut self, text: &str) -> bool {
        self.seen.extend(self.lines.try_iter());
        self.seen.iter().any(|line| line.text.ends_with(text))
    }

    /// Sends a signal. Pauses before a repeated one, so that it does not count as an echo of the
    /// first; see [`Signal::ECHO`].
    ///
    /// # Panics
    ///
    /// If the process has ended.
    #[cfg(unix)]
    #[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
    pub fn signal(&mut self, sent: Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        let signal = nix::sys::signal::Signal::try_from(sent.number()).expect("a signal");
        if self.signalled.is_some() {
            std::thread::sleep(2 * Signal::ECHO);
        }
        self.signalled.get_or_insert_with(Instant::now);
        nix::sys::signal::kill(pid, signal)
            .unwrap_or_else(|error| panic!("{error}; the process wrote:\n{}", self.written()));
    }

    /// Waits until the process has ended.
    ///
    /// # Panics
    ///
    /// If it does not end within a minute.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
    pub fn wait(mut self) -> Ended {
        let since = self.signalled.unwrap_or_else(Instant::now);
        let give_up = Instant::now() + PATIENCE;
        // Both outputs close when the process ends, so polling is not necessary.
        loop {
            match self.lines.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the process does not end; it wrote:\n{}", self.written())
                }
            }
        }
        let status = self.child.wait().expect("a child can be waited for");
        let took = since.elapsed();
        let output = |stderr: bool| -> String {
            let lines = self.seen.iter().filter(|line| line.stderr == stderr);
            lines.map(|line| line.text.clone() + "\n").collect()
        };
        let report = std::fs::read_to_string(&self.report_file)
            .ok()
            .filter(|text| !text.is_empty())
            .map(|text| serde_json::from_str(&text).expect("a report"));
        Ended { status, stdout: output(false), stderr: output(true), report, took }
    }

    fn written(&self) -> String {
        self.seen.iter().map(|line| format!("  {}\n", line.text)).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
