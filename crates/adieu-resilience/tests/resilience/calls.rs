//! Calls through each part of a policy.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use adieu_core::{Deadline, Verdict};
use adieu_resilience::{
    Attempt, Breaker, BreakerState, Bulkhead, CallError, Code, Criticality, Memory, Policies,
    Policy, Rate, Retry, Throttle,
};
use expect_test::expect;
use tokio::time::{Instant, advance, sleep};

use super::tools::{code, fail, hang, ms, poll, secs, shutdown, start, succeed};

#[tokio::test(start_paused = true)]
async fn s702_a_dropped_call_returns_its_slot_at_once() {
    let (policy, _shutdown) = start(|policy| policy.bulkhead(Bulkhead::of(1)));
    let is_dropped = Rc::new(Cell::new(false));
    struct OnDrop(Rc<Cell<bool>>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let mut call = Box::pin(policy.call(|_| {
        let guard = OnDrop(Rc::clone(&is_dropped));
        async move {
            let _guard = guard;
            std::future::pending::<Result<(), ()>>().await
        }
    }));
    assert!(poll(call.as_mut()).is_none());
    assert_eq!(code(policy.call(succeed).await), Code::Full);
    drop(call);
    assert!(is_dropped.get());
    assert_eq!(policy.call(succeed).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s714_a_refusal_has_a_code_and_names_when_to_try_again() {
    let (policy, _shutdown) = start(|policy| policy.rate(Rate::per_second(4).burst(1)));
    assert_eq!(policy.call(succeed).await, Ok(()));
    let Err(CallError::Refused(refused)) = policy.call(succeed).await else { panic!() };
    assert_eq!((refused.code(), refused.retry_after()), (Code::RateLimited, ms(250)));
    assert_eq!(refused.verdict(), Verdict::Requeue { after: ms(250) });
    let text = "policy backend refused the call: rate-limited, try again in 250ms";
    assert_eq!(refused.to_string(), text);

    let (policy, _shutdown) = start(|policy| policy.breaker(Breaker::at(1.0).of(1)));
    let _ = policy.call(fail).await;
    advance(secs(1)).await;
    let Err(CallError::Refused(refused)) = policy.call(succeed).await else { panic!() };
    assert_eq!(refused.code(), Code::Open);
    assert!((ms(3_500)..=ms(4_500)).contains(&refused.retry_after()), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn s718_the_order_is_rate_bulkhead_breaker_whatever_the_order_of_writing() {
    let (policy, _shutdown) = start(|policy| {
        let policy = policy.breaker(Breaker::at(1.0).of(1)).timeout(secs(1));
        policy.bulkhead(Bulkhead::of(1)).rate(Rate::per_second(1).burst(4))
    });
    let _ = policy.call(fail).await;
    assert_eq!(code(policy.call(succeed).await), Code::Open);
    advance(secs(10)).await;
    let mut inside = Box::pin(policy.call(hang));
    assert!(poll(inside.as_mut()).is_none());
    // The breaker would refuse a second probe, but the bulkhead comes first.
    for _ in 0..3 {
        assert_eq!(code(policy.call(succeed).await), Code::Full);
    }
    assert_eq!(code(policy.call(succeed).await), Code::RateLimited, "the rate is before both");
}

#[tokio::test(start_paused = true)]
async fn s719_a_call_ends_by_the_earliest_of_its_limits_and_knows_it() {
    let remaining = Mutex::new(Vec::new());
    let note = |attempt: Attempt| {
        remaining.lock().unwrap().push(attempt.remaining());
        hang(attempt)
    };
    let (policy, _shutdown) = start(|policy| policy.within(secs(2)).timeout(secs(1)));
    let _ = policy.call(note).await;
    let _ = policy.call_by(Deadline::after(ms(300)), note).await;
    let (policy, _shutdown) = start(|policy| policy.within(secs(2)));
    let _ = policy.call(note).await;
    let (policy, _shutdown) = start(|policy| policy);
    let _ = policy.call_by(Deadline::after(secs(9)), note).await;
    assert_eq!(*remaining.lock().unwrap(), [secs(1), ms(300), secs(2), secs(9)]);
    let (policy, _shutdown) = start(|policy| policy);
    let unlimited = policy.call(async |attempt: Attempt| Ok::<_, ()>(attempt.remaining())).await;
    assert_eq!(unlimited, Ok(secs(365 * 24 * 3_600)));
}

#[tokio::test(start_paused = true)]
async fn s720_a_call_without_time_is_not_begun() {
    let (policy, _shutdown) = start(|policy| policy.bulkhead(Bulkhead::of(1).queue(1)));
    let past = Deadline::after(ms(0));
    assert_eq!(code(policy.call_by(past, succeed).await), Code::Deadline);
    let mut inside = Box::pin(policy.call(hang));
    assert!(poll(inside.as_mut()).is_none());
    let began = Instant::now();
    let waited = policy.call_by(Deadline::after(ms(30)), succeed).await;
    assert_eq!(code(waited), Code::Deadline);
    assert_eq!(began.elapsed(), ms(30));
}

#[tokio::test(start_paused = true)]
async fn s723_a_critical_call_enters_before_others() {
    let (policy, _shutdown) = start(|policy| policy.bulkhead(Bulkhead::of(1).queue(9)));
    let order = Arc::new(Mutex::new(Vec::new()));
    let call = |name: &'static str, criticality| {
        let (policy, order) = (policy.clone(), Arc::clone(&order));
        async move {
            let call = policy.caller().criticality(criticality).call(async |_| {
                order.lock().unwrap().push(name);
                sleep(ms(10)).await;
                Ok::<_, ()>(())
            });
            call.await.unwrap();
        }
    };
    tokio::join!(
        call("first", Criticality::Normal),
        call("best effort", Criticality::BestEffort),
        call("normal", Criticality::Normal),
        call("critical", Criticality::Critical),
    );
    assert_eq!(*order.lock().unwrap(), ["first", "critical", "normal", "best effort"]);
}

#[tokio::test(start_paused = true)]
async fn s734_a_throttle_refuses_calls_to_a_failing_backend() {
    let (policy, _shutdown) = start(|policy| policy.throttle(Throttle::new()));
    let (mut made, mut refused) = (0, 0);
    for _ in 0..1_000 {
        match policy.call(fail).await {
            Err(CallError::Failed(_)) => made += 1,
            other => {
                assert_eq!(code(other), Code::Throttled);
                refused += 1;
            }
        }
    }
    assert!(made < 60 && refused > 940, "{made} {refused}");
}

#[tokio::test(start_paused = true)]
async fn s714_errors_describe_the_cause() {
    let (policy, _shutdown) =
        start(|policy| policy.bulkhead(Bulkhead::of(1)).timeout(ms(300)).retry(Retry::times(1)));
    let mut texts = String::new();
    let mut note = |result: Result<(), CallError<&str>>| {
        texts.push_str(&(result.unwrap_err().to_string() + "\n"));
    };
    note(policy.caller().not_idempotent().call(hang).await);
    note(policy.caller().not_idempotent().call(fail).await);
    let mut inside = Box::pin(policy.call(hang));
    assert!(poll(inside.as_mut()).is_none());
    note(policy.call(succeed).await);
    note(policy.call_by(Deadline::after(ms(0)), succeed).await);
    expect![[r#"
        the call timed out after 300ms
        broken
        policy backend refused the call: full, try again in 1s
        policy backend refused the call: deadline, try again in 1s
    "#]]
    .assert_eq(&texts);
}

#[tokio::test(start_paused = true)]
async fn s751_the_status_shows_breaker_bulkhead_keys_and_force() {
    let (policy, _shutdown) =
        start(|policy| policy.breaker(Breaker::at(0.5).of(2)).bulkhead(Bulkhead::of(2).queue(5)));
    let mut calls: Vec<_> = (0..3).map(|_| Box::pin(policy.call(hang))).collect();
    for call in &mut calls {
        assert!(poll(call.as_mut()).is_none());
    }
    let status = policy.status();
    let load = status.bulkhead.unwrap();
    assert_eq!((load.inside, load.waiting, load.limit), (2, 1, 2));
    assert_eq!((status.breaker, status.forced), (Some(BreakerState::Closed), None));
    drop(calls);
    for _ in 0..2 {
        let _ = policy.call(fail).await;
        let _ = policy.caller().key("a").call(fail).await;
        let _ = policy.caller().key("b").call(succeed).await;
    }
    policy.force_open(secs(9));
    let status = policy.status();
    let Some(BreakerState::Open { left }) = status.breaker else { panic!("{status:?}") };
    assert!((ms(4_500)..=ms(5_500)).contains(&left));
    assert_eq!((status.keys, status.open_keys, status.forced), (2, 1, Some(secs(9))));
    policy.release();
    advance(secs(6)).await;
    let mut probe = Box::pin(policy.call(hang));
    assert!(poll(probe.as_mut()).is_none());
    assert_eq!(policy.status().breaker, Some(BreakerState::HalfOpen));
}

#[tokio::test(start_paused = true)]
async fn s1235_metrics_count_refusals_retries_and_openings() {
    let (policy, shutdown) = start(|policy| {
        let breaker = Breaker::at(1.0).of(2).opens_for(secs(5));
        policy.breaker(breaker).bulkhead(Bulkhead::of(1)).retry(Retry::times(1))
    });
    let metrics = || {
        let mut metrics = adieu_core::adapter::Metrics::default();
        let (_, page) = adieu_core::adapter::pages(&shutdown).remove(0);
        page.metrics(&mut metrics);
        metrics.to_string()
    };
    let has = |line: &str| {
        let text = metrics();
        let line = line.replace("NAME", "policy=\"backend\"");
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    };
    has("adieu_resilience_breaker{NAME,state=\"closed\"} 1");
    has("adieu_resilience_bulkhead_limit{NAME} 1");
    has("adieu_resilience_opened_total{NAME,by=\"process\"} 0");
    let mut inside = Box::pin(policy.call(hang));
    assert!(poll(inside.as_mut()).is_none());
    assert_eq!(code(policy.call(succeed).await), Code::Full);
    has("adieu_resilience_bulkhead_inside{NAME} 1");
    has("adieu_resilience_refused_total{NAME,code=\"full\"} 1");
    drop(inside);
    let _ = policy.call(fail).await;
    has("adieu_resilience_retries_total{NAME} 1");
    has("adieu_resilience_opened_total{NAME,by=\"process\"} 1");
    has("adieu_resilience_breaker{NAME,state=\"closed\"} 0");
    has("adieu_resilience_breaker{NAME,state=\"open\"} 1");
    for _ in 0..2 {
        assert_eq!(code(policy.call(succeed).await), Code::Open);
    }
    has("adieu_resilience_refused_total{NAME,code=\"open\"} 2");
    policy.force_open(secs(60));
    assert_eq!(code(policy.call(succeed).await), Code::ForcedOpen);
    has("adieu_resilience_forced_open{NAME} 1");
    has("adieu_resilience_refused_total{NAME,code=\"forced-open\"} 1");
    // The format requires that the samples of a metric stand together, under one header.
    let text = metrics();
    let headers = text.lines().filter(|line| line.starts_with("# TYPE")).collect::<Vec<_>>();
    let unique = headers.iter().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(headers.len(), unique.len(), "{headers:?}");
}

// Wherever a call is dropped: in the queue, while it runs, in a pause, while it waits for the store.
#[tokio::test(start_paused = true)]
async fn s1560_calls_that_are_dropped_at_any_time_leave_nothing_behind() {
    let shutdown = shutdown();
    shutdown.mark_started();
    let start = |name: &'static str| {
        let breaker = Breaker::at(0.5).of(5).over(secs(1)).opens_for(ms(50)).at_most(ms(100));
        Policy::new(name)
            .within(secs(5))
            .rate(Rate::per_second(400).burst(40))
            .bulkhead(Bulkhead::of(3).queue(4))
            .breaker(breaker)
            .retry(Retry::times(2))
            .timeout(ms(500))
            .start(&shutdown)
            .unwrap()
    };
    let policies = [start("local"), start("shared")];
    let shared: Policies = [policies[1].clone()].into_iter().collect();
    let _shared = shared.shared(Memory::new(), "checkout").unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let (mut calls, mut dropped, mut ended) = (Vec::new(), 0, 0);
    for _ in 0..4_000 {
        for policy in &policies {
            let (yields, takes, is_well) = (random.u8(..3), random.u64(..6), random.u8(..3) > 0);
            calls.push(Box::pin(policy.call(move |_: Attempt| async move {
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
                sleep(ms(takes)).await;
                if is_well { Ok(()) } else { Err("broken") }
            })));
        }
        calls.retain_mut(|call| {
            let is_ended = poll(call.as_mut()).is_some();
            let is_dropped = !is_ended && random.u8(..4) == 0;
            (ended, dropped) = (ended + u32::from(is_ended), dropped + u32::from(is_dropped));
            !is_ended && !is_dropped
        });
        sleep(ms(random.u64(..3))).await;
    }
    assert!(ended > 1_000 && dropped > 1_000, "{ended} ended, {dropped} dropped");
    drop(calls);
    for policy in &policies {
        let load = policy.status().bulkhead.unwrap();
        assert_eq!((load.inside, load.waiting), (0, 0), "{}", policy.name());
        // After a break and the lease of a probe at the latest, calls pass.
        sleep(secs(2)).await;
        assert_eq!(policy.call(succeed).await, Ok(()), "{}", policy.name());
        // The call may have been a probe of the fleet: then the store closes the breaker, a tick later.
        sleep(secs(1)).await;
        assert_eq!(policy.status().breaker, Some(BreakerState::Closed), "{}", policy.name());
    }
}
