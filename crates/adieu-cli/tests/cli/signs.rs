//! Settings that hide the platform from a process, and settings that end it in other ways.

use super::check::json_of;
use super::trust::{Folder, pod, service};

const TOLD: &str = "TERMINATION_GRACE_PERIOD_SECONDS";

/// A unit that leaves it to the process to query systemd. The process needs 26 s if it does, and 30
/// s if it assumes no deadline.
fn unit(lines: &str) -> String {
    format!("[Service]\nType=notify\nTimeoutStopSec=28\n{lines}")
}

#[track_caller]
fn judged(file: &str, text: &str) -> String {
    Folder::new(&[(file, text)]).verdict(file, &[])
}

#[track_caller]
fn refused(file: &str, text: &str) -> String {
    let ran = Folder::new(&[(file, text)]).judge(file, &[]);
    assert_eq!((ran.code, json_of(&ran)["workloads"].to_string().as_str()), (2, "[]"), "{text}");
    ran.stderr
}

#[test]
fn s1040_a_process_without_its_sign_knows_no_deadline() {
    for (lines, expected) in [
        ("ExecStart=/orders\n", "fits"),
        ("ExecStart=/usr/bin/env RUST_LOG=info /orders\n", "fits"),
        ("ExecStart=/usr/bin/env -i /orders\n", "too-short"),
        ("ExecStart=/usr/bin/env - PATH=/bin /orders\n", "too-short"),
        ("ExecStart=/usr/bin/env -i INVOCATION_ID=1 /orders\n", "fits"),
        ("ExecStart=/orders\nUnsetEnvironment=NOTIFY_SOCKET INVOCATION_ID\n", "too-short"),
        // One of the two is enough.
        ("ExecStart=/orders\nUnsetEnvironment=NOTIFY_SOCKET\n", "fits"),
        ("ExecStart=/usr/bin/env -u NOTIFY_SOCKET -u INVOCATION_ID /orders\n", "too-short"),
        ("ExecStart=/bin/sh -c 'unset NOTIFY_SOCKET INVOCATION_ID; exec /orders'\n", "too-short"),
    ] {
        assert_eq!(judged("orders.service", &unit(lines)), expected, "{lines}");
    }
    let pod = |command: &str| {
        format!(
            "kind: Pod\nspec:\n  terminationGracePeriodSeconds: 30\n  containers:\n  - name: orders\n    \
             image: orders\n    command: [{command}]\n    env: [{{name: ADIEU__DRAIN_TIMEOUT, value: 8s}}]\n"
        )
    };
    // Nodes with docker are rare, and there it assumes 10 s.
    for (command, expected) in [
        ("/orders", "fits"),
        ("env, -i, ADIEU__DRAIN_TIMEOUT=8s, /orders", "unknown"),
        ("env, -u, KUBERNETES_SERVICE_HOST, /orders", "unknown"),
        ("env, -u, HOSTNAME, /orders", "fits"),
        ("env, --unset=KUBERNETES_SERVICE_HOST, /orders", "unknown"),
        ("sh, -c, 'unset KUBERNETES_SERVICE_HOST; exec /orders'", "unknown"),
        ("sh, -c, 'unset KUBERNETES_PORT; exec /orders'", "fits"),
        ("sh, -c, 'export KUBERNETES_SERVICE_HOST=; exec /orders'", "unknown"),
    ] {
        assert_eq!(judged("orders.yaml", &pod(command)), expected, "{command}");
    }
}

