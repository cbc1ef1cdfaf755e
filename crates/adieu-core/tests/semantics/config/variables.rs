//! Environment variables that override keys.

use std::time::Duration;

use adieu_core::{Config, Format, Phase, Reason, Shutdown};

#[test]
fn s19_environment_variables_override_any_key() {
    let vars = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<Vec<_>>()
    };
    let text = "coordinated-shutdown.phases.Flush_Metrics.timeout = '3s'";
    let config = Config::parse_with_vars(
        text,
        Format::Toml,
        vars(&[
            ("ADIEU__PHASES__SERVICE_UNBIND__TIMEOUT", "7s"),
            ("ADIEU__PHASES__FLUSH_METRICS__TIMEOUT", "4s"),
            ("ADIEU__PHASES__FLUSH_METRICS__AFTER", "service-stop, cluster-leave"),
            ("ADIEU__REASON_OVERRIDES__CLUSTER_LEAVING__EXIT_CODE", "9"),
            // Kubernetes sets this variable if there is a service called `adieu`.
            ("ADIEU_SERVICE_HOST", "10.0.0.1"),
            ("ADIEU_PORT_80_TCP_PORT", "80"),
        ]),
    )
    .unwrap();
    let plan = config.plan().unwrap();
    assert_eq!(plan.phase(Phase::SERVICE_UNBIND).unwrap().timeout(), Duration::from_secs(7));
    let flush = plan.phase("Flush_Metrics").unwrap();
    assert_eq!(flush.timeout(), Duration::from_secs(4));
    assert_eq!(plan.depends_on(flush).count(), 2);
    let shutdown = Shutdown::configured(config).unwrap();
    assert_eq!(shutdown.policy(&Reason::ClusterLeaving).exit_code, 9);

    for (name, value, expected) in [
        (
            "ADIEU__KILL_AFTR",
            "5s",
            "unknown key kill-aftr (set by ADIEU__KILL_AFTR); did you mean kill-after?",
        ),
        ("ADIEU__KILL_AFTER", "5", "kill-after (set by ADIEU__KILL_AFTER): 5 has no unit"),
        ("ADIEU__STRICT__X", "5", "strict: expected on or off, found {\"x\":\"5\"}"),
    ] {
        let found = Config::parse_with_vars("", Format::Toml, vars(&[(name, value)])).unwrap_err();
        assert!(found.to_string().starts_with(expected), "{found}");
    }
}

/// A file may have this block, so it is an easy mistake, and must not be ignored.
#[test]
fn s1426_a_variable_that_names_the_block_is_an_error_that_names_the_right_one() {
    let refused = |text: &str, name: &str| {
        let vars = [(name.to_owned(), "5s".to_owned())];
        Config::parse_with_vars(text, Format::Toml, vars).unwrap_err().to_string()
    };
    for text in ["", "coordinated-shutdown.kill-after = '9s'"] {
        assert_eq!(
            refused(text, "ADIEU__COORDINATED_SHUTDOWN__CLUSTER__TTL"),
            "ADIEU__COORDINATED_SHUTDOWN__CLUSTER__TTL: omit the name of the block: \
             ADIEU__CLUSTER__TTL"
        );
        assert_eq!(
            refused(text, "ADIEU__COORDINATED_SHUTDOWN"),
            "ADIEU__COORDINATED_SHUTDOWN: omit the name of the block, and name a key"
        );
    }
}

#[test]
fn s19_a_variable_overrides_another_name_of_its_key() {
    let vars = [("ADIEU__EXIT_PROCESS".to_owned(), "off".to_owned())];
    let config = Config::parse_with_vars("exit-jvm = true", Format::Toml, vars).unwrap();
    assert!(!Shutdown::configured(config).unwrap().policy(&Reason::Unknown).exit_process);
}

#[test]
fn s203_two_variables_for_the_same_key_are_an_error() {
    let both = |one: &str, other: &str| {
        let vars = [(one.to_owned(), "1s".to_owned()), (other.to_owned(), "4s".to_owned())];
        Config::parse_with_vars("", Format::Toml, vars).unwrap_err().to_string()
    };
    assert_eq!(
        both("ADIEU__DRAIN_TIMEOUT", "ADIEU__PHASES__SERVICE_REQUESTS_DONE__TIMEOUT"),
        "drain-timeout (set by ADIEU__DRAIN_TIMEOUT): means the same as \
         phases.service-requests-done.timeout: write one of them"
    );
    let same = both("ADIEU__EXIT_PROCESS", "ADIEU__EXIT_JVM");
    assert!(same.contains("means the same as exit-process"), "{same}");
    // A variable overrides the file.
    let vars = [("ADIEU__DRAIN_TIMEOUT".to_owned(), "1s".to_owned())];
    let text = "phases.service-requests-done.timeout = '9s'";
    let config = Config::parse_with_vars(text, Format::Toml, vars).unwrap();
    let timeout = config.plan().unwrap().phase(Phase::SERVICE_REQUESTS_DONE).unwrap().timeout();
    assert_eq!(timeout, Duration::from_secs(1));
}
