//! The log and the status of links that fail, and of callers that are rejected.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::stage::{Ledger, Node, identity, limits, peer, until};
use crate::link::{Identity, Limits, Security};
use crate::time::Duration;
use crate::transport::Transport;

/// The lines that are logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Collects what this thread logs.
    fn subscribe(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false);
        let subscriber = subscriber.with_writer(move || writer.clone()).finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Returns the lines that contain this.
    fn lines(&self, what: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(what)).map(str::to_owned).collect()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn s1632_a_link_that_fails_for_long_and_its_recovery_are_logged_once() {
    let log = Log::default();
    let _guard = log.subscribe();
    let limits = Limits { long_failure: Duration::from_millis(200), ..limits() };
    let a = Node::with("a", 5, Security::loopback_only(), limits);
    let to = peer("b", 7);
    a.shop.learn(&to);
    let address = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().to_string()
    };
    assert_eq!(a.links.failing(), []);
    let ledger = Ledger::default();
    until("it is logged", || {
        a.send(&to, &address, &ledger, Bytes::new());
        !log.lines("link fails").is_empty()
    })
    .await;
    let failing = a.links.failing();
    assert_eq!((&failing[0].peer, &*failing[0].address), (&to, &*address));
    assert!(failing[0].why.contains("failed to connect to node b"), "{}", failing[0].why);
    // A node that is no longer in the table is not to be reached.
    a.shop.forget(&to);
    assert_eq!(a.links.failing(), []);
    a.shop.learn(&to);

    let b = Node::at(&address, &to, identity(&to), Security::loopback_only(), limits).unwrap();
    b.knows(&a);
    until("it is logged", || {
        a.send(&to, &address, &ledger, Bytes::new());
        !log.lines("link recovered").is_empty()
    })
    .await;
    assert_eq!(a.links.failing(), []);
    let fails = log.lines("link fails");
    assert_eq!(fails.len(), 1, "{fails:?}");
    assert!(fails[0].contains("WARN") && fails[0].contains("peer=b"), "{fails:?}");
    assert!(fails[0].contains("failed to connect to node b"), "{fails:?}");
}

#[tokio::test]
async fn s1633_a_caller_that_is_rejected_is_logged_once_with_the_cause() {
    let log = Log::default();
    let _guard = log.subscribe();
    let token = |text: &str| Security::token(text).unwrap();
    let b = Node::with("b", 7, token("0123456789abcdef"), limits());
    let send = async |from: &Node| {
        let ledger = Ledger::default();
        from.send(&b.peer, &b.address(), &ledger, Bytes::new());
        ledger.settled().await;
    };
    // Without the token, twice.
    let stranger = Node::with("a", 5, token("0123456789abcdeX"), limits());
    send(&stranger).await;
    send(&stranger).await;
    // With the token: of another cluster, and not a member.
    let me = peer("a", 5);
    let other = Identity { cluster: "other".into(), ..identity(&me) };
    let token = || token("0123456789abcdef");
    send(&Node::at("127.0.0.1:0", &me, other, token(), limits()).unwrap()).await;
    send(&Node::with("a", 5, token(), limits())).await;
    until("all are logged", || log.lines("node rejected").len() == 3).await;
    let lines = log.lines("node rejected");
    for (line, why) in lines.iter().zip([
        "the token is missing or is not the one of this cluster",
        "this node is in cluster shop, not in",
        "incarnation 5 of node a is not a member",
    ]) {
        assert!(line.contains("WARN") && line.contains("from=127.0.0.1"), "{line}");
        assert!(line.contains(why), "{line}");
        assert!(!line.contains("0123456789"), "the token is in the log: {line}");
    }
}
