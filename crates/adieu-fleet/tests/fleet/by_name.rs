//! Locks by name, on a backend that connects at start-up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{AssembleError, DeploymentProfile, Lifecycle, Step};
use adieu_fleet::{BackendError, Fleet, LockSpec, Memory, OnceCx, OtherReplicas, Redis};
use adieu_testkit::servers::Server;

use crate::flaky::{Flaky, Mood};
use crate::support::{owner, redis_url, shutdown};

type Notes = Arc<Mutex<Vec<String>>>;

/// Starts a replica of a service whose locks are in Redis. It is built before it has a connection.
async fn replica(url: &str, name: &str, notes: &Notes) {
    let note = |what: &'static str| {
        let (notes, name) = (Arc::clone(notes), name.to_owned());
        move || notes.lock().unwrap().push(format!("{name} {what}"))
    };
    let (connected, index, migrated) = (note("connected"), note("index"), note("migrated"));
    let url = url.to_owned();
    let (locks, fleet) = Fleet::connecting("shop", async move |_| {
        connected();
        Redis::connect(&url).await
    });
    let fleet = fleet.owner(owner(name));
    let index = Step::new("an index").start(async move |_| {
        tokio::time::sleep(Duration::from_millis(300)).await;
        index();
    });
    let migration = fleet.once_per_fleet(
        Step::new("migration").depends_on("an index"),
        "v1",
        async move |_: OnceCx| {
            migrated();
            Ok::<_, BackendError>(())
        },
    );
    let lifecycle = Lifecycle::builder()
        .profile(DeploymentProfile::Fleet)
        .step(fleet.singleton(index))
        .step(migration)
        .step(locks)
        .build()
        .unwrap();
    let waves: Vec<Vec<&str>> = lifecycle.waves().collect();
    assert_eq!(waves, [vec!["locks of shop"], vec!["an index"], vec!["migration"]]);
    lifecycle.start(&shutdown()).await.unwrap();
}

#[tokio::test]
async fn s288_steps_name_their_locks_and_the_backend_connects_at_start_up() {
    let server = Server::redis();
    let url = redis_url(&server);
    let notes = Notes::default();
    tokio::join!(replica(&url, "one", &notes), replica(&url, "two", &notes));
    let mut notes: Vec<String> = notes.lock().unwrap().clone();
    notes.sort_by_key(|note| note.split(' ').next_back().map(str::to_owned));
    let whats: Vec<&str> = notes.iter().map(|note| note.split_once(' ').unwrap().1).collect();
    assert_eq!(whats, ["connected", "connected", "index", "migrated"], "{notes:?}");

    // Each step has its own lock, whose key follows from the id of the step.
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut keys: Vec<String> =
        redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    keys.sort();
    // These keys also stay in the store for ever.
    let expected = [
        "adieu:{shop/an%20;index}:fence",
        "adieu:{shop/an%20;index}:markers",
        "adieu:{shop/migration}:fence",
        "adieu:{shop/migration}:markers",
    ];
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn s288_without_the_step_that_connects_the_assembly_fails() {
    let (locks, fleet) = Fleet::connecting("shop", async |_| Ok::<_, BackendError>(Memory::new()));
    drop(locks);
    let error = Lifecycle::builder().step(fleet.singleton(Step::new("index"))).build().unwrap_err();
    assert_eq!(error.to_string(), "step index requires locks of shop, which no step provides");
    // With another key, time to live and patience.
    let lock = fleet.lock(LockSpec::new("other").ttl(Duration::from_secs(5))).unwrap();
    assert_eq!((lock.key().as_str(), lock.ttl().as_secs()), ("shop/other", 5));
    let step = lock.singleton_step(Step::new("index"), OtherReplicas::Skip, Duration::from_secs(1));
    let error = Lifecycle::builder().step(step).build().unwrap_err();
    assert!(matches!(error, AssembleError::Unmet { .. }), "{error}");
    // A request before the step has started fails.
    let error = lock.try_acquire().await.unwrap_err();
    let text = adieu_core::adapter::error_text(&error);
    assert!(text.ends_with("the step that connects it has not started yet"), "{text}");
    assert!(!error.is_permanent());
}

#[tokio::test]
async fn s288_a_backend_that_cannot_be_reached_fails_start_up_with_the_cause() {
    let (locks, fleet) =
        Fleet::connecting("shop", async |_| Redis::connect("redis://127.0.0.1:1/").await);
    let index =
        fleet.singleton(Step::new("index").start(async |_| -> () { panic!("not without a lock") }));
    let lifecycle = Lifecycle::builder().step(locks).step(index).build().unwrap();
    let error = lifecycle.start(&shutdown()).await.unwrap_err();
    assert!(error.to_string().contains("redis failed to connect"), "{error}");
}

#[tokio::test]
async fn s132_steps_with_an_invalid_lock_make_the_build_fail() {
    let unfenced = Arc::new(Flaky::default());
    unfenced.be(Mood::Unfenced);
    let nothing = async |_: OnceCx| Ok::<_, BackendError>(());
    let build = |step| Lifecycle::builder().step(step).build().unwrap_err().to_string();
    let fleet = Fleet::new("shop", Memory::new());
    let once = |version: &str| fleet.once_per_fleet(Step::new("migration"), version, nothing);
    assert_eq!(
        build(once("two words")),
        "step migration cannot work: failed to run work under lock shop/migration: \"two words\" is \
         not a valid name for a version: it contains whitespace, braces or control characters"
    );
    assert!(build(once("")).ends_with("\"\" is not a valid name for a version: it is empty"));
    assert!(build(fleet.singleton(Step::new("x".repeat(300)))).contains("longer than 200 bytes"));
    let odd = Fleet::new("two words", Memory::new());
    assert!(build(odd.singleton(Step::new("index"))).contains("is not a valid name for a lock"));
    let fleet = Fleet::new("shop", Arc::clone(&unfenced));
    assert_eq!(
        build(fleet.singleton(Step::new("index"))),
        "step index cannot work: failed to run work under lock shop/index: backend flaky has no \
         fences; use another backend"
    );
    assert!(build(fleet.once_per_fleet(Step::new("m"), "v1", nothing)).contains("has no fences"));
    // A backend that connects at start-up is checked then.
    let (locks, fleet) = Fleet::connecting("shop", async move |_| Ok::<_, BackendError>(unfenced));
    let index = fleet.singleton(Step::new("index"));
    let lifecycle = Lifecycle::builder().step(locks).step(index).build().unwrap();
    let error = lifecycle.start(&shutdown()).await.unwrap_err();
    assert!(
        error.to_string().contains("backend flaky has no fences; use another backend"),
        "{error}"
    );
}
