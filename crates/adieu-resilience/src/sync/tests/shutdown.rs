//! The start and the end of a replica, and its readiness.

use super::*;

#[tokio::test(start_paused = true)]
async fn s915_a_process_that_is_not_ready_or_shuts_down_is_no_witness() {
    let memory = Memory::new();
    let idle = Replica::start(&memory, with_breaker);
    let starting = Replica::start(&memory, with_breaker);
    let database = starting.shutdown.add_check("database");
    sleep(ms(300)).await;
    starting.calls(40, false).await;
    sleep(ms(500)).await;
    assert!(starting.is_open() && idle.is_closed());
    database.mark_ready();
    until_all(std::slice::from_ref(&idle), Replica::is_open).await;
}

#[tokio::test(start_paused = true)]
async fn s915_a_process_takes_its_snapshots_back_when_its_shutdown_begins() {
    let (replicas, _) = fleet(3, with_breaker);
    let gate = replicas[0].shutdown.add_gate("http").unwrap();
    let pass = gate.enter().unwrap();
    sleep(ms(300)).await;
    // One failure less than what opens the breaker.
    replicas[0].calls(19, false).await;
    sleep(ms(300)).await;
    let completed = replicas[0].shutdown.run(Reason::Unknown);
    sleep(ms(100)).await;
    // Together with those of the first they would be enough.
    replicas[1].calls(1, false).await;
    replicas[0].calls(30, false).await;
    sleep(ms(500)).await;
    assert!(replicas.iter().all(Replica::is_closed));
    drop(pass);
    completed.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s915_a_process_returns_its_probes_when_its_shutdown_begins() {
    let (replicas, _) = fleet(2, with_breaker);
    let gate = replicas[0].shutdown.add_gate("http").unwrap();
    let pass = gate.enter().unwrap();
    sleep(ms(300)).await;
    replicas[1].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    let mut probing = Box::pin(
        pass.scope(
            replicas[0]
                .policy
                .call(async |_: Attempt| std::future::pending::<Result<(), &'static str>>().await),
        ),
    );
    assert!(tokio::time::timeout(ms(50), &mut probing).await.is_err());
    assert_eq!(code(replicas[1].call(true).await), Code::Open);
    let completed = replicas[0].shutdown.run(Reason::Unknown);
    sleep(ms(110)).await;
    assert_eq!(replicas[1].call(true).await, Ok(()), "the probe was free at once");
    drop(probing);
    completed.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s920_at_the_end_a_process_leaves_the_fleet_and_no_task_remains() {
    let (mut replicas, _) = fleet(3, with_breaker);
    let count = |replica: &Replica| replica.policies.store().unwrap().replicas;
    until_all(&replicas, |replica| count(replica) == 3).await;
    let leaving = replicas.remove(0);
    let report = leaving.shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(until_all(&replicas, |replica| count(replica) == 2).await <= ms(150));
    // A process that dies is removed after three seconds.
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    let took = until_all(&replicas[1..], |replica| count(replica) == 1).await;
    assert!((ms(2_500)..ms(3_300)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn s921_readiness_does_not_depend_on_the_store() {
    let memory = Memory::new();
    let replica = Replica::start(&memory, with_breaker);
    replica.set(Faults { is_cut: true, ..Faults::default() });
    replica.calls(30, false).await;
    sleep(secs(2)).await;
    assert!(replica.is_open() && replica.policies.store().unwrap().is_away);
    assert!(replica.shutdown.readiness().is_ready());
}

#[tokio::test(start_paused = true)]
async fn s1234_if_requested_readiness_depends_on_the_store() {
    let replica = Replica::start(&Memory::new(), with_breaker);
    replica.policies.check("store").unwrap();
    let is_ready = || replica.shutdown.readiness().is_ready();
    assert!(!is_ready(), "the store has not answered yet");
    sleep(secs(1)).await;
    assert!(is_ready());
    replica.set(Faults { is_cut: true, ..Faults::default() });
    sleep(secs(1)).await;
    assert!(!is_ready());
    let checks = replica.shutdown.checks();
    assert!(format!("{checks:?}").contains("the store does not answer"), "{checks:?}");
    // A check that is added while the store is away fails at once.
    replica.policies.check("again").unwrap();
    replica.set(Faults::default());
    sleep(secs(3)).await;
    assert!(is_ready());
    let local: Policies = [replica.policy.clone()].into_iter().collect();
    let error = local.check("store").unwrap_err().to_string();
    assert_eq!(
        error,
        "failed to add check store: the policies are not shared; call `shared` first"
    );
}

#[tokio::test(start_paused = true)]
async fn s928_a_name_that_is_not_valid_and_sharing_twice_are_errors() {
    let replica = Replica::start(&Memory::new(), with_breaker);
    let share = |service: &str| replica.policies.clone().shared(Memory::new(), service);
    assert!(share("check out").unwrap_err().to_string().contains("\"check out\""));
    let twice = share("checkout").unwrap_err().to_string();
    assert_eq!(twice, "failed to share policy payments: it is shared already");
}

#[tokio::test(start_paused = true)]
async fn s1661_the_reports_of_all_keys_are_withdrawn_at_once_when_the_shutdown_begins() {
    let (replicas, _) = fleet(3, with_breaker);
    let gate = replicas[0].shutdown.add_gate("http").unwrap();
    let pass = gate.enter().unwrap();
    sleep(ms(300)).await;
    let fail = async |replica: &Replica, key: &str, times: usize| {
        for _ in 0..times {
            let call = replica.policy.caller().key(key);
            let _ = call.call(async |_: Attempt| Err::<(), _>("sick")).await;
        }
    };
    // More keys than one report has.
    let keys: Vec<String> = (0..1_000).map(|key| format!("key {key}")).collect();
    for key in &keys {
        // One failure less than what opens a breaker.
        fail(&replicas[0], key, 19).await;
    }
    sleep(ms(300)).await;
    let completed = replicas[0].shutdown.run(Reason::Unknown);
    sleep(ms(130)).await;
    for key in &keys {
        fail(&replicas[1], key, 1).await;
    }
    sleep(ms(500)).await;
    assert_eq!(replicas[1].policy.status().open_keys, 0);
    assert_eq!(replicas[2].policy.status().open_keys, 0);
    drop(pass);
    completed.await.unwrap();
}
