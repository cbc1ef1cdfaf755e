//! One suite for every store.

use std::sync::Arc;
use std::time::Duration;

use adieu_cluster::store::{
    Change, Changes, Commit, Committed, Files, Memory, Record, Revision, Session, Standing, Store,
    StoreError, Update,
};

/// A store that is tested, and the server that must live as long as it.
struct Bench {
    store: Arc<dyn Store>,
    _keeps: Box<dyn std::any::Any>,
}

#[expect(clippy::unused_async, reason = "the stores on servers connect")]
impl Bench {
    async fn memory() -> Self {
        Self { store: Arc::new(Memory::new()), _keeps: Box::new(()) }
    }

    async fn files() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { store: Arc::new(Files::open(folder.path()).unwrap()), _keeps: Box::new(folder) }
    }

    #[cfg(all(feature = "etcd", feature = "postgres"))]
    async fn on(kind: crate::served::Kind) -> Self {
        let served = crate::served::Served::start(kind);
        Self { store: served.connect().await, _keeps: Box::new(served) }
    }

    /// A time to live that the store can measure, and that tests can wait for.
    fn ttl(&self) -> Duration {
        self.store.shortest_ttl().max(Duration::from_millis(500))
    }

    async fn done(&self, commit: Commit) -> Revision {
        match self.store.commit(&commit).await.unwrap() {
            Committed::Done(revision) => revision,
            Committed::Conflict => panic!("a conflict: {commit:?}"),
        }
    }

    async fn conflicts(&self, commit: Commit) {
        let before = self.store.load("").await.unwrap();
        assert_eq!(self.store.commit(&commit).await.unwrap(), Committed::Conflict, "{commit:?}");
        assert_eq!(self.store.load("").await.unwrap(), before, "a conflict changes nothing");
    }

    async fn get(&self, key: &str) -> Option<Record> {
        let records = self.store.load(key).await.unwrap().records;
        records.into_iter().find(|record| &*record.key == key)
    }
}

/// Returns the keys of changes, with `-` before those that were deleted.
pub(crate) fn keys(changes: &[Change]) -> Vec<String> {
    let key = |change: &Change| match change {
        Change::Put(record) => record.key.to_string(),
        Change::Deleted { key, .. } => format!("-{key}"),
    };
    changes.iter().map(key).collect()
}

/// Waits until this many changes have come.
pub(crate) async fn collect(changes: &mut dyn Changes, count: usize) -> Vec<Change> {
    let mut all = Vec::new();
    while all.len() < count {
        match tokio::time::timeout(Duration::from_secs(20), changes.next()).await {
            Ok(Ok(Update::Changed { changes, .. })) => all.extend(changes),
            other => panic!("after {:?}: {other:?}", keys(&all)),
        }
    }
    all
}

/// Runs each test on each store.
macro_rules! on_every_store {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test(super::Bench::memory().await).await;
            })*
        }
        mod files {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Bench::files().await).await;
            })*
        }
        crate::served::on_every_server! { super::Bench::on => $($test,)* }
    };
}

on_every_store! {
    s420_revisions_rise_and_records_know_theirs,
    s421_a_commit_is_applied_whole_or_not_at_all,
    s422_each_comparison_holds_when_it_should,
    s423_a_session_takes_its_records_with_it,
    s423_a_session_that_is_kept_lasts,
    s424_a_record_that_is_replaced_keeps_its_session,
    s425_a_record_cannot_join_a_session_that_has_ended,
    s426_load_returns_one_revision_and_every_record,
    s427_changes_are_reported_once_and_in_order,
    s427_changes_since_an_old_revision_are_caught_up,
    s427_an_expiry_is_a_change,
    s428_a_repeated_commit_conflicts,
    s429_a_ttl_that_is_too_short_is_refused,
    s430_of_racing_commits_one_succeeds,
    s655_a_commit_that_is_too_large_or_writes_twice_is_refused,
}

