//! Retries: which calls are repeated, when, and how often.

use std::cell::{Cell, RefCell};

use adieu_core::Deadline;
use adieu_resilience::{Attempt, Breaker, Bulkhead, CallError, Class, Rate, Retry};
use tokio::time::Instant;

use super::tools::{fail, hang, ms, poll, secs, start};

/// Counts the attempts of a call that fails each time, and returns when each began.
async fn attempts(
    policy: &adieu_resilience::Policy,
    class: Class,
) -> (Vec<u128>, Result<(), CallError<u32>>) {
    let (began, times) = (Instant::now(), RefCell::new(Vec::new()));
    let caller = policy.caller().classify(move |_: &Result<(), u32>| class);
    let result = caller.call(async |attempt: Attempt| {
        times.borrow_mut().push(began.elapsed().as_millis());
        Err(attempt.number())
    });
    let result = result.await;
    (times.into_inner(), result)
}

#[tokio::test(start_paused = true)]
async fn s735_a_call_is_repeated_as_often_as_declared_and_ends_with_its_last_error() {
    let (policy, _shutdown) = start(|policy| policy.retry(Retry::times(2)));
    let (times, result) = attempts(&policy, Class::sick().retry_after(ms(70))).await;
    assert_eq!(times, [0, 70, 140]);
    assert_eq!(result, Err(CallError::Failed(3)));
    let (times, _) = attempts(&policy, Class::sick()).await;
    assert!(times[1] <= 50 && times[2] - times[1] <= 100, "{times:?}");
    let (times, _) = attempts(&policy, Class::sick().permanent()).await;
    assert_eq!(times, [0]);
}

