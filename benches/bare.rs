//! The floor of every hand-off: one bare transaction on etcd, and its watch event.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use adieu_cluster::store::etcd_client::{self, Compare, CompareOp, Txn, TxnOp};
use adieu_testkit::servers::Server;

const ETCD: &str = "ADIEU_BENCH_ETCD";

/// Before the transactions of which the last is measured: hand-offs are rare.
const PAUSE: Duration = Duration::from_millis(20);

/// How often a case repeats what it measures.
const TIMES: usize = 21;

/// Runs this program again beside a server, and returns whether it did. Every case is a separate
/// process, and all use the same server.
///
/// # Panics
///
/// If the server or the program fails.
#[must_use]
pub fn with_etcd() -> bool {
    if std::env::var(ETCD).is_ok() {
        return false;
    }
    let etcd = Server::etcd();
    let me = std::env::current_exe().expect("this program");
    let status = Command::new(me)
        .args(std::env::args().skip(1))
        .env(ETCD, format!("http://{}", etcd.address()))
        .status();
    assert!(status.expect("a new process").success());
    true
}

/// Returns the address of the server.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn endpoint() -> [String; 1] {
    [std::env::var(ETCD).expect("set")]
}

/// Names a key of which nothing is in the store yet.
fn name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("bare-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the median, in microseconds.
#[must_use]
pub fn median(mut figures: Vec<Duration>) -> f64 {
    figures.sort();
    figures[figures.len() / 2].as_secs_f64() * 1e6
}

/// Measures one transaction with as many comparisons as a hand-off, from when it is sent until another client
/// sees its event. As in a hand-off, it follows another transaction, and that one a pause.
///
/// # Panics
///
/// If the server fails.
pub async fn transaction_and_event() -> f64 {
    let connect = || etcd_client::Client::connect(endpoint(), None);
    let mut client = connect().await.expect("a server");
    let mut watcher = connect().await.expect("a server");
    let [key, first, second] = [name(), name(), name()];
    let revision =
        |header: Option<&etcd_client::ResponseHeader>| header.map_or(0, |it| it.revision());
    let mut events = watcher.watch(key.as_str(), None).await.expect("a watch");
    let mut last = 0;
    for key in [&first, &second, &key] {
        let put = client.put(key.as_str(), "", None).await.expect("an answer");
        last = revision(put.header());
    }
    next(&mut events).await;
    let mut took = Vec::new();
    for turn in 0..2 * TIMES {
        if turn % 2 == 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let began = Instant::now();
        let same = [
            Compare::mod_revision(key.as_str(), CompareOp::Equal, last),
            Compare::create_revision(first.as_str(), CompareOp::Greater, 0),
            Compare::create_revision(second.as_str(), CompareOp::Greater, 0),
        ];
        let put = TxnOp::put(key.as_str(), turn.to_string(), None);
        let txn = client.txn(Txn::new().when(same).and_then([put]));
        let sees = async {
            next(&mut events).await;
            began.elapsed()
        };
        let (answer, seen) = tokio::join!(txn, sees);
        if turn % 2 == 1 {
            took.push(seen);
        }
        let answer = answer.expect("an answer");
        assert!(answer.succeeded());
        last = revision(answer.header());
    }
    median(took)
}

/// Waits for an event. The first message of a watch is that it was created.
async fn next(events: &mut etcd_client::WatchStream) {
    while events.message().await.expect("a message").expect("a message").events().is_empty() {}
}
