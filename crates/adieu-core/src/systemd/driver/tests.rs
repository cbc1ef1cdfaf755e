use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::{Config, Phase, Reason, Shutdown};

/// Stands in for systemd: a real socket.
fn listen() -> (UnixDatagram, Asked) {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let name = NAMES.fetch_add(1, Ordering::Relaxed);
    let name = format!("adieu-test-{}-{name}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let heard = UnixDatagram::bind_addr(&address).unwrap();
    heard.set_nonblocking(true).unwrap();
    let vars = [("NOTIFY_SOCKET", format!("@{name}")), ("WATCHDOG_USEC", "6000000".into())];
    let var = |name: &str| vars.iter().find(|(var, _)| *var == name).map(|(_, v)| v.into());
    let asked = Asked::read(var, 1).unwrap().unwrap();
    (heard, asked)
}

fn hear(heard: &UnixDatagram) -> String {
    let mut text = String::new();
    let mut buffer = [0; 16 * 1024];
    while let Ok(length) = heard.recv(&mut buffer) {
        text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        text.push('\n');
    }
    text
}

async fn sleep(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn s78_systemd_hears_of_each_change() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let (heard, asked) = listen();
    let mut attending = tokio::task::JoinSet::new();
    let lookout = shutdown.lookout().unwrap();
    attending.spawn(attend(Arc::downgrade(shutdown.shared()), lookout, asked));
    let gate = shutdown.gate("http").unwrap();
    let passes: Vec<_> = (0..2).map(|_| gate.enter().unwrap()).collect();
    sleep(1_000).await;
    shutdown.started();
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
    .assert_eq(&hear(&heard));
    drop((shutdown, gate));
    // Whoever tells ends with the shutdown.
    assert!(attending.join_next().await.is_some_and(|ended| ended.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn s80_whoever_does_not_listen_is_not_waited_for_and_misses_nothing() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let (heard, asked) = listen();
    // Nobody reads, until there is no more room.
    let full = UnixDatagram::unbound().unwrap();
    full.set_nonblocking(true).unwrap();
    let address = heard.local_addr().unwrap();
    while full.send_to_addr(b"noise", &address).is_ok() {}
    let mut attending = tokio::task::JoinSet::new();
    let lookout = shutdown.lookout().unwrap();
    attending.spawn(attend(Arc::downgrade(shutdown.shared()), lookout, asked));
    shutdown.started();
    sleep(1_000).await;
    assert!(!hear(&heard).contains("READY"));
    sleep(1_000).await;
    assert!(hear(&heard).contains("READY=1"), "it was kept");
    // And when there is nobody at all, the shutdown goes on.
    drop(heard);
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
}
