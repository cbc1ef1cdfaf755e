//! Policies that are forced open and released in the whole fleet.

use super::*;

#[tokio::test(start_paused = true)]
async fn s916_a_policy_is_forced_open_and_released_in_the_whole_fleet() {
    let (replicas, memory) = fleet(4, with_breaker);
    sleep(ms(300)).await;
    replicas[0].policies.force_open("payments", secs(600), "ops").await.unwrap();
    let is_forced = |replica: &Replica| replica.policy.status().forced.is_some();
    assert!(until_all(&replicas, is_forced).await <= ms(150));
    assert_eq!(code(replicas[3].call(true).await), Code::ForcedOpen);
    assert_eq!(replicas[3].policy.status().forced_by.as_deref(), Some("ops"));
    // A replica that starts later receives it, too, and a store that loses it releases none.
    let late = Replica::start(&memory, with_breaker);
    until_all(&[late], is_forced).await;
    memory.flush();
    sleep(secs(5)).await;
    assert!(replicas.iter().all(is_forced));
    replicas[1].policies.release("payments", "ops").await.unwrap();
    assert!(until_all(&replicas, |replica| !is_forced(replica)).await <= ms(150));
    assert_eq!(replicas[3].call(true).await, Ok(()));
    // It ends automatically.
    replicas[2].policies.force_open("payments", secs(2), "ops").await.unwrap();
    until_all(&replicas, is_forced).await;
    assert!(until_all(&replicas, |replica| !is_forced(replica)).await <= ms(2_100));
}

#[tokio::test(start_paused = true)]
async fn s1782_a_replica_that_starts_after_the_store_has_lost_a_force_is_forced_by_the_others() {
    let (replicas, memory) = fleet(3, with_breaker);
    sleep(ms(300)).await;
    replicas[0].policies.force_open("payments", secs(600), "ops").await.unwrap();
    let is_forced = |replica: &Replica| replica.policy.status().forced.is_some();
    until_all(&replicas, is_forced).await;
    sleep(secs(60)).await;
    memory.flush();
    let late = [Replica::start(&memory, with_breaker)];
    assert!(until_all(&late, is_forced).await <= ms(1_500));
    let status = late[0].policy.status();
    assert_eq!(status.forced_by.as_deref(), Some("ops"));
    assert!(status.forced.unwrap() <= secs(540), "{status:?}");
    // It still ends with one release.
    replicas[1].policies.release("payments", "ops").await.unwrap();
    assert!(until_all(&replicas, |replica| !is_forced(replica)).await <= ms(150));
    assert!(until_all(&late, |replica| !is_forced(replica)).await <= ms(150));
    sleep(secs(5)).await;
    assert!(!replicas.iter().chain(&late).any(is_forced));
}

// It was cut off for longer than a release is remembered for other reasons.
#[tokio::test(start_paused = true)]
async fn s1782_a_replica_that_has_missed_a_release_does_not_bring_the_force_back() {
    for is_shortened in [false, true] {
        let (replicas, _) = fleet(3, with_breaker);
        sleep(ms(300)).await;
        replicas[0].policies.force_open("payments", secs(3_000), "ops").await.unwrap();
        let is_forced = |replica: &Replica| replica.policy.status().forced.is_some();
        until_all(&replicas, is_forced).await;
        replicas[2].set(Faults { is_cut: true, ..Faults::default() });
        sleep(secs(1)).await;
        if is_shortened {
            replicas[0].policies.force_open("payments", secs(1), "ops").await.unwrap();
            sleep(secs(2)).await;
        } else {
            replicas[0].policies.release("payments", "ops").await.unwrap();
        }
        sleep(secs(200)).await;
        assert!(is_forced(&replicas[2]));
        replicas[2].set(Faults::default());
        until_all(&replicas, |replica| !is_forced(replica)).await;
        sleep(secs(5)).await;
        assert!(!replicas.iter().any(is_forced));
    }
}

