//! The policies that can be built and shared, and the combinations that are refused.

use adieu_resilience::{
    Breaker, Bulkhead, Memory, Policies, Policy, PolicyBuilder, PolicyError, Rate, Retry, Throttle,
};
use expect_test::expect;

use super::tools::{ms, secs, shutdown};

#[tokio::test]
async fn s700_a_contradiction_is_refused_with_its_figures() {
    let shutdown = shutdown();
    let refusal = |build: fn(PolicyBuilder) -> PolicyBuilder| {
        build(Policy::new("pay")).start(&shutdown).unwrap_err().to_string() + "\n"
    };
    let refusals = [
        refusal(|policy| policy.within(secs(2)).timeout(secs(3))),
        refusal(|policy| policy.within(secs(2)).timeout(secs(2)).retry(Retry::times(1))),
        refusal(|policy| policy.breaker(Breaker::at(0.5)).throttle(Throttle::new())),
        refusal(|policy| policy.rate(Rate::per_second(1)).timeout(ms(1)).rate(Rate::per_second(2))),
        refusal(|policy| policy.within(secs(0))),
        refusal(|policy| policy.timeout(secs(366 * 24 * 3_600))),
        refusal(|policy| policy.rate(Rate::per_second(0))),
        refusal(|policy| policy.rate(Rate::per_second(5).burst(0))),
        refusal(|policy| policy.rate(Rate::per(2, std::time::Duration::from_nanos(100)))),
        refusal(|policy| policy.rate(Rate::per(1, secs(24 * 3_600)).burst(1_000))),
        refusal(|policy| policy.bulkhead(Bulkhead::of(0))),
        refusal(|policy| policy.bulkhead(Bulkhead::adaptive(0..=4))),
        refusal(|policy| policy.bulkhead(Bulkhead::aimd(1..=4, secs(0)))),
        refusal(|policy| policy.breaker(Breaker::at(0.0))),
        refusal(|policy| policy.breaker(Breaker::at(f64::NAN))),
        refusal(|policy| policy.breaker(Breaker::at(0.5).of(0))),
        refusal(|policy| policy.breaker(Breaker::at(0.5).over(ms(9)))),
        refusal(|policy| policy.breaker(Breaker::at(0.5).opens_for(secs(9)).at_most(secs(8)))),
        refusal(|policy| policy.breaker(Breaker::at(0.5).slow(secs(0)))),
        refusal(|policy| policy.breaker(Breaker::at(0.5).slow(secs(2))).timeout(secs(1))),
        refusal(|policy| policy.breaker(Breaker::at(0.5).slow(secs(2))).within(secs(1))),
        refusal(|policy| policy.throttle(Throttle::new().factor(0.9))),
        refusal(|policy| policy.throttle(Throttle::new().over(secs(0)))),
        refusal(|policy| policy.retry(Retry::times(0))),
        refusal(|policy| policy.retry(Retry::times(1).budget(1.1))),
        Policy::new("p ay").start(&shutdown).unwrap_err().to_string(),
    ];
    expect![[r#"
        failed to start policy pay: the timeout of an attempt, 3s, is longer than all attempts may take, 2s
        failed to start policy pay: retries do not fit: one attempt may take 2s, and that is all the time there is
        failed to start policy pay: a breaker and a throttle decide the same: keep one of them
        failed to start policy pay: rate is set twice: keep one of them
        failed to start policy pay: within of 0ns is not from 1ns to a year
        failed to start policy pay: timeout of 31622400s is not from 1ns to a year
        failed to start policy pay: rate: zero permits and a burst of zero refuse every call
        failed to start policy pay: rate: zero permits and a burst of zero refuse every call
        failed to start policy pay: rate: 2 permits in 100ns are more than one in 100ns
        failed to start policy pay: rate: a burst of 1000 is restored after 1000 days, which is longer than a year
        failed to start policy pay: bulkhead: a limit of zero refuses every call
        failed to start policy pay: bulkhead: the range 0 to 4 is invalid: the lower limit must be at least 1, and not above the upper one
        failed to start policy pay: bulkhead: a threshold of 0ns is not from 1ns to a year
        failed to start policy pay: breaker: ratio is 0; it must be above 0 and at most 1
        failed to start policy pay: breaker: ratio is NaN; it must be above 0 and at most 1
        failed to start policy pay: breaker: calls, probes, closes-after and witnesses must each be at least 1
        failed to start policy pay: breaker: a window of 9ms is not from 10ms to a year
        failed to start policy pay: breaker: the first break of 9s is longer than the longest of 8s
        failed to start policy pay: breaker: slow is zero, so every call would count as failed; set a longer time
        failed to start policy pay: breaker: no call takes longer than slow, 2s: an attempt ends after 1s
        failed to start policy pay: breaker: no call takes longer than slow, 2s: an attempt ends after 1s
        failed to start policy pay: throttle: factor 0.9 is not from 1 to 100
        failed to start policy pay: throttle: 0ns is not from 100ms to a year
        failed to start policy pay: retry: 0 times is not from 1 to 10
        failed to start policy pay: retry: a budget of 1.1 is not from 0 to 1
        failed to start policy p ay: the name must have 1 to 100 of the characters a-z A-Z 0-9 . _ -"#]].assert_eq(&refusals.concat());
}

#[tokio::test]
async fn s701_two_policies_of_one_shutdown_have_different_names() {
    let shutdown_1 = shutdown();
    let first = Policy::new("pay").start(&shutdown_1).unwrap();
    let taken = Policy::new("pay").start(&shutdown_1).unwrap_err();
    assert!(matches!(taken, PolicyError::NameTaken { .. }), "{taken}");
    Policy::new("pay").start(&shutdown()).unwrap();
    drop(first);
    Policy::new("pay").start(&shutdown_1).unwrap();
}

#[tokio::test(start_paused = true)]
async fn s1556_policies_of_one_name_or_of_two_shutdowns_are_not_shared_together() {
    let (one, other) = (shutdown(), shutdown());
    let start = |name: &str, of| Policy::new(name.to_owned()).start(of).unwrap();
    let share = |policies: [Policy; 2]| {
        let policies: Policies = policies.into_iter().collect();
        policies.shared(Memory::new(), "checkout").unwrap_err().to_string()
    };
    expect![[r#"
        failed to share policies: two of them have the name pay; share one of them as another service"#]]
    .assert_eq(&share([start("pay", &one), start("pay", &other)]));
    expect![[r#"
        failed to share policies: policies that are shared together need one shutdown, but search has another than pay"#]]
    .assert_eq(&share([start("pay", &one), start("search", &other)]));
}
