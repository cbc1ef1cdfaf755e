//! Calls while the process drains.

use std::sync::atomic::{AtomicU32, Ordering};

use adieu_core::{Config, Gate, KillAfter, Reason, Shutdown};
use adieu_resilience::{Breaker, CallError, Class, Code, Policy, Retry};
use tokio::time::{Instant, advance, sleep};

use super::tools::{code, fail, hang, ms, poll, secs, start, succeed};

/// A shutdown that has 20 s, and a gate that it drains for 5 s.
fn with_gate() -> (Shutdown, Gate) {
    let config = Config::for_tests().kill_after(KillAfter::After(secs(20))).drain_timeout(secs(5));
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    (shutdown, gate)
}

/// Calls until the declared retries are used up; returns how often, and how long it took.
async fn call_failing(policy: &Policy, pause: u64) -> (u32, u128) {
    let (made, began) = (AtomicU32::new(0), Instant::now());
    let class = Class::sick().retry_after(ms(pause));
    let caller = policy.caller().classify(move |_: &Result<(), ()>| class);
    let result = caller.call(async |_| {
        made.fetch_add(1, Ordering::Relaxed);
        Err(())
    });
    assert_eq!(result.await, Err(CallError::Failed(())), "the real error");
    (made.into_inner(), began.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn s742_inside_a_gate_that_drains_a_call_is_repeated_once_more_and_soon() {
    let (shutdown, gate) = with_gate();
    let policy = Policy::new("p").retry(Retry::times(5)).start(&shutdown).unwrap();
    let pass = gate.enter().unwrap();
    assert_eq!(pass.clone().scope(call_failing(&policy, 10)).await, (6, 50));
    let completed = shutdown.run(Reason::Unknown);
    gate.closed_token().cancelled().await;
    let left = shutdown.deadline().unwrap().remaining();
    let (made, took) = pass.scope(call_failing(&policy, 60_000)).await;
    assert_eq!(made, 2);
    assert!(took <= (left / 4).as_millis() && took > 1_000, "{took} of {left:?}");
    completed.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s743_outside_a_gate_no_call_is_repeated_after_the_shutdown_has_begun() {
    let (shutdown, _gate) = with_gate();
    let policy = Policy::new("p").retry(Retry::times(5)).start(&shutdown).unwrap();
    // One that pauses is woken, with its own error.
    let pausing = call_failing(&policy, 60_000);
    let begins = async {
        sleep(ms(300)).await;
        drop(shutdown.run(Reason::Unknown));
    };
    let (paused, ()) = tokio::join!(pausing, begins);
    assert_eq!(paused, (1, 300));
    assert_eq!(call_failing(&policy, 0).await, (1, 0));
}

#[tokio::test(start_paused = true)]
async fn s744_a_call_inside_a_gate_ends_when_the_window_is_over() {
    let (shutdown, gate) = with_gate();
    let policy = Policy::new("p").retry(Retry::times(5)).start(&shutdown).unwrap();
    let (pass, pausing) = (gate.enter().unwrap(), gate.enter().unwrap());
    let began = Instant::now();
    let hanging = pass.scope(policy.call(hang));
    let pausing = pausing.scope(call_failing(&policy, 60_000));
    let completed = shutdown.run(Reason::Unknown);
    let (hung, paused) = tokio::join!(hanging, pausing);
    assert!(matches!(hung, Err(CallError::TimedOut { .. })), "{hung:?}");
    assert_eq!(paused.0, 1, "a call that pauses is not repeated");
    assert!((secs(5)..secs(6)).contains(&began.elapsed()), "{:?}", began.elapsed());
    completed.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s745_in_a_gate_that_drains_remaining_is_no_more_than_the_shutdown_has() {
    let (shutdown, gate) = with_gate();
    let policy = Policy::new("p").within(secs(60)).start(&shutdown).unwrap();
    let pass = gate.enter().unwrap();
    let remaining = policy.call(async |attempt| Ok::<_, ()>(attempt.remaining()));
    assert_eq!(pass.clone().scope(remaining).await, Ok(secs(60)));
    let completed = shutdown.run(Reason::Unknown);
    gate.closed_token().cancelled().await;
    let remaining = policy.call(async |attempt| Ok::<_, ()>(attempt.remaining()));
    let remaining = pass.scope(remaining).await.unwrap();
    assert!(remaining <= shutdown.deadline().unwrap().remaining(), "{remaining:?}");
    assert!(remaining <= secs(20));
    completed.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s711_a_process_that_shuts_down_begins_no_probe() {
    let (policy, shutdown) = start(|policy| policy.breaker(Breaker::at(1.0).of(1)));
    let _ = policy.call(fail).await;
    shutdown.run(Reason::Unknown).await.unwrap();
    advance(secs(60)).await;
    assert_eq!(code(policy.call(succeed).await), Code::Open);
}

#[tokio::test(start_paused = true)]
async fn s746_failures_of_a_process_that_shuts_down_do_not_count() {
    let (policy, shutdown) = start(|policy| policy.breaker(Breaker::at(1.0).of(1)));
    shutdown.run(Reason::Unknown).await.unwrap();
    for _ in 0..5 {
        assert_eq!(policy.call(fail).await, Err(CallError::Failed("broken")));
    }
}

// A policy that the application keeps, in a server that the shutdown owns, must not keep the shutdown.
#[tokio::test(start_paused = true)]
async fn s747_a_policy_does_not_keep_its_shutdown_alive() {
    let (policy, shutdown) = start(|policy| policy.retry(Retry::times(1)));
    let weak = shutdown.downgrade();
    let mut pausing = Box::pin(call_failing(&policy, 1_000));
    assert!(poll(pausing.as_mut()).is_none());
    drop(shutdown);
    assert!(weak.upgrade().is_none());
    assert_eq!(call_failing(&policy, 10).await, (2, 10));
}

#[tokio::test(start_paused = true)]
async fn s1231_in_a_draining_gate_a_call_has_the_remaining_window() {
    let (shutdown, gate) = with_gate();
    let policy = Policy::new("p").within(secs(60)).start(&shutdown).unwrap();
    let pass = gate.enter().unwrap();
    let began = Instant::now();
    // The attempt begins before the drain, and gets the window meanwhile.
    let early = pass.clone().scope(policy.call(async |attempt| {
        let before = attempt.remaining();
        sleep(secs(2)).await;
        Ok::<_, ()>((before, attempt.remaining()))
    }));
    let late = pass.clone().scope(async {
        sleep(secs(2)).await;
        policy.call(async |attempt| Ok::<_, ()>(attempt.remaining())).await
    });
    let completed = shutdown.run(Reason::Unknown);
    let (early, late) = tokio::join!(early, late);
    let (before, after) = early.unwrap();
    assert_eq!(before, secs(60));
    let end = pass.window_end().unwrap().instant() - began;
    assert!((secs(5)..secs(6)).contains(&end), "{end:?}");
    assert_eq!((after, late), (end - secs(2), Ok(end - secs(2))));
    // A call that begins when nothing is left is not begun.
    sleep(end - secs(2)).await;
    assert_eq!(code(pass.scope(policy.call(succeed)).await), Code::Deadline);
    completed.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s1232_a_job_of_a_loop_is_not_repeated_while_it_drains() {
    let (shutdown, gate) = with_gate();
    let policy = Policy::new("p").retry(Retry::times(5)).start(&shutdown).unwrap();
    let (made, result) = tokio::sync::oneshot::channel();
    let mut job = Some((made, policy.clone()));
    shutdown
        .add_loop("jobs", move |cx: adieu_core::LoopCx| {
            let job = job.take();
            async move {
                let Some((made, policy)) = job else { return };
                let pass = cx.enter().unwrap();
                cx.takes_no_more().await;
                let _ = made.send(pass.scope(call_failing(&policy, 10)).await.0);
            }
        })
        .unwrap();
    let pass = gate.enter().unwrap();
    tokio::task::yield_now().await;
    let completed = shutdown.run(Reason::Unknown);
    assert_eq!(result.await, Ok(1), "a job comes again");
    gate.closed_token().cancelled().await;
    assert_eq!(pass.scope(call_failing(&policy, 10)).await.0, 2, "a request does not");
    completed.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s1233_a_refusal_of_an_own_gate_is_not_an_outcome() {
    #[derive(Debug, thiserror::Error)]
    #[error("failed to enqueue")]
    struct Wrapped(#[source] Box<dyn std::error::Error + Send + Sync>);

    let (policy, _shutdown) = start(|policy| policy.breaker(Breaker::at(1.0).of(1)));
    let gate = Gate::new("orders");
    gate.cordon();
    let class = |result: &Result<(), Wrapped>| match result {
        Ok(()) => Class::well(),
        Err(error) => Class::of_error(error),
    };
    for _ in 0..5 {
        let refused = async |_| Err(Wrapped(gate.enter().unwrap_err().into()));
        let called = policy.caller().classify(class).call(refused).await;
        assert!(matches!(called, Err(CallError::Failed(_))), "{called:?}");
    }
    let broken = async |_| Err(Wrapped("broken".into()));
    let _ = policy.caller().classify(class).call(broken).await;
    assert_eq!(code(policy.call(succeed).await), Code::Open);
}
