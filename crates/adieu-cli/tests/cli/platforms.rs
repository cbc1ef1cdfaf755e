//! The rules of `adieu check` for each platform.

use std::path::Path;

use serde_json::{Value, json};

use super::check::{SERVICE, json_of};
use super::{Ran, adieu, adieu_reads, command, config, ran};

fn judge(text: &str, more: &[&str]) -> Ran {
    adieu_reads(
        &[&["check", "--config", SERVICE, "--manifest", "-", "--json"], more].concat(),
        text,
    )
}

/// The verdict of the only workload.
#[track_caller]
fn verdict(text: &str, more: &[&str]) -> String {
    let ran = judge(text, more);
    assert!(!ran.stdout.is_empty(), "{text}\n{}", ran.stderr);
    json_of(&ran)["workloads"][0]["verdict"].as_str().unwrap().to_owned()
}

#[track_caller]
fn refused(text: &str) -> String {
    let ran = judge(text, &[]);
    assert_eq!(ran.code, 2, "{text}");
    assert_eq!(json_of(&ran)["workloads"], json!([]), "{text}");
    ran.stderr
}

const TOLD: &str = "TERMINATION_GRACE_PERIOD_SECONDS";

/// A manifest of each platform, filled in with a grace period, the stated grace period, and the
/// signal that stops it.
fn platforms(grace: u64, told: Option<u64>, signal: &str) -> Vec<(&'static str, String)> {
    let yaml = told.map_or(String::new(), |told| format!("{{name: {TOLD}, value: '{told}'}}"));
    let unit = told.map_or(String::new(), |told| format!("Environment={TOLD}={told}\n"));
    let map = told.map_or(String::new(), |told| format!("{TOLD}: '{told}'"));
    let hcl = told.map_or(String::new(), |told| format!("{TOLD} = \"{told}\"\n"));
    let flag = told.map_or(String::new(), |told| format!("-e {TOLD}={told} "));
    let ini = told.map_or(String::new(), |told| format!("environment={TOLD}=\"{told}\"\n"));
    let json = told.map(|told| json!({ "name": TOLD, "value": told.to_string() }));
    vec![
        (
            "terminationGracePeriodSeconds",
            format!(
                "{{kind: Pod, spec: {{terminationGracePeriodSeconds: {grace}, containers: [{{name: a, \
                 env: [{yaml}], lifecycle: {{stopSignal: {signal}}}}}]}}}}"
            ),
        ),
        (
            "TimeoutStopSec",
            format!("[Service]\nTimeoutStopSec={grace}\nKillSignal={signal}\n{unit}"),
        ),
        (
            "StopTimeout",
            format!(
                "[Service]\nTimeoutStopSec={grace}\n[Container]\nImage=a\nStopTimeout={grace}\n\
                 StopSignal={signal}\n{unit}"
            ),
        ),
        (
            "stop_grace_period",
            format!(
                "services: {{a: {{image: a, stop_grace_period: {grace}s, stop_signal: {signal}, \
                 environment: {{{map}}}}}}}"
            ),
        ),
        (
            "stopTimeout",
            json!({ "containerDefinitions": [
                { "name": "a", "stopTimeout": grace, "environment": json.as_slice() }
            ] })
            .to_string(),
        ),
        (
            "kill_timeout",
            format!(
                "job \"a\" {{\n group \"a\" {{\n task \"a\" {{\n driver = \"docker\"\n kill_timeout = \
                 \"{grace}s\"\n kill_signal = \"{signal}\"\n env {{\n {hcl} }}\n }}\n }}\n}}\n"
            ),
        ),
        (
            "kill_timeout",
            format!(
                "app = \"a\"\nkill_timeout = {grace}\nkill_signal = \"{signal}\"\n[env]\n{hcl}"
            ),
        ),
        (
            "stopwaitsecs",
            format!("[program:a]\ncommand=a\nstopwaitsecs={grace}\nstopsignal={signal}\n{ini}"),
        ),
        (
            "--stop-timeout",
            format!("docker run --stop-timeout {grace} --stop-signal {signal} {flag}image\n"),
        ),
        (
            "--stop-timeout",
            format!("podman run --stop-timeout={grace} --stop-signal={signal} {flag}image\n"),
        ),
    ]
}