#[test]
fn s1041_a_process_on_a_terminal_knows_no_deadline() {
    for (lines, expected) in [
        ("StandardInput=null\n", "fits"),
        ("StandardInput=tty\nTTYPath=/dev/tty7\n", "too-short"),
        ("StandardInput=tty-force\n", "too-short"),
        ("StandardInput=fd:orders\n", "unknown"),
    ] {
        let text = unit(&format!("ExecStart=/orders\n{lines}"));
        assert_eq!(judged("orders.service", &text), expected, "{lines}");
    }
    // Whether the image keeps the terminal cannot be seen. With short phases, 10 s are enough for a
    // process that knows them.
    let quick = |more: &str| {
        format!(
            "services:\n  orders:\n    image: orders\n    stop_grace_period: 11s\n    environment:\n      \
             ADIEU__LAME_DUCK: 0s\n      ADIEU__PHASES__BEFORE_SERVICE_UNBIND__TIMEOUT: 200ms\n      \
             ADIEU__PHASES__SERVICE_UNBIND__TIMEOUT: 200ms\n      \
             ADIEU__PHASES__SERVICE_STOP__TIMEOUT: 200ms\n      \
             ADIEU__PHASES__CLOSE_RESOURCES__TIMEOUT: 500ms\n      \
             ADIEU__RESERVE: 500ms\n{more}"
        )
    };
    for (more, expected) in
        [("", "fits"), ("    tty: false\n", "fits"), ("    tty: true\n", "unknown")]
    {
        let folder = Folder::new(&[("compose.yaml", &quick(more))]);
        let ran = folder.judge("compose.yaml", &[]);
        assert_eq!(json_of(&ran)["verdict"], expected, "{more}{}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn s1042_a_process_in_the_namespace_of_another_container_is_unknown() {
    assert_eq!(judged("compose.yaml", &service("")), "fits");
    for (pid, expected) in [
        ("host", "fits"),
        ("'service:proxy'", "unknown"),
        ("'container:shop'", "unknown"),
        ("'${PID_MODE}'", "unknown"),
    ] {
        let text = service(&format!("    pid: {pid}\n"));
        assert_eq!(judged("compose.yaml", &text), expected, "{pid}");
    }
    for (options, expected) in
        [("--pid host", "fits"), ("--pid container:shop", "unknown"), ("--pid=$MODE", "unknown")]
    {
        let text = format!("docker run --stop-timeout 60 -e {TOLD}=60 {options} orders\n");
        assert_eq!(judged("deploy.sh", &text), expected, "{options}");
    }
}

#[test]
fn s1043_a_workload_for_windows_is_unknown_and_the_finding_says_so() {
    let affinity = |rule: &str| {
        format!(
            "  affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
             {{nodeSelectorTerms: [{{matchExpressions: [{rule}]}}]}}}}}}\n"
        )
    };
    let task = |more: &str| {
        format!(
            "{{\"containerDefinitions\": [{{\"name\": \"orders\", \"stopTimeout\": 60, \
             \"environment\": [{{\"name\": \"{TOLD}\", \"value\": \"60\"}}]}}]{more}}}"
        )
    };
    let constraint = |expression: &str| {
        task(&format!(
            ", \"placementConstraints\": [{{\"type\": \"memberOf\", \"expression\": \"{expression}\"}}]"
        ))
    };
    let in_pod = |more: &str| pod(60, "    image: orders\n") + more;
    for (file, text, is_windows) in [
        ("orders.yaml", in_pod("  nodeSelector: {kubernetes.io/os: linux}\n"), false),
        ("orders.yaml", in_pod("  nodeSelector: {kubernetes.io/os: windows}\n"), true),
        ("orders.yaml", in_pod("  nodeSelector: {beta.kubernetes.io/os: windows}\n"), true),
        (
            "orders.yaml",
            in_pod("  nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}\n"),
            true,
        ),
        ("orders.yaml", in_pod("  os: {name: windows}\n"), true),
        (
            "orders.yaml",
            in_pod(&affinity("{key: kubernetes.io/os, operator: In, values: [windows]}")),
            true,
        ),
        (
            "orders.yaml",
            in_pod(&affinity("{key: kubernetes.io/os, operator: NotIn, values: [linux]}")),
            true,
        ),
        (
            "orders.yaml",
            in_pod(&affinity("{key: kubernetes.io/os, operator: NotIn, values: [windows]}")),
            false,
        ),
        (
            "orders.yaml",
            in_pod(&affinity("{key: node.kubernetes.io/windows-build, operator: Exists}")),
            true,
        ),
        ("compose.yaml", service("    runtime: io.containerd.runhcs.v1\n"), true),
        ("compose.yaml", service("    runtime: runsc\n"), false),
        ("compose.yaml", service("    platform: windows/amd64\n"), true),
        ("task.json", task(""), false),
        (
            "task.json",
            task(
                ", \"runtimePlatform\": {\"operatingSystemFamily\": \"WINDOWS_SERVER_2022_CORE\"}",
            ),
            true,
        ),
        ("task.json", task(", \"runtimePlatform\": {\"operatingSystemFamily\": \"LINUX\"}"), false),
        ("task.json", constraint("attribute:ecs.os-type == windows"), true),
        ("task.json", constraint("attribute:ecs.os-type != linux"), true),
        ("task.json", constraint("attribute:ecs.os-type == linux"), false),
        ("task.json", constraint("attribute:ecs.instance-type =~ t3.*"), false),
    ] {
        let folder = Folder::new(&[(file, &text)]);
        let ran = folder.judge(file, &[]);
        let expected = if is_windows { "unknown" } else { "fits" };
        assert_eq!(json_of(&ran)["verdict"], expected, "{text}\n{}", ran.stdout);
        assert_eq!(ran.stdout.contains("Windows has no SIGTERM"), is_windows, "{text}");
    }
}

