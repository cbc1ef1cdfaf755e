//! `adieu check` answers `fits` only if it has seen every value.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::check::{SERVICE, json_of};
use super::{Ran, adieu, command, config, ran};

const TOLD: &str = "TERMINATION_GRACE_PERIOD_SECONDS";

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

    fn path(&self, name: &str) -> PathBuf {
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
fn s506_the_override_beside_a_compose_file_is_merged() {
    for (base, over) in [
        ("compose.yaml", "compose.override.yaml"),
        ("docker-compose.yml", "docker-compose.override.yml"),
    ] {
        let folder = Folder::new(&[(base, &service(""))]);
        assert_eq!(folder.verdict(base, &[]), "fits");
        for (text, expected) in [
            ("services: {orders: {stop_grace_period: 5s}}", "too-short"),
            ("services: {orders: {stop_signal: SIGQUIT}}", "too-short"),
            ("services: {orders: {environment: [ADIEU__DRAIN_TIMEOUT=90s]}}", "too-short"),
            ("services: {orders: {environment: [RUST_LOG=info]}}", "fits"),
            ("services: {ledger: {image: ledger}}", "too-short"),
            ("services: {orders: {stop_grace_period: !reset null}}", "too-short"),
            ("services: {orders: {command: make run}}", "unknown"),
        ] {
            folder.write(over, text);
            assert_eq!(folder.verdict(base, &[]), expected, "{base}: {text}");
        }
        folder.write(over, "services: {orders: {stop_grace_period: soon}}");
        let ran = folder.judge(base, &[]);
        assert!(
            ran.stderr.contains(&format!("{over}:1: services.orders.stop_grace")),
            "{}",
            ran.stderr
        );
        // A file of another name is judged as it is.
        folder.write("other.yaml", &service(""));
        assert_eq!(folder.verdict("other.yaml", &[]), "fits");
    }
}

#[test]
fn s824_tags_of_compose_are_followed() {
    let slow = service("").replace("{TERM", "{ADIEU__DRAIN_TIMEOUT: 90s, TERM");
    let folder = Folder::new(&[("compose.yaml", &slow)]);
    assert_eq!(folder.verdict("compose.yaml", &[]), "too-short");
    let told = format!("{TOLD}: '60'");
    for (text, expected) in [
        (format!("services: {{orders: {{environment: !override {{{told}}}}}}}"), "fits"),
        ("services: {orders: {environment: {ADIEU__DRAIN_TIMEOUT: !reset null}}}".into(), "fits"),
        ("services: {orders: {environment: !reset {}}}".into(), "too-short"),
        (
            format!(
                "services: {{orders: !override {{image: a, stop_grace_period: 60s, environment: {{{told}}}}}}}"
            ),
            "fits",
        ),
        // If a tag is not followed, its value is unknown.
        ("services: {orders: {ports: [!override 80]}}".into(), "unknown"),
        ("services: !override {orders: {image: a}}".into(), "unknown"),
    ] {
        folder.write("compose.override.yaml", &text);
        assert_eq!(folder.verdict("compose.yaml", &[]), expected, "{text}");
    }
}

#[test]
fn s824_files_that_compose_merges_and_cannot_be_seen_are_unknown() {
    let folder = Folder::new(&[("compose.yaml", &service(""))]);
    folder.write("prod.yaml", "services: {orders: {stop_grace_period: 5s}}");
    folder.write("compose.override.yaml", "services: {orders: {stop_grace_period: 5s}}");
    for (text, expected) in [
        ("COMPOSE_FILE=compose.yaml:prod.yaml", "unknown"),
        ("COMPOSE_FILE=$FILES", "unknown"),
        ("A='1\n2'\nCOMPOSE_FILE=prod.yaml", "unknown"),
        // The override is merged only if nothing is named.
        ("COMPOSE_FILE=./compose.yaml", "fits"),
        ("TAG=1.4", "too-short"),
    ] {
        folder.write(".env", text);
        assert_eq!(folder.verdict("compose.yaml", &[]), expected, "{text}");
    }
}

#[test]
fn s824_included_files_are_judged_with_their_own_folders() {
    let folder = Folder::new(&[("compose.yaml", "include: [{path: orders/compose.yaml}]")]);
    assert_eq!(folder.verdict("compose.yaml", &[]), "unknown");
    folder.write("orders/compose.yaml", &service("    env_file: own.env\n"));
    folder.write("orders/own.env", "RUST_LOG=info\n");
    assert_eq!(folder.verdict("compose.yaml", &[]), "fits");
    folder.write("orders/own.env", "ADIEU__DRAIN_TIMEOUT=90s\n");
    assert_eq!(folder.verdict("compose.yaml", &[]), "too-short");
    folder.write("orders/compose.yaml", "include: [compose.yaml]");
    assert_eq!(folder.verdict("compose.yaml", &[]), "unknown");
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

fn told_unit(lines: &str) -> String {
    format!("[Service]\nType=notify\nEnvironment={TOLD}=60\nTimeoutStopSec=60\n{lines}")
}

#[test]
fn s834_configurations_of_supervisord_are_read_as_python_does() {
    let told = format!("environment={TOLD}=\"60\"\n");
    let orders = format!("[program:orders]\ncommand=orders\nstopwaitsecs=60\n{told}");
    for (text, expected) in [
        (orders.clone(), "fits"),
        (format!("[program:orders]\nCommand: orders\nSTOPWAITSECS : 60 # s\n{told}"), "fits"),
        (orders.replace("=60\n", "=60\t; a minute\n"), "fits"),
        (orders.replace("=60\n", "=60\nStopSignal = quit ; x\n"), "too-short"),
        (orders.replace("=60\n", "=60 \\\nstopsignal=QUIT\n"), "unknown"),
        (format!("{orders}[DEFAULT]\nstopsignal=QUIT\n"), "too-short"),
        // Lines that are indented like the key before them are keys; those that are deeper are not.
        (
            format!("{orders}  \n")
                .replace("command", "  command")
                .replace("stopwait", "  stopsignal=QUIT\n  stopwait"),
            "too-short",
        ),
        (orders.replace("=orders", "=orders\n  stopsignal=QUIT"), "fits"),
        (
            format!("{},\n  ; a remark\n  ADIEU__DRAIN_TIMEOUT=90s\n", orders.trim_end()),
            "too-short",
        ),
        (format!("{orders}stopsignal=TERM\n[DEFAULT]\nstopsignal=QUIT\n"), "fits"),
        (format!("{orders}[program:orders]\nstopwaitsecs=5\n"), "too-short"),
        (format!("{orders}[eventlistener:mail]\ncommand=mail\nevents=TICK_60\n"), "fits"),
        (orders.replace("[program:", "[fcgi-program:"), "fits"),
        (orders.replace("command=orders", "command=sh -c \"orders; true\""), "too-short"),
        (
            format!("{}stopasgroup=yes\n", orders.replace("=orders", "=sh -c 'orders; :'")),
            "unknown",
        ),
        (format!("{}stopasgroup=yes\n", orders.replace("=orders", "=sudo orders")), "unknown"),
        (format!("{orders}stopasgroup=yes\n"), "fits"),
    ] {
        let folder = Folder::new(&[("supervisord.conf", &text)]);
        assert_eq!(folder.verdict("supervisord.conf", &[]), expected, "{text}");
    }
    // A shell that waits for certain is not removed by the option that states the contrary.
    let shell = orders.replace("=orders", "=sh -c 'orders; :'") + "stopasgroup=yes\n";
    let folder = Folder::new(&[("supervisord.conf", &shell)]);
    assert_eq!(folder.verdict("supervisord.conf", &["--execs"]), "unknown");
}

#[test]
fn s835_a_suggestion_names_the_option_that_overrides_a_key() {
    let args = format!(
        "[Container]\nImage=orders\nStopTimeout=60\nPodmanArgs=--stop-timeout 5\n\
         Environment={TOLD}=60\n[Service]\nTimeoutStopSec=90\n"
    );
    let folder = Folder::new(&[
        ("args.container", &args),
        ("key.container", &args.replace("PodmanArgs=--stop-timeout 5", "StopTimeout=5")),
    ]);
    for (name, line) in
        [("args.container", "PodmanArgs=--stop-timeout 26"), ("key.container", "StopTimeout=26")]
    {
        let path = folder.path(name);
        let path = path.to_str().unwrap();
        let ran = adieu(&["check", "--config", SERVICE, "--manifest", path]);
        let (_, lines) = ran.stdout.split_once("With this it fits:").unwrap();
        assert!(lines.lines().any(|found| found.trim() == line), "{lines}");
        // Applied, it fits.
        let old = if name == "args.container" {
            "PodmanArgs=--stop-timeout 5"
        } else {
            "StopTimeout=5\n"
        };
        let text = std::fs::read_to_string(path).unwrap();
        let text =
            text.replace(old, &format!("{line}\n")).replace("=60\n[Service]", "=26\n[Service]");
        folder.write(name, &text);
        assert_eq!(folder.verdict(name, &[]), "fits", "{text}");
    }
}

#[test]
fn s839_signals_that_nomad_sends_when_a_template_changes_must_be_handled() {
    let job = |change: &str| {
        format!(
            "job \"o\" {{\n group \"g\" {{\n  task \"o\" {{\n   driver = \"exec\"\n   kill_timeout = \
             \"30s\"\n   env {{\n    {TOLD} = \"30\"\n   }}\n   config {{\n    command = \"/orders\"\n   \
             }}\n{change}\n  }}\n }}\n}}\n"
        )
    };
    let template = |mode: &str| {
        format!("   template {{\n    data = \"x\"\n    destination = \"local/x\"\n{mode}\n   }}")
    };
    for (change, expected) in [
        (String::new(), "fits"),
        (template(""), "fits"),
        (template("    change_mode = \"restart\""), "fits"),
        (template("    change_mode = \"signal\"\n    change_signal = \"SIGTERM\""), "fits"),
        (template("    change_mode = \"signal\"\n    change_signal = \"SIGHUP\""), "too-short"),
        (template("    change_mode = \"signal\"\n    change_signal = var.signal"), "unknown"),
        (
            "   vault {\n    change_mode = \"signal\"\n    change_signal = \"SIGUSR1\"\n   }"
                .into(),
            "too-short",
        ),
    ] {
        let folder = Folder::new(&[("orders.nomad.hcl", &job(&change))]);
        assert_eq!(folder.verdict("orders.nomad.hcl", &[]), expected, "{change}");
    }
    // The kernel protects the first process of a container from signals that it does not handle.
    let hup = template("    change_mode = \"signal\"\n    change_signal = \"SIGHUP\"");
    let docker = job(&hup).replace("\"exec\"", "\"docker\"");
    for (config, expected) in [
        ("image = \"orders\"", "fits"),
        ("image = \"orders\"\n    init = true", "too-short"),
        ("image = \"orders\"\n    command = \"tini\"\n    args = [\"orders\"]", "too-short"),
    ] {
        let job = docker.replace("command = \"/orders\"", config);
        let folder = Folder::new(&[("orders.nomad.hcl", &job)]);
        assert_eq!(folder.verdict("orders.nomad.hcl", &[]), expected, "{config}");
    }
    // It does not protect it from these.
    let docker = docker.replace("command = \"/orders\"", "image = \"orders\"");
    for (signal, expected) in [
        ("\"SIGKILL\"", "too-short"),
        ("\"SIGSTOP\"", "too-short"),
        ("var.signal", "unknown"),
        ("\"SIGUSR2\"", "fits"),
    ] {
        let folder = Folder::new(&[("orders.nomad.hcl", &docker.replace("\"SIGHUP\"", signal))]);
        assert_eq!(folder.verdict("orders.nomad.hcl", &[]), expected, "{signal}");
    }
}

#[test]
fn s836_each_command_of_a_line_of_a_unit_is_judged() {
    for (lines, expected) in [
        ("ExecStart=/orders\nExecStop=/bin/true ; /bin/kill -9 $MAINPID\n", "too-short"),
        ("ExecStart=/orders\nExecStop=/bin/true ; /bin/sleep 1\n", "fits"),
        ("ExecStart=/orders\nExecStop=@/bin/kill kill -9 $MAINPID\n", "too-short"),
        ("ExecStart=@/bin/sh sh -c 'orders; true'\nKillMode=mixed\n", "too-short"),
        ("ExecStart=-@/orders orders-main\nKillMode=mixed\n", "fits"),
        ("ExecStart=|/orders\n", "unknown"),
    ] {
        let folder = Folder::new(&[("orders.service", &told_unit(lines))]);
        assert_eq!(folder.verdict("orders.service", &[]), expected, "{lines}");
    }
}

#[test]
fn s837_a_container_of_a_quadlet_pod_has_its_own_time() {
    let text = |timeout: u32| {
        format!(
            "[Container]\nImage=orders\nPod=shop.pod\nStopTimeout={timeout}\n\
             Environment={TOLD}={timeout}\n[Service]\nTimeoutStopSec=90\n"
        )
    };
    let folder = Folder::new(&[
        ("orders.container", &text(60)),
        ("short.container", &text(5)),
        ("other.container", &text(60).replace("shop.pod", "shop")),
        ("shop.pod", "[Pod]\nStopTimeout=5\n"),
    ]);
    assert_eq!(folder.verdict("orders.container", &[]), "fits");
    assert_eq!(folder.verdict("short.container", &[]), "too-short");
    assert_eq!(folder.verdict("other.container", &[]), "unknown");
}

#[test]
fn s838_scripts_that_start_containers_are_recognised() {
    let run = format!("run -d --name orders --stop-timeout 60 -e {TOLD}=60 orders");
    for (script, expected) in [
        (format!("docker {run}"), "fits"),
        (format!("docker --context prod {run}"), "fits"),
        (format!("docker -H tcp://build:2375 {run}"), "fits"),
        (format!("DOCKER_HOST=tcp://build:2375 docker {run}"), "fits"),
        (format!("export DOCKER_HOST=tcp://build:2375\ndocker {run}"), "fits"),
        (format!("sudo docker container {run}"), "fits"),
        (
            format!("docker pull orders && docker stop orders; docker rm orders; docker {run}"),
            "fits",
        ),
        (format!("docker pull orders && docker stop -t 5 orders; docker {run}"), "too-short"),
        (format!("docker pull orders && docker kill orders; docker {run}"), "too-short"),
        (format!("docker pull orders || ./stop-all; docker {run}"), "unknown"),
        (format!("command -v docker; docker {run}"), "fits"),
        (format!("set -e; command docker kill orders; docker {run}"), "too-short"),
        (format!("set -e; nice -n 5 docker kill orders; docker {run}"), "too-short"),
        (format!("set -e; env A=1 sudo docker rm orders -f; docker {run}"), "too-short"),
        (format!("set -e; command -p ./stop-all; docker {run}"), "unknown"),
    ] {
        for shebang in ["", "#!/bin/sh\n"] {
            let folder = Folder::new(&[("deploy.sh", &format!("{shebang}{script}\n"))]);
            assert_eq!(folder.verdict("deploy.sh", &[]), expected, "{shebang}{script}");
        }
    }
}