#[test]
fn s184_applied_suggestions_fit_on_every_platform() {
    for (at, (key, text)) in platforms(12, Some(99), "SIGQUIT").into_iter().enumerate() {
        let ran = judge(&text, &[]);
        assert_eq!(ran.code, 1, "{text}\n{}", ran.stdout);
        let suggest = &json_of(&ran)["suggest"];
        // With a unit, or in seconds.
        let number = |value: &Value| {
            let text = value.as_str().map(|text| text.trim_end_matches('s').parse().unwrap());
            text.or(value.as_u64()).unwrap()
        };
        let grace: u64 = number(&suggest[key]);
        let told: u64 = suggest["env"][TOLD].as_str().unwrap().parse().unwrap();
        // ECS has no key for the signal.
        assert_eq!(suggest["lines"].is_array(), key != "stopTimeout", "{suggest}");
        for (grace, code) in [(grace, 0), (grace - 1, 1)] {
            let (_, text) = platforms(grace, Some(told), "SIGTERM").swap_remove(at);
            let ran = judge(&text, &[]);
            assert_eq!(ran.code, code, "{text}\n{}", ran.stdout);
        }
    }
}

#[test]
fn s264_a_signal_that_the_process_does_not_handle_does_not_fit() {
    for (key, text) in platforms(60, Some(60), "SIGQUIT") {
        let (nomad, handled) = (["--max-kill-timeout", "60s"], ["--signals", "TERM,QUIT"]);
        let expected = if key == "stopTimeout" { "fits" } else { "too-short" };
        assert_eq!(verdict(&text, &nomad), expected, "{text}");
        assert_eq!(verdict(&text, &[nomad, handled].concat()), "fits", "{text}");
    }
    for signal in ["SIGTERM", "SIGINT"] {
        for (_, text) in platforms(60, Some(60), signal) {
            assert_eq!(verdict(&text, &["--max-kill-timeout", "60s"]), "fits", "{text}");
        }
    }
    assert_eq!(adieu(&["check", "--signals", "SIGKILL"]).code, 2);
}

#[test]
fn s265_each_platform_has_its_own_grace_period_if_none_is_set() {
    for (text, seconds) in [
        ("{kind: Pod, spec: {containers: [{name: a}]}}", 30),
        (
            "{apiVersion: serving.knative.dev/v1, kind: Service, spec: {template: {spec: {containers: [{name: a}]}}}}",
            300,
        ),
        (
            "{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {annotations: {run.googleapis.com/ingress: all}}, spec: {template: {spec: {timeoutSeconds: 60, containers: [{name: a}]}}}}",
            10,
        ),
        ("[Service]\nExecStart=/a\n", 90),
        ("[Container]\nImage=a\n", 10),
        ("services: {a: {image: a}}", 10),
        ("{\"containerDefinitions\": [{\"name\": \"a\"}]}", 30),
        ("job \"a\" {\n group \"a\" {\n task \"a\" {\n driver = \"docker\"\n }\n }\n}\n", 5),
        ("app = \"a\"\n", 5),
        ("[program:a]\ncommand=a\n", 10),
        ("docker run a\n", 10),
        ("podman run a\n", 10),
    ] {
        let all = json_of(&judge(text, &[]));
        assert_eq!(all["workloads"][0]["allowed_ms"], seconds * 1_000, "{text}");
    }
    // Limits that no manifest can raise.
    let fargate = "{\"requiresCompatibilities\": [\"FARGATE\"], \"containerDefinitions\": [{\"name\": \
                   \"a\", \"stopTimeout\": 600}]}";
    assert_eq!(json_of(&judge(fargate, &[]))["allowed_ms"], 120_000);
    let nomad = "job \"a\" {\n group \"a\" {\n task \"a\" {\n kill_timeout = \"60s\"\n }\n }\n}\n";
    assert_eq!(json_of(&judge(nomad, &[]))["allowed_ms"], 30_000);
    let raised = judge(nomad, &["--max-kill-timeout", "45s"]);
    assert_eq!(json_of(&raised)["allowed_ms"], 45_000);
}

