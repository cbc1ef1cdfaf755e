//! The store in a folder, after much has happened in it.

use std::path::Path;
use std::time::Duration;

use adieu_cluster::store::{Commit, Committed, Files, Revision, Store, Update};
use adieu_cluster::{Cluster, Stage};
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
