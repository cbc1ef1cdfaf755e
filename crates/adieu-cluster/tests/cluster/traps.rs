//! Failures between a store and its server, on every server.

use std::sync::Arc;
use std::time::Duration;

use adieu_cluster::store::{Commit, Committed, Revision, Standing, Store, StoreError, Update};
use adieu_testkit::proxy::Proxy;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::conformance::{collect, keys};
use crate::served::{Kind, Served, on_every_server, text};

const LONG: Duration = Duration::from_secs(20);

/// A server, a store behind a proxy, and one that is connected to the server itself.
struct Trap {
    served: Served,
    proxy: Proxy,
    store: Arc<dyn Store>,
    direct: Arc<dyn Store>,
}

impl Trap {
    async fn set(kind: Kind) -> Self {
        let served = Served::start(kind);
        let proxy = Proxy::new(served.server.address()).await;
        let (store, direct) = (served.connect_by(proxy.port()).await, served.connect().await);
        Self { served, proxy, store, direct }
    }

    /// Waits until a record is there.
    async fn until_written(&self, key: &str) {
        let written = async {
            while self.direct.load(key).await.unwrap().records.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LONG, written).await.unwrap();
    }
}

async fn done(store: &Arc<dyn Store>, commit: Commit) -> Revision {
    match store.commit(&commit).await.unwrap() {
        Committed::Done(revision) => revision,
        Committed::Conflict => panic!("a conflict: {commit:?}"),
    }
}

on_every_server! {
    super::Trap::set =>
    s427_changes_of_a_thousand_revisions_are_caught_up,
    s650_a_commit_whose_answer_is_lost_is_unknown,
    s650_a_commit_that_could_not_be_sent_was_not_applied,
    s651_changes_that_were_compacted_are_reported_as_such,
    s652_a_watch_is_lost_with_its_server,
    s653_a_watch_that_hangs_is_noticed,
    s654_an_unanswered_request_is_followed_by_a_new_connection,
    s656_a_table_is_loaded_at_one_revision_while_it_changes,
    s664_a_revision_that_went_back_is_refused,
    s665_changes_of_many_megabytes_arrive,
}

/// etcd sends at most a thousand revisions at once, with the present revision in the head.
async fn s427_changes_of_a_thousand_revisions_are_caught_up(trap: Trap) {
    let first = done(&trap.direct, Commit::new().create("c/a", "")).await;
    let mut changed = first;
    for n in 0..1_200 {
        changed = done(&trap.direct, Commit::new().replace("c/a", changed, n.to_string())).await;
    }
    let mut changes = trap.store.changes("c/", first).await.unwrap();
    let all = collect(&mut *changes, 1_200).await;
    let expected = first.get() + 1..=changed.get();
    assert!(all.iter().map(|change| change.revision().get()).eq(expected));
}

async fn s650_a_commit_whose_answer_is_lost_is_unknown(trap: Trap) {
    let session = trap.store.open(Duration::from_secs(60)).await.unwrap();
    done(&trap.store, Commit::new().set_under("beat", "0", session.id)).await;
    trap.proxy.cut_answers();
    // A store that repeats this would succeed again, or see a conflict.
    let commit = Commit::new().create("c/a", "1").set_under("beat", "1", session.id);
    let store = Arc::clone(&trap.store);
    let mut committing = JoinSet::new();
    committing.spawn(async move { store.commit(&commit).await });
    trap.until_written("c/a").await;
    let applied = trap.direct.load("").await.unwrap();
    // The connection stays silent, and a new one would work.
    trap.proxy.hang();
    trap.proxy.mend();
    let error = timeout(LONG, committing.join_next()).await.unwrap();
    let error = error.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{}", text(&error));
    assert!(error.may_pass());
    assert_eq!(trap.direct.load("").await.unwrap(), applied, "applied once");
    assert_eq!(trap.store.load("").await.unwrap(), applied, "and the store can look");
    assert_eq!(
        trap.store.commit(&Commit::new().create("c/a", "1")).await.unwrap(),
        Committed::Conflict
    );
}

