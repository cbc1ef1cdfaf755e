//! `adieu check` answers `unknown` for keys whose effect is not in its tables.

use super::check::json_of;
use super::trust::{Folder, pod, service};
use super::{adieu, config};

/// A manifest that fits, a misspelt or new key in it, and the line of that key.
struct Case {
    file: &'static str,
    text: String,
    /// The text after which the key is added, and the added text.
    after: &'static str,
    added: &'static str,
    key: &'static str,
}

const UNIT: &str = "\
[Unit]
Description=Orders
[Service]
Type=notify
ExecStart=/usr/local/bin/orders
TimeoutStopSec=60
[Install]
WantedBy=multi-user.target
";

const QUADLET: &str = "\
[Container]
Image=orders
StopTimeout=60
Environment=TERMINATION_GRACE_PERIOD_SECONDS=60
[Service]
TimeoutStopSec=70
";

const ECS: &str = r#"{"family": "orders",
"containerDefinitions": [{"name": "orders", "image": "orders",
"environment": [{"name": "TERMINATION_GRACE_PERIOD_SECONDS", "value": "60"}],
"stopTimeout": 60}]}
"#;

const TEMPLATE: &str = r#"Resources:
  Orders:
    Type: AWS::ECS::TaskDefinition
    Properties:
      Family: orders
      ContainerDefinitions:
      - Name: orders
        Image: orders
        Environment: [{Name: TERMINATION_GRACE_PERIOD_SECONDS, Value: '60'}]
        StopTimeout: 60
"#;

const NOMAD: &str = r#"job "orders" {
  group "api" {
    task "web" {
      driver       = "docker"
      kill_timeout = "30s"
      config {
        image = "orders"
      }
      env {
        TERMINATION_GRACE_PERIOD_SECONDS = "30"
      }
    }
  }
}
"#;

const NOMAD_JSON: &str = r#"{"Job": {"ID": "orders",
"TaskGroups": [{"Name": "api",
"Tasks": [{"Name": "web", "Driver": "docker", "Config": {"image": "orders"},
"Env": {"TERMINATION_GRACE_PERIOD_SECONDS": "30"},
"KillTimeout": 30000000000}]}]}}
"#;

const FLY: &str = "\
app = 'orders'
kill_signal = 'SIGTERM'
kill_timeout = '60s'
[env]
TERMINATION_GRACE_PERIOD_SECONDS = '60'
[experimental]
auto_rollback = true
";

const SUPERVISORD: &str = "\
[supervisord]
nodaemon=true
[program:orders]
command=/usr/local/bin/orders
stopwaitsecs=60
environment=TERMINATION_GRACE_PERIOD_SECONDS=60
";

const KNATIVE: &str = "\
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: orders}
spec:
  template:
    spec:
      timeoutSeconds: 120
      containers:
      - image: orders
        env:
        - {name: TERMINATION_GRACE_PERIOD_SECONDS, value: '120'}
        - {name: PRESTOP_SECONDS, value: '30'}
";

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: orders}
spec:
  replicas: 2
  strategy:
    rollingUpdate:
      maxUnavailable: 0
  template:
    metadata: {labels: {app: orders}}
    spec:
      terminationGracePeriodSeconds: 60
      containers:
      - name: orders
        image: orders
        env:
        - name: TERMINATION_GRACE_PERIOD_SECONDS
          value: '60'
        lifecycle:
          preStop:
            sleep: {seconds: 1}
        livenessProbe:
          httpGet: {path: /livez, port: 80}
";

