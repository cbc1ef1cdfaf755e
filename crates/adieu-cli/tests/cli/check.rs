//! `adieu check`. The corpus of manifests is in `corpus.rs`, the rules of each platform in
//! `platforms.rs`.

use std::path::Path;
use std::time::Duration;

use adieu::{Config, KillAfter, Phase, Shutdown, TaskCx};
use expect_test::{expect, expect_file};
use serde_json::{Value, json};

use super::{Ran, adieu, adieu_reads, config, shows};

pub(super) const SERVICE: &str = "manifests/service.toml";

pub(super) fn check(manifest: &str, more: &[&str]) -> Ran {
    adieu(&[&["check", "--config", SERVICE, "--manifest", manifest], more].concat())
}

pub(super) fn json_of(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

/// A manifest that is made up, in a file that lives as long as this.
fn made(text: impl AsRef<[u8]>) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn json_has_the_documented_shape_with_the_worst_at_the_top() {
    let ran = check("manifests/several-documents.yaml", &["--json"]);
    expect_file!["../golden/check-several.json"].assert_eq(&ran.stdout);
    let all = json_of(&ran);
    assert_eq!(all["workloads"][1]["name"], "ledger");
    for key in ["needed_ms", "allowed_ms", "suggest"] {
        assert_eq!(all[key], all["workloads"][1][key], "{key}");
    }
    assert_eq!(all["workloads"][0]["fits"], true);
    let never = json_of(&check("manifests/never-killed.service", &["--json"]));
    assert_eq!((&never["fits"], &never["allowed_ms"]), (&json!(true), &Value::Null));
}

#[test]
fn s184_applied_suggestions_fit() {
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests/too-short.yaml"),
    )
    .unwrap();
    let suggest = &json_of(&check("manifests/too-short.yaml", &["--json"]))["suggest"];
    let grace = suggest["terminationGracePeriodSeconds"].as_u64().unwrap();
    for (seconds, code) in [(grace, 0), (grace - 1, 1)] {
        let text = text.replace("15", &seconds.to_string());
        let ran = adieu_reads(&["check", "--config", SERVICE, "--manifest", "-"], &text);
        assert_eq!(ran.code, code, "{}", ran.stdout);
    }
    // Without the variable, the process would cut itself short. With the suggested one, it does not.
    let args = ["check", "--config", "manifests/slow.toml", "--json", "--manifest"];
    let not_told = "manifests/long-enough-but-not-told.yaml";
    let ran = adieu(&[&args[..], &[not_told]].concat());
    assert_eq!(ran.code, 1);
    let suggest = json_of(&ran)["suggest"].clone();
    assert_eq!(suggest, json!({ "env": { "TERMINATION_GRACE_PERIOD_SECONDS": "120" } }));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let text = std::fs::read_to_string(folder.join(not_told)).unwrap();
    let env = "          env: [{name: TERMINATION_GRACE_PERIOD_SECONDS, value: '120'}]\n";
    let told = text.replace("          ports:\n", &format!("{env}          ports:\n"));
    assert_eq!(adieu_reads(&[&args[..], &["-"]].concat(), &told).code, 0);
}