async fn s420_revisions_rise_and_records_know_theirs(bench: Bench) {
    let first = bench.done(Commit::new().create("c/a", "1")).await;
    let second = bench.done(Commit::new().create("c/b", "2")).await;
    let third = bench.done(Commit::new().replace("c/a", first, "3")).await;
    assert!(first < second && second < third);
    let a = bench.get("c/a").await.unwrap();
    assert_eq!((&*a.value, a.created, a.changed, a.session), ("3", first, third, None));
    bench.done(Commit::new().delete("c/a", third)).await;
    assert_eq!(bench.get("c/a").await, None);
    let again = bench.done(Commit::new().create("c/a", "4")).await;
    assert_eq!(bench.get("c/a").await.unwrap().created, again);
}

async fn s421_a_commit_is_applied_whole_or_not_at_all(bench: Bench) {
    let a = bench.done(Commit::new().create("c/a", "1").create("c/b", "1")).await;
    assert_eq!(bench.get("c/b").await.unwrap().created, a, "one revision");
    let stale =
        Commit::new().replace("c/a", a, "2").replace("c/b", Revision::new(a.get() + 7), "2");
    bench.conflicts(stale).await;
    bench.done(Commit::new().delete_created_at("c/a", a).replace("c/b", a, "2")).await;
    let left = bench.store.load("c/").await.unwrap().records;
    assert_eq!(left.iter().map(|it| (&*it.key, &*it.value)).collect::<Vec<_>>(), [("c/b", "2")]);
}

async fn s422_each_comparison_holds_when_it_should(bench: Bench) {
    let created = bench.done(Commit::new().create("c/a", "1")).await;
    let changed = bench.done(Commit::new().replace("c/a", created, "2")).await;
    let write = |n: u32| Commit::new().create(format!("w/{n}"), "");
    for (n, holds) in [
        Commit::new().created_at("c/a", created),
        Commit::new().unchanged("c/a", changed),
        Commit::new().not_created_at("c/a", changed),
        Commit::new().not_created_at("c/none", created),
        Commit::new().absent("c/none"),
    ]
    .into_iter()
    .enumerate()
    {
        bench.done(holds.and(write(u32::try_from(n).unwrap()))).await;
    }
    for fails in [
        Commit::new().created_at("c/a", changed),
        Commit::new().created_at("c/none", created),
        Commit::new().unchanged("c/a", created),
        Commit::new().unchanged("c/none", created),
        Commit::new().not_created_at("c/a", created),
        Commit::new().absent("c/a"),
    ] {
        bench.conflicts(fails.and(write(99))).await;
    }
}

async fn open(bench: &Bench) -> Session {
    bench.store.open(bench.ttl()).await.unwrap()
}

async fn s423_a_session_takes_its_records_with_it(bench: Bench) {
    let (one, other) = (open(&bench).await, open(&bench).await);
    let ours = Commit::new().create_under("n/1", "", one.id).create_under("n/2", "", one.id);
    bench.done(ours.create("n/3", "")).await;
    let theirs = bench.done(Commit::new().create_under("n/4", "", other.id)).await;
    let mut changes = bench.store.changes("n/", theirs).await.unwrap();
    bench.store.close(&one).await.unwrap();
    let left = bench.store.load("n/").await.unwrap().records;
    assert_eq!(left.iter().map(|it| &*it.key).collect::<Vec<_>>(), ["n/3", "n/4"]);
    let ended = collect(&mut *changes, 2).await;
    assert_eq!(keys(&ended), ["-n/1", "-n/2"]);
    assert_eq!(ended[0].revision(), ended[1].revision(), "one revision");
    assert_eq!(bench.store.keep(&one).await.unwrap(), Standing::Ended);
    bench.store.close(&one).await.unwrap();
    assert_eq!(bench.store.keep(&other).await.unwrap(), Standing::Kept);
}