fn cases() -> Vec<Case> {
    let case =
        |file, text: &str, after, added, key| Case { file, text: text.into(), after, added, key };
    let deployment = |after, added, key| case("orders.yaml", DEPLOYMENT, after, added, key);
    let nomad = |after, added, key| case("orders.nomad.hcl", NOMAD, after, added, key);
    vec![
        // A grace period in the wrong place has no effect.
        deployment(
            "spec:\n",
            "  terminationGracePeriodSeconds: 60\n",
            "terminationGracePeriodSeconds",
        ),
        deployment("    spec:\n", "      terminationGracePeriod: 60\n", "terminationGracePeriod"),
        deployment("  strategy:\n", "    maxSurge: 1\n", "maxSurge"),
        deployment("    rollingUpdate:\n", "      maxUnavaliable: 1\n", "maxUnavaliable"),
        deployment("      - name: orders\n", "        stopSignal: SIGQUIT\n", "stopSignal"),
        deployment("_SECONDS\n", "          vaule: '5'\n", "vaule"),
        deployment("        lifecycle:\n", "          preStopp: {}\n", "preStopp"),
        deployment("          preStop:\n", "            script: {}\n", "script"),
        deployment(
            "        livenessProbe:\n",
            "          gracePeriodSeconds: 5\n",
            "gracePeriodSeconds",
        ),
        case("pod.yaml", &pod(60, ""), "spec:\n", "  graceful: true\n", "graceful"),
        case(
            "knative.yaml",
            KNATIVE,
            "    spec:\n",
            "      terminationGracePeriodSeconds: 9\n",
            "terminationGracePeriodSeconds",
        ),
        case("orders.service", UNIT, "[Service]\n", "TimeoutStopSecs=5\n", "TimeoutStopSecs"),
        case("orders.service", UNIT, "[Service]\n", "PAMName=login\n", "PAMName"),
        case("orders.service", UNIT, "[Unit]\n", "JobTimeout=5\n", "JobTimeout"),
        case("orders.service", UNIT, "multi-user.target\n", "[Serivce]\n", "Serivce"),
        case("orders.container", QUADLET, "[Container]\n", "StopTimeoutSec=5\n", "StopTimeoutSec"),
        case("orders.container", QUADLET, "[Container]\n", "GlobalArgs=--module=x\n", "GlobalArgs"),
        case("orders.container", QUADLET, "[Service]\n", "TimeoutStop=5\n", "TimeoutStop"),
        case("compose.yaml", &service(""), "image: orders\n", "    stop_grace: 5s\n", "stop_grace"),
        case(
            "compose.yaml",
            &service(""),
            "image: orders\n",
            "    provider: {type: x}\n",
            "provider",
        ),
        case("compose.yaml", &service("service: {}\n"), "\n", "", "service"),
        case("task.json", ECS, "{", "\"stopGrace\": 5,\n", "stopGrace"),
        case("task.json", ECS, "}],\n", "\"stopTimeOut\": 5,\n", "stopTimeOut"),
        case(
            "template.yaml",
            TEMPLATE,
            "Family: orders\n",
            "      StopTimeout: 5\n",
            "StopTimeout",
        ),
        nomad("job \"orders\" {\n", "  kill_timeout = \"5s\"\n", "kill_timeout"),
        nomad("group \"api\" {\n", "  kill_timeout = \"5s\"\n", "kill_timeout"),
        nomad("task \"web\" {\n", "  stop_timeout = \"5s\"\n", "stop_timeout"),
        nomad("config {\n", "  isolation = \"hyperv\"\n", "isolation"),
        case("job.json", NOMAD_JSON, "\"orders\",\n", "\"KillTimeout\": 5,\n", "KillTimeout"),
        case("job.json", NOMAD_JSON, "\"api\",\n", "\"KillTimeout\": 5,\n", "KillTimeout"),
        case("job.json", NOMAD_JSON, "\"30\"},\n", "\"StopTimeout\": 5,\n", "StopTimeout"),
        case("fly.toml", FLY, "'orders'\n", "kill_time = '5s'\n", "kill_time"),
        case("fly.toml", FLY, "[experimental]\n", "exec = ['/x']\n", "exec"),
        case("super.conf", SUPERVISORD, "[supervisord]\n", "stopwait=5\n", "stopwait"),
        case("super.conf", SUPERVISORD, "[program:orders]\n", "stopwaitsec=5\n", "stopwaitsec"),
        case("super.conf", SUPERVISORD, "_SECONDS=60\n", "[programs:other]\n", "programs:other"),
    ]
}

#[test]
fn s1031_a_key_whose_effect_is_not_known_is_unknown_and_is_named_with_its_line() {
    for Case { file, text, after, added, key } in cases() {
        let what = format!("{file} with {added}");
        let (before, rest) = text.split_once(after).expect(&what);
        let changed = format!("{before}{after}{added}{rest}");
        let folder = Folder::new(&[(file, &changed)]);
        let ran = folder.judge(file, &[]);
        let all = json_of(&ran);
        assert_eq!(
            (ran.code, all["verdict"].as_str()),
            (2, Some("unknown")),
            "{what}: {}",
            ran.stdout
        );
        let findings = all["workloads"][0]["findings"].as_array().unwrap();
        let found = findings.iter().find(|found| found["level"] == "unknown").expect(&what);
        let (problem, advice) =
            (found["problem"].as_str().unwrap(), found["advice"].as_str().unwrap());
        assert!(problem.contains(key), "{what}: {problem}");
        assert!(advice.contains(&format!("--ignore-key {key}")), "{what}: {advice}");
        let lines: Vec<_> =
            changed.lines().enumerate().filter(|(_, line)| line.contains(key)).collect();
        assert!(
            lines.iter().any(|(at, _)| found["line"].as_u64() == Some(*at as u64 + 1)),
            "{what}: {found}"
        );
    }
}

