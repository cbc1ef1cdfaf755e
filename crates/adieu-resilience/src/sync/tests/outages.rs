//! A store that is slow, hangs, or is away.

use super::limits::{check_rate, overload, with_rate};
use super::*;

#[tokio::test(start_paused = true)]
async fn s922_a_store_that_hangs_costs_25_ms_once() {
    let (replicas, _) = fleet(5, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    overload(&replicas, 1, |call| (call % 5) as usize).await;
    for replica in &replicas {
        replica.set(Faults { is_cut: true, ..Faults::default() });
    }
    let (_, longest) = overload(&replicas, 1, |call| (call % 5) as usize).await;
    assert!(longest <= ms(26), "{longest:?}");
    assert!(replicas.iter().all(|replica| replica.policies.store().unwrap().is_away));
    // From now on no call waits.
    let (admitted, longest) = overload(&replicas, 5, |call| (call % 5) as usize).await;
    assert_eq!(longest, Duration::ZERO);
    check_rate(&admitted, 500.0, 50.0);
    assert!(admitted.len() > 2_400, "{}", admitted.len());
    for replica in &replicas {
        replica.set(Faults::default());
    }
    until_all(&replicas, |replica| !replica.policies.store().unwrap().is_away).await;
}

#[tokio::test(start_paused = true)]
async fn s922_a_store_that_is_slow_costs_each_call_25_ms_at_most() {
    let (replicas, _) = fleet(3, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    for replica in &replicas {
        replica.set(Faults { delay: ms(60), lost: 10, ..Faults::default() });
    }
    let (_, longest) = overload(&replicas, 20, |call| (call % 3) as usize).await;
    assert!(longest <= ms(26), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn s922_a_call_that_needs_several_answers_waits_25_ms_in_all() {
    let (replicas, _) = fleet(1, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    replicas[0].set(Faults { delay: ms(24), ..Faults::default() });
    let longest = Mutex::new(Duration::ZERO);
    for _ in 0..30 {
        // The first question is for one permit, and many calls wait for it.
        let calls = (0..40).map(|_| async {
            let called = Instant::now();
            let _ = replicas[0].call(true).await;
            let mut longest = lock(&longest);
            *longest = longest.max(called.elapsed());
        });
        futures(calls).await;
        sleep(secs(3)).await;
    }
    let longest = *lock(&longest);
    assert!(longest > ms(20) && longest <= ms(26), "{longest:?}");
    assert!(!replicas[0].policies.store().unwrap().is_away);
}

#[tokio::test(start_paused = true)]
async fn s923_without_the_store_a_rate_limit_does_what_was_declared() {
    for (without_store, expected) in [
        (WithoutStore::Share, 1_000.0 / 1_500.0),
        (WithoutStore::Open, 1.0),
        (WithoutStore::Closed, 0.0),
    ] {
        let (replicas, _) = fleet(2, with_rate(without_store));
        sleep(ms(300)).await;
        for replica in &replicas {
            replica.set(Faults { is_cut: true, ..Faults::default() });
        }
        // The demand of one replica alone: half of the rate is its share.
        until_all(&replicas, |replica| replica.policies.store().unwrap().is_away).await;
        let (admitted, _) = overload(&replicas[..1], 4, |_| 0).await;
        let share = admitted.len() as f64 / 6_000.0;
        let expected = expected * if without_store == WithoutStore::Share { 0.25 } else { 1.0 };
        assert!((share - expected).abs() < 0.02, "{without_store:?}: {share}");
        assert!(replicas[0].policies.store().unwrap().decided_alone >= 6_000);
        if without_store == WithoutStore::Closed {
            assert_eq!(code(replicas[0].call(true).await), Code::StoreAway);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s923_a_replica_that_loses_the_store_gets_no_new_burst() {
    let (replicas, _) = fleet(1, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    overload(&replicas, 2, |_| 0).await;
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    let (admitted, _) = overload(&replicas, 1, |_| 0).await;
    // One second of the rate, and the rest of the last slice. A new burst would be 50 more.
    assert!(admitted.len() <= 530, "{}", admitted.len());
}

#[tokio::test(start_paused = true)]
async fn s924_without_the_store_each_breaker_works_alone() {
    let (replicas, _) = fleet(2, with_breaker);
    sleep(ms(300)).await;
    for replica in &replicas {
        replica.set(Faults { is_cut: true, ..Faults::default() });
    }
    sleep(secs(1)).await;
    replicas[0].calls(20, false).await;
    assert!(replicas[0].is_open());
    sleep(ms(5_600)).await;
    assert!(replicas[1].is_closed());
    assert_eq!(replicas[0].call(true).await, Ok(()));
    assert!(replicas[0].is_closed());
}

#[tokio::test(start_paused = true)]
async fn s1559_a_recovery_that_one_replica_found_without_the_store_closes_the_breaker_of_all() {
    let (replicas, _) = fleet(3, with_breaker);
    for _ in 0..2 {
        replicas[0].calls(20, false).await;
        until_all(&replicas, Replica::is_open).await;
        // The replica with calls loses the store, and probes alone.
        replicas[0].set(Faults { is_cut: true, ..Faults::default() });
        sleep(secs(6)).await;
        assert_eq!(replicas[0].call(true).await, Ok(()));
        assert!(replicas[0].is_closed() && replicas[1].is_open() && replicas[2].is_open());
        replicas[0].set(Faults::default());
        // The others have no call.
        assert!(until_all(&replicas, Replica::is_closed).await <= secs(2));
    }
}

#[tokio::test(start_paused = true)]
async fn s920_a_store_that_hangs_does_not_delay_the_shutdown() {
    let (replicas, _) = fleet(1, with_breaker);
    sleep(ms(300)).await;
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    let began = Instant::now();
    let report = replicas[0].shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(began.elapsed() <= ms(100), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn s1236_metrics_show_whether_the_store_answers() {
    let replica = Replica::start(&Memory::new(), |policy| {
        policy.rate(Rate::per_second(10).burst(1).without_store(WithoutStore::Closed))
    });
    let has = |line: &str| {
        let (_, page) = adapter::pages(&replica.shutdown).remove(0);
        let mut metrics = adapter::Metrics::default();
        page.metrics(&mut metrics);
        let text = metrics.to_string();
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    };
    let is_shown_away = || {
        let (_, page) = adapter::pages(&replica.shutdown).remove(0);
        page.status()["policies"][0]["store"]["away"].as_bool().unwrap()
    };
    sleep(secs(1)).await;
    assert!(!is_shown_away());
    has("adieu_resilience_store{service=\"checkout\"} 1");
    has("adieu_resilience_replicas{service=\"checkout\"} 1");
    has("adieu_resilience_store_away_total{service=\"checkout\"} 0");
    replica.set(Faults { is_cut: true, ..Faults::default() });
    sleep(secs(1)).await;
    replica.calls(3, true).await;
    assert!(is_shown_away());
    has("adieu_resilience_store{service=\"checkout\"} 0");
    has("adieu_resilience_store_away_total{service=\"checkout\"} 1");
    has("adieu_resilience_decided_alone_total{service=\"checkout\"} 3");
    has("adieu_resilience_refused_total{policy=\"payments\",code=\"store-away\"} 3");
    replica.set(Faults::default());
    sleep(secs(3)).await;
    has("adieu_resilience_store{service=\"checkout\"} 1");
    has("adieu_resilience_store_away_total{service=\"checkout\"} 1");
}

#[tokio::test(start_paused = true)]
async fn s925_that_the_store_is_away_and_that_it_is_back_is_logged_once() {
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
    for is_cut in [true, false] {
        replica.set(Faults { is_cut, ..Faults::default() });
        sleep(secs(5)).await;
    }
    // The report is there after all lines have been logged.
    replica.shutdown.run(Reason::Unknown).await.unwrap();
    let lines = String::from_utf8(lock(&lines.0).clone()).unwrap();
    let count = |text: &str| lines.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("store away; policies decide alone"), 1, "{lines}");
    assert_eq!(count("no answer within 25ms"), 1, "{lines}");
    assert_eq!(count("store answers again"), 1, "{lines}");
}

#[tokio::test(start_paused = true)]
async fn s1654_a_store_that_has_just_lost_its_data_gives_no_replica_a_larger_share() {
    let (replicas, memory) = fleet(5, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    overload(&replicas, 1, |call| (call % 5) as usize).await;
    let cut = |replica: &Replica| replica.set(Faults { is_cut: true, ..Faults::default() });
    replicas[1..].iter().for_each(cut);
    memory.flush();
    // The store has seen one replica since.
    until_all(&replicas[..1], |replica| replica.policies.store().unwrap().replicas == 1).await;
    cut(&replicas[0]);
    until_all(&replicas[..1], |replica| replica.policies.store().unwrap().is_away).await;
    let (admitted, _) = overload(&replicas[..1], 4, |_| 0).await;
    // A fifth of 500 permits a second, and of the burst.
    assert!(admitted.len() <= 4 * 100 + 10, "{}", admitted.len());
}

#[tokio::test(start_paused = true)]
async fn s1654_the_share_becomes_larger_after_three_seconds_with_fewer_replicas() {
    let (mut replicas, _) = fleet(2, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    let leaving = replicas.remove(1);
    leaving.shutdown.run(Reason::Unknown).await.unwrap();
    sleep(ms(3_300)).await;
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    until_all(&replicas, |replica| replica.policies.store().unwrap().is_away).await;
    let (admitted, _) = overload(&replicas, 4, |_| 0).await;
    assert!(admitted.len() > 4 * 490, "{}", admitted.len());
}

#[tokio::test(start_paused = true)]
async fn s1655_after_a_panic_of_the_loop_no_call_waits_for_an_answer_that_is_lost() {
    let (replicas, _) = fleet(1, with_rate(WithoutStore::Share));
    let is_away = |replica: &Replica| replica.policies.store().unwrap().is_away;
    sleep(ms(300)).await;
    assert_eq!(replicas[0].call(true).await, Ok(()));
    sleep(ms(300)).await;
    replicas[0].set(Faults { is_limit_broken: true, ..Faults::default() });
    replicas[0].call(true).await.unwrap();
    assert!(is_away(&replicas[0]), "the loop has panicked");
    replicas[0].set(Faults::default());
    until_all(&replicas, |replica| !is_away(replica)).await;
    sleep(secs(1)).await;
    for _ in 0..10 {
        let called = Instant::now();
        assert_eq!(replicas[0].call(true).await, Ok(()));
        assert_eq!(called.elapsed(), Duration::ZERO);
        sleep(ms(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn s1656_an_answer_to_a_report_of_before_the_store_went_away_does_not_show_that_it_is_back() {
    for run in 0..40 {
        let (replicas, _) = fleet(1, with_rate(WithoutStore::Share));
        replicas[0].set(Faults { delay: ms(24), ..Faults::default() });
        sleep(ms(300 + 7 * run)).await;
        replicas[0].set(Faults { delay: ms(24), is_limit_cut: true, ..Faults::default() });
        for _ in 0..400 {
            let _ = replicas[0].call(true).await;
            sleep(ms(1)).await;
        }
        assert_eq!(replicas[0].times_away(), 1, "run {run}");
    }
}

#[tokio::test(start_paused = true)]
async fn s1657_a_store_that_answers_now_and_then_is_asked_less_and_less() {
    let (replicas, _) = fleet(1, with_rate(WithoutStore::Share));
    sleep(ms(300)).await;
    // Four of five answers arrive in time.
    replicas[0].set(Faults { delay: ms(30), ..Faults::default() });
    let mut waits = 0;
    let began = Instant::now();
    while began.elapsed() < secs(30) {
        let called = Instant::now();
        let _ = replicas[0].call(true).await;
        waits += u32::from(called.elapsed() >= ms(25));
        sleep(ms(1)).await;
    }
    assert!(replicas[0].times_away() <= 40, "{} times", replicas[0].times_away());
    assert!((1..=40).contains(&waits), "{waits} calls waited for the whole time");
    // A store that has answered for a second gets a request soon after the next outage.
    replicas[0].set(Faults::default());
    let is_away = |replica: &Replica| replica.policies.store().unwrap().is_away;
    until_all(&replicas, |replica| !is_away(replica)).await;
    sleep(ms(1_200)).await;
    replicas[0].set(Faults { is_cut: true, ..Faults::default() });
    until_all(&replicas, is_away).await;
    replicas[0].set(Faults::default());
    assert!(until_all(&replicas, |replica| !is_away(replica)).await <= ms(130));
}