#[test]
fn s272_all_possible_assumptions_must_fit() {
    let program = |more: &str| format!("[program:a]\ncommand=a\nstopwaitsecs=60\n{more}");
    assert_eq!(verdict(&program(""), &[]), "unknown");
    let told = format!("environment={TOLD}=60\n");
    assert_eq!(verdict(&program(&told), &[]), "fits");
    // A configuration that sets the grace period needs no variable for it.
    let config = config("kill-after = '60s'");
    let path = config.path().to_str().unwrap();
    let ran = adieu_reads(&["check", "--config", path, "--manifest", "-"], &program(""));
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    // A variable that may be set counts as set and as not set.
    let service = "services: {a: {image: a, stop_grace_period: 60s, env_file: secret.env}}";
    assert_eq!(verdict(service, &[]), "unknown");
}

#[test]
fn s263_scripts_in_front_can_be_vouched_for() {
    let pod = |command: &str| {
        format!("{{kind: Pod, spec: {{containers: [{{name: a, command: [{command}]}}]}}}}")
    };
    let script = pod("/docker-entrypoint.sh, orders");
    assert_eq!(verdict(&script, &[]), "unknown");
    assert_eq!(verdict(&script, &["--execs"]), "fits");
    // Values that can be seen are not overruled.
    let shell = pod("sh, -c, 'orders | tee log'");
    assert_eq!(verdict(&shell, &["--execs"]), "too-short");
}

#[test]
fn s261_warnings_can_be_denied() {
    let pod = "{kind: Deployment, spec: {replicas: 1, template: {spec: {containers: [{name: a, \
               readinessProbe: {httpGet: {path: /readyz}}}]}}}}";
    let allowed = judge(pod, &[]);
    assert_eq!((allowed.code, json_of(&allowed)["verdict"].as_str()), (0, Some("fits")));
    let denied = judge(pod, &["--deny-warnings"]);
    assert_eq!((denied.code, json_of(&denied)["verdict"].as_str()), (1, Some("fits")));
    let args = ["check", "--config", SERVICE, "--manifest", "-", "--deny-warnings"];
    let shown = adieu_reads(&args, pod);
    assert!(shown.stdout.ends_with("Warnings are denied, and there are 1.\n"), "{}", shown.stdout);
    assert_eq!(adieu(&["check", "--deny-warnings"]).code, 0);
}

#[test]
fn s266_variables_in_manifests_change_the_checked_configuration() {
    let pod = |value: &str| {
        format!(
            "{{kind: Pod, spec: {{terminationGracePeriodSeconds: 30, containers: [{{name: a, env: \
             [{{name: ADIEU__DRAIN_TIMEOUT, value: {value}}}]}}]}}}}"
        )
    };
    let needed = |value: &str| json_of(&judge(&pod(value), &[]))["needed_ms"].as_u64().unwrap();
    assert_eq!(needed("2s") + 3_000, needed("5s"));
    assert_eq!(verdict(&pod("5s"), &[]), "fits");
    assert_eq!(verdict(&pod("50s"), &[]), "too-short");
    let wrong = refused(&pod("soon"));
    assert!(wrong.starts_with("adieu: <stdin>:1: spec.containers[0].env[0]: "), "{wrong}");
    assert!(wrong.contains("ADIEU__DRAIN_TIMEOUT"), "{wrong}");
    // It counts more than the environment in which the check runs.
    let mut command = command(&["check", "--manifest", "-", "--json"]);
    command.env("ADIEU__DRAIN_TIMEOUT", "50s");
    let pods = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(&pods, pod("5s")).unwrap();
    command.stdin(std::fs::File::open(&pods).unwrap());
    assert_eq!(ran(&command.output().unwrap()).code, 0);
}