#[test]
fn s1032_with_ignore_key_a_key_has_no_effect() {
    for Case { file, text, after, added, key } in cases() {
        let what = format!("{file} with {added}");
        let (before, rest) = text.split_once(after).expect(&what);
        let folder = Folder::new(&[(file, &format!("{before}{after}{added}{rest}"))]);
        assert_eq!(folder.verdict(file, &["--ignore-key", key]), "fits", "{what}");
        // Another key is not ignored.
        assert_eq!(folder.verdict(file, &["--ignore-key", "other"]), "unknown", "{what}");
        assert_eq!(folder.verdict(file, &["--ignore-key", "other", "--ignore-key", key]), "fits");
    }
}

#[test]
fn s1033_a_unit_without_its_own_timeout_is_not_counted_on_for_more_than_45_seconds() {
    let unit = UNIT.replace("TimeoutStopSec=60\n", "");
    let slow = "[Service]\nEnvironment=ADIEU__DRAIN_TIMEOUT=40s\n";
    let quadlet = QUADLET.replace("TimeoutStopSec=70\n", "");
    let stated = "[Service]\nEnvironment=TERMINATION_GRACE_PERIOD_SECONDS=60\n";
    for (file, text, expected) in [
        // A process that queries systemd drains no longer than the machine's default.
        ("orders.service", unit.clone(), "fits"),
        ("orders.service", unit.replace("[Service]\n", slow), "unknown"),
        ("orders.service", unit.replace("[Service]\n", stated), "unknown"),
        ("orders.container", quadlet.replace("60", "45"), "fits"),
        ("orders.container", quadlet, "unknown"),
    ] {
        let folder = Folder::new(&[(file, &text)]);
        let all = json_of(&folder.judge(file, &[]));
        assert_eq!(all["verdict"], expected, "{text}");
        if expected == "fits" {
            continue;
        }
        let line = all["suggest"]["lines"][0].as_str().unwrap().to_owned();
        assert!(line.starts_with("TimeoutStopSec="), "{all}");
        // The suggestion makes it fit.
        folder.write(file, &text.replace("[Service]\n", &format!("[Service]\n{line}\n")));
        assert_eq!(folder.verdict(file, &[]), "fits", "{text} with {line}");
    }
}

#[test]
fn s1034_a_unit_that_the_shutdown_of_the_machine_does_not_stop_is_unknown() {
    for (lines, expected) in [
        ("DefaultDependencies=no\n", "unknown"),
        ("DefaultDependencies=false\nConflicts=other.service\n", "unknown"),
        (
            "DefaultDependencies=no\nConflicts=a.target shutdown.target\nBefore=shutdown.target\n",
            "fits",
        ),
        ("DefaultDependencies=yes\n", "fits"),
    ] {
        for (file, text) in [
            ("orders.service", UNIT.to_owned()),
            ("orders.container", format!("[Unit]\n{QUADLET}")),
        ] {
            let folder =
                Folder::new(&[(file, &text.replace("[Unit]\n", &format!("[Unit]\n{lines}")))]);
            assert_eq!(folder.verdict(file, &[]), expected, "{file}: {lines}");
        }
    }
}

#[test]
fn s1035_options_of_podman_that_kill_or_change_the_signal_are_errors() {
    for (options, expected) in [
        ("", "fits"),
        ("--systemd=true", "fits"),
        ("--systemd=always", "too-short"),
        ("--systemd=always --stop-signal SIGTERM", "fits"),
        ("--timeout 3600", "too-short"),
    ] {
        let told = "-e TERMINATION_GRACE_PERIOD_SECONDS=60";
        let line =
            format!("podman run -d --stop-timeout 60 {told} {options} --name orders orders\n");
        let folder = Folder::new(&[("run.sh", &line)]);
        assert_eq!(folder.verdict("run.sh", &[]), expected, "{options}");
        let args = format!("[Container]\nPodmanArgs={options}\n");
        folder.write("orders.container", &QUADLET.replace("[Container]\n", &args));
        assert_eq!(folder.verdict("orders.container", &[]), expected, "{options}");
    }
}

