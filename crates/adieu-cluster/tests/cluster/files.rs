//! The store in a folder, after much has happened in it.

use std::path::Path;
use std::time::Duration;

use adieu_cluster::store::{Commit, Committed, Files, Revision, Store, Update};
use adieu_cluster::{Cluster, Stage};
use adieu_core::adapter::error_text;
use adieu_core::{Config, Shutdown};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The number of changes that builds before this one kept.
const FULL: u64 = 4_096;

/// Writes a table with a full history, as a cluster that was idle for hours leaves it.
async fn fill_history(folder: &Path) {
    let files = Files::open(folder).unwrap();
    let beat = Commit::new().create("adieu/cluster/old/beat", "x".repeat(40));
    assert!(matches!(files.commit(&beat).await.unwrap(), Committed::Done(_)));
    let path = folder.join("table-1.json");
    let mut contents: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let table = &mut contents["table"];
    let first = table["history"][0].clone();
    let history = (1..=FULL).map(|revision| {
        let mut change = first.clone();
        change["revision"] = json!(revision);
        change["row"]["changed"] = json!(revision);
        change
    });
    table["history"] = history.collect();
    table["revision"] = json!(FULL);
    std::fs::write(&path, serde_json::to_vec(&contents).unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1265_nodes_join_a_folder_with_a_full_history() {
    let folder = tempfile::tempdir().unwrap();
    fill_history(folder.path()).await;
    let mut nodes = Vec::new();
    for number in 0..5 {
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        // Each node has a connection of its own, as a process has.
        let cluster = Cluster::new(Files::open(folder.path()).unwrap(), "shop");
        let cluster = cluster.node(format!("n-{number}")).ttl(Duration::from_secs(5));
        nodes.push((cluster.on(&shutdown).unwrap(), shutdown));
    }
    let mut joins = JoinSet::new();
    for (cluster, _) in &nodes {
        let cluster = cluster.clone();
        drop(joins.spawn(async move { cluster.join().await }));
    }
    while let Some(joined) = joins.join_next().await {
        joined.unwrap().unwrap();
    }
    assert!(nodes.iter().all(|(cluster, _)| cluster.stage() == Stage::Up));
}

#[tokio::test]
async fn s1266_the_size_of_a_table_does_not_grow_with_its_history() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let mut revisions: Vec<Revision> = Vec::new();
    for round in 0..300 {
        let commit = match revisions.last() {
            None => Commit::new().create("a", "0"),
            Some(last) => Commit::new().replace("a", *last, round.to_string()),
        };
        let Committed::Done(revision) = files.commit(&commit).await.unwrap() else {
            panic!("a conflict without another writer");
        };
        revisions.push(revision);
    }
    // A reader that is a little behind continues; a reader that is far behind loads the table.
    let mut near = files.changes("", revisions[290]).await.unwrap();
    let update = near.next().await.unwrap();
    assert!(matches!(&update, Update::Changed { changes, .. } if changes.len() == 9), "{update:?}");
    let mut far = files.changes("", revisions[0]).await.unwrap();
    assert_eq!(far.next().await.unwrap(), Update::Compacted);
    // A full history of an earlier build is shortened by the first commit.
    fill_history(&folder.path().join("old")).await;
    let old = Files::open(folder.path().join("old")).unwrap();
    let commit = old.commit(&Commit::new().create("b", "0")).await.unwrap();
    assert!(matches!(commit, Committed::Done(_)));
    let bytes = std::fs::metadata(folder.path().join("old/table-2.json")).unwrap().len();
    assert!(bytes < 100_000, "{bytes} bytes");
}

#[test]
fn s1270_a_folder_that_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("taken");
    std::fs::write(&file, "").unwrap();
    let error = Files::open(file.join("below")).unwrap_err();
    assert!(error.to_string().contains("taken/below"), "{error}");
    let error = Files::open(&file).unwrap_err();
    assert!(error.to_string().contains("taken"), "{error}");
}

#[tokio::test]
async fn s1270_a_request_that_the_folder_fails_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::open(folder.path().join("shop")).unwrap();
    std::fs::remove_dir(folder.path().join("shop")).unwrap();
    let error = error_text(&files.commit(&Commit::new().create("a", "0")).await.unwrap_err());
    let expected = format!("folder {}/shop: No such file", folder.path().display());
    assert!(error.contains(&expected), "{error}");
    let error = error_text(&files.load("").await.unwrap_err());
    assert!(error.contains(&expected), "{error}");
}

/// Returns the newest version of the table, and its number.
fn newest(folder: &Path) -> (u64, Vec<u8>) {
    let names = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
    let number = |name: std::ffi::OsString| {
        name.to_str()?.strip_prefix("table-")?.strip_suffix(".json")?.parse::<u64>().ok()
    };
    let newest = names.filter_map(number).max().unwrap();
    (newest, std::fs::read(folder.join(format!("table-{newest}.json"))).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1275_a_node_whose_table_was_restored_from_a_backup_loses_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let node = |name: &str| {
        let shutdown = Shutdown::configured(Config::for_tests().run_when_down(true)).unwrap();
        let cluster = Cluster::new(Files::open(folder.path()).unwrap(), "shop").node(name);
        (cluster.ttl(Duration::from_secs(30)).on(&shutdown).unwrap(), shutdown)
    };
    let (one, shutdown) = node("one");
    one.join().await.unwrap();
    let (_, backup) = newest(folder.path());
    let (two, _two) = node("two");
    two.join().await.unwrap();
    let seen = two.status().revision;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while one.status().revision < seen {
        assert!(tokio::time::Instant::now() < deadline, "the join of two was not seen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // As the next version: a node may write one at the same time.
    let aside = folder.path().join("backup");
    std::fs::write(&aside, backup).unwrap();
    while std::fs::hard_link(
        &aside,
        folder.path().join(format!("table-{}.json", newest(folder.path()).0 + 1)),
    )
    .is_err()
    {}
    tokio::time::timeout(Duration::from_secs(60), shutdown.completed()).await.unwrap().unwrap();
    assert_eq!(shutdown.reason(), Some(adieu_core::Reason::ClusterDowning));
    let loss = one.status().loss.unwrap();
    assert!(loss.contains("went back to an earlier state"), "{loss}");
}
