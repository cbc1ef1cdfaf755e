//! Locks in a folder.

use std::time::Duration;

use adieu_fleet::{Attempt, Files, LockBackend};

use crate::conformance::conforms;
use crate::stage::{Kind, Stage};
use crate::support::{granted, key, owner, secs};

#[tokio::test]
async fn s130_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let connect = async || Files::open(folder.path().join("locks")).unwrap();
    conforms(connect, Duration::from_millis(300), Duration::ZERO).await;
}

#[tokio::test]
async fn s136_a_damaged_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let (key, owner, ttl) = (key("a/b"), owner("me"), secs(60));
    let claim = granted(files.try_acquire(&key, &owner, ttl).await.unwrap());
    // As a process that was killed while it wrote leaves it.
    std::fs::write(folder.path().join("a%2fb.new"), "adieu le").unwrap();
    assert!(files.renew(&claim, ttl).await.unwrap().is_held());

    let path = folder.path().join("a%2fb.lease");
    let whole = std::fs::read_to_string(&path).unwrap();
    for damaged in ["", "adieu lease 1\nfence 1\n", &whole.replace("whole", "")] {
        std::fs::write(&path, damaged).unwrap();
        let error = files.try_acquire(&key, &owner, ttl).await.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("is damaged; restore it"), "{source}");
    }
    std::fs::write(&path, &whole).unwrap();
    assert!(files.release(&claim).await.unwrap().is_held());
}

#[tokio::test]
async fn s136_after_a_reboot_leases_have_ended_and_fences_rise() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let (key, owner, ttl) = (key("job"), owner("me"), secs(600));
    assert!(matches!(files.try_acquire(&key, &owner, ttl).await.unwrap(), Attempt::Acquired(_)));
    assert!(matches!(files.try_acquire(&key, &owner, ttl).await.unwrap(), Attempt::Held(_)));
    let path = folder.path().join("job.lease");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(boot.trim(), "an-earlier-one")).unwrap();
    let claim = granted(files.try_acquire(&key, &owner, ttl).await.unwrap());
    assert_eq!(claim.fence.get(), 2);
}

#[tokio::test]
async fn s136_a_process_stopped_while_writing_makes_others_fail_and_grants_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let (key, owner, ttl) = (key("job"), owner("me"), secs(60));
    assert_eq!(files.query(&key).await.unwrap(), None);
    let lock = std::fs::File::open(folder.path().join("job.lock")).unwrap();
    lock.lock().unwrap();
    let error = files.try_acquire(&key, &owner, ttl).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("resume or kill that process"), "{source}");
    lock.unlock().unwrap();
    assert!(matches!(files.try_acquire(&key, &owner, ttl).await.unwrap(), Attempt::Acquired(_)));
}

#[test]
fn s132_an_empty_path_and_an_impossible_folder_are_refused() {
    let error = Files::open("").unwrap_err();
    assert_eq!(error.to_string(), "failed to open a folder for locks: its path is empty");
    let error = Files::open("/dev/null/locks").unwrap_err();
    assert!(error.to_string().starts_with("failed to open /dev/null/locks for locks: "), "{error}");
}

#[test]
fn s284_threads_and_processes_with_equal_ids_open_one_folder() {
    let stage = Stage::new(Kind::File);
    // Each is the first process of its namespace, as in a container.
    let mut containers: Vec<_> = (0..3).map(|_| stage.first_of_a_namespace("open")).collect();
    for container in &mut containers {
        container.wait_for("@there 1");
    }
    std::fs::write(stage.path("go"), "").unwrap();
    let place = stage.place();
    let failures: usize = std::thread::scope(|scope| {
        let opening = |_| scope.spawn(|| (0..500).filter(|_| Files::open(&place).is_err()).count());
        let threads: Vec<_> = (0..8).map(opening).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(failures, 0, "of 4000");
    for container in containers {
        let ended = container.wait();
        assert!(ended.stdout.contains("@opened 1000"), "{}\n{}", ended.stdout, ended.stderr);
    }
    let left = std::fs::read_dir(&place).unwrap().count();
    assert_eq!(left, 0, "no temporary file is left behind");
}