#[test]
fn s183_unreadable_manifests_are_reported_with_their_place() {
    let refuses = |text: &[u8]| {
        let file = made(text);
        let path = file.path().to_str().unwrap();
        let Ran { code, stdout, stderr } = adieu(&["check", "--manifest", path]);
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        stderr.replace(path, "FILE")
    };
    let huge = format!("kind: ConfigMap\ndata:\n{}", "  key: value\n".repeat(800_000));
    assert!(huge.len() > 10_000_000);
    expect![[r#"
        adieu: failed to read FILE: larger than 4 MiB: give the manifests one by one
    "#]]
    .assert_eq(&refuses(huge.as_bytes()));
    expect![[r#"
        adieu: FILE:1: nested more than 64 deep: no manifest is
    "#]]
    .assert_eq(&refuses("[".repeat(1_000_000).as_bytes()));
    expect![[r#"
        adieu: FILE:1: nested more than 64 deep: no manifest is
    "#]]
    .assert_eq(&refuses("- ".repeat(1_000_000).as_bytes()));
    expect![[r#"
        adieu: FILE:2: this is not UTF-8, so it is no manifest
    "#]]
    .assert_eq(&refuses(b"kind: Pod\nname: \xff\xfe\n"));
    let many = "- 1\n".repeat(400_000);
    expect![[r#"
        adieu: FILE:300000: more than 300000 values: give the manifests one by one
    "#]]
    .assert_eq(&refuses(many.as_bytes()));
    let missing = adieu(&["check", "--manifest", "nope.yaml"]);
    assert_eq!(missing.code, 2);
    expect![[r#"
        adieu: failed to read nope.yaml: No such file or directory (os error 2)
    "#]]
    .assert_eq(&missing.stderr);
    assert_eq!(adieu(&["check", "--manifest", "manifests"]).code, 2);
    assert_eq!(adieu(&["check", "--config", "nope.toml"]).code, 2);
}

#[test]
fn aliases_and_merges_are_not_copied() {
    // One Deployment, which a list names five thousand times; and maps merged into maps.
    let mut text = String::from("apiVersion: v1\nkind: List\nx0: &x0 {a: 1}\n");
    for n in 1..30 {
        let before = vec![format!("*x{}", n - 1); 40].join(", ");
        text += &format!("x{n}: &x{n} {{<<: [{before}]}}\n");
    }
    text += "items:\n- &d {kind: Pod, metadata: {<<: *x29}, spec: {containers: [{name: a}]}}\n";
    let one = adieu_reads(&["check", "--manifest", "-"], &text);
    assert_eq!(one.code, 0, "{}", one.stderr);
    text += &"- *d\n".repeat(5_000);
    let many = adieu_reads(&["check", "--manifest", "-"], &text);
    assert_eq!(many.code, 2);
    assert!(many.stderr.contains("more than 1000 workloads"), "{}", many.stderr);
}

#[test]
fn numbers_beyond_all_bounds_are_numbers() {
    let most = u64::MAX.to_string();
    let pod = format!(
        "{{kind: Pod, spec: {{terminationGracePeriodSeconds: {most}, containers: [{{name: a, \
         lifecycle: {{preStop: {{sleep: {{seconds: {most}}}}}}}, readinessProbe: \
         {{periodSeconds: {most}, failureThreshold: {most}}}}}]}}}}"
    );
    for more in [&["--json"][..], &["--routing-lag", "365d"], &["--sidecar", "365d"]] {
        let ran = adieu_reads(&[&["check", "--manifest", "-"], more].concat(), &pod);
        assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    }
    for (seconds, code) in [("999999999999999", 0), (&most, 2), ("1e300", 2), ("NaN", 2)] {
        let unit = format!("[Service]\nTimeoutStopSec={seconds}\n");
        assert_eq!(adieu_reads(&["check", "--manifest", "-"], &unit).code, code, "{seconds}");
    }
    assert_eq!(adieu(&["check", "--routing-lag", &format!("{most}s")]).code, 2);
    assert_eq!(adieu(&["manifest", "--routing-lag", "365d"]).code, 0);
    assert_eq!(adieu(&["check", "--grace", "0s"]).code, 1);
}

#[test]
fn s183_a_manifest_cannot_steer_the_terminal() {
    let pod = "{kind: Pod, metadata: {name: \"a\\e[31m\"}, spec: {containers: [{name: b}]}}";
    let ran = adieu_reads(&["check", "--manifest", "-"], pod);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("<stdin>:1: Pod a\u{fffd}[31m, container b: fits"));
    let unit = "[Service]\nKillSignal=\u{1b}[31m\n";
    let ran = adieu_reads(&["check", "--manifest", "-"], unit);
    assert!(ran.stdout.contains("KillSignal: \u{fffd}[31m is sent"), "{}", ran.stdout);
    let signal =
        "{kind: Pod, spec: {containers: [{name: b, lifecycle: {stopSignal: \"\\e[2J\\n\"}}]}}";
    let ran = adieu_reads(&["check", "--manifest", "-"], signal);
    assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.stdout);
}

#[test]
fn one_can_be_asked_for_by_name() {
    let several = "manifests/several-documents.yaml";
    assert_eq!(check(several, &["--only", "orders"]).code, 0);
    assert_eq!(check(several, &["--only", "ledger"]).code, 1);
    let none = check(several, &["--only", "absent"]);
    assert_eq!(none.code, 2);
    expect![[r#"
        adieu: --only absent: there is only Service orders (manifests/several-documents.yaml:1), ConfigMap orders (manifests/several-documents.yaml:12), Deployment orders, container orders (manifests/several-documents.yaml:20), StatefulSet ledger, container ledger (manifests/several-documents.yaml:51)
    "#]].assert_eq(&none.stderr);
    let proxy = json_of(&check("manifests/two-containers.yaml", &["--only", "proxy", "--json"]));
    assert_eq!(proxy["workloads"][0]["container"], "proxy");
    assert_eq!(check("manifests/compose-good.yaml", &["--only", "db"]).code, 1);
}

#[test]
fn the_phases_that_count_can_be_named() {
    let needed = |phases: &str| {
        let ran = adieu(&["check", "--grace", "300s", "--json", "--phases", phases]);
        json_of(&ran)["needed_ms"].as_u64().unwrap()
    };
    // With a margin of 30s and a reserve of 3s.
    assert_eq!(needed("usual"), 33_000 + 19_000);
    assert_eq!(needed("all"), 33_000 + 80_000);
    assert_eq!(needed("service-stop,cluster-exiting"), 33_000 + 15_000);
    let unknown = adieu(&["check", "--phases", "service-stp"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("no phase service-stp; there are"), "{}", unknown.stderr);
}

#[test]
fn without_a_manifest_the_assumed_platform_is_shown() {
    let default = shows(&["check"]);
    expect_file!["../golden/check.txt"].assert_eq(&default);
    assert_eq!(adieu(&["check", "--grace", "10s"]).code, 1);
    assert_eq!(adieu(&["check", "--grace", "25"]).code, 2);
    assert_eq!(adieu(&["check", "--grace", "30s", "--manifest", "x.yaml"]).code, 2);
    let configured = adieu(&["check", "--config", "golden/service.toml", "--json"]);
    assert_eq!(json_of(&configured)["allowed_ms"], 60_000);
}

#[test]
fn routers_that_take_longer_are_waited_for() {
    let slow = ["--routing-lag", "31s", "--json"];
    let ran = check("manifests/good.yaml", &slow);
    assert_eq!(ran.code, 1);
    let suggest = &json_of(&ran)["suggest"];
    assert_eq!(suggest["lame-duck"], "31s");
    let grace = suggest["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace > 31 + 22, "{grace}");
    assert_eq!(check("manifests/good.service", &slow).code, 1);
    assert_eq!(check("manifests/good.yaml", &["--routing-lag", "5s"]).code, 0);
    // By default the lame duck lasts also without requests; a shorter minimum is noted.
    let config = config("lame-duck-min = '1s'");
    let hasty = shows(&["check", "--config", config.path().to_str().unwrap()]);
    let note = "lame-duck-min: the lame duck ends sooner if no request has come for a second";
    assert!(hasty.contains(note), "{hasty}");
    assert!(!shows(&["check"]).contains("ends sooner"));
}

/// The log line of a process at start-up, if it has the tasks of the usual service.
#[test]
fn s183_it_agrees_with_the_process() {
    for text in [
        "",
        "lame-duck = '5s'",
        "phases.service-unbind.timeout = '1s'",
        "drain-timeout = '6s'",
        "kill-after = '30s'",
    ] {
        let config = config(text);
        let path = config.path();
        // Without a manifest, 30 s are assumed, as a process on Kubernetes does.
        let kill_after = KillAfter::After(Duration::from_secs(30));
        let process = Config::read(path).unwrap().kill_after(kill_after);
        let shutdown = Shutdown::configured(process).unwrap();
        shutdown.add_gate("http").unwrap();
        let close = async |_: TaskCx| {};
        shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", close).unwrap();
        let path_of_process = shutdown.check_budget().critical_path;

        let ran = adieu(&["check", "--json", "--config", path.to_str().unwrap()]);
        let workload = &json_of(&ran)["workloads"][0];
        let millis = |key: &str| workload[key].as_u64().unwrap();
        let worst_case = millis("lame_duck_ms") + millis("critical_path_ms");
        let of_process = u64::try_from(path_of_process.worst_case.as_millis()).unwrap();
        assert!(worst_case.abs_diff(of_process) <= 2, "{text}: {worst_case} {of_process}");
        let counted: Vec<_> = path_of_process.phases.iter().map(ToString::to_string).collect();
        assert_eq!(json_of(&ran)["counted"], json!(counted));
        let drain = shutdown.check_budget().drain.unwrap().as_millis();
        assert_eq!(u128::from(millis("drain_ms")), drain, "{text}");
    }
}

#[test]
fn s206_a_drain_that_could_run_into_the_kill_does_not_fit() {
    let pod = |lines: &str| {
        format!(
            "{{kind: Pod, spec: {{terminationGracePeriodSeconds: 26, containers: [{{name: a{lines}}}]}}}}"
        )
    };
    let open = adieu_reads(&["check", "--manifest", "-"], &pod(""));
    assert_eq!(open.code, 1, "{}", open.stdout);
    let problem = "the process assumes a grace period of 30s, but the manifest leaves it 26s: it may \
                   be killed while requests drain";
    assert!(open.stdout.contains(problem), "{}", open.stdout);
    // If it has its deadline, or is limited to less than it could have, it fits.
    let told = pod(", env: [{name: TERMINATION_GRACE_PERIOD_SECONDS, value: '26'}]");
    let told = adieu_reads(&["check", "--manifest", "-"], &told);
    assert_eq!(told.code, 0, "{}", told.stdout);
    assert!(told.stdout.contains("or more to finish"), "{}", told.stdout);
    let config = config("drain-timeout = '6s'");
    let path = config.path().to_str().unwrap();
    let held = adieu_reads(&["check", "--config", path, "--manifest", "-"], &pod(""));
    assert_eq!(held.code, 0, "{}", held.stdout);
    assert!(held.stdout.contains("requests have 6s to finish: as configured"), "{}", held.stdout);
    // Without a deadline it counts with the time that it has then.
    let config = self::config("kill-after = 'none'");
    let path = config.path().to_str().unwrap();
    let ran = adieu_reads(&["check", "--config", path, "--manifest", "-"], &pod(""));
    assert!(ran.stdout.contains("service-requests-done       10s  no deadline"), "{}", ran.stdout);
}

#[test]
fn the_manifests_in_deploy_fit() {
    for file in ["kubernetes.yaml", "adieu-service.service", "compose.yaml"] {
        let manifest = format!("../../../deploy/{file}");
        let ran =
            adieu(&["check", "--config", "../../../deploy/service.toml", "--manifest", &manifest]);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        assert!(!ran.stdout.contains("warning: "), "{}", ran.stdout);
    }
    // Facts that no manifest shows: no shell in front, and no root.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dockerfile = std::fs::read_to_string(root.join("deploy/Dockerfile")).unwrap();
    let last = |word: &str| dockerfile.lines().rfind(|line| line.starts_with(word)).unwrap();
    assert!(last("ENTRYPOINT").starts_with("ENTRYPOINT [\"/"));
    assert!(last("USER").starts_with("USER 65532"));
}
