//! `adieu check` answers `fits` only if it has seen every value.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::check::{SERVICE, json_of};
use super::{Ran, adieu, command, config, ran};

pub(super) const TOLD: &str = "TERMINATION_GRACE_PERIOD_SECONDS";

/// Files that lie beside each other.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(super) fn judge(&self, name: &str, more: &[&str]) -> Ran {
        judge(&self.path(name), more)
    }

    #[track_caller]
    pub(super) fn verdict(&self, name: &str, more: &[&str]) -> String {
        json_of(&self.judge(name, more))["verdict"].as_str().unwrap().to_owned()
    }
}

fn judge(manifest: &Path, more: &[&str]) -> Ran {
    let manifest = manifest.to_str().unwrap();
    adieu(&[&["check", "--config", SERVICE, "--json", "--manifest", manifest], more].concat())
}

pub(super) fn service(more: &str) -> String {
    format!(
        "services:\n  orders:\n    image: orders\n    stop_grace_period: 60s\n    environment: {{{TOLD}: \
         '60'}}\n{more}"
    )
}

pub(super) fn pod(grace: u64, container: &str) -> String {
    format!(
        "kind: Pod\nmetadata: {{name: orders}}\nspec:\n  terminationGracePeriodSeconds: {grace}\n  \
         containers:\n  - name: orders\n    env: [{{name: {TOLD}, value: '{grace}'}}]\n{container}"
    )
}

#[test]
fn s827_suggestions_name_the_file_that_has_the_last_word() {
    let unit = "[Service]\nExecStart=/orders\nTimeoutStopSec=60\n";
    let folder = Folder::new(&[("orders.service", unit)]);
    let drop_in = "orders.service.d/50-stop.conf";
    folder.write(drop_in, "[Service]\nTimeoutStopSec=5\n");
    let suggested = |name: &str| json_of(&folder.judge(name, &[]))["suggest"].clone();
    let suggest = suggested("orders.service");
    let file = suggest["files"]["TimeoutStopSec"].as_str().unwrap();
    assert!(file.ends_with(drop_in), "{suggest}");
    let line =
        format!("[Service]\nTimeoutStopSec={}\n", suggest["TimeoutStopSec"].as_str().unwrap());
    folder.write(drop_in, &line);
    assert_eq!(folder.verdict("orders.service", &[]), "fits");

    folder.write("compose.yaml", &service(""));
    folder.write("compose.override.yaml", "services: {orders: {stop_grace_period: 5s}}");
    let suggest = suggested("compose.yaml");
    let file = suggest["files"]["stop_grace_period"].as_str().unwrap();
    assert!(file.ends_with("compose.override.yaml"), "{suggest}");

    let run = format!("docker run -d --stop-timeout 60 -e {TOLD}=60 --name orders orders:1\n");
    folder.write("run.sh", &format!("#!/bin/sh\ndocker kill orders\n{run}"));
    let line = suggested("run.sh")["lines"][0].as_str().unwrap().to_owned();
    assert_eq!(line, "docker stop --time 60 orders in its place");
    folder.write("run.sh", &format!("#!/bin/sh\ndocker stop --time 60 orders\n{run}"));
    assert_eq!(folder.verdict("run.sh", &[]), "fits");
}

#[test]
fn s826_a_suggestion_sets_the_time_limit_of_another_component() {
    let tower = "  tower:\n    image: containrrr/watchtower\n";
    let folder = Folder::new(&[("compose.yaml", &service(tower))]);
    let judged = json_of(&folder.judge("compose.yaml", &[]));
    assert_eq!(judged["verdict"], "too-short");
    let line = judged["suggest"]["lines"][0].as_str().unwrap();
    assert_eq!(line, "WATCHTOWER_TIMEOUT=60s in the environment of tower");
    for set in
        ["environment: [WATCHTOWER_TIMEOUT=60s]", "command: --interval 30 --stop-timeout 60s"]
    {
        folder.write("compose.yaml", &service(&format!("{tower}    {set}\n")));
        assert_eq!(folder.verdict("compose.yaml", &[]), "fits", "{set}");
    }
    let label = "    labels: [com.centurylinklabs.watchtower.enable=false]\n";
    folder.write("compose.yaml", &service(&format!("{label}{tower}")));
    assert_eq!(folder.verdict("compose.yaml", &[]), "fits");
}

