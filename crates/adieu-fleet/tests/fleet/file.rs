//! Locks in a folder.

use std::sync::Arc;
use std::time::Duration;

use adieu_fleet::{Attempt, Files, Key, Locks, Owner};

use crate::conformance::{Backend, conforms};

#[tokio::test]
async fn s130_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    conforms(Backend {
        connect: &|| {
            let files = Files::open(folder.path().join("locks")).unwrap();
            Box::pin(async { Arc::new(files) as Arc<dyn Locks> })
        },
        ttl: Duration::from_millis(300),
        late: Duration::ZERO,
    })
    .await;
}

#[tokio::test]
async fn s136_a_damaged_file_is_an_error_and_not_a_new_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let (key, owner) = (Key::new("a/b").unwrap(), Owner::new("me").unwrap());
    let ttl = Duration::from_secs(60);
    let Attempt::Acquired(claim) = files.try_acquire(&key, &owner, ttl).await.unwrap() else {
        panic!()
    };
    // What a process leaves that was killed while it wrote.
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
async fn s136_after_a_reboot_leases_have_ended_and_fences_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let (key, owner) = (Key::new("job").unwrap(), Owner::new("me").unwrap());
    let ttl = Duration::from_secs(600);
    assert!(matches!(files.try_acquire(&key, &owner, ttl).await.unwrap(), Attempt::Acquired(_)));
    assert!(matches!(files.try_acquire(&key, &owner, ttl).await.unwrap(), Attempt::Held(_)));
    let path = folder.path().join("job.lease");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(boot.trim(), "an-earlier-one")).unwrap();
    let Attempt::Acquired(claim) = files.try_acquire(&key, &owner, ttl).await.unwrap() else {
        panic!("still held")
    };
    assert_eq!(claim.fence.get(), 2);
}

#[tokio::test]
async fn s136_who_is_stopped_while_writing_holds_others_up_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let (key, owner) = (Key::new("job").unwrap(), Owner::new("me").unwrap());
    let ttl = Duration::from_secs(60);
    assert_eq!(files.query(&key).await.unwrap(), None);
    let lock = std::fs::File::open(folder.path().join("job.lock")).unwrap();
    lock.lock().unwrap();
    let error = files.try_acquire(&key, &owner, ttl).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("is a process stopped?"), "{source}");
    lock.unlock().unwrap();
    assert!(matches!(files.try_acquire(&key, &owner, ttl).await.unwrap(), Attempt::Acquired(_)));
}