#[tokio::test(start_paused = true)]
async fn s736_when_the_budget_is_used_up_the_error_is_returned() {
    let (policy, _shutdown) = start(|policy| policy.retry(Retry::times(1).budget(0.0)));
    let mut retried = 0;
    for _ in 0..30 {
        let (times, _) = attempts(&policy, Class::sick().retry_after(ms(0))).await;
        retried += times.len() - 1;
    }
    assert_eq!(retried, 10);
    tokio::time::advance(secs(10)).await;
    assert_eq!(attempts(&policy, Class::sick()).await.0.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn s737_no_pause_outlasts_the_deadline() {
    let (policy, _shutdown) = start(|policy| policy.within(ms(500)).retry(Retry::times(3)));
    for (pause, expected) in [(100, &[0, 100, 200, 300][..]), (250, &[0, 250]), (500, &[0])] {
        let began = Instant::now();
        let (times, result) = attempts(&policy, Class::sick().retry_after(ms(pause))).await;
        assert_eq!(times, expected);
        assert_eq!(began.elapsed().as_millis(), *expected.last().unwrap(), "at once");
        let last = u32::try_from(expected.len()).unwrap();
        assert_eq!(result, Err(CallError::Failed(last)), "the real error");
    }
}

#[tokio::test(start_paused = true)]
async fn s738_a_refusal_of_the_policy_is_not_repeated_and_ends_retries_with_the_last_error() {
    let (policy, _shutdown) =
        start(|policy| policy.rate(Rate::per_second(1).burst(2)).retry(Retry::times(3)));
    let (times, result) = attempts(&policy, Class::sick().retry_after(ms(1))).await;
    assert_eq!((times.len(), result), (2, Err(CallError::Failed(2))), "the third is refused");
    let began = Instant::now();
    let refused = policy.call(fail).await.unwrap_err();
    assert!(refused.refused().is_some() && began.elapsed() < ms(1));

    // A breaker that the attempts open ends them, too.
    let (policy, _shutdown) =
        start(|policy| policy.breaker(Breaker::at(1.0).of(2)).retry(Retry::times(3)));
    let (times, result) = attempts(&policy, Class::sick().retry_after(ms(1))).await;
    assert_eq!((times.len(), result), (2, Err(CallError::Failed(2))));
}

#[tokio::test(start_paused = true)]
async fn s739_a_call_that_must_not_be_processed_twice_is_repeated_only_if_it_was_not_processed() {
    let (policy, _shutdown) = start(|policy| policy.retry(Retry::times(1)));
    for (class, made) in [
        (Class::sick(), 1),
        (Class::unreachable(), 2),
        (Class::unprocessed(), 2),
        (Class::throttled(), 2),
        (Class::neutral(), 1),
    ] {
        let calls = Cell::new(0);
        let caller = policy.caller().not_idempotent();
        let caller = caller.classify(move |_: &Result<(), ()>| class);
        let _ = caller
            .call(async |_| {
                calls.set(calls.get() + 1);
                Err(())
            })
            .await;
        assert_eq!(calls.get(), made, "{class:?}");
        calls.set(0);
        let caller = policy.caller().not_repeatable();
        let caller = caller.classify(move |_: &Result<(), ()>| class);
        let _ = caller
            .call(async |_| {
                calls.set(calls.get() + 1);
                Err(())
            })
            .await;
        assert_eq!(calls.get(), 1, "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s740_a_call_that_pauses_before_a_retry_holds_no_slot() {
    let (policy, _shutdown) =
        start(|policy| policy.bulkhead(Bulkhead::of(1)).retry(Retry::times(1)));
    let caller = policy.caller().classify(|_: &Result<(), ()>| Class::sick().retry_after(secs(1)));
    let mut pausing = Box::pin(caller.call(async |_| Err(())));
    assert!(poll(pausing.as_mut()).is_none());
    let other = policy.caller().by(Deadline::after(ms(1))).call(async |_| Ok::<_, ()>(()));
    assert_eq!(other.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s741_each_attempt_counts_against_rate_and_breaker() {
    let (policy, _shutdown) = start(|policy| {
        let breaker = Breaker::at(1.0).of(3);
        policy.rate(Rate::per_second(1).burst(5)).breaker(breaker).retry(Retry::times(2))
    });
    let (times, _) = attempts(&policy, Class::sick().retry_after(ms(1))).await;
    assert_eq!(times.len(), 3);
    let refused = policy.call(fail).await.unwrap_err();
    assert_eq!(refused.refused().unwrap().code(), adieu_resilience::Code::Open);
    let refused = policy.call(fail).await.unwrap_err();
    assert_eq!(refused.refused().unwrap().code(), adieu_resilience::Code::Open);
    let refused = policy.call(fail).await.unwrap_err();
    assert_eq!(refused.refused().unwrap().code(), adieu_resilience::Code::RateLimited);
}

#[tokio::test(start_paused = true)]
async fn s1653_calls_that_the_policy_refuses_earn_no_retries() {
    let (policy, _shutdown) =
        start(|policy| policy.bulkhead(Bulkhead::of(1)).retry(Retry::times(1).budget(0.1)));
    let mut inside = Box::pin(policy.call(hang));
    assert!(poll(inside.as_mut()).is_none());
    for _ in 0..200 {
        assert!(matches!(policy.call(fail).await, Err(CallError::Refused(_))));
    }
    drop(inside);
    let mut retried = 0;
    for _ in 0..30 {
        let (times, _) = attempts(&policy, Class::sick().retry_after(ms(0))).await;
        retried += times.len() - 1;
    }
    // Ten are free, and a tenth of 31 calls.
    assert_eq!(retried, 13);
}

#[tokio::test(start_paused = true)]
async fn s1786_a_retry_that_a_part_refuses_is_not_counted_as_a_retry() {
    let (policy, shutdown) =
        start(|policy| policy.retry(Retry::times(2)).rate(Rate::per(1, secs(3_600)).burst(2)));
    let (times, _) = attempts(&policy, Class::sick().retry_after(ms(10))).await;
    assert_eq!(times.len(), 2, "the rate refuses the third attempt");
    let page = adieu_core::adapter::pages(&shutdown).remove(0).1;
    let mut metrics = adieu_core::adapter::Metrics::default();
    page.metrics(&mut metrics);
    let text = format!("{metrics}");
    assert!(text.contains("adieu_resilience_retries_total{policy=\"backend\"} 1\n"), "{text}");
}