#[test]
fn s1044_a_number_with_a_leading_zero_is_read_as_its_platform_reads_it_or_refused() {
    let octal = "060 begins with a zero, which makes it octal: write 60";
    for (file, text) in [
        ("orders.yaml", pod(60, "    image: orders\n").replace("Seconds: 60", "Seconds: 060")),
        (
            "orders.yaml",
            pod(60, "    image: orders\n    lifecycle: {preStop: {sleep: {seconds: 060}}}\n"),
        ),
        ("task.yaml", "ContainerDefinitions: [{Name: orders, StopTimeout: 060}]\n".into()),
        ("orders.container", "[Container]\nImage=orders\nStopTimeout=060\n".into()),
        ("deploy.sh", format!("docker run --stop-timeout 060 -e {TOLD}=48 orders\n")),
        ("deploy.sh", format!("podman run --stop-timeout=060 -e {TOLD}=48 orders\n")),
    ] {
        let problem = refused(file, &text);
        assert!(problem.contains(octal), "{text}\n{problem}");
    }
    // Read as decimal numbers by their platforms.
    for (file, text) in [
        (
            "orders.service",
            unit("ExecStart=/orders\n").replace("TimeoutStopSec=28", "TimeoutStopSec=030"),
        ),
        (
            "supervisord.conf",
            format!("[program:orders]\ncommand=/orders\nstopwaitsecs=030\nenvironment={TOLD}=30\n"),
        ),
        ("compose.yaml", service("").replace("60s", "060s")),
    ] {
        let ran = Folder::new(&[(file, &text)]).judge(file, &[]);
        assert_eq!(json_of(&ran)["verdict"], "fits", "{text}\n{}", ran.stdout);
    }
    // Compose writes a number without quotes in another way: as 48.
    let text = service("").replace("'60'", "060");
    assert_eq!(judged("compose.yaml", &text), "unknown");
    // Octal, and not minus a second less.
    let text = format!(
        "docker stop -t 060 orders\ndocker run --name orders --stop-timeout 60 -e {TOLD}=60 orders\n"
    );
    assert_eq!(judged("deploy.sh", &text), "unknown");
}

#[test]
fn s1045_a_neighbour_that_kills_the_container_makes_the_answer_unknown() {
    let with = |command: &str| {
        let socket = "volumes: ['/var/run/docker.sock:/var/run/docker.sock']";
        service(&format!("  cron:\n    image: docker:cli\n    {socket}\n    {command}\n"))
    };
    for (command, expected) in [
        ("command: docker ps", "fits"),
        ("command: docker stop orders", "fits"),
        ("command: docker kill orders", "unknown"),
        ("command: docker kill shop-orders-1", "unknown"),
        ("command: docker rm -f orders", "unknown"),
        ("command: docker rm -f other", "fits"),
        ("command: [sh, -c, 'sleep 60; docker kill orders']", "unknown"),
        ("command: [sh, -c, 'while true; do docker kill $$NAME; sleep 60; done']", "unknown"),
        ("entrypoint: [sh, -c, 'while true; do date; sleep 60; done']", "fits"),
        ("command: docker stop -t 1 orders", "unknown"),
    ] {
        let folder = Folder::new(&[("compose.yaml", &with(command))]);
        let all = json_of(&folder.judge("compose.yaml", &["--only", "orders"]));
        assert_eq!(all["verdict"], expected, "{command}\n{all}");
    }
}