async fn s650_a_commit_that_could_not_be_sent_was_not_applied(mut trap: Trap) {
    done(&trap.direct, Commit::new().create("c/a", "1")).await;
    trap.served.server.kill();
    // The connection breaks, and so does a commit that uses it. The process behind a connection to
    // Postgres may outlive the server for a moment.
    let mut n = 0;
    let first = loop {
        n += 1;
        if let Err(error) = trap.direct.commit(&Commit::new().create(format!("c/{n}"), "")).await {
            break error;
        }
    };
    assert!(first.may_pass(), "{}", text(&first));
    let commit = Commit::new().create("c/b", "1");
    // Now there is none, and nothing can have been sent.
    let second = trap.direct.commit(&commit).await.unwrap_err();
    assert!(matches!(second, StoreError::Unavailable { .. }), "{}", text(&second));
    trap.served.server.start();
    let again = async {
        loop {
            if let Ok(ended) = trap.direct.commit(&commit).await {
                return ended;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(matches!(timeout(LONG, again).await.unwrap(), Committed::Done(_)));
}

async fn s651_changes_that_were_compacted_are_reported_as_such(trap: Trap) {
    let first = done(&trap.store, Commit::new().create("c/a", "1")).await;
    let mut live = trap.store.changes("c/", first).await.unwrap();
    let second = done(&trap.direct, Commit::new().replace("c/a", first, "2")).await;
    assert_eq!(keys(&collect(&mut *live, 1).await), ["c/a"]);
    let third = done(&trap.direct, Commit::new().replace("c/a", second, "3")).await;
    assert_eq!(keys(&collect(&mut *live, 1).await), ["c/a"]);
    trap.served.compact().await;

    // A reader that was too far behind gets this error on each read.
    let mut behind = trap.store.changes("c/", first).await.unwrap();
    for _ in 0..2 {
        let update = timeout(LONG, behind.next()).await.unwrap().unwrap();
        assert_eq!(update, Update::Compacted);
    }
    let snapshot = trap.store.load("c/").await.unwrap();
    assert_eq!(&*snapshot.records[0].value, "3");
    let mut fresh = trap.store.changes("c/", snapshot.revision).await.unwrap();

    // A reader that was not behind continues.
    done(&trap.direct, Commit::new().replace("c/a", third, "4")).await;
    assert_eq!(keys(&collect(&mut *live, 1).await), ["c/a"]);
    assert_eq!(keys(&collect(&mut *fresh, 1).await), ["c/a"]);
}

/// Waits until changes fail, and returns how long that took.
async fn until_it_fails(changes: &mut dyn adieu_cluster::store::Changes) -> Duration {
    let began = Instant::now();
    let failing = async {
        loop {
            match changes.next().await {
                Ok(Update::Changed { changes, .. }) => assert_eq!(keys(&changes), [""; 0]),
                Ok(Update::Compacted) => panic!("nothing was compacted"),
                Err(error) => return error,
            }
        }
    };
    let error = timeout(LONG, failing).await.unwrap();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{}", text(&error));
    began.elapsed()
}

async fn s652_a_watch_is_lost_with_its_server(mut trap: Trap) {
    let first = done(&trap.direct, Commit::new().create("c/a", "1")).await;
    let mut changes = trap.direct.changes("c/", first).await.unwrap();
    let second = done(&trap.direct, Commit::new().replace("c/a", first, "2")).await;
    assert_eq!(keys(&collect(&mut *changes, 1).await), ["c/a"]);
    trap.served.server.kill();
    let took = until_it_fails(&mut *changes).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    trap.served.server.start();
    let other = trap.served.connect().await;
    let third = done(&other, Commit::new().replace("c/a", second, "3")).await;
    // The same store opens the watch again, and misses nothing.
    let again = async {
        loop {
            if let Ok(changes) = trap.direct.changes("c/", second).await {
                return changes;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut changes = timeout(LONG, again).await.unwrap();
    let caught_up = collect(&mut *changes, 1).await;
    assert_eq!((keys(&caught_up), caught_up[0].revision()), (vec!["c/a".to_owned()], third));
}

async fn s653_a_watch_that_hangs_is_noticed(trap: Trap) {
    let first = done(&trap.store, Commit::new().create("c/a", "1")).await;
    let mut changes = trap.store.changes("c/", first).await.unwrap();
    let second = done(&trap.direct, Commit::new().replace("c/a", first, "2")).await;
    assert_eq!(keys(&collect(&mut *changes, 1).await), ["c/a"]);
    trap.proxy.hang();
    let third = done(&trap.direct, Commit::new().replace("c/a", second, "3")).await;
    let took = until_it_fails(&mut *changes).await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    let again = timeout(Duration::from_secs(5), trap.store.changes("c/", second)).await;
    let mut changes = again.unwrap().unwrap();
    let caught_up = collect(&mut *changes, 1).await;
    assert_eq!((keys(&caught_up), caught_up[0].revision()), (vec!["c/a".to_owned()], third));
}

async fn s654_an_unanswered_request_is_followed_by_a_new_connection(trap: Trap) {
    let session = trap.store.open(LONG).await.unwrap();
    assert_eq!(trap.store.keep(&session).await.unwrap(), Standing::Kept);
    trap.proxy.hang();
    let second = Duration::from_secs(1);
    assert!(timeout(second, trap.store.keep(&session)).await.is_err(), "nothing comes through");
    // Long before the silence itself is noticed.
    let kept = timeout(3 * second, trap.store.keep(&session)).await;
    assert_eq!(kept.unwrap().unwrap(), Standing::Kept);
}

async fn s656_a_table_is_loaded_at_one_revision_while_it_changes(trap: Trap) {
    // Several pages: the first and the last record are always written together.
    for hundred in 0..12 {
        let commit = (0..100).fold(Commit::new(), |commit, n| {
            commit.create(format!("p/{:04}", hundred * 100 + n), "0")
        });
        done(&trap.direct, commit).await;
    }
    let writing = async {
        let records = trap.direct.load("p/").await.unwrap().records;
        let (mut first, mut last) = (records[0].changed, records[1199].changed);
        for n in 0..100 {
            let commit = Commit::new().replace("p/0000", first, n.to_string());
            first = done(&trap.direct, commit.replace("p/1199", last, n.to_string())).await;
            last = first;
            trap.served.compact().await;
        }
    };
    let reading = async {
        let mut seen = std::collections::BTreeSet::new();
        while !seen.contains("99") {
            let records = trap.store.load("p/").await.unwrap().records;
            assert_eq!(records.len(), 1200);
            assert_eq!(records[0].value, records[1199].value);
            seen.insert(records[0].value.to_string());
        }
        assert!(seen.len() > 2, "it was loaded while it changed: {seen:?}");
    };
    let both = Box::pin(async { tokio::join!(writing, reading) });
    timeout(3 * LONG, both).await.unwrap();
}

async fn s664_a_revision_that_went_back_is_refused(trap: Trap) {
    let now = done(&trap.store, Commit::new().create("c/a", "1")).await;
    let ahead = Revision::new(now.get() + 1_000);
    let error = match trap.store.changes("c/", ahead).await {
        Ok(mut changes) => timeout(LONG, changes.next()).await.unwrap().unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, StoreError::Refused { .. }), "{}", text(&error));
    let expected = format!("the revision is {now}, and was {ahead} before");
    assert!(text(&error).contains(&expected), "{}", text(&error));
}

async fn s665_changes_of_many_megabytes_arrive(trap: Trap) {
    let before = done(&trap.direct, Commit::new().create("other", "")).await;
    let value = "x".repeat(10_000);
    for round in 0..10 {
        let commit = (0..100).fold(Commit::new(), |commit, n| {
            commit.create(format!("c/{round}/{n}"), value.as_str())
        });
        done(&trap.direct, commit).await;
    }
    let mut changes = trap.store.changes("c/", before).await.unwrap();
    let all = collect(&mut *changes, 1_000).await;
    assert_eq!(all.len(), 1_000);
    assert!(all.is_sorted_by_key(adieu_cluster::store::Change::revision));
    assert_eq!(trap.store.load("c/").await.unwrap().records.len(), 1_000);
}
