//! Policies from the configuration, and policies that are forced open.

use adieu_core::{Config, DeploymentProfile, Format, Lifecycle};
use adieu_resilience::{CallError, Memory, Policies, PoliciesError, Policy};
use expect_test::expect;

use super::tools::{secs, shutdown};

fn configured(text: &str) -> Result<Policies, PoliciesError> {
    with_vars(text, &[])
}

fn with_vars(text: &str, vars: &[(&str, &str)]) -> Result<Policies, PoliciesError> {
    let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let config = Config::parse_with_vars(text, Format::Toml, vars)?;
    Policies::configured(&config, &shutdown())
}

#[tokio::test]
async fn s752_policies_are_configured_by_name() {
    let policies = configured(
        r#"
        [coordinated-shutdown]
        kill-after = "25s"

        [resilience.payments]
        within   = "2s"
        rate     = { permits = 500, per = "1s", burst = 50, without-store = "closed" }
        bulkhead = { adaptive = "gradient", least = 4, most = 64, queue = 128 }
        breaker  = { ratio = 0.5, calls = 20, over = "10s", opens-for = "5s", at-most = "1m", probes = 2, closes-after = 3, witnesses = 4, slow = "200ms" }
        retry    = { times = 2, budget = 0.2 }
        timeout  = "300ms"

        [resilience.search]
        rate     = { permits = 9 }
        bulkhead = { limit = 7 }
        throttle = { factor = 1.5, over = "1m" }

        [resilience.mail]
        bulkhead = { adaptive = "aimd", least = 1, most = 9, threshold = "2s" }
        "#,
    )
    .unwrap();
    let specs: Vec<_> = policies.iter().map(|policy| format!("{policy:?}\n")).collect();
    expect![[r#"
        Policy { name: "mail", spec: Spec { within: None, rate: None, bulkhead: Some(Bulkhead { limit: Aimd(1..=9, 2s), queue: 0 }), breaker: None, throttle: None, retry: None, timeout: None }, .. }
        Policy { name: "payments", spec: Spec { within: Some(2s), rate: Some(Rate { permits: 500, per: 1s, burst: Some(50), without_store: Closed }), bulkhead: Some(Bulkhead { limit: Gradient(4..=64), queue: 128 }), breaker: Some(Breaker { ratio: 0.5, calls: 20, over: 10s, opens_for: 5s, at_most: Some(60s), probes: 2, closes_after: 3, slow: Some(200ms), witnesses: 4 }), throttle: None, retry: Some(Retry { times: 2, budget: 0.2 }), timeout: Some(300ms) }, .. }
        Policy { name: "search", spec: Spec { within: None, rate: Some(Rate { permits: 9, per: 1s, burst: None, without_store: Share }), bulkhead: Some(Bulkhead { limit: Fixed(7), queue: 0 }), breaker: None, throttle: Some(Throttle { factor: 1.5, over: 60s }), retry: None, timeout: None }, .. }
    "#]].assert_eq(&specs.concat());
    let unknown = policies.get("payment").unwrap_err().to_string();
    assert_eq!(unknown, "there is no policy payment: known are mail, payments, search");
    assert_eq!(policies.get("mail").unwrap().name(), "mail");
}

#[tokio::test]
async fn s753_unknown_keys_and_wrong_values_are_refused_with_their_path() {
    let refusals = [
        "[resilience.pay]\ntimeuot = \"1s\"",
        "[resilience.pay]\nrate = { permit = 5 }",
        "[resilience.pay]\nrate = { permits = -5 }",
        "[resilience.pay]\nrate = { burst = 5 }",
        "[resilience.pay]\nrate = 5",
        "[resilience.pay]\ntimeout = 5",
        "[resilience.pay]\nbreaker = { ratio = \"half\" }",
        "[resilience.pay]\nbreaker = { calls = 5 }",
        "[resilience.pay]\nbulkhead = { queue = 5 }",
        "[resilience.pay]\nbulkhead = { limit = 5, most = 6 }",
        "[resilience.pay]\nbulkhead = { adaptive = \"vegas\", least = 1, most = 5 }",
        "[resilience.pay]\nbulkhead = { adaptive = \"gradient\", most = 5 }",
        "[resilience.pay]\nbulkhead = { adaptive = \"aimd\", least = 1, most = 5 }",
        "[resilience.pay]\nretry = { budget = 0.5 }",
        "[resilience.pay]\nwithin = \"1s\"\ntimeout = \"2s\"",
        "[resilience]\npay = 5",
        "[resilence.pay]\ntimeout = \"1s\"",
        "[coordinated-shutdown.resilience.pay]\ntimeout = \"1s\"\n[resilience.pay]\ntimeout = \"1s\"",
    ];
    let texts = refusals.map(|text| configured(text).unwrap_err().to_string() + "\n");
    expect![[r#"
        unknown key resilience.pay.timeuot; did you mean resilience.pay.timeout?
        unknown key resilience.pay.rate.permit; did you mean resilience.pay.rate.permits?
        resilience.pay.rate.permits: -5 is out of range
        resilience.pay.rate.permits: is missing
        resilience.pay.rate: expected a table of keys and values, found 5
        resilience.pay.timeout: 5 has no unit: write 5s or 5ms
        resilience.pay.breaker.ratio: expected a number, found "half"
        resilience.pay.breaker.ratio: is missing
        resilience.pay.bulkhead.limit: is missing, or adaptive with least and most in its place
        resilience.pay.bulkhead.limit: a fixed limit has no adaptive, least, most and threshold: keep one kind
        resilience.pay.bulkhead.adaptive: expected gradient or aimd, found vegas
        resilience.pay.bulkhead.least: is missing
        resilience.pay.bulkhead.threshold: is missing
        resilience.pay.retry.times: is missing
        failed to start policy pay: the timeout of an attempt, 2s, is longer than all attempts may take, 1s
        resilience.pay: expected a table of keys and values, found 5
        unknown key resilence; did you mean resilience?
        resilience is there twice: keep the one outside of the block
    "#]].assert_eq(&texts.concat());
}

#[tokio::test]
async fn s1788_numbers_that_are_not_finite_are_refused_with_their_path() {
    let refusals = [
        "[resilience.pay]\nbreaker = { ratio = inf }",
        "[resilience.pay]\nbreaker = { ratio = \"inf\" }",
        "[resilience.pay]\nbreaker = { ratio = -nan, calls = 5 }",
        "[resilience.pay]\nthrottle = { factor = nan }",
        "[resilience.pay]\nretry = { times = 1, budget = +inf }",
        "[resilience.pay]\nretry = { times = inf }",
        "[resilience.pay]\ntimeout = inf",
    ];
    let texts = refusals.map(|text| configured(text).unwrap_err().to_string() + "\n");
    expect![[r#"
        resilience.pay.breaker.ratio: expected a number, found "inf"
        resilience.pay.breaker.ratio: expected a number, found "inf"
        resilience.pay.breaker.ratio: expected a number, found "nan"
        resilience.pay.throttle.factor: expected a number, found "nan"
        resilience.pay.retry.budget: expected a number, found "inf"
        resilience.pay.retry.times: expected a whole number, found "inf"
        resilience.pay.timeout: inf is longer than the maximum (one year): write one such as 30s
    "#]]
    .assert_eq(&texts.concat());
}

#[tokio::test(start_paused = true)]
async fn s754_a_variable_overrides_a_key_of_a_policy_and_is_named_in_errors() {
    let text = "[resilience.pay-in]\nretry = { times = 1 }\nwithin = \"1s\"";
    let vars =
        [("ADIEU__RESILIENCE__PAY_IN__RETRY__TIMES", "2"), ("ADIEU__RESILIENCE__X__WITHIN", "2s")];
    let policies = with_vars(text, &vars).unwrap();
    policies.get("x").unwrap();
    let policy = policies.get("pay-in").unwrap();
    let made = std::cell::Cell::new(0);
    let failed = policy.call(async |_| {
        made.set(made.get() + 1);
        Err::<(), _>(())
    });
    assert_eq!((failed.await, made.get()), (Err(CallError::Failed(())), 3));
    let wrong = with_vars(text, &[("ADIEU__RESILIENCE__PAY_IN__WITHIN", "2")]).unwrap_err();
    expect!["resilience.pay-in.within (set by ADIEU__RESILIENCE__PAY_IN__WITHIN): 2 has no unit: write 2s or 2ms"]
        .assert_eq(&wrong.to_string());
}

#[tokio::test]
async fn s754_an_error_in_a_policy_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("service.toml");
    std::fs::write(&file, "[resilience.pay]\ntimeot = \"1s\"").unwrap();
    let config = Config::read_with_vars(&file, []).unwrap();
    let error = Policies::configured(&config, &shutdown()).unwrap_err().to_string();
    let problem = "unknown key resilience.pay.timeot; did you mean resilience.pay.timeout?";
    assert_eq!(error, format!("{}: {problem}", file.display()));
}

#[tokio::test]
async fn s755_in_a_fleet_the_step_warns_of_rate_limits_and_breakers_of_one_process() {
    let policies = configured(
        "[resilience.pay]\nrate = { permits = 500 }\nbreaker = { ratio = 0.5 }\n\
         [resilience.mail]\nbulkhead = { limit = 3 }\ntimeout = \"1s\"",
    )
    .unwrap();
    let fleet = Lifecycle::builder().profile(DeploymentProfile::Fleet);
    let lifecycle = fleet.step(policies.step()).build().unwrap();
    let warnings: Vec<_> = lifecycle.warnings().map(|warning| format!("{warning}\n")).collect();
    expect![[r#"
        step resilience: rate limit pay (500/s in each replica) is local to this process, but the profile is a fleet: use a shared one
        step resilience: breaker pay (0.5 of 20 calls in 10s) is local to this process, but the profile is a fleet: use a shared one
    "#]].assert_eq(&warnings.concat());
    let alone = Lifecycle::builder().step(policies.step()).build().unwrap();
    assert_eq!(alone.warnings().count(), 0);
    lifecycle.start(&shutdown()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s755_in_a_fleet_the_step_does_not_warn_of_policies_that_are_shared() {
    let shutdown = shutdown();
    let text = "[resilience.pay]\nbreaker = { ratio = 0.5, witnesses = 3 }\n\
                rate = { permits = 500, without-store = \"closed\" }";
    let config = Config::parse(text, Format::Toml).unwrap();
    let policies = Policies::configured(&config, &shutdown).unwrap();
    let policies = policies.shared(Memory::new(), "checkout").unwrap();
    let fleet = Lifecycle::builder().profile(DeploymentProfile::Fleet);
    let lifecycle = fleet.step(policies.step()).build().unwrap();
    assert_eq!(lifecycle.warnings().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn s1554_the_status_names_the_requester_of_a_forced_policy() {
    let shutdown = shutdown();
    let policy = Policy::new("pay").start(&shutdown).unwrap();
    let policies: Policies = [policy.clone()].into_iter().collect();
    policies.force_open("pay", secs(9), "ops").await.unwrap();
    assert_eq!(policy.status().forced_by.as_deref(), Some("ops"));
    policies.release("pay", "ops").await.unwrap();
    assert_eq!(policy.status().forced_by, None);
    policy.force_open(secs(9));
    assert_eq!((policy.status().forced, policy.status().forced_by), (Some(secs(9)), None));
}