#[test]
fn s267_drop_ins_are_merged_as_systemd_does() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        "orders-api@.service",
        "[Service]\nExecStart=/a\nExecStop=/stop\nTimeoutStopSec=5\nEnvironment=A=1\n",
    );
    std::fs::copy(
        folder.path().join("orders-api@.service"),
        folder.path().join("orders-api@1.service"),
    )
    .unwrap();
    let judged = || {
        let unit = folder.path().join("orders-api@1.service");
        let unit = unit.to_str().unwrap().to_owned();
        let ran = adieu(&["check", "--config", SERVICE, "--manifest", &unit, "--json"]);
        json_of(&ran)["workloads"][0].clone()
    };
    assert_eq!(judged()["allowed_ms"], 5_000);
    // From the least specific folder to the most; of one name, the most specific file counts.
    write("service.d/10-a.conf", "[Service]\nTimeoutStopSec=10\n");
    write("orders-.service.d/20-b.conf", "[Service]\nTimeoutStopSec=20\n");
    assert_eq!(judged()["allowed_ms"], 20_000);
    write("orders-api@.service.d/20-b.conf", "[Service]\nTimeoutStopSec=30\n");
    assert_eq!(judged()["allowed_ms"], 30_000);
    write("orders-api@1.service.d/30-c.conf", "[Service]\nTimeoutStopSec=60\n");
    assert_eq!(
        (&judged()["allowed_ms"], &judged()["verdict"]),
        (&json!(60_000), &json!("unknown"))
    );
    // An empty value clears a list.
    write("orders-api@1.service.d/40-d.conf", "[Service]\nExecStop=\nKillSignal=SIGQUIT\n");
    let wrong = judged();
    assert_eq!(wrong["verdict"], "too-short");
    let place = &wrong["findings"][0];
    assert!(place["file"].as_str().unwrap().ends_with("40-d.conf"), "{place}");
    assert_eq!((&place["line"], &place["key"]), (&json!(3), &json!("Service.KillSignal")));
    // It does not reset a single value, and hidden files do not count.
    write("orders-api@1.service.d/50-e.conf", "[Service]\nKillSignal=\n");
    assert_eq!(judged()["verdict"], "too-short");
    write("orders-api@1.service.d/.50-f.conf", "[Service]\nKillSignal=SIGTERM\n");
    assert_eq!(judged()["verdict"], "too-short");
    write("orders-api@1.service.d/50-f.conf", "[Service]\nKillSignal=SIGTERM\n");
    assert_eq!(judged()["verdict"], "fits");
    // A link to /dev/null disables the files of its name in other folders.
    write("service.d/55-g.conf", "[Service]\nTimeoutStopSec=5\n");
    assert_eq!(judged()["verdict"], "too-short");
    #[cfg(unix)]
    {
        let mask = folder.path().join("orders-api@1.service.d/55-g.conf");
        std::os::unix::fs::symlink("/dev/null", mask).unwrap();
        assert_eq!(judged()["verdict"], "fits");
    }
    #[cfg(not(unix))]
    write("orders-api@1.service.d/55-g.conf", "");
    write("orders-api@1.service.d/60-f.conf", "nonsense\n");
    let unit = folder.path().join("orders-api@1.service");
    let ran = adieu(&["check", "--manifest", unit.to_str().unwrap()]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("60-f.conf:1: "), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn s269_large_files_and_fifos_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (fifo, config_fifo, large) = (path("fifo.yaml"), path("fifo.toml"), path("large.toml"));
    for fifo in [&fifo, &config_fifo] {
        assert!(std::process::Command::new("mkfifo").arg(fifo).status().unwrap().success());
    }
    std::fs::write(&large, "# much\n".repeat(800_000)).unwrap();
    for (args, problem) in [
        (["check", "--manifest", &fifo], "not a regular file"),
        (["check", "--manifest", "/dev/zero"], "not a regular file"),
        (["check", "--config", &config_fifo], "not a regular file"),
        (["manifest", "--config", &config_fifo], "not a regular file"),
        (["plan", "--config", &config_fifo], "not a regular file"),
        (["check", "--config", &large], "larger than 4 MiB"),
        (["manifest", "--config", &large], "larger than 4 MiB"),
    ] {
        let ran = adieu(&args);
        assert_eq!(ran.code, 2, "{args:?}");
        assert!(ran.stderr.contains(problem) && ran.stderr.contains(args[2]), "{}", ran.stderr);
    }
    // An env file, too: it is not read, so its variables are unknown.
    let compose = path("compose.yaml");
    let text = "services: {a: {image: a, stop_grace_period: 60s, env_file: fifo.yaml}}";
    std::fs::write(&compose, text).unwrap();
    assert_eq!(adieu(&["check", "--config", SERVICE, "--manifest", &compose]).code, 2);
    let drop_in = path("a.service.d");
    std::fs::create_dir(&drop_in).unwrap();
    std::fs::write(path("a.service"), "[Service]\n").unwrap();
    std::process::Command::new("mkfifo").arg(format!("{drop_in}/a.conf")).status().unwrap();
    assert_eq!(adieu(&["check", "--manifest", &path("a.service")]).code, 2);
}

