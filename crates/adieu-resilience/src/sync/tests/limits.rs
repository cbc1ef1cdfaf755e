//! The calls that a fleet admits under a rate limit.

use super::*;

pub(super) fn with_rate(without_store: WithoutStore) -> impl Fn(PolicyBuilder) -> PolicyBuilder {
    move |policy| policy.rate(Rate::per_second(500).burst(50).without_store(without_store))
}

/// Calls at 1,500/s for `seconds`; returns when calls were admitted, in milliseconds, and the longest.
pub(super) async fn overload(
    replicas: &[Replica],
    seconds: u64,
    choose: impl Fn(u64) -> usize,
) -> (Vec<u64>, Duration) {
    let (began, mut admitted, mut longest) = (Instant::now(), Vec::new(), Duration::ZERO);
    for call in 0..seconds * 1_500 {
        tokio::time::sleep_until(began + Duration::from_micros(call * 1_000_000 / 1_500)).await;
        let called = Instant::now();
        if replicas[choose(call)].call(true).await.is_ok() {
            admitted.push(u64::try_from(began.elapsed().as_millis()).unwrap());
        }
        longest = longest.max(called.elapsed());
    }
    (admitted, longest)
}

/// In any time T at most `rate * (T + 100 ms) + burst`.
pub(super) fn check_rate(admitted: &[u64], rate: f64, burst: f64) {
    for (last, until) in admitted.iter().enumerate() {
        for first in (0..=last).rev().step_by(11) {
            let count = (last - first + 1) as f64;
            let most = rate * ((until - admitted[first]) as f64 + 101.0) / 1e3 + burst;
            assert!(count <= most, "{count} of {most} from {} to {until}", admitted[first]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s917_a_fleet_admits_its_rate_however_the_load_is_spread() {
    let even = |call: u64| (call % 5) as usize;
    let hopping = |call: u64| (call / 300 % 5) as usize;
    let hog = |call: u64| if call.is_multiple_of(4) { (call / 4 % 4) as usize + 1 } else { 0 };
    let loads: [(&dyn Fn(u64) -> usize, f64); 3] = [(&even, 0.97), (&hopping, 0.95), (&hog, 0.97)];
    for (load, least) in loads {
        let (replicas, _) = fleet(5, with_rate(WithoutStore::Share));
        sleep(ms(300)).await;
        let before: u64 = replicas.iter().map(|replica| *lock(&replica.questions)).sum();
        let (admitted, _) = overload(&replicas, 10, load).await;
        check_rate(&admitted, 500.0, 50.0);
        let share = admitted.len() as f64 / 5_050.0;
        assert!((least..=1.01).contains(&share), "{share}");
        // In addition to one report of each replica in a tick.
        let asked: u64 = replicas.iter().map(|replica| *lock(&replica.questions)).sum();
        let per_call = (asked - before) as f64 / 15_000.0;
        assert!(per_call < 0.3, "{per_call}");
    }
}

#[tokio::test(start_paused = true)]
async fn s1550_a_fleet_with_a_low_rate_admits_all_of_it() {
    let (replicas, _) = fleet(5, |policy| policy.rate(Rate::per_second(10).burst(5)));
    sleep(ms(300)).await;
    let mut admitted = Vec::new();
    let (began, mut random) = (Instant::now(), fastrand::Rng::with_seed(7));
    // Twice as many calls as the rate allows, at random times.
    while began.elapsed() < secs(60) {
        let at = u64::try_from(began.elapsed().as_millis()).unwrap();
        if replicas[random.usize(..5)].call(true).await.is_ok() {
            admitted.push(at);
        }
        sleep(ms(random.u64(..100))).await;
    }
    check_rate(&admitted, 10.0, 5.0);
    let share = admitted.len() as f64 / 605.0;
    assert!((0.97..=1.01).contains(&share), "{share}");
}
