//! Configurations: keys, formats and errors.

mod hostile;
#[cfg(feature = "hocon")]
mod substitutions;
mod variables;

use std::time::Duration;

use adieu_core::adapter::has_table;
use adieu_core::{Config, ConfigError, Format, Phase, PlanView, Shutdown};

fn toml(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Format::Toml)
}

fn error(text: &str) -> String {
    toml(text).unwrap_err().to_string()
}

#[test]
fn s15_toml_and_json_have_the_same_keys() {
    let from_toml = toml(
        r#"
        [coordinated-shutdown]
        default-phase-timeout = "7s"
        kill-after = "25s"
        exit-code = 3
        order = "sequential"
        phases.flush-metrics = { after = ["before-actor-system-terminate"], timeout = "3s" }
        phases.service-stop = { recover = false, enabled = false }
        "#,
    )
    .unwrap();
    let from_json = Config::parse(
        r#"{ "coordinated-shutdown": {
            "default-phase-timeout": "7s", "kill-after": "25s", "exit-code": 3,
            "order": "sequential",
            "phases": {
                "flush-metrics": { "after": "before-actor-system-terminate", "timeout": "3s" },
                "service-stop": { "recover": "off", "enabled": "no" }
            }
        } }"#,
        Format::Json,
    )
    .unwrap();
    assert_eq!(from_toml, from_json);

    let plan = from_toml.plan().unwrap();
    let stop = plan.phase(Phase::SERVICE_STOP).unwrap();
    assert!(!stop.recovers() && !stop.is_enabled() && plan.is_sequential());
    assert_eq!(stop.timeout(), Duration::from_secs(7));
    assert_eq!(plan.phase("flush-metrics").unwrap().timeout(), Duration::from_secs(3));
    assert_eq!(plan.phase(Phase::CLUSTER_EXITING).unwrap().timeout(), Duration::from_secs(10));
}

#[test]
#[cfg(feature = "hocon")]
fn s16_an_akka_block_works_unchanged() {
    use adieu_core::Reason;

    // The keys of the documentation of Akka and Akka.NET, unchanged.
    let text = r#"
        base-timeout = 20 s
        akka {
          loglevel = DEBUG
          coordinated-shutdown {
            default-phase-timeout = 4 s
            terminate-actor-system = on
            exit-jvm = on
            exit-code = 0
            run-by-jvm-shutdown-hook = off
            run-by-actor-system-terminate = on
            reason-overrides {
              "akka.actor.CoordinatedShutdown$ClusterDowningReason$" { exit-code = -1 }
              "akka.actor.CoordinatedShutdown$JvmExitReason$" { exit-jvm = off, exit-code = 4 }
            }
            phases {
              # The first pre-defined phase that applications can add tasks to.
              before-service-unbind {
              }
              service-requests-done {
                timeout = ${base-timeout}
                recover = off
              }
              my-phase {
                timeout = 10s
                recover = on
              }
              before-cluster-shutdown.depends-on = [service-stop, my-phase]
              cluster-leave { timeout = 2500, enabled = no }
            }
          }
          cluster.run-coordinated-shutdown-when-down = off
        }
    "#;
    let config = Config::parse(text, Format::Hocon).unwrap();
    let plan = config.plan().unwrap();
    let seconds = |name: &str| plan.phase(name).unwrap().timeout().as_secs_f64();
    assert_eq!(seconds("before-service-unbind"), 4.0);
    assert_eq!(seconds("service-requests-done"), 20.0);
    assert_eq!(seconds("cluster-exiting"), 10.0);
    assert_eq!(seconds("cluster-leave"), 2.5);
    assert!(!plan.phase("service-requests-done").unwrap().recovers());
    assert!(!plan.phase("cluster-leave").unwrap().is_enabled());
    let waits: Vec<String> = plan
        .depends_on(plan.phase(Phase::BEFORE_CLUSTER_SHUTDOWN).unwrap())
        .map(ToString::to_string)
        .collect();
    assert_eq!(waits, ["service-stop", "my-phase"], "the list replaces the default one");

    let shutdown = Shutdown::configured(config).unwrap();
    let policy = shutdown.policy(&Reason::Unknown);
    assert!(policy.exit_process && policy.terminate_actor_system && policy.exit_code == 0);
    assert_eq!(shutdown.policy(&Reason::ClusterDowning).exit_code, 255);
    let exit = shutdown.policy(&Reason::ProcessExit);
    assert!(!exit.exit_process && exit.exit_code == 4);
    // The JVM's hook also runs for signals.
    let term = shutdown.policy(&Reason::ProcessTerminate(adieu_core::Signal::TERM));
    assert!(!term.exit_process && term.exit_code == 4);
    assert!(!shutdown.runs_when_down());

    let net = "akka.coordinated-shutdown.terminate-actor-system = off\n\
               akka.coordinated-shutdown.run-by-actor-system-terminate = off\n\
               akka.coordinated-shutdown.exit-clr = on\n\
               akka.coordinated-shutdown.run-by-clr-shutdown-hook = off";
    assert!(Config::parse(net, Format::Hocon).is_ok());
}

