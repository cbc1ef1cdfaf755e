//! The messages that a socket receives from the driver.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::{Config, Phase, Reason, Shutdown};

/// Creates a real socket in place of systemd's.
fn listen() -> (UnixDatagram, NotifySettings) {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let name = NAMES.fetch_add(1, Ordering::Relaxed);
    let name = format!("adieu-test-{}-{name}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    socket.set_nonblocking(true).unwrap();
    let vars = [("NOTIFY_SOCKET", format!("@{name}")), ("WATCHDOG_USEC", "6000000".into())];
    let var = |name: &str| vars.iter().find(|(var, _)| *var == name).map(|(_, v)| v.into());
    let settings = NotifySettings::read(var, 1).unwrap().unwrap();
    (socket, settings)
}

fn receive(socket: &UnixDatagram) -> String {
    let mut text = String::new();
    let mut buffer = [0; 16 * 1024];
    while let Ok(length) = socket.recv(&mut buffer) {
        text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        text.push('\n');
    }
    text
}

async fn sleep(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn s1409_systemd_is_notified_of_each_change() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let (socket, settings) = listen();
    let mut notifying = tokio::task::JoinSet::new();
    let updates = shutdown.updates().unwrap();
    notifying.spawn(run(Arc::downgrade(shutdown.shared()), updates, settings));
    let gate = shutdown.add_gate("http").unwrap();
    let passes: Vec<_> = (0..2).map(|_| gate.enter().unwrap()).collect();
    sleep(1_000).await;
    shutdown.mark_started();
    sleep(1_000).await;
    shutdown.add_task(Phase::SERVICE_STOP, "flush", async |_| sleep(2_000).await).unwrap();
    let completed = shutdown.run(Reason::Unknown);
    for pass in passes {
        sleep(2_000).await;
        drop(pass);
    }
    assert!(completed.await.unwrap().is_clean());
    sleep(1_000).await;
    expect_test::expect![[r#"
        WATCHDOG=1
        STATUS=starting
        READY=1
        STATUS=ready
        STOPPING=1
        STATUS=service-requests-done/drain http for 50ms (2 in flight), 10s left
        EXTEND_TIMEOUT_USEC=30000000
        WATCHDOG=1
        WATCHDOG=1
        EXTEND_TIMEOUT_USEC=30000000
        STATUS=service-stop/cut http for 0s, service-stop/flush for 0s, 2s left
        EXTEND_TIMEOUT_USEC=30000000
    "#]]
    .assert_eq(&receive(&socket));
    drop((shutdown, gate));
    // The task ends when the shutdown is dropped.
    assert!(notifying.join_next().await.is_some_and(|ended| ended.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn s80_messages_that_do_not_fit_into_the_socket_are_sent_later() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let (socket, settings) = listen();
    // Fills the socket.
    let full = UnixDatagram::unbound().unwrap();
    full.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    while full.send_to_addr(b"noise", &address).is_ok() {}
    let mut notifying = tokio::task::JoinSet::new();
    let updates = shutdown.updates().unwrap();
    notifying.spawn(run(Arc::downgrade(shutdown.shared()), updates, settings));
    shutdown.mark_started();
    sleep(1_000).await;
    assert!(!receive(&socket).contains("READY"));
    sleep(1_000).await;
    assert!(receive(&socket).contains("READY=1"), "the message was kept");
    // Without a listener the shutdown continues.
    drop(socket);
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
}
