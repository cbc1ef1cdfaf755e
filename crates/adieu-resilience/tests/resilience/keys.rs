//! Policies with a state for each key.

use adieu_resilience::{Breaker, CallError, Code, Policy, Rate};
use tokio::time::advance;

use super::tools::{fail, hang, poll, secs, start, succeed};

const MOST: usize = 4_096;

async fn call(policy: &Policy, key: &str) -> Option<Code> {
    let result = policy.caller().key(key).call(succeed).await;
    result.err().map(|error| error.refused().unwrap().code())
}

#[tokio::test(start_paused = true)]
async fn s748_each_key_has_a_state_of_its_own() {
    let (policy, _shutdown) =
        start(|policy| policy.rate(Rate::per_second(1).burst(1)).breaker(Breaker::at(1.0).of(1)));
    assert_eq!(call(&policy, "a").await, None);
    assert_eq!(call(&policy, "a").await, Some(Code::RateLimited));
    assert_eq!(call(&policy, "b").await, None);
    assert_eq!(policy.call(succeed).await, Ok(()));
    advance(secs(10)).await;
    let _ = policy.caller().key("a").call(fail).await;
    advance(secs(1)).await;
    assert_eq!(call(&policy, "a").await, Some(Code::Open));
    assert_eq!(call(&policy, "b").await, None);
    assert_eq!(policy.status().keys, 2);
}

#[tokio::test(start_paused = true)]
async fn s749_at_most_4096_keys_are_kept_and_those_idle_longest_are_removed_first() {
    let (policy, _shutdown) = start(|policy| policy.rate(Rate::per_second(1).burst(1)));
    for key in 0..MOST {
        assert_eq!(call(&policy, &format!("k{key}")).await, None);
    }
    advance(secs(1)).await;
    // The first is used again, so it is neither idle nor old.
    assert_eq!(call(&policy, "k0").await, None);
    assert_eq!(call(&policy, "new").await, None);
    assert!(policy.status().keys <= MOST, "{}", policy.status().keys);
    assert_eq!(call(&policy, "k0").await, Some(Code::RateLimited), "k0 was removed");
}

#[tokio::test(start_paused = true)]
async fn s750_a_key_that_is_open_or_in_use_is_never_removed() {
    let (policy, _shutdown) = start(|policy| {
        policy.breaker(Breaker::at(0.5).of(1).opens_for(secs(3_000)).at_most(secs(3_000)))
    });
    let mut in_use = Box::pin(policy.caller().key("in use").call(hang));
    assert!(poll(in_use.as_mut()).is_none());
    for key in 0..MOST - 2 {
        let _ = policy.caller().key(&format!("open {key}")).call(fail).await;
    }
    assert_eq!(call(&policy, "idle").await, None);
    assert_eq!(policy.status().keys, MOST);
    for key in 0..100 {
        assert_eq!(call(&policy, &format!("new {key}")).await, None);
    }
    assert_eq!(policy.status().keys, MOST);
    for key in 0..MOST - 2 {
        assert_eq!(call(&policy, &format!("open {key}")).await, Some(Code::Open));
    }
    // All keys are open or in use now: further ones share one state.
    let _ = policy.caller().key("new 99").call(fail).await;
    let one_more = policy.caller().key("one more").call(fail).await;
    assert_eq!(one_more, Err(CallError::Failed("broken")));
    assert_eq!(call(&policy, "yet another").await, Some(Code::Open));
    assert_eq!(policy.status().keys, MOST);
}