#[test]
fn s1036_tasks_of_nomad_inherit_the_signals_of_vault_and_may_set_delimiters() {
    let raw = NOMAD
        .replace("\"docker\"", "\"raw_exec\"")
        .replace("image = \"orders\"", "command = \"/orders\"");
    let signal = "vault {\n change_mode = \"signal\"\n change_signal = \"SIGHUP\"\n}\n";
    let template = |lines: &str| {
        format!(
            "template {{\n destination = \"a\"\n env = true\n data = \"ADIEU__DRAIN_TIMEOUT=[[ key ]]\"\n {lines}\n}}\n"
        )
    };
    for (after, added, expected) in [
        ("job \"orders\" {\n", "vault {\n policies = [\"a\"]\n}\n", "fits"),
        ("job \"orders\" {\n", signal, "too-short"),
        ("group \"api\" {\n", signal, "too-short"),
        ("task \"web\" {\n", signal, "too-short"),
    ] {
        let folder =
            Folder::new(&[("a.nomad.hcl", &raw.replace(after, &format!("{after}{added}")))]);
        assert_eq!(folder.verdict("a.nomad.hcl", &[]), expected, "{added} in {after}");
    }
    let task = "task \"web\" {\n";
    let delimited = template("left_delimiter = \"[[\"\n right_delimiter = \"]]\"");
    let folder = Folder::new(&[("a.nomad.hcl", &raw.replace(task, &format!("{task}{delimited}")))]);
    assert_eq!(folder.verdict("a.nomad.hcl", &[]), "unknown");
    // A task directly in a job is judged, too.
    let bare = raw.replace("group \"api\" {\n", "").replace("  }\n}\n", "}\n");
    let folder = Folder::new(&[("a.nomad.hcl", &bare)]);
    assert_eq!(folder.verdict("a.nomad.hcl", &[]), "fits", "{bare}");
}

#[test]
fn s1037_misspelt_keys_of_the_cluster_and_of_policies_are_errors() {
    for (table, key) in [
        ("[cluster]\nttl = '10s'\nremoval-margn = '1s'\n", "removal-margn"),
        ("[cluster]\nttl = 'soon'\n", "ttl"),
        ("[resilience.backend]\nwithn = '1s'\n", "withn"),
        ("[resilience.backend.rate]\npermits = 5\nbrust = 9\n", "brust"),
    ] {
        let file = config(table);
        let path = file.path().to_str().unwrap();
        for args in
            [&["check", "--config", path, "--grace", "60s"][..], &["plan", "--config", path]]
        {
            let ran = adieu(args);
            assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{table}");
            assert!(ran.stderr.contains(key), "{table}: {}", ran.stderr);
        }
    }
    let right = "[cluster]\nttl = '10s'\n[resilience.backend]\nwithin = '1s'\n[resilience.backend.rate]\npermits = 5\n";
    let file = config(right);
    let path = file.path().to_str().unwrap();
    assert_eq!(adieu(&["plan", "--config", path]).code, 0);
    assert_eq!(adieu(&["check", "--config", path, "--grace", "120s"]).code, 0);
}

#[test]
fn s1038_a_pod_that_tolerates_nodes_that_are_taken_away_is_unknown_if_their_notice_is_short() {
    for (toleration, expected) in [
        ("{key: cloud.google.com/gke-spot, operator: Exists}", "unknown"),
        ("{key: cloud.google.com/gke-spot, value: 'true'}", "unknown"),
        ("{key: cloud.google.com/gke-spot, value: 'false'}", "fits"),
        // A notice of two minutes is enough.
        ("{key: karpenter.sh/capacity-type, value: spot}", "fits"),
        ("{operator: Exists}", "fits"),
        ("{key: dedicated, value: spot}", "fits"),
    ] {
        let spec = format!("    spec:\n      tolerations: [{toleration}]\n");
        let folder = Folder::new(&[("a.yaml", &DEPLOYMENT.replace("    spec:\n", &spec))]);
        assert_eq!(folder.verdict("a.yaml", &[]), expected, "{toleration}");
    }
}

#[test]
fn s1039_a_stated_grace_period_that_a_limit_may_cut_is_unknown_until_the_limit_is_known() {
    let long = NOMAD.replace("30", "60");
    let folder = Folder::new(&[("a.nomad.hcl", &long)]);
    assert_eq!(folder.verdict("a.nomad.hcl", &[]), "unknown");
    assert_eq!(folder.verdict("a.nomad.hcl", &["--max-kill-timeout", "60s"]), "fits");
    assert_eq!(folder.verdict("a.nomad.hcl", &["--max-kill-timeout", "30s"]), "too-short");
    // More than the manifest sets is wrong with every limit.
    folder.write("a.nomad.hcl", &NOMAD.replace("= \"30\"", "= \"60\""));
    assert_eq!(folder.verdict("a.nomad.hcl", &[]), "too-short");
}