#[test]
fn s825_a_native_sidecar_of_this_library_is_charged_in_full() {
    let pod = |variable: &str| {
        let init = format!(
            "  initContainers: [{{name: outbox, restartPolicy: Always, env: [{variable}]}}]\n"
        );
        pod(50, &init)
    };
    let needed = |variable: &str| {
        let folder = Folder::new(&[("pod.yaml", &pod(variable))]);
        json_of(&folder.judge("pod.yaml", &[]))["needed_ms"].as_u64().unwrap()
    };
    let other = needed("{name: RUST_LOG, value: info}");
    let [short, long] = ["2s", "9s"]
        .map(|drain| needed(&format!("{{name: ADIEU__DRAIN_TIMEOUT, value: {drain}}}")));
    // With its margin, in whole seconds.
    assert!((7_000..9_000).contains(&(long - short)), "{short} {long}");
    assert!(other + 10_000 < short, "{other} {short}");
}

#[test]
fn s823_the_environment_of_the_check_is_not_that_of_the_service() {
    let hocon =
        "coordinated-shutdown { lame-duck = 5s, drain-timeout = 5s, drain-timeout = ${?DRAIN} }";
    let folder = Folder::new(&[("service.conf", hocon), ("pod.yaml", &pod(60, ""))]);
    let path = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    let (config, manifest) = (path("service.conf"), path("pod.yaml"));
    let with = |args: &[&str], name: &str, value: &str| {
        ran(&command(args).env(name, value).output().unwrap())
    };
    let check = ["check", "--config", &config, "--manifest", &manifest, "--json"];
    let plain = adieu(&check);
    assert_eq!((plain.code, plain.stderr.as_str()), (0, ""));
    for name in ["DRAIN", "ADIEU__DRAIN_TIMEOUT"] {
        let judged = with(&check, name, "90s");
        assert_eq!(judged.stdout, plain.stdout);
        let note = format!(
            "adieu: variables of this environment are not applied: {name}; set them in the manifest\n"
        );
        assert_eq!(judged.stderr, note);
        // The plan is that of a service in this environment.
        let plan = with(&["plan", "--config", &config], name, "90s");
        assert!(plan.stdout.contains("90s"), "{}", plan.stdout);
        assert_eq!(
            plan.stderr,
            format!("adieu: variables of this environment are applied: {name}\n")
        );
    }
    // The variables of the manifest are those of the service.
    let set = |variable: &str| {
        folder.write("pod.yaml", &pod(60, "").replace("env: [", &format!("env: [{variable}, ")));
        json_of(&adieu(&check))["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(set("{name: DRAIN, value: 90s}"), "too-short");
    assert_eq!(set("{name: DRAIN, value: 6s}"), "fits");
    assert_eq!(set("{name: DRAIN, valueFrom: {secretKeyRef: {name: a, key: b}}}"), "unknown");
    // A variable without which the configuration cannot be read.
    folder.write("service.conf", &hocon.replace("${?DRAIN}", "${DRAIN}"));
    assert_eq!(set("{name: DRAIN, value: 6s}"), "fits");
    folder.write("pod.yaml", &pod(60, ""));
    assert_eq!(adieu(&check).code, 2);
    // A source that cannot be seen may set it, whatever it is vouched for.
    folder.write("service.conf", hocon);
    folder.write("pod.yaml", &pod(60, "    envFrom: [{secretRef: {name: elsewhere}}]\n"));
    let vouched = [check.as_slice(), &["--no-hidden-env"]].concat();
    assert_eq!(adieu(&vouched).code, 2);
}

#[test]
fn s507_a_file_that_cannot_be_read_does_not_hide_the_others() {
    let folder = Folder::new(&[("short.yaml", &pod(5, "")), ("good.yaml", &pod(60, ""))]);
    folder.write("broken.yaml", "kind: [");
    let path = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    let (short, good, broken) = (path("short.yaml"), path("good.yaml"), path("broken.yaml"));
    for (files, code, verdict, judged) in [
        ([&broken, &good], 2, "unknown", 1),
        ([&good, &broken], 2, "unknown", 1),
        ([&broken, &short], 1, "too-short", 1),
        ([&broken, &broken], 2, "unknown", 0),
    ] {
        let args = ["check", "--config", SERVICE, "--manifest", files[0], "--manifest", files[1]];
        let ran = adieu(&[&args[..], &["--json"]].concat());
        let all = json_of(&ran);
        assert_eq!((ran.code, all["verdict"].as_str()), (code, Some(verdict)), "{}", ran.stdout);
        assert_eq!(all["workloads"].as_array().unwrap().len(), judged);
        assert!(all["unreadable"][0].as_str().unwrap().starts_with(&broken), "{}", ran.stdout);
        let shown = adieu(&args);
        assert_eq!(shown.code, code);
        assert!(shown.stderr.starts_with(&format!("adieu: {broken}:")), "{}", shown.stderr);
        assert_eq!(shown.stdout.is_empty(), judged == 0, "{}", shown.stdout);
    }
}

#[test]
fn s508_variables_that_cannot_be_seen_are_unknown_unless_they_are_vouched_for() {
    let from = "    envFrom: [{secretRef: {name: elsewhere}}]\n";
    let hidden = [
        ("pod.yaml", pod(60, from)),
        ("compose.yaml", service("    env_file: missing.env\n")),
        (
            "orders.service",
            format!(
                "[Service]\nTimeoutStopSec=90\nExecStart=/orders\nEnvironment={TOLD}=90\nEnvironmentFile=/etc/none\n"
            ),
        ),
        (
            "task.json",
            json!({ "containerDefinitions": [{
                "name": "orders",
                "stopTimeout": 60,
                "environment": [{ "name": TOLD, "value": "60" }],
                "environmentFiles": [{ "value": "arn", "type": "s3" }],
            }] })
            .to_string(),
        ),
        (
            "run.sh",
            format!("docker run --stop-timeout 60 -e {TOLD}=60 --env-file missing.env orders\n"),
        ),
        (
            "orders.container",
            format!(
                "[Service]\nTimeoutStopSec=70\n[Container]\nImage=a\nStopTimeout=60\n\
                 Environment={TOLD}=60\nEnvironmentFile=/etc/none\n"
            ),
        ),
    ];
    for (name, text) in hidden {
        let folder = Folder::new(&[(name, &text)]);
        let ran = folder.judge(name, &[]);
        let all = json_of(&ran);
        assert_eq!(
            (ran.code, all["verdict"].as_str()),
            (2, Some("unknown")),
            "{text}\n{}",
            ran.stdout
        );
        assert_eq!(all["suggest"]["say"], "--no-hidden-env", "{}", ran.stdout);
        assert_eq!(folder.verdict(name, &["--no-hidden-env"]), "fits", "{text}");
    }
    // A variable whose name can be seen is not vouched for.
    let named = pod(60, "").replace(
        "env: [",
        "env: [{name: ADIEU__RESERVE, valueFrom: {secretKeyRef: {name: a, key: b}}}, ",
    );
    let folder = Folder::new(&[("pod.yaml", &named)]);
    assert_eq!(folder.verdict("pod.yaml", &["--no-hidden-env"]), "unknown");
}

/// The suggestions for `orders`, as text.
fn lines(ran: &Ran) -> String {
    ran.stdout.split("With this it fits:").skip(1).collect()
}

#[test]
fn s509_workloads_that_share_a_configuration_are_changed_one_by_one() {
    let config = config("drain-timeout = '30s'\nkill-after = '30s'\nlame-duck = '1s'");
    let config = config.path().to_str().unwrap();
    let service = |name: &str, grace: u64, variable: &str| {
        format!(
            "  {name}: {{image: a, stop_grace_period: {grace}s, environment: {{{variable}}}}}\n"
        )
    };
    let both = |first: &str, second: &str| {
        format!("services:\n{}{}", service("orders", 70, first), service("ledger", 90, second))
    };
    let folder = Folder::new(&[("compose.yaml", &both("", ""))]);
    let path = folder.path("compose.yaml");
    let args = ["check", "--config", config, "--manifest", path.to_str().unwrap()];
    let ran = adieu(&[&args[..], &["--json"]].concat());
    let suggested =
        |at: usize| -> Value { json_of(&ran)["workloads"][at]["suggest"]["env"].clone() };
    let variable = |at: usize| suggested(at)["ADIEU__KILL_AFTER"].as_str().unwrap().to_owned();
    assert_ne!(variable(0), variable(1));
    let [first, second] = [0, 1].map(|at| format!("ADIEU__KILL_AFTER: {}", variable(at)));
    folder.write("compose.yaml", &both(&first, &second));
    assert_eq!(adieu(&args).code, 0, "{}", adieu(&args).stdout);
    // Alone, the configuration itself is changed.
    let alone = adieu(&[&args[..], &["--only", "orders"]].concat());
    assert_eq!(alone.code, 0);
    folder.write("compose.yaml", &both("", ""));
    let alone = adieu(&[&args[..], &["--only", "orders"]].concat());
    assert!(lines(&alone).contains("kill-after = \""), "{}", alone.stdout);
}

#[test]
fn s509_variables_of_a_container_are_suggested_as_options_of_its_command() {
    let unit = |flag: &str| {
        format!(
            "[Service]\nType=notify\nTimeoutStopSec=60\n\
             ExecStart=/usr/bin/docker run --rm {flag} --name orders orders\n"
        )
    };
    let folder = Folder::new(&[("orders.service", &unit(""))]);
    let path = folder.path("orders.service");
    let args = ["check", "--config", SERVICE, "--manifest", path.to_str().unwrap()];
    let ran = adieu(&args);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    let lines = lines(&ran);
    let line = lines.lines().find_map(|line| line.trim().strip_suffix(" in front of the image"));
    let line = line.unwrap_or_else(|| panic!("{}", ran.stdout));
    assert!(line.starts_with("-e TERMINATION_GRACE_PERIOD_SECONDS="), "{line}");
    folder.write("orders.service", &unit(line));
    assert_eq!(adieu(&args).code, 0, "{}", adieu(&args).stdout);
}

#[test]
fn s510_the_configuration_that_a_manifest_carries_is_judged() {
    let carrying = |drain: &str| {
        let container = "    volumeMounts: [{name: c, mountPath: /etc/orders}]\n  volumes: [{name: c, \
                         configMap: {name: orders, items: [{key: a, path: stop.toml}]}}]\n";
        let named = pod(60, container)
            .replace("env: [", "env: [{name: ADIEU_CONFIG, value: /etc/orders/stop.toml}, ");
        format!(
            "{named}---\nkind: ConfigMap\nmetadata: {{name: orders}}\ndata:\n  a: |\n    \
             coordinated-shutdown.drain-timeout = '{drain}'\n"
        )
    };
    let folder = Folder::new(&[("a.yaml", &carrying("5s")), ("b.yaml", &carrying("90s"))]);
    assert_eq!(
        (folder.verdict("a.yaml", &[]), folder.verdict("b.yaml", &[])),
        ("fits".into(), "too-short".into())
    );
    // Another value in --config is a warning.
    let ran = folder.judge("a.yaml", &["--deny-warnings"]);
    assert!(ran.stdout.contains("the manifest carries /etc/orders/stop.toml"), "{}", ran.stdout);
    // A file that is named and not carried must be given.
    let named = carrying("5s").replace("kind: ConfigMap", "kind: Other");
    folder.write("c.yaml", &named);
    let path = folder.path("c.yaml");
    let path = path.to_str().unwrap();
    let ran = adieu(&["check", "--manifest", path]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    assert!(ran.stdout.contains("give it with --config"), "{}", ran.stdout);
    assert_eq!(adieu(&["check", "--config", SERVICE, "--manifest", path]).code, 0);
    // A file that is wrong is an error with its place.
    folder.write("d.yaml", &carrying("soon"));
    let ran = folder.judge("d.yaml", &[]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("d.yaml:") && ran.stderr.contains("drain-timeout"),
        "{}",
        ran.stderr
    );
    // Files that compose mounts from beside, too.
    let mounted = service("    volumes: ['./stop.toml:/etc/stop.toml:ro']\n")
        .replace("environment: {", "environment: {ADIEU_CONFIG: /etc/stop.toml, ");
    let slow = "coordinated-shutdown.drain-timeout = '90s'";
    let folder = Folder::new(&[("e.yaml", &mounted), ("stop.toml", slow)]);
    assert_eq!(folder.verdict("e.yaml", &[]), "too-short");
}

#[test]
fn s511_a_name_that_is_empty_is_refused() {
    let folder = Folder::new(&[("pod.yaml", &pod(60, ""))]);
    assert_eq!(folder.judge("pod.yaml", &["--only", ""]).code, 2);
    assert_eq!(folder.judge("pod.yaml", &["--only", "orders"]).code, 0);
}

#[test]
fn s512_containers_with_variables_of_this_library_are_judged() {
    let with = |variable: &str| {
        let second = format!("  - name: worker\n    env: [{{name: {variable}, value: 90s}}]\n");
        Folder::new(&[("pod.yaml", &pod(60, &second))])
    };
    let containers = |folder: &Folder, more: &[&str]| {
        let all = json_of(&folder.judge("pod.yaml", more));
        let names = all["workloads"].as_array().unwrap().iter();
        names.map(|one| format!("{} {}", one["container"], one["verdict"])).collect::<Vec<_>>()
    };
    let ours = with("ADIEU__DRAIN_TIMEOUT");
    let both = [r#""orders" "fits""#, r#""worker" "too-short""#];
    assert_eq!(containers(&ours, &[]), both);
    assert_eq!(containers(&ours, &["--only", "worker"]), both[1..]);
    assert_eq!(containers(&with("RUST_LOG"), &[]), both[..1]);
}
