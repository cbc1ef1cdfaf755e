//! A real process: started, waited for, signalled, and looked at when it has ended.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use adieu_core::{Report, Signal};

/// How long the harness waits for anything before it kills the process and fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process under test. Dropping it kills it.
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
    /// What it said to its supervisor.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// Its report, if it wrote one.
    pub report: Option<Report>,
    /// How long it took from the first signal, or else from when the harness began to wait.
    pub took: Duration,
}

#[derive(Clone, Debug)]
struct Line {
    stderr: bool,
    text: String,
}

// === impl Process ===

impl Process {
    /// Starts a process. It is told, through its environment, where to write its report.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
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
        let (tell, lines) = channel();
        let outputs: [(bool, Option<Box<dyn Read + Send>>); 2] = [
            (false, child.stdout.take().map(|out| Box::new(out) as _)),
            (true, child.stderr.take().map(|err| Box::new(err) as _)),
        ];
        for (stderr, output) in outputs {
            let (tell, output) = (tell.clone(), output.expect("it is piped"));
            std::thread::spawn(move || {
                for text in BufReader::new(output).lines().map_while(Result::ok) {
                    if tell.send(Line { stderr, text }).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, lines, seen: Vec::new(), report_file, signalled: None }
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has written a line that contains `text`, on either output, and returns it.
    ///
    /// Lines written before count, too: which of two threads writes first is not for a test to say.
    ///
    /// # Panics
    ///
    /// If it ends before, or does not write such a line for a minute.
    #[expect(clippy::disallowed_methods, reason = "real processes live in real time")]
    pub fn wait_for(&mut self, text: &str) -> String {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.seen.iter().find(|line| line.text.contains(text)) {
                return line.text.clone();
            }
            match self.lines.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("waited in vain for {text:?}; it wrote:\n{}", self.written())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended before it wrote {text:?}; it wrote:\n{}", self.written())
                }
            }
        }
    }

    /// Whether it has written, so far, a line that ends with `text`, on either output.
    pub fn has_said(&mut self, text: &str) -> bool {
        self.seen.extend(self.lines.try_iter());
        self.seen.iter().any(|line| line.text.ends_with(text))
    }

    /// Sends it a signal; not so soon after another that it would be taken for an echo of that.
    ///
    /// # Panics
    ///
    /// If it is gone.
    #[cfg(unix)]
    #[expect(clippy::disallowed_methods, reason = "real processes live in real time")]
    pub fn signal(&mut self, sent: Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        let signal = nix::sys::signal::Signal::try_from(sent.number()).expect("a signal");
        if self.signalled.is_some() {
            std::thread::sleep(2 * Signal::ECHO);
        }
        self.signalled.get_or_insert_with(Instant::now);
        nix::sys::signal::kill(pid, signal)
            .unwrap_or_else(|error| panic!("{error}; it wrote:\n{}", self.written()));
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    ///
    /// If it does not end within a minute.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "real processes live in real time")]
    pub fn wait(mut self) -> Ended {
        let since = self.signalled.unwrap_or_else(Instant::now);
        let give_up = Instant::now() + PATIENCE;
        // Both outputs close when the process ends, so there is nothing to poll.
        loop {
            match self.lines.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("it does not end; it wrote:\n{}", self.written())
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
