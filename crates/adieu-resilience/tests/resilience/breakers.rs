//! Calls through a breaker: what opens it, how it probes, and how it is forced.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use adieu_core::Deadline;
use adieu_resilience::{Attempt, Breaker, Bulkhead, CallError, Class, Code, Rate, Retry};
use tokio::time::{advance, sleep};

use super::tools::{code, fail, hang, ms, poll, secs, start, succeed};
#[tokio::test(start_paused = true)]
async fn s705_sick_outcomes_and_our_timeouts_open_the_breaker() {
    let breaker = || Breaker::at(1.0).of(2);
    let (policy, _shutdown) = start(|policy| policy.breaker(breaker()).timeout(secs(1)));
    assert_eq!(policy.call(fail).await, Err(CallError::Failed("broken")));
    assert_eq!(policy.call(hang).await, Err(CallError::TimedOut { after: secs(1) }));
    assert_eq!(code(policy.call(succeed).await), Code::Open);

    let (policy, _shutdown) = start(|policy| policy.breaker(breaker()).within(secs(1)));
    for _ in 0..2 {
        let late = policy.call(hang).await;
        assert_eq!(late, Err(CallError::TimedOut { after: secs(1) }));
    }
    assert_eq!(code(policy.call(succeed).await), Code::Open, "without a timeout, within is one");
}

// A retry has the remaining time of `within`, which may be very little.
#[tokio::test(start_paused = true)]
async fn s705_within_is_the_timeout_of_the_first_attempt_only() {
    let (policy, _shutdown) = start(|policy| {
        policy.breaker(Breaker::at(1.0).of(2)).within(secs(1)).retry(Retry::times(1))
    });
    let late = policy.call(async |attempt: Attempt| match attempt.number() {
        1 => Err("broken"),
        _ => hang(attempt).await,
    });
    assert!(matches!(late.await, Err(CallError::TimedOut { .. })));
    assert_eq!(policy.call(succeed).await, Ok(()), "one failure has counted");
}

#[tokio::test(start_paused = true)]
async fn s705_a_panic_goes_through_and_opens_the_breaker() {
    let (policy, _shutdown) = start(|policy| policy.breaker(Breaker::at(1.0).of(2)));
    async fn late(_: Attempt) -> Result<(), ()> {
        sleep(ms(1)).await;
        panic!("in the future")
    }
    fn early(_: Attempt) -> std::future::Ready<Result<(), ()>> {
        panic!("in the function")
    }
    let panic = futures_panic(policy.call(late)).await;
    assert_eq!(panic, "in the future");
    let panic = futures_panic(policy.call(early)).await;
    assert_eq!(panic, "in the function");
    assert_eq!(code(policy.call(succeed).await), Code::Open);
}

async fn futures_panic<T>(call: impl Future<Output = T>) -> &'static str {
    let mut call = Box::pin(call);
    let caught = std::future::poll_fn(|cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))) {
            Ok(polled) => polled.map(|_| None),
            Err(panic) => std::task::Poll::Ready(panic.downcast_ref::<&'static str>().copied()),
        }
    });
    caught.await.expect("a panic")
}

#[tokio::test(start_paused = true)]
async fn s713_neutral_outcomes_do_not_count() {
    let (policy, _shutdown) =
        start(|policy| policy.breaker(Breaker::at(1.0).of(1)).timeout(secs(10)));
    // The caller goes away,
    let mut call = Box::pin(policy.call(hang));
    assert!(poll(call.as_mut()).is_none());
    drop(call);
    // its deadline comes first,
    let late = policy.call_by(Deadline::after(secs(1)), hang).await;
    assert_eq!(late, Err(CallError::TimedOut { after: secs(1) }));
    // or the backend refused without processing.
    for class in [Class::neutral(), Class::throttled(), Class::unprocessed(), Class::well()] {
        let classified = policy.caller().classify(move |_: &Result<(), &str>| class);
        assert_eq!(classified.call(fail).await, Err(CallError::Failed("broken")));
    }
    assert_eq!(policy.call(succeed).await, Ok(()));
    advance(secs(11)).await;
    assert_eq!(policy.call(fail).await, Err(CallError::Failed("broken")));
    assert_eq!(code(policy.call(succeed).await), Code::Open, "the breaker is there");
}

#[tokio::test(start_paused = true)]
async fn s712_slow_calls_open_the_breaker() {
    let breaker = Breaker::at(1.0).of(2).slow(ms(100));
    let (policy, _shutdown) = start(|policy| policy.breaker(breaker));
    for _ in 0..2 {
        let slow = policy.call(async |_| {
            sleep(ms(101)).await;
            Ok::<_, ()>(())
        });
        assert_eq!(slow.await, Ok(()));
    }
    assert_eq!(code(policy.call(succeed).await), Code::Open);
}

#[tokio::test(start_paused = true)]
async fn s708_a_dropped_probe_lets_the_next_call_probe() {
    let (policy, _shutdown) = start(|policy| policy.breaker(Breaker::at(1.0).of(1)));
    let _ = policy.call(fail).await;
    advance(secs(6)).await;
    let mut probe = Box::pin(policy.call(hang));
    assert!(poll(probe.as_mut()).is_none());
    assert_eq!(code(policy.call(succeed).await), Code::Open, "one probe at a time");
    drop(probe);
    assert_eq!(policy.call(succeed).await, Ok(()));
    assert_eq!(policy.call(succeed).await, Ok(()), "it is closed");
}