#[test]
fn s17_an_unknown_key_is_an_error_with_its_path_and_the_nearest_key() {
    let cases = [
        (
            "[coordinated-shutdown.phases.drain]\ndependsOn = ['service-stop']",
            "unknown key coordinated-shutdown.phases.drain.dependsOn; did you mean \
             coordinated-shutdown.phases.drain.depends-on?",
        ),
        ("exit-cod = 1", "unknown key exit-cod; did you mean exit-code?"),
        (
            "coordinated-shutdwon.exit-code = 1",
            "unknown key coordinated-shutdwon; did you mean coordinated-shutdown?",
        ),
        ("colour = 'blue'", "unknown key colour"),
        ("phases.drain.timeout = 5", "phases.drain.timeout: 5 has no unit: write 5s or 5ms"),
        (
            "phases.drain.timeout = 'infinite'",
            "phases.drain.timeout: infinite is longer than the maximum (one year): write one such as 30s",
        ),
        ("phases.drain = 5", "phases.drain: expected a table of keys and values, found 5"),
        ("strict = 'perhaps'", "strict: expected on or off, found \"perhaps\""),
        ("exit-code = 300", "exit-code: expected an exit code from -128 to 255, found 300"),
        (
            "exit-jvm = true\nexit-clr = true",
            "exit-clr: means the same as exit-jvm: write one of them",
        ),
        ("order = 'random'", "order: expected dag or sequential, found random"),
        (
            "phases.service-unbnd.timeout = '7s'",
            "phases.service-unbnd: unknown phase service-unbnd; did you mean service-unbind? A new phase \
             needs after, before or depends-on",
        ),
        (
            "phases.x.depends-on = ['service-stip']",
            "phases.x.depends-on: phase x refers to unknown phase service-stip",
        ),
    ];
    for (text, expected) in cases {
        let error = error(text);
        assert!(error.starts_with(expected), "{text}\n  expected {expected}\n  found    {error}");
    }
    assert!(error("a = ").starts_with("failed to parse TOML"));
}