async fn s423_a_session_that_is_kept_lasts(bench: Bench) {
    let session = open(&bench).await;
    bench.done(Commit::new().create_under("n/1", "", session.id)).await;
    let opened = tokio::time::Instant::now();
    while opened.elapsed() < 2 * session.ttl {
        tokio::time::sleep(session.ttl / 4).await;
        assert_eq!(bench.store.keep(&session).await.unwrap(), Standing::Kept);
    }
    assert!(bench.get("n/1").await.is_some());
    // Not sooner than its time to live after it was last kept.
    let kept = tokio::time::Instant::now();
    assert_eq!(bench.store.keep(&session).await.unwrap(), Standing::Kept);
    while bench.get("n/1").await.is_some() {
        assert!(kept.elapsed() < session.ttl + Duration::from_secs(10), "it never ends");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(kept.elapsed() >= session.ttl, "{:?}", kept.elapsed());
    assert_eq!(bench.store.keep(&session).await.unwrap(), Standing::Ended);
}

async fn s424_a_record_that_is_replaced_keeps_its_session(bench: Bench) {
    let session = open(&bench).await;
    let created = bench.done(Commit::new().create_under("n/1", "joining", session.id)).await;
    bench.done(Commit::new().replace("n/1", created, "up")).await;
    assert_eq!(bench.get("n/1").await.unwrap().session, Some(session.id));
    bench.store.close(&session).await.unwrap();
    assert_eq!(bench.get("n/1").await, None);
}

async fn s425_a_record_cannot_join_a_session_that_has_ended(bench: Bench) {
    let session = open(&bench).await;
    bench.store.close(&session).await.unwrap();
    let commit = Commit::new().create_under("n/1", "", session.id);
    let error = bench.store.commit(&commit).await.unwrap_err();
    assert!(matches!(error, StoreError::NoSession { .. }), "{error}");
    assert_eq!(bench.get("n/1").await, None);
}

async fn s426_load_returns_one_revision_and_every_record(bench: Bench) {
    // More than a page of any store, and more than fits one message.
    let value = "x".repeat(500);
    for hundred in 0..25 {
        let commit = (0..100).fold(Commit::new(), |commit, n| {
            commit.create(format!("s/{:04}", hundred * 100 + n), value.as_str())
        });
        bench.done(commit).await;
    }
    let last = bench.done(Commit::new().create("t/other", "")).await;
    let snapshot = bench.store.load("s/").await.unwrap();
    assert_eq!(snapshot.revision, last);
    assert_eq!(snapshot.records.len(), 2_500);
    assert!(snapshot.records.is_sorted_by_key(|record| Arc::clone(&record.key)));
}

async fn s427_changes_are_reported_once_and_in_order(bench: Bench) {
    let before = bench.done(Commit::new().create("x/0", "")).await;
    let mut changes = bench.store.changes("c/", before).await.unwrap();
    let mut expected = Vec::new();
    let mut changed = bench.done(Commit::new().create("c/a", "0")).await;
    expected.push("c/a".to_owned());
    for n in 0..20 {
        changed = bench.done(Commit::new().replace("c/a", changed, n.to_string())).await;
        bench.done(Commit::new().create(format!("other/{n}"), "")).await;
        expected.push("c/a".to_owned());
        // A wait that is dropped loses nothing.
        let _ = tokio::time::timeout(Duration::from_micros(50), changes.next()).await.map(|next| {
            let Ok(Update::Changed { changes, .. }) = next else { panic!("{next:?}") };
            expected.drain(..changes.len());
        });
    }
    bench.done(Commit::new().delete("c/a", changed).create("c/b", "")).await;
    let mut rest = collect(&mut *changes, expected.len() + 2).await;
    let mut last = keys(&rest.split_off(expected.len()));
    last.sort();
    assert_eq!(last, ["-c/a", "c/b"]);
    assert_eq!(keys(&rest), expected);
    assert!(rest.is_sorted_by_key(Change::revision));
}

async fn s427_changes_since_an_old_revision_are_caught_up(bench: Bench) {
    let first = bench.done(Commit::new().create("c/1", "")).await;
    bench.done(Commit::new().create("c/2", "")).await;
    bench.done(Commit::new().create("c/3", "")).await;
    let mut changes = bench.store.changes("c/", first).await.unwrap();
    assert_eq!(keys(&collect(&mut *changes, 2).await), ["c/2", "c/3"]);
}

async fn s427_an_expiry_is_a_change(bench: Bench) {
    let session = open(&bench).await;
    let created = bench.done(Commit::new().create_under("n/1", "", session.id)).await;
    let mut changes = bench.store.changes("n/", created).await.unwrap();
    // No other client touches the store: the watch alone must see it.
    assert_eq!(keys(&collect(&mut *changes, 1).await), ["-n/1"]);
}

async fn s428_a_repeated_commit_conflicts(bench: Bench) {
    let create = Commit::new().create("c/a", "1");
    let created = bench.done(create.clone()).await;
    bench.conflicts(create).await;
    let replace = Commit::new().replace("c/a", created, "2");
    let changed = bench.done(replace.clone()).await;
    bench.conflicts(replace).await;
    let delete = Commit::new().delete("c/a", changed);
    bench.done(delete.clone()).await;
    bench.conflicts(delete).await;
}

async fn s429_a_ttl_that_is_too_short_is_refused(bench: Bench) {
    let ttl = bench.store.shortest_ttl() / 2;
    if bench.store.name() == "memory" {
        return; // Its clock measures everything.
    }
    let error = bench.store.open(ttl).await.unwrap_err();
    assert!(matches!(error, StoreError::TtlTooShort { .. }), "{error}");
}

async fn s430_of_racing_commits_one_succeeds(bench: Bench) {
    for round in 0..10 {
        let mut racing = tokio::task::JoinSet::new();
        for racer in 0..8 {
            let store = Arc::clone(&bench.store);
            racing.spawn(async move {
                let commit = Commit::new().create(format!("r/{round}"), racer.to_string());
                store.commit(&commit).await.unwrap()
            });
        }
        let mut done = 0;
        while let Some(ended) = racing.join_next().await {
            done += usize::from(matches!(ended.unwrap(), Committed::Done(_)));
        }
        assert_eq!(done, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn s650_memory_loses_answers_on_request() {
    let memory = Memory::new();
    memory.faults().lose_answers(1);
    let create = Commit::new().create("c/a", "");
    let error = memory.commit(&create).await.unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }) && error.may_pass(), "{error}");
    assert_eq!(memory.commit(&create).await.unwrap(), Committed::Conflict, "it was applied");
    memory.faults().cut(true);
    let error = memory.commit(&Commit::new().create("c/b", "")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    memory.faults().cut(false);
    assert_eq!(memory.load("").await.unwrap().records.len(), 1, "it was not applied");
}

async fn s655_a_commit_that_is_too_large_or_writes_twice_is_refused(bench: Bench) {
    let creates = |prefix: &str, count: usize| {
        (0..count).fold(Commit::new(), |commit, n| commit.create(format!("{prefix}/{n}"), ""))
    };
    let created = bench.done(creates("a", Commit::MOST)).await;
    let deletes =
        (0..Commit::MOST).fold(Commit::new(), |commit, n| commit.delete(format!("a/{n}"), created));
    bench.done(deletes).await;

    let before = bench.store.load("").await.unwrap();
    let compares = (0..=Commit::MOST)
        .fold(Commit::new(), |commit, n| commit.absent(format!("b/{n}")))
        .create("c", "");
    let twice = Commit::new().create("d", "1").create("e", "").create("d", "2");
    for (commit, problem) in [
        (creates("b", Commit::MOST + 1), "129 comparisons and 129 writes: at most 128 of each"),
        (compares, "130 comparisons and 1 writes: at most 128 of each"),
        (twice, "record \"d\" is written twice"),
    ] {
        let error = bench.store.commit(&commit).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }) && !error.may_pass(), "{error}");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(problem), "{source}");
    }
    assert_eq!(bench.store.load("").await.unwrap(), before);
}