#[tokio::test(start_paused = true)]
async fn s708_a_probe_that_hangs_does_not_wedge_the_breaker() {
    let (policy, _shutdown) = start(|policy| policy.breaker(Breaker::at(1.0).of(1)));
    let _ = policy.call(fail).await;
    advance(secs(6)).await;
    let mut probe = Box::pin(policy.call(hang));
    assert!(poll(probe.as_mut()).is_none());
    advance(ms(29_999)).await;
    assert_eq!(code(policy.call(succeed).await), Code::Open);
    advance(ms(1)).await;
    assert_eq!(policy.call(succeed).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s715_a_policy_that_is_forced_open_refuses_until_its_time_or_its_release() {
    let (policy, _shutdown) = start(|policy| policy.rate(Rate::per_second(1)));
    policy.force_open(secs(60));
    advance(secs(59)).await;
    let Err(CallError::Refused(refused)) = policy.call(succeed).await else { panic!() };
    assert_eq!((refused.code(), refused.retry_after()), (Code::ForcedOpen, secs(1)));
    assert_eq!(code(policy.caller().key("a").call(succeed).await), Code::ForcedOpen);
    advance(secs(1)).await;
    assert_eq!(policy.call(succeed).await, Ok(()));
    policy.force_open(secs(1_000_000));
    advance(secs(24 * 60 * 60 - 1)).await;
    assert_eq!(code(policy.call(succeed).await), Code::ForcedOpen);
    advance(secs(1)).await;
    assert_eq!(policy.call(succeed).await, Ok(()), "a day at most");
    policy.force_open(secs(60));
    policy.release();
    advance(secs(1)).await;
    assert_eq!(policy.call(succeed).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s721_each_transition_of_a_breaker_is_logged_once() {
    let lines = Arc::new(Mutex::new(Vec::<u8>::new()));
    let writer = Arc::clone(&lines);
    #[derive(Clone)]
    struct Writer(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || Writer(Arc::clone(&writer)))
        .without_time()
        .with_ansi(false)
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let (policy, shutdown) = start(|policy| policy.breaker(Breaker::at(1.0).of(1)));
    let _ = policy.call(fail).await;
    for _ in 0..3 {
        let _ = policy.call(succeed).await;
    }
    advance(secs(6)).await;
    let _ = policy.call(succeed).await;
    let _ = policy.call(succeed).await;
    // The report is there after all lines have been logged.
    shutdown.run(adieu_core::Reason::Unknown).await.unwrap();
    let lines = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    let of_breaker: Vec<_> = lines.lines().filter(|line| line.contains("breaker")).collect();
    assert_eq!(of_breaker.len(), 3, "{lines}");
    assert!(of_breaker[0].contains("WARN") && of_breaker[0].contains("breaker opened"), "{lines}");
    assert!(of_breaker[0].contains("policy=backend"), "{lines}");
    assert!(of_breaker[1].contains("breaker half-open"), "{lines}");
    assert!(of_breaker[2].contains("breaker closed"), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn s731_after_the_breaker_opened_an_adaptive_bulkhead_begins_at_its_lowest() {
    let (policy, _shutdown) = start(|policy| {
        let breaker = Breaker::at(1.0).of(1).over(ms(10)).opens_for(ms(1));
        policy.bulkhead(Bulkhead::aimd(1..=50, secs(1))).breaker(breaker)
    });
    let at_once = || {
        let mut calls: Vec<_> = (0..50).map(|_| Box::pin(policy.call(hang))).collect();
        calls.iter_mut().filter_map(|call| poll(call.as_mut()).is_none().then_some(())).count()
    };
    for _ in 0..40 {
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let policy = policy.clone();
            calls.spawn(async move {
                let slow = policy.call(async |_| {
                    sleep(ms(1)).await;
                    Ok::<_, ()>(())
                });
                let _ = slow.await;
            });
        }
        calls.join_all().await;
    }
    let grown = at_once();
    assert!(grown > 10, "{grown}");
    advance(ms(20)).await;
    let _ = policy.call(fail).await;
    advance(ms(5)).await;
    assert_eq!(policy.call(succeed).await, Ok(()));
    assert_eq!(at_once(), 2, "one, and one more for the probe");
}

#[tokio::test(start_paused = true)]
async fn s1829_a_loop_of_refused_calls_yields_to_other_tasks() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (policy, _shutdown) = start(|policy| policy.breaker(Breaker::at(1.0).of(2)));
    policy.force_open(secs(60));
    let calls = std::sync::Arc::new(AtomicUsize::new(0));
    let counts = std::sync::Arc::clone(&calls);
    let refused = async {
        while counts.fetch_add(1, Ordering::Relaxed) < 100_000 {
            assert_eq!(code(policy.call(succeed).await), Code::ForcedOpen);
        }
    };
    tokio::select! {
        biased;
        () = refused => {}
        () = std::future::ready(()) => {}
    }
    let calls = calls.load(Ordering::Relaxed);
    assert!((1..1_000).contains(&calls), "{calls} calls without a yield");
}
