//! Start-up steps that one replica runs for the fleet.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{DeploymentProfile, Lifecycle, Reason, Shutdown, Step};
use adieu_fleet::{Lock, Memory, OnceCx, OtherReplicas};

use crate::support::{owner, shutdown};

/// Several replicas in one process, which share their locks.
#[derive(Clone, Default)]
struct Fleet {
    locks: Arc<Memory>,
    notes: Arc<Mutex<Vec<String>>>,
}

const PATIENCE: Duration = Duration::from_secs(60);

impl Fleet {
    fn note(&self, line: impl Into<String>) {
        self.notes.lock().unwrap().push(line.into());
    }

    fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap())
    }

    fn lock(&self, replica: &str) -> Lock {
        Lock::new(Arc::clone(&self.locks), "indexes", &owner(replica)).unwrap()
    }

    /// Starts a replica with several steps that share one lock, all in one wave.
    async fn start_sharing(&self, replica: &'static str, others: OtherReplicas) {
        let mut builder = Lifecycle::builder().profile(DeploymentProfile::Fleet);
        for index in ["orders", "users"] {
            let noted = self.clone();
            let step = Step::new(index).start(async move |_| {
                noted.note(format!("{index} begun"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                noted.note(format!("{index} done"));
            });
            builder = builder.step(self.lock(replica).singleton_step(step, others, PATIENCE));
        }
        let shutdown = shutdown();
        builder.build().unwrap().start(&shutdown).await.unwrap();
        assert!(shutdown.readiness().is_ready());
        self.note("ready");
    }

    /// Creates an index in one second, or fails.
    fn index(&self, replica: &'static str, fails: bool) -> Step {
        let (started, stopped) = (self.clone(), self.clone());
        Step::new("index")
            .start(async move |_| {
                started.note(format!("{replica} begins"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                if fails { Err("the disk is full") } else { Ok(()) }
            })
            .stop(async move |_| stopped.note(format!("{replica} stops")))
    }

    /// Starts a replica, and notes whether it is ready.
    async fn start(&self, replica: &'static str, others: OtherReplicas, fails: bool) -> Shutdown {
        let step = self.index(replica, fails);
        let step = self.lock(replica).singleton_step(step, others, PATIENCE);
        let builder = Lifecycle::builder().profile(DeploymentProfile::Fleet);
        let lifecycle = builder.step(step).build().unwrap();
        assert_eq!(lifecycle.start_budget(), PATIENCE + Duration::from_secs(30));
        let warnings: Vec<&str> = lifecycle.warnings().collect();
        assert!(warnings.iter().any(|line| line.contains("no other process sees")), "{warnings:?}");
        let shutdown = shutdown();
        let started = lifecycle.start(&shutdown).await;
        assert_eq!(started.is_ok(), !fails, "{started:?}");
        self.note(format!("{replica} {}", shutdown.readiness()));
        shutdown
    }
}

#[tokio::test(start_paused = true)]
async fn s153_one_replica_runs_a_step_and_the_others_are_not_ready_before() {
    let fleet = Fleet::default();
    let (one, two) = tokio::join!(
        fleet.start("one", OtherReplicas::Wait, false),
        fleet.start("two", OtherReplicas::Wait, false)
    );
    assert_eq!(fleet.take_notes(), ["one begins", "one ready", "two ready"]);
    // The stop hook runs only where the start hook ran.
    two.run(Reason::Unknown).await.unwrap();
    assert_eq!(fleet.take_notes(), [""; 0]);
    one.run(Reason::Unknown).await.unwrap();
    assert_eq!(fleet.take_notes(), ["one stops"]);
    // In the next run another replica runs the step.
    let two = fleet.start("two", OtherReplicas::Wait, false).await;
    two.run(Reason::Unknown).await.unwrap();
    assert_eq!(fleet.take_notes(), ["two begins", "two ready", "two stops"]);
}

#[tokio::test(start_paused = true)]
async fn s153_replicas_that_skip_do_not_wait_and_replicas_that_wait_take_over() {
    let fleet = Fleet::default();
    let (_one, _two) = tokio::join!(
        fleet.start("one", OtherReplicas::Wait, false),
        fleet.start("two", OtherReplicas::Skip, false)
    );
    assert_eq!(fleet.take_notes(), ["one begins", "two ready", "one ready"]);
    let fleet = Fleet::default();
    let (_one, _two) = tokio::join!(
        fleet.start("one", OtherReplicas::Wait, true),
        fleet.start("two", OtherReplicas::Wait, false)
    );
    let notes = fleet.take_notes();
    assert_eq!(notes, ["one begins", "one unavailable", "two begins", "two ready"]);
}

#[tokio::test(start_paused = true)]
async fn s154_a_step_is_done_once_for_the_fleet_and_its_version() {
    let fleet = Fleet::default();
    let start = async |version: &str, fails: bool| {
        let noted = fleet.clone();
        let lock = fleet.lock("one");
        let step = Step::new("migration");
        let step = lock.once_per_fleet_step(step, version, PATIENCE, async move |cx: OnceCx| {
            noted.note(format!("attempt {}", cx.attempt));
            if fails { Err("the disk is full") } else { Ok(()) }
        });
        let builder = Lifecycle::builder().profile(DeploymentProfile::Fleet);
        let lifecycle = builder.step(step).build().unwrap();
        let shutdown = shutdown();
        lifecycle.start(&shutdown).await.is_ok() && shutdown.readiness().is_ready()
    };
    assert!(!start("7", true).await);
    assert!(start("7", false).await);
    assert!(start("7", false).await);
    assert!(start("8", false).await);
    assert_eq!(fleet.take_notes(), ["attempt 1", "attempt 2", "attempt 1"]);
}

#[tokio::test(start_paused = true)]
async fn s230_steps_that_share_a_lock_are_each_done_and_never_at_the_same_time() {
    for others in [OtherReplicas::Wait, OtherReplicas::Skip] {
        for replicas in [1, 2, 3] {
            let fleet = Fleet::default();
            match replicas {
                1 => fleet.start_sharing("one", others).await,
                2 => {
                    let (one, two) =
                        (fleet.start_sharing("one", others), fleet.start_sharing("two", others));
                    tokio::join!(one, two);
                }
                _ => {
                    let replica = |name| fleet.start_sharing(name, others);
                    tokio::join!(replica("one"), replica("two"), replica("three"));
                }
            }
            let notes = fleet.take_notes();
            let position = |note: &str| {
                let found = notes.iter().position(|line| line == note);
                found.unwrap_or_else(|| panic!("no {note:?} with {others:?}: {notes:?}"))
            };
            let of = |index: &str| {
                (position(&format!("{index} begun")), position(&format!("{index} done")))
            };
            let (orders, users) = (of("orders"), of("users"));
            assert!(orders.1 < users.0 || users.1 < orders.0, "at the same time: {notes:?}");
            let is_ready = position("ready");
            if others == OtherReplicas::Wait {
                assert!(is_ready > orders.1.max(users.1), "ready too early: {notes:?}");
                assert_eq!(notes.len(), 4 + replicas, "done twice: {notes:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s230_steps_of_one_version_that_share_a_lock_are_each_done_once() {
    let fleet = Fleet::default();
    let start = async || {
        let mut builder = Lifecycle::builder().profile(DeploymentProfile::Fleet);
        for migration in ["orders", "users"] {
            let noted = fleet.clone();
            let done = async move |_: OnceCx| {
                noted.note(migration);
                Ok::<_, String>(())
            };
            let step = Step::new(migration);
            builder =
                builder.step(fleet.lock("one").once_per_fleet_step(step, "7", PATIENCE, done));
        }
        let shutdown = shutdown();
        builder.build().unwrap().start(&shutdown).await.unwrap();
    };
    start().await;
    let mut notes = fleet.take_notes();
    notes.sort();
    assert_eq!(notes, ["orders", "users"]);
    start().await;
    assert_eq!(fleet.take_notes(), [""; 0]);
}