// While answers take up to 24 ms and overtake each other: also those to reports that the store has
// answered before.
#[tokio::test(start_paused = true)]
async fn s1242_the_process_that_forces_a_policy_open_or_releases_it_refuses_or_calls_at_once() {
    let (replicas, _) = fleet(2, with_breaker);
    for replica in &replicas {
        replica.set(Faults { delay: ms(24), ..Faults::default() });
    }
    let forced = |replica: &Replica| replica.policy.status().forced;
    for run in 0..200 {
        // News of breakers make each report of this time answer with everything.
        replicas[1].calls(20, false).await;
        sleep(ms(run)).await;
        let (one, time) = (&replicas[0], secs(600 + run));
        one.policies.force_open("payments", time, "ops").await.unwrap();
        for _ in 0..150 {
            let left = forced(one).expect("forced open");
            assert!(left <= time && left > time - ms(200), "{left:?} of {time:?}");
            sleep(ms(1)).await;
        }
        assert_eq!(one.policy.status().forced_by.as_deref(), Some("ops"));
        assert_eq!(code(one.call(true).await), Code::ForcedOpen);
        one.policies.release("payments", "ops").await.unwrap();
        for _ in 0..150 {
            assert_eq!(forced(one), None);
            sleep(ms(1)).await;
        }
        // The later change of the other replica is received, although it was made in the same tick.
        replicas[1].policies.force_open("payments", time, "dev").await.unwrap();
        assert!(until_all(&replicas, |replica| forced(replica).is_some()).await <= ms(150));
        one.policies.release("payments", "ops").await.unwrap();
        until_all(&replicas, |replica| forced(replica).is_none()).await;
    }
}

// The caller cannot know which of two requests the store has processed last, but all replicas agree.
#[tokio::test(start_paused = true)]
async fn s1242_after_requests_at_the_same_time_all_replicas_agree() {
    let (replicas, memory) = fleet(2, with_breaker);
    for replica in &replicas {
        replica.set(Faults { delay: ms(24), ..Faults::default() });
    }
    for _ in 0..100 {
        let (open, release) = tokio::join!(
            replicas[0].policies.force_open("payments", secs(600), "ops"),
            replicas[0].policies.release("payments", "ops"),
        );
        open.unwrap();
        release.unwrap();
        sleep(ms(300)).await;
        let late = Replica::start(&memory, with_breaker);
        sleep(ms(300)).await;
        let forced = |replica: &Replica| replica.policy.status().forced.is_some();
        assert_eq!(forced(&replicas[0]), forced(&late));
        assert_eq!(forced(&replicas[1]), forced(&late));
    }
}

#[tokio::test(start_paused = true)]
async fn s916_if_the_store_is_away_forcing_is_an_error() {
    let (replicas, _) = fleet(1, with_breaker);
    sleep(ms(300)).await;
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    let error = replicas[0].policies.force_open("payments", secs(9), "ops").await.unwrap_err();
    assert!(error.to_string().contains("no answer from the store"), "{error}");
    assert!(replicas[0].policies.force_open("other", secs(9), "ops").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn s1552_each_time_that_a_policy_is_forced_open_or_released_is_logged_once() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .without_time()
        .with_ansi(false)
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let replica = Replica::start(&Memory::new(), with_breaker);
    sleep(secs(1)).await;
    // The second time after the first has elapsed.
    for _ in 0..2 {
        replica.policies.force_open("payments", secs(2), "ops").await.unwrap();
        sleep(secs(5)).await;
    }
    // A release changes nothing if the policy is not forced open.
    replica.policies.release("payments", "ops").await.unwrap();
    sleep(secs(1)).await;
    replica.policies.force_open("payments", secs(9), "ops").await.unwrap();
    replica.policies.force_open("payments", secs(9), "dba").await.unwrap();
    replica.policies.release("payments", "ops").await.unwrap();
    sleep(secs(1)).await;
    // The report is there after all lines have been logged.
    replica.shutdown.run(Reason::Unknown).await.unwrap();
    let lines = String::from_utf8(lock(&lines.0).clone()).unwrap();
    let count = |text: &str| lines.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("policy forced open"), 4, "{lines}");
    assert_eq!(count("by=\"dba\""), 1, "{lines}");
    assert_eq!(count("policy released"), 1, "{lines}");
}

#[tokio::test(start_paused = true)]
async fn s1553_if_the_store_does_not_answer_a_release_changes_nothing() {
    let replica = Replica::start(&Memory::new(), with_breaker);
    sleep(secs(1)).await;
    replica.policy.force_open(secs(600));
    replica.set(Faults { is_cut: true, ..Faults::default() });
    replica.policies.release("payments", "ops").await.unwrap_err();
    assert_eq!(code(replica.call(true).await), Code::ForcedOpen);
    replica.set(Faults::default());
    replica.policies.release("payments", "ops").await.unwrap();
    assert_eq!(replica.call(true).await, Ok(()));
}