#[test]
fn s311_keys_of_akka_and_pekko_are_ignored_unless_they_resemble_ours() {
    let foreign = [
        "akka.loglevel = 'DEBUG'",
        "akka.actor.provider = 'cluster'",
        "akka.jvm-exit-on-fatal-error = true",
        "akka.log-dead-letters-during-shutdown = false",
        "kafka.brokers = ['a:9092']\nakka.remote.artery.canonical.port = 7355",
        "pekko.remote.artery.canonical.port = 7355",
    ];
    for text in foreign {
        assert_eq!(toml(text).unwrap(), Config::new(), "{text}");
    }
    // These are kept for a program with a cluster, and change nothing here.
    for text in [
        "akka.cluster.shutdown-after-unsuccessful-join-seed-nodes = '40s'",
        "akka.cluster.roles = ['front']\nkafka.brokers = ['a:9092']",
    ] {
        let config = toml(text).unwrap();
        assert!(has_table(&config, "akka.cluster") && !has_table(&config, "cluster"), "{text}");
        let plan = |config: &Config| serde_json::to_value(PlanView::from(&config.plan().unwrap()));
        assert_eq!(plan(&config).unwrap(), plan(&Config::new()).unwrap(), "{text}");
        assert!(Shutdown::configured(config).is_ok(), "{text}");
    }
    for (text, expected) in [
        (
            "akka.coordinated-shutdwn.exit-code = 3",
            "unknown key akka.coordinated-shutdwn; did you mean akka.coordinated-shutdown?",
        ),
        (
            "pekko.coordinatedShutdown.exit-code = 3",
            "unknown key pekko.coordinatedShutdown; did you mean pekko.coordinated-shutdown?",
        ),
        (
            "akka.jvm-shutdown-hook = false",
            "unknown key akka.jvm-shutdown-hook; did you mean akka.jvm-shutdown-hooks?",
        ),
        (
            "akka.cluster.run-coordinated-shutdown-when-downed = false",
            "unknown key akka.cluster.run-coordinated-shutdown-when-downed; did you mean \
             akka.cluster.run-coordinated-shutdown-when-down?",
        ),
        (
            "akka.loglevel = 'INFO'\ncoordinated-shutdwn.exit-code = 3",
            "unknown key coordinated-shutdwn; did you mean coordinated-shutdown?",
        ),
        ("akka.jvm-shutdown-hooks = 3", "akka.jvm-shutdown-hooks: expected on or off, found 3"),
        (
            "akka.coordinated-shutdown.exit-code = 3\npekko.coordinated-shutdown.exit-code = 3",
            "both akka.coordinated-shutdown and pekko.coordinated-shutdown are set: remove one",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    let pekko = toml("pekko.coordinated-shutdown.exit-code = 3").unwrap();
    assert_eq!(pekko, Config::new().exit_code(3));
}

#[test]
fn s311_one_key_switches_off_all_jvm_hooks() {
    let off = Config::new().run_by_process_hook(false);
    assert_eq!(toml("akka.jvm-shutdown-hooks = 'off'").unwrap(), off);
    let on = "akka.coordinated-shutdown.run-by-jvm-shutdown-hook = true";
    assert_eq!(toml(on).unwrap(), Config::new());
    assert_eq!(toml(&format!("{on}\nakka.jvm-shutdown-hooks = false")).unwrap(), off);
    assert_eq!(toml(&format!("{on}\nakka.jvm-shutdown-hooks = true")).unwrap(), Config::new());
    let vars = [("ADIEU__RUN_BY_PROCESS_HOOK".to_owned(), "on".to_owned())];
    let text = "akka.jvm-shutdown-hooks = false";
    let by_variable = Config::parse_with_vars(text, Format::Toml, vars).unwrap();
    assert_eq!(by_variable, Config::new(), "a variable overrides the file");
}

#[test]
fn s312_an_invalid_duration_is_an_error_with_an_example() {
    for (text, expected) in [
        (
            "phases.x.timeout = '-5s'",
            "phases.x.timeout: -5s is negative: write a duration such as 5s",
        ),
        ("reserve = -5", "reserve: -5 is negative: write a duration such as 5s"),
        (
            "lame-duck = 'five'",
            "lame-duck: \"five\" is not a duration: write one such as 5s, 250ms or 1m 30s, or \
             auto or none",
        ),
        (
            "drain-timeout = ''",
            "drain-timeout: \"\" is not a duration: write one such as 5s, 250ms or 1m 30s, or auto",
        ),
        (
            "reserve = '5 parsecs'",
            "reserve: \"5 parsecs\" has the unknown unit parsecs: write ns, us, ms, s, m, h or d, \
             as in 250ms",
        ),
        ("reserve = '1e3'", "reserve: \"1e3\" "),
        ("reserve = 'nan'", "reserve: \"nan\" is not a duration"),
        ("kill-after = 5", "kill-after: 5 has no unit: write 5s or 5ms"),
        ("reserve = '99999999999999999999s'", "reserve: \"99999999999999999999s\" is longer than"),
    ] {
        let error = error(text);
        assert!(error.starts_with(expected), "{text}\n  expected {expected}\n  found    {error}");
    }
}

#[test]
fn s313_an_error_in_the_plan_begins_with_the_full_path_of_its_key() {
    for (text, expected) in [
        (
            "phases.x.depends-on = ['nope']",
            "phases.x.depends-on: phase x refers to unknown phase nope",
        ),
        ("phases.x.after = ['nope']", "phases.x.after: phase x refers"),
        ("phases.x.before = ['nope']", "phases.x.before: phase x refers"),
        (
            "akka.coordinated-shutdown.phases.x.timeout = '0s'",
            "akka.coordinated-shutdown.phases.x.timeout: phase x has a timeout of zero",
        ),
        ("default-phase-timeout = '0s'", "default-phase-timeout: "),
        (
            "coordinated-shutdown.phases.x.after = ['x']",
            "coordinated-shutdown.phases: phases wait for each other: x -> x",
        ),
    ] {
        let error = error(text);
        assert!(error.starts_with(expected), "{text}\n  expected {expected}\n  found    {error}");
    }
    let vars = [("ADIEU__PHASES__X__TIMEOUT".to_owned(), "0s".to_owned())];
    let error = Config::parse_with_vars("", Format::Toml, vars).unwrap_err().to_string();
    let expected = "phases.x.timeout (set by ADIEU__PHASES__X__TIMEOUT): phase x has a timeout";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn s314_every_error_in_a_file_names_the_file_once() {
    let folder = std::env::temp_dir().join(format!("adieu-s314-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in [
        ("syntax.toml", "a = "),
        ("key.toml", "kill-aftr = '5s'"),
        ("value.toml", "reserve = 'five'"),
        ("plan.toml", "phases.x.after = ['nope']"),
        ("switches.toml", "terminate-actor-system = false"),
        ("format.yaml", "a: b"),
        ("missing.toml", ""),
    ] {
        let path = folder.join(name);
        if !name.starts_with("missing") {
            std::fs::write(&path, text).unwrap();
        }
        let error = Config::read(&path).unwrap_err().to_string();
        let named = error.matches(path.to_str().unwrap()).count();
        assert_eq!(named, 1, "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn s18_contradicting_switches_are_errors() {
    assert_eq!(
        error("terminate-actor-system = false"),
        "run-by-actor-system-terminate is on and terminate-actor-system is off: switch both on or \
         both off",
    );
    assert!(toml("terminate-actor-system = false\nrun-by-actor-system-terminate = false").is_ok());
    assert_eq!(
        error("reason-overrides.cluster-downing.terminate-actor-system = false"),
        "run-by-actor-system-terminate is on and reason-overrides.cluster-downing switches \
         terminate-actor-system off",
    );
    let config = Config::new().terminate_actor_system(false);
    assert!(Shutdown::configured(config).is_err());
    assert!(error("kill-after = '0s'").contains("leaves no time"));
}
