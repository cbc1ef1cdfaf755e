//! Real processes that tell systemd how they stand: a real socket in its place.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use adieu::{ExitCode, Signal};

use super::process::started;

/// What systemd would hear.
struct Supervisor {
    socket: UnixDatagram,
    address: String,
    _folder: tempfile::TempDir,
}

impl Supervisor {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, address: path.to_str().unwrap().to_owned(), _folder: folder }
    }

    /// The next lines that are said within this time.
    fn hear(&self, within: Duration) -> Option<Vec<String>> {
        self.socket.set_read_timeout(Some(within)).unwrap();
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).ok()?;
        let text = std::str::from_utf8(&buffer[..length]).unwrap();
        Some(text.lines().map(str::to_owned).collect())
    }

    /// All lines up to one that begins like this.
    fn hear_until(&self, beginning: &str) -> Vec<String> {
        let mut heard = Vec::new();
        while !heard.iter().any(|line: &String| line.starts_with(beginning)) {
            heard.extend(self.hear(Duration::from_secs(30)).expect(beginning));
        }
        heard
    }
}

#[test]
fn s78_systemd_is_told_in_order() {
    let systemd = Supervisor::new();
    let vars = [("NOTIFY_SOCKET", systemd.address.as_str()), ("WATCHDOG_USEC", "100000")];
    let mut process = started("supervised", &vars);
    let mut heard = systemd.hear_until("STATUS=ready");
    process.signal(Signal::TERM);
    let ended = process.wait();
    assert_eq!(ended.status.code(), Some(i32::from(ExitCode::CLEAN)), "{ended:#?}");
    while let Some(lines) = systemd.hear(Duration::from_millis(1)) {
        heard.extend(lines);
    }
    let alive = heard.iter().filter(|line| *line == "WATCHDOG=1").count();
    assert!(alive >= 4, "in 600 ms, and it is said every 50: {alive}");
    // Which of these it says first depends on when it looks; the others have an order.
    let is_timed = |line: &&String| line.starts_with("WATCHDOG") || line.starts_with("EXTEND");
    let said: Vec<_> = heard.iter().filter(|line| !is_timed(line)).collect();
    let told: Vec<_> = said.iter().filter(|line| **line != "STATUS=starting").collect();
    let order = [
        "READY=1",
        "STATUS=ready",
        "STOPPING=1",
        "STATUS=service-unbind/wait for ",
        "STATUS=service-stop/wait for ",
    ];
    assert_eq!(told.len(), order.len(), "{heard:#?}");
    assert!(told.iter().zip(order).all(|(line, start)| line.starts_with(start)), "{heard:#?}");
}

#[test]
fn s79_more_time_is_asked_for_when_a_task_has_ended_and_not_beyond_the_deadline() {
    let systemd = Supervisor::new();
    let vars = [("NOTIFY_SOCKET", systemd.address.as_str()), ("ADIEU__KILL_AFTER", "10s")];
    let mut process = started("supervised", &vars);
    process.signal(Signal::TERM);
    let heard = systemd.hear_until("EXTEND_TIMEOUT_USEC=");
    let extends: Vec<u64> = heard
        .iter()
        .filter_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC="))
        .map(|micros| micros.parse().unwrap())
        .collect();
    // Ten seconds less a margin, and 300 ms of that are gone.
    assert!(extends[0] > 5_000_000 && extends[0] < 9_700_000, "{heard:#?}");
    let first = |start: &str| heard.iter().position(|line| line.starts_with(start)).unwrap();
    assert!(first("EXTEND") > first("STATUS=service-unbind"), "{heard:#?}");
}

#[test]
fn s80_a_wedged_runtime_falls_silent() {
    let systemd = Supervisor::new();
    let vars = [("NOTIFY_SOCKET", systemd.address.as_str()), ("WATCHDOG_USEC", "100000")];
    let process = started("wedged", &vars);
    // What was said before it was wedged.
    while systemd.hear(Duration::from_millis(1)).is_some() {}
    assert_eq!(systemd.hear(Duration::from_millis(500)), None);
    drop(process);
}

#[test]
fn s78_an_address_that_makes_no_sense_is_said_and_nothing_more() {
    let mut process = started("clean", &[("NOTIFY_SOCKET", "vsock:2:1234")]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    assert_eq!(ended.status.code(), Some(i32::from(ExitCode::CLEAN)), "{ended:#?}");
    assert!(ended.stderr.contains("vsock:2:1234"), "{ended:#?}");
}