#[test]
fn s270_errors_name_the_command_that_renders() {
    let folder = tempfile::tempdir().unwrap();
    let judged = |name: &str| {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let ran = adieu(&["check", "--manifest", path]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{name}");
        ran.stderr.replace(folder.path().to_str().unwrap(), "DIR")
    };
    let write = |name: &str, text: &str| {
        let path: &Path = &folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("chart/Chart.yaml", "apiVersion: v2\nname: orders\nversion: 1.0.0\n");
    write("chart/values.yaml", "grace: 30\n");
    write("chart/templates/a.yaml", "kind: Pod\nspec: {{ toYaml .Values.pod }}\n");
    write("overlay/kustomization.yaml", "resources: [a.yaml]\n");
    write("plain/a.yaml", "kind: Pod\n");
    let helm = "helm template DIR/chart | adieu check --manifest -";
    let kustomize = "kubectl kustomize DIR/overlay | adieu check --manifest -";
    for (name, part) in [
        ("chart", helm),
        ("chart/Chart.yaml", helm),
        ("chart/values.yaml", "helm template CHART | adieu check --manifest -"),
        ("chart/templates/a.yaml", "helm template CHART | adieu check --manifest -"),
        ("overlay", kustomize),
        ("overlay/kustomization.yaml", kustomize),
        ("plain", "give its files one by one"),
    ] {
        let said = judged(name);
        assert!(said.contains(part), "{name}: {said}");
    }
}

#[test]
fn s265_hostile_jobs_and_scripts_are_refused_or_unknown() {
    for text in [
        format!("job \"a\" {{\n{}", "a {\n".repeat(100_000)),
        format!("job \"a\" {{\na = {}", "[".repeat(100_000)),
        "job \"a\" {\n a = \"${".to_owned(),
        format!("app = \"a\"\na = {}", "[".repeat(100_000)),
    ] {
        assert_eq!(judge(&text, &[]).code, 2);
    }
    for text in
        ["docker run", "docker run -d", "docker run --name", "#!/bin/sh\ndocker run $(image)\n"]
    {
        assert_eq!(judge(text, &[]).code, 2, "{text}");
    }
}

/// The name of the started process once its last command runs.
#[cfg(target_os = "linux")]
fn name_while_it_runs(shell: &str, script: &str) -> Option<String> {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    let mut child = std::process::Command::new(shell).args(["-c", script]).spawn().ok()?;
    let pid = child.id();
    let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let children = || {
        let all = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let all = all.unwrap_or_default();
        all.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let runs = |pid: &str| name(pid).trim() == "sleep";
    super::until("the last command", || {
        runs(&pid.to_string()) || children().iter().any(|child| runs(child))
    });
    let found = name(&pid.to_string()).trim().to_owned();
    for pid in children().iter().chain([&pid.to_string()]) {
        let _ = kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL);
    }
    child.wait().unwrap();
    Some(found)
}

#[cfg(target_os = "linux")]
#[test]
fn s263_real_shells_behave_as_assumed() {
    let mut seen = 0;
    for shell in ["bash", "dash", "sh"] {
        // Certain: exec replaces the shell, and a pipeline or a loop does not.
        for (script, replaces) in [
            ("exec sleep 60", true),
            ("true && exec sleep 60", true),
            ("sleep 60 | cat", false),
            ("sleep 60 & wait", false),
            ("while true; do sleep 60; done", false),
        ] {
            let Some(name) = name_while_it_runs(shell, script) else { continue };
            assert_eq!(name == "sleep", replaces, "{shell} -c {script:?}: {name}");
            seen += 1;
        }
    }
    assert!(seen >= 5, "no shell is installed");
    // Not certain: dash stays in front of the last command of a list.
    if let Some(name) = name_while_it_runs("dash", "true && sleep 60") {
        assert_eq!(name, "dash");
    }
}
