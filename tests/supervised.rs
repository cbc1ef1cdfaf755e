//! Real processes that notify systemd. The test has a real socket in its place.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use adieu::{ExitCode, Signal};

use super::process::started;

/// The socket of systemd.
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

    /// Returns the next lines, if they arrive within this time.
    fn receive(&self, within: Duration) -> Option<Vec<String>> {
        self.socket.set_read_timeout(Some(within)).unwrap();
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).ok()?;
        let text = std::str::from_utf8(&buffer[..length]).unwrap();
        Some(text.lines().map(str::to_owned).collect())
    }

    /// Returns all lines up to one with this beginning.
    fn receive_until(&self, beginning: &str) -> Vec<String> {
        let mut received = Vec::new();
        while !received.iter().any(|line: &String| line.starts_with(beginning)) {
            received.extend(self.receive(Duration::from_secs(30)).expect(beginning));
        }
        received
    }
}

#[test]
fn s78_systemd_is_notified_in_order() {
    let systemd = Supervisor::new();
    let vars = [("NOTIFY_SOCKET", systemd.address.as_str()), ("WATCHDOG_USEC", "100000")];
    let mut process = started("supervised", &vars);
    let mut received = systemd.receive_until("STATUS=ready");
    process.signal(Signal::TERM);
    let ended = process.wait();
    assert_eq!(ended.status.code(), Some(i32::from(ExitCode::CLEAN)), "{ended:#?}");
    while let Some(lines) = systemd.receive(Duration::from_millis(1)) {
        received.extend(lines);
    }
    let alive = received.iter().filter(|line| *line == "WATCHDOG=1").count();
    assert!(alive >= 4, "in 600 ms, at one every 50 ms: {alive}");
    // The first of these depends on timing; the others have an order.
    let is_timed = |line: &&String| line.starts_with("WATCHDOG") || line.starts_with("EXTEND");
    let untimed: Vec<_> = received.iter().filter(|line| !is_timed(line)).collect();
    let notified: Vec<_> = untimed.iter().filter(|line| **line != "STATUS=starting").collect();
    let order = [
        "READY=1",
        "STATUS=ready",
        "STOPPING=1",
        "STATUS=service-unbind/wait for ",
        "STATUS=service-stop/wait for ",
    ];
    assert_eq!(notified.len(), order.len(), "{received:#?}");
    assert!(
        notified.iter().zip(order).all(|(line, start)| line.starts_with(start)),
        "{received:#?}"
    );
}

#[test]
fn s79_more_time_is_requested_when_a_task_has_ended_up_to_the_deadline() {
    let systemd = Supervisor::new();
    let vars = [("NOTIFY_SOCKET", systemd.address.as_str()), ("ADIEU__KILL_AFTER", "10s")];
    let mut process = started("supervised", &vars);
    process.signal(Signal::TERM);
    let received = systemd.receive_until("EXTEND_TIMEOUT_USEC=");
    let extends: Vec<u64> = received
        .iter()
        .filter_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC="))
        .map(|micros| micros.parse().unwrap())
        .collect();
    // Ten seconds less a margin, of which 300 ms have elapsed.
    assert!(extends[0] > 5_000_000 && extends[0] < 9_700_000, "{received:#?}");
    let first = |start: &str| received.iter().position(|line| line.starts_with(start)).unwrap();
    assert!(first("EXTEND") > first("STATUS=service-unbind"), "{received:#?}");
}

#[test]
fn s80_a_blocked_runtime_sends_no_watchdog_messages() {
    let systemd = Supervisor::new();
    let vars = [("NOTIFY_SOCKET", systemd.address.as_str()), ("WATCHDOG_USEC", "100000")];
    let process = started("wedged", &vars);
    // Messages from before the runtime was blocked.
    while systemd.receive(Duration::from_millis(1)).is_some() {}
    assert_eq!(systemd.receive(Duration::from_millis(500)), None);
    drop(process);
}

#[test]
fn s1410_an_invalid_address_is_logged_and_has_no_other_effect() {
    let mut process = started("clean", &[("NOTIFY_SOCKET", "vsock:2:1234")]);
    process.signal(Signal::TERM);
    let ended = process.wait();
    assert_eq!(ended.status.code(), Some(i32::from(ExitCode::CLEAN)), "{ended:#?}");
    assert!(ended.stderr.contains("vsock:2:1234"), "{ended:#?}");
}