#[test]
fn s1046_a_limit_of_processor_time_makes_the_answer_unknown() {
    let with_limit = pod(60, "    command: [sh, -c, 'ulimit -t 600; exec /orders']\n");
    assert_eq!(judged("orders.yaml", &with_limit), "unknown");
    assert_eq!(judged("orders.yaml", &with_limit.replace("-t 600", "-n 600")), "fits");
    assert_eq!(judged("orders.yaml", &with_limit.replace("-t 600", "-t unlimited")), "fits");
    for (limits, expected) in [("{cpu: 600}", "unknown"), ("{nofile: 600}", "fits")] {
        let text = service(&format!("    ulimits: {limits}\n"));
        assert_eq!(judged("compose.yaml", &text), expected, "{limits}");
    }
    for (limit, expected) in [("cpu=600", "unknown"), ("nofile=600", "fits")] {
        let text = format!("docker run --stop-timeout 60 -e {TOLD}=60 --ulimit {limit} orders\n");
        assert_eq!(judged("deploy.sh", &text), expected, "{limit}");
    }
    for (limit, expected) in [("600", "unknown"), ("infinity", "fits"), ("", "fits")] {
        let text = unit(&format!("ExecStart=/orders\nLimitCPU={limit}\n"));
        assert_eq!(judged("orders.service", &text), expected, "{limit}");
    }
}

#[test]
fn s1047_a_variable_that_the_command_removes_is_suggested_in_the_command() {
    let text = unit("ExecStart=/usr/bin/env -i /orders\n");
    let folder = Folder::new(&[("orders.service", &text)]);
    let all = json_of(&folder.judge("orders.service", &[]));
    let suggest = &all["suggest"];
    assert_eq!(suggest["env"], serde_json::Value::Null, "{suggest}");
    let told = suggest["env_in_command"][TOLD].as_str().unwrap();
    let changed = text.replace("-i ", &format!("-i {TOLD}={told} "));
    assert_eq!(judged("orders.service", &changed), "fits");
    // In the unit it would have no effect.
    let elsewhere = format!("{text}Environment={TOLD}={told}\n");
    assert_eq!(judged("orders.service", &elsewhere), "too-short");
}

#[test]
fn s1048_yaml_with_line_breaks_that_readers_disagree_about_is_refused() {
    for odd in ['\u{85}', '\u{2028}', '\u{2029}'] {
        let text = pod(60, &format!("    image: orders # {odd}    command: [sh]\n"));
        let problem = refused("orders.yaml", &text);
        let code = u32::from(odd);
        assert!(problem.contains(&format!("orders.yaml:8: U+{code:04X}")), "{problem}");
    }
}

#[test]
fn s1049_a_unit_that_systemd_refuses_is_unknown() {
    let two = "ExecStart=/migrate\nExecStart=/orders\n";
    assert_eq!(judged("orders.service", &unit(two)), "unknown");
    assert_eq!(judged("orders.service", &unit("ExecStart=/orders\n")), "fits");
    let cleared = "ExecStart=/migrate\nExecStart=\nExecStart=/orders\n";
    assert_eq!(judged("orders.service", &unit(cleared)), "fits");
}

#[test]
fn s1050_a_command_of_a_container_must_be_a_list() {
    for key in ["command", "args"] {
        let problem = refused("orders.yaml", &pod(60, &format!("    {key}: /orders\n")));
        assert!(problem.contains("must be a list"), "{problem}");
    }
}
