//! The behaviour of a fleet's breakers.

use super::*;

#[tokio::test(start_paused = true)]
async fn s911_one_replica_with_calls_protects_all_others() {
    let (replicas, _) = fleet(5, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    let took = until_all(&replicas, Replica::is_open).await;
    assert!(took <= ms(250), "{took:?}");
    assert_eq!(code(replicas[4].call(true).await), Code::Open);
}

#[tokio::test(start_paused = true)]
async fn s911_one_sick_replica_among_healthy_ones_opens_only_its_own() {
    let (replicas, _) = fleet(5, with_breaker);
    for replica in &replicas[1..] {
        replica.calls(3, true).await;
    }
    sleep(ms(300)).await;
    for _ in 0..100 {
        for replica in &replicas[1..] {
            replica.calls(3, true).await;
        }
        replicas[0].calls(10, false).await;
        sleep(ms(50)).await;
        assert!(replicas[1..].iter().all(Replica::is_closed));
    }
    assert!(!replicas[0].is_closed());
}

#[tokio::test(start_paused = true)]
async fn s911_two_witnesses_open_the_breaker_of_all_if_together_enough_has_failed() {
    let (replicas, _) = fleet(5, with_breaker);
    sleep(ms(300)).await;
    // No replica has enough calls for its own breaker.
    for replica in &replicas[..4] {
        replica.calls(6, false).await;
    }
    until_all(&replicas, Replica::is_open).await;
}

// A replica that has opened its breaker makes no more calls: its window stays near the ratio, and is
// empty after ten seconds.
#[tokio::test(start_paused = true)]
async fn s1781_witnesses_that_have_opened_their_breakers_open_the_fleet_whatever_the_others_see() {
    let build = |policy: PolicyBuilder| {
        let breaker = Breaker::at(0.5).of(20).opens_for(secs(60));
        policy.breaker(breaker).timeout(secs(1))
    };
    for pause in [secs(0), secs(15)] {
        let (replicas, _) = fleet(5, build);
        sleep(ms(300)).await;
        let healthy = async || {
            for replica in &replicas[2..] {
                replica.calls(100, true).await;
            }
        };
        healthy().await;
        sleep(ms(300)).await;
        replicas[0].calls(40, false).await;
        for _ in 0..=pause.as_secs() {
            sleep(secs(1)).await;
            healthy().await;
            assert!(replicas[1..].iter().all(Replica::is_closed), "one is not enough");
        }
        replicas[1].calls(40, false).await;
        assert!(until_all(&replicas, Replica::is_open).await <= ms(250));
    }
}

// Thousands of breakers are open. A replica that starts learns all of them, and a trip reaches all
// replicas as soon as if no other breaker was open.
#[tokio::test(start_paused = true)]
async fn s1780_many_open_breakers_delay_no_trip() {
    const KEYS: usize = 1_000;
    let (mut replicas, memory) = fleet(3, with_breaker);
    sleep(ms(300)).await;
    let fail = async |replica: &Replica, key: String| {
        let call = replica.policy.caller().key(&key);
        let _ = call.call(async |_: Attempt| Err::<(), _>("sick")).await;
    };
    for key in 0..KEYS {
        for _ in 0..20 {
            fail(&replicas[0], key.to_string()).await;
        }
    }
    sleep(secs(2)).await;
    replicas.push(Replica::start(&memory, with_breaker));
    sleep(secs(1)).await;
    let opened = |replica: &Replica| replica.policy.status().open_keys;
    for replica in &replicas[1..] {
        for key in 0..KEYS {
            fail(replica, key.to_string()).await;
        }
        assert_eq!(opened(replica), KEYS);
    }
    replicas[1].calls(20, false).await;
    assert!(until_all(&replicas, Replica::is_open).await <= ms(250));
    // A store that has lost its data closes none of them, and is told of all.
    memory.flush();
    sleep(secs(1)).await;
    assert!(replicas.iter().all(|replica| opened(replica) == KEYS));
}

// Answers take up to 25 ms, and replicas do not tick at the same time.
#[tokio::test(start_paused = true)]
async fn s913_a_trip_reaches_every_replica_within_two_ticks_and_two_answers() {
    let mut longest = Duration::ZERO;
    for run in 0..100 {
        let (replicas, _) = fleet(5, with_breaker);
        for replica in &replicas {
            replica.set(Faults { delay: ms(24), ..Faults::default() });
        }
        sleep(ms(300 + run)).await;
        assert!(replicas.iter().all(|replica| !replica.policies.store().unwrap().is_away));
        replicas[run as usize % 5].calls(20, false).await;
        longest = longest.max(until_all(&replicas, Replica::is_open).await);
    }
    assert!(longest <= ms(250), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn s910_a_store_that_has_lost_everything_is_told_again() {
    let (replicas, memory) = fleet(3, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    memory.flush();
    // A replica that starts after that learns it from the others.
    let late = Replica::start(&memory, with_breaker);
    until_all(&[late], Replica::is_open).await;
    assert!(replicas.iter().all(Replica::is_open));
}

#[tokio::test(start_paused = true)]
async fn s910_reports_that_are_lost_delay_a_trip_and_repeated_ones_cause_none() {
    let (replicas, _) = fleet(3, with_breaker);
    for replica in &replicas {
        replica.set(Faults { lost: 50, ..Faults::default() });
    }
    // Half of the answers are lost after the store has counted the report.
    for _ in 0..50 {
        replicas[0].calls(2, true).await;
        replicas[0].calls(1, false).await;
        sleep(ms(100)).await;
        assert!(replicas.iter().all(Replica::is_closed), "a third has failed");
    }
    replicas[0].calls(60, false).await;
    until_all(&replicas, Replica::is_open).await;
}

#[tokio::test(start_paused = true)]
async fn s914_one_probe_of_the_whole_fleet_at_a_time_and_one_success_closes_all() {
    let (replicas, _) = fleet(5, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    let inside = Mutex::new((0, 0));
    let calls = replicas.iter().map(|replica| async {
        for _ in 0..5 {
            let _ = replica
                .policy
                .call(async |_: Attempt| {
                    {
                        let mut inside = lock(&inside);
                        inside.0 += 1;
                        inside.1 = inside.1.max(inside.0);
                    }
                    sleep(ms(400)).await;
                    lock(&inside).0 -= 1;
                    Err::<(), _>("sick")
                })
                .await;
            sleep(ms(20)).await;
        }
    });
    futures(calls).await;
    assert_eq!(lock(&inside).1, 1, "probes at a time");
    // It failed, so the break is twice as long. Replicas that were refused the probe show it until they
    // know that.
    assert!(until_all(&replicas, Replica::is_open).await <= ms(250));
    sleep(ms(11_000)).await;
    assert_eq!(replicas[3].call(true).await, Ok(()));
    assert!(until_all(&replicas, Replica::is_closed).await <= ms(250));
}

#[tokio::test(start_paused = true)]
async fn s1784_while_a_probe_of_the_fleet_runs_the_breaker_is_shown_as_half_open() {
    let (replicas, _) = fleet(3, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    let probing = replicas[0].policy.call(async |_: Attempt| {
        sleep(ms(500)).await;
        Err::<(), _>("sick")
    });
    let others = async {
        sleep(ms(100)).await;
        assert_eq!(replicas[0].breaker(), BreakerState::HalfOpen, "it probes");
        // One that has requested the probe knows of it, and one without a call does not.
        assert_eq!(code(replicas[1].call(true).await), Code::Open);
        sleep(ms(200)).await;
        assert_eq!(replicas[1].breaker(), BreakerState::HalfOpen);
        assert_eq!(replicas[2].breaker(), BreakerState::Open { left: Duration::ZERO });
    };
    let (_, ()) = tokio::join!(probing, others);
    assert!(until_all(&replicas, Replica::is_open).await <= ms(250));
    // Of a prober that has vanished, it is shown until its lease ends.
    sleep(secs(12)).await;
    let mut hanging = Box::pin(
        replicas[0]
            .policy
            .call(async |_: Attempt| std::future::pending::<Result<(), &'static str>>().await),
    );
    tokio::select! {
        _ = &mut hanging => panic!("it hangs"),
        () = sleep(ms(100)) => {}
    }
    assert_eq!(code(replicas[1].call(true).await), Code::Open);
    assert_eq!(replicas[1].breaker(), BreakerState::HalfOpen);
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    sleep(secs(3)).await;
    assert_eq!(replicas[1].breaker(), BreakerState::Open { left: Duration::ZERO });
}

#[tokio::test(start_paused = true)]
async fn s1785_an_opening_is_counted_once_by_each_process() {
    let (replicas, _) = fleet(2, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(secs(1)).await;
    let opened = |replica: &Replica| replica.policy.state().counters.opened().map(|(_, of)| of);
    assert_eq!(opened(&replicas[0]), [1, 0], "by the process");
    assert_eq!(opened(&replicas[1]), [0, 1], "by the fleet");
}

#[tokio::test(start_paused = true)]
async fn s914_a_replica_that_vanishes_with_the_probe_blocks_no_longer_than_its_lease() {
    let (mut replicas, _) = fleet(3, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    let prober = replicas.remove(0);
    let mut hanging = Box::pin(
        prober
            .policy
            .call(async |_: Attempt| std::future::pending::<Result<(), &'static str>>().await),
    );
    tokio::select! {
        _ = &mut hanging => panic!("it hangs"),
        () = sleep(ms(100)) => {}
    }
    assert_eq!(code(replicas[0].call(true).await), Code::Open, "the probe is running elsewhere");
    // It is gone without a word, as after kill -9.
    prober.set(Faults { is_cut: true, ..Faults::default() });
    // A lease is the timeout and one second.
    let began = Instant::now();
    while replicas[0].call(true).await.is_err() {
        sleep(ms(10)).await;
    }
    assert!(began.elapsed() <= ms(2_200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn s914_a_probe_whose_call_is_dropped_is_returned_to_the_fleet() {
    let (replicas, _) = fleet(2, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    let hanging = replicas[0]
        .policy
        .call(async |_: Attempt| std::future::pending::<Result<(), &'static str>>().await);
    assert!(tokio::time::timeout(ms(100), hanging).await.is_err());
    sleep(ms(110)).await;
    assert_eq!(replicas[1].call(true).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s914_a_probe_that_is_granted_after_its_call_has_gone_is_returned() {
    let (replicas, _) = fleet(2, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    replicas[0].set(Faults { delay: ms(24), ..Faults::default() });
    for _ in 0..5 {
        assert!(tokio::time::timeout(ms(1), replicas[0].call(true)).await.is_err());
        sleep(ms(150)).await;
    }
    // Less than the lease of two seconds has passed.
    assert_eq!(replicas[1].call(true).await, Ok(()));
}

// For example, a Redis that restarts from its file, or a replica of it that becomes the primary.
#[tokio::test(start_paused = true)]
async fn s1650_a_store_that_has_returned_to_an_older_state_leaves_no_breaker_open() {
    let (replicas, memory) = fleet(3, with_breaker);
    let opens = async |by: usize| {
        replicas[by].calls(20, false).await;
        until_all(&replicas, Replica::is_open).await;
    };
    let closes = async |by: usize| {
        let began = Instant::now();
        while replicas[by].call(true).await.is_err() {
            // A break of 5 s, and a tenth of that.
            assert!(began.elapsed() <= ms(7_000), "{:?}", replicas[by].breaker());
            sleep(ms(10)).await;
        }
        until_all(&replicas, Replica::is_closed).await;
    };
    sleep(ms(300)).await;
    opens(0).await;
    let open = memory.save();
    closes(0).await;
    let closed = memory.save();
    opens(0).await;
    memory.restore(closed);
    // Each replica has calls, as each may have to find out alone.
    for replica in &replicas {
        let began = Instant::now();
        while replica.call(true).await.is_err() {
            assert!(began.elapsed() <= ms(7_000), "{:?}", replica.breaker());
            sleep(ms(10)).await;
        }
    }
    until_all(&replicas, Replica::is_closed).await;
    // The fleet shares its breaker as before.
    opens(1).await;
    closes(2).await;
    // The state may be one in which the breaker is open.
    memory.restore(open);
    sleep(secs(1)).await;
    closes(1).await;
    opens(2).await;
}

#[tokio::test(start_paused = true)]
async fn s1652_a_probe_that_is_granted_to_a_call_which_is_dropped_before_it_runs_is_returned() {
    let (replicas, _) = fleet(2, with_breaker);
    sleep(ms(300)).await;
    replicas[0].calls(20, false).await;
    until_all(&replicas, Replica::is_open).await;
    sleep(ms(5_600)).await;
    let mut call = Box::pin(replicas[0].call(true));
    tokio::select! {
        biased;
        _ = &mut call => panic!("it waits for the store"),
        () = std::future::ready(()) => {}
    }
    // The store grants the probe, and the call is not polled.
    sleep(ms(10)).await;
    assert_eq!(code(replicas[1].call(true).await), Code::Open);
    drop(call);
    sleep(ms(110)).await;
    assert_eq!(replicas[1].call(true).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s927_each_key_is_shared_apart_and_a_new_key_begins_as_the_fleet_knows_it() {
    let (replicas, _) = fleet(2, with_breaker);
    sleep(ms(300)).await;
    let call = async |replica: &Replica, key: &str, is_well: bool| {
        let call = replica.policy.caller().key(key);
        call.call(async |_: Attempt| if is_well { Ok(()) } else { Err("sick") }).await
    };
    let long = "tenant ".repeat(100);
    for key in ["tenant 7", &long] {
        for _ in 0..20 {
            let _ = call(&replicas[0], key, false).await;
        }
    }
    sleep(ms(250)).await;
    // The other replica has not used these keys before.
    assert_eq!(code(call(&replicas[1], "tenant 7", true).await), Code::Open);
    assert_eq!(code(call(&replicas[1], &long, true).await), Code::Open);
    assert_eq!(call(&replicas[1], "tenant 8", true).await, Ok(()));
    assert!(replicas[1].is_closed(), "calls without a key");
}

// Random outages of the store, drops of calls, failures of the backend and restarts of replicas. After
// all that, the backend has recovered: within a lease and the longest break, every replica has let a
// call through.
#[tokio::test(start_paused = true)]
async fn s926_whatever_happens_a_call_is_let_through_after_a_lease_and_a_break() {
    let build = |policy: PolicyBuilder| {
        let breaker = Breaker::at(0.5).of(5).over(secs(2)).opens_for(secs(1)).at_most(secs(4));
        policy.breaker(breaker).timeout(secs(1))
    };
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut replicas, memory) = fleet(4, build);
        let mut saved = memory.save();
        for _ in 0..60 {
            let at = random.usize(0..replicas.len());
            let replica = &replicas[at];
            match random.u8(0..14) {
                0 => replica.set(Faults { is_cut: true, ..Faults::default() }),
                1 => replica.set(Faults { lost: random.u8(0..60), ..Faults::default() }),
                2 => replica.set(Faults { delay: ms(random.u64(0..60)), ..Faults::default() }),
                3 | 4 => replica.set(Faults::default()),
                5 => memory.flush(),
                6 => {
                    let hanging = replica.policy.call(async |_: Attempt| {
                        std::future::pending::<Result<(), &'static str>>().await
                    });
                    let _ = tokio::time::timeout(ms(random.u64(0..1_500)), hanging).await;
                }
                7 => replicas[at] = Replica::start(&memory, build),
                8 => replica.calls(6, true).await,
                9 => saved = memory.save(),
                10 => memory.restore(saved.clone()),
                _ => replica.calls(6, false).await,
            }
            sleep(ms(random.u64(0..700))).await;
        }
        for replica in &replicas {
            if random.bool() {
                replica.set(Faults::default());
            }
        }
        // A lease is 2 s, and a break at most 4.4 s. The reports that are still to be sent, and the
        // pause between two requests to the store, add less than two seconds.
        let began = Instant::now();
        for (at, replica) in replicas.iter().enumerate() {
            while replica.call(true).await.is_err() {
                assert!(
                    began.elapsed() < ms(8_400),
                    "seed {seed}: replica {at} {:?}",
                    replica.breaker()
                );
                sleep(ms(50)).await;
            }
        }
    }
}
