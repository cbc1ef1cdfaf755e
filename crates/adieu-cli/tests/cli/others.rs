//! Objects other than the manifest and the platform that change or stop a workload, and manifests
//! that are made to exhaust `adieu check`.

use std::fmt::Write as _;

use super::check::{check, json_of};
use super::trust::{Folder, pod, service};

const HOSTILE: &str = "ADIEU__DRAIN_TIMEOUT";
const TOLD: &str = "TERMINATION_GRACE_PERIOD_SECONDS";

/// Lines that double a variable sixty times.
fn doubled(line: impl Fn(usize, usize) -> String) -> String {
    (1..60).map(|at| line(at, at - 1)).collect()
}

#[track_caller]
fn verdict(manifest: &str) -> String {
    let ran = check(&format!("manifests/{manifest}"), &["--json"]);
    json_of(&ran)["verdict"].as_str().unwrap().to_owned()
}

#[test]
fn s970_doubling_variables_are_unknown_and_take_little_time() {
    let env = doubled(|at, one| format!("    - {{name: V{at}, value: '$(V{one})$(V{one})'}}\n"));
    let env = format!(
        "    env:\n    - {{name: V0, value: xxxxxxxx}}\n{env}    - {{name: {HOSTILE}, value: $(V59)}}\n"
    );
    let of_pod = pod(60, "").replace("    env: [", "    unused: [") + &env;
    let shell = doubled(|at, one| format!("V{at}=$V{one}$V{one};"));
    let command =
        format!("    command: [sh, -c, 'V0=xxxxxxxx;{shell}export {HOSTILE}=$V59;exec o']\n");
    let hook = format!(
        "    lifecycle: {{preStop: {{exec: {{command: [sh, -c, 'V0=xxxxxxxx;{shell}sleep $V59']}}}}}}\n"
    );
    let file = doubled(|at, one| format!("V{at}=${{V{one}}}${{V{one}}}\n"));
    let file = format!("V0=xxxxxxxx\n{file}{HOSTILE}=${{V59}}\n");
    let script = format!(
        "V0=xxxxxxxx;{shell}\ndocker run --name o --stop-timeout 60 -e {TOLD}=60 -e {HOSTILE}=$V59 orders\n"
    );
    let folder = Folder::new(&[
        ("env.yaml", &of_pod),
        ("command.yaml", &pod(60, &command)),
        ("hook.yaml", &pod(60, &hook)),
        ("compose.yaml", &service("    env_file: orders.env\n")),
        ("orders.env", &file),
        ("deploy.sh", &script),
    ]);
    for name in ["env.yaml", "command.yaml", "hook.yaml", "compose.yaml", "deploy.sh"] {
        let ran = folder.judge(name, &[]);
        assert_eq!(ran.code, 2, "{name}: {}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn s970_long_scripts_and_chains_of_services_are_unknown_or_refused() {
    let hook = format!(
        "    lifecycle: {{preStop: {{exec: {{command: [sh, -c, '{}']}}}}}}\n",
        "sleep 1;".repeat(300_000)
    );
    let mut chain = "services:\n  x0: {image: orders}\n".to_owned();
    for at in 1..10_000 {
        let _ = writeln!(chain, "  x{at}: {{extends: x{}}}", at - 1);
    }
    let folder = Folder::new(&[("hook.yaml", &pod(60, &hook)), ("compose.yaml", &chain)]);
    for name in ["hook.yaml", "compose.yaml"] {
        let ran = folder.judge(name, &[]);
        assert_eq!(ran.code, 2, "{name}: {}", ran.stderr);
    }
}

#[test]
fn s971_signals_in_addition_to_that_of_the_platform_are_counted() {
    for (manifest, expected) in [
        ("k8s-prestop-term-early.yaml", "unknown"),
        ("k8s-prestop-int-twice.yaml", "unknown"),
        ("k8s-prestop-term-twice.yaml", "unknown"),
        ("k8s-prestop-kill-unseen.yaml", "unknown"),
        ("sd-exec-stop-int-twice.service", "unknown"),
        ("sd-exec-stop-term-twice.service", "unknown"),
        ("sd-exec-stop-kill-term.service", "fits"),
        ("compose-pre-stop-int.yaml", "unknown"),
        ("docker-run-kill-term-twice.sh", "unknown"),
        ("docker-run-kill-term.sh", "fits"),
    ] {
        assert_eq!(verdict(manifest), expected, "{manifest}");
    }
}

#[test]
fn s972_the_first_override_counts_whatever_the_name_of_the_compose_file_is() {
    let overrides = [
        "compose.override.yml",
        "compose.override.yaml",
        "docker-compose.override.yml",
        "docker-compose.override.yaml",
    ];
    for base in ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"] {
        let folder = Folder::new(&[(base, &service(""))]);
        let mut seconds = 60;
        // From the one that counts least: each must win over all before it.
        for name in overrides.iter().rev() {
            seconds = if seconds == 60 { 5 } else { 60 };
            let over = format!("services: {{orders: {{stop_grace_period: {seconds}s}}}}");
            folder.write(name, &over);
            let expected = if seconds == 60 { "fits" } else { "too-short" };
            assert_eq!(folder.verdict(base, &[]), expected, "{base} and {name}");
        }
    }
}

#[test]
fn s973_a_map_that_another_component_may_fill_is_hidden() {
    for (manifest, expected) in [
        ("k8s-secret-external.yaml", "unknown"),
        ("k8s-secret-replicated.yaml", "unknown"),
        ("k8s-secret-sealed.yaml", "unknown"),
        ("k8s-secret-annotated.yaml", "fits"),
    ] {
        assert_eq!(verdict(manifest), expected, "{manifest}");
    }
}

#[test]
fn s974_only_kinds_that_are_known_to_be_harmless_may_stand_beside_a_pod() {
    let beside = |api: &str, kind: &str| {
        let other =
            format!("---\napiVersion: {api}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n");
        let folder = Folder::new(&[("pod.yaml", &(pod(60, "") + &other))]);
        folder.verdict("pod.yaml", &[])
    };
    for (api, kind) in [
        ("v1", "Service"),
        ("networking.k8s.io/v1", "Ingress"),
        ("monitoring.coreos.com/v1", "ServiceMonitor"),
        ("sqs.services.k8s.aws/v1alpha1", "Queue"),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ] {
        assert_eq!(beside(api, kind), "fits", "{kind}");
    }
    for (api, kind) in [
        ("mutations.gatekeeper.sh/v1", "Assign"),
        ("mutations.gatekeeper.sh/v1", "ModifySet"),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicy"),
        ("policy.karmada.io/v1alpha1", "ClusterOverridePolicy"),
        ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        ("argoproj.io/v1alpha1", "ApplicationSet"),
        ("kyverno.io/v1", "ClusterPolicy"),
        ("example.com/v1", "Surprise"),
    ] {
        assert_eq!(beside(api, kind), "unknown", "{kind}");
    }
}

#[test]
fn s975_drop_ins_of_an_instance_beside_its_template_are_unknown() {
    let unit = "[Service]\nType=notify\nExecStart=/usr/bin/orders\nTimeoutStopSec=60\n";
    let folder = Folder::new(&[("orders@.service", unit)]);
    assert_eq!(folder.verdict("orders@.service", &[]), "fits");
    folder.write("other@1.service.d/10.conf", "[Service]\nTimeoutStopSec=5\n");
    assert_eq!(folder.verdict("orders@.service", &[]), "fits");
    folder.write("orders@1.service.d/10.conf", "[Service]\nTimeoutStopSec=5\n");
    assert_eq!(folder.verdict("orders@.service", &[]), "unknown");
    folder.write("orders@1.service", unit);
    assert_eq!(folder.verdict("orders@1.service", &[]), "too-short");
    let quadlet = "[Service]\nTimeoutStopSec=70\n[Container]\nImage=orders\nStopTimeout=60\n\
                   Environment=TERMINATION_GRACE_PERIOD_SECONDS=60\n";
    folder.write("orders@.container", quadlet);
    assert_eq!(folder.verdict("orders@.container", &[]), "fits");
    folder.write("orders@a.container.d/10.conf", "[Container]\nStopTimeout=5\n");
    assert_eq!(folder.verdict("orders@.container", &[]), "unknown");
}

#[test]
fn s976_keys_of_ecs_in_the_case_of_the_other_format_are_refused() {
    for (manifest, key) in
        [("ecs-cloudformation-small.yaml", "stopTimeout"), ("ecs-task-capital.json", "StopTimeout")]
    {
        let ran = check(&format!("manifests/{manifest}"), &[]);
        assert_eq!(ran.code, 2, "{manifest}");
        assert!(ran.stderr.contains(&format!("refuses {key}")), "{}", ran.stderr);
    }
}

#[test]
fn s977_a_pipe_a_job_timeout_and_a_module_of_podman_are_unknown() {
    for manifest in
        ["sd-shell-pipe.service", "sd-job-timeout.service", "quadlet-conf-module.container"]
    {
        assert_eq!(verdict(manifest), "unknown", "{manifest}");
    }
}

#[test]
fn s978_systemd_replaces_variables_in_the_command() {
    for (manifest, expected) in [
        ("sd-env-expanded.service", "fits"),
        ("sd-env-expanded-long.service", "too-short"),
        ("sd-env-unset.service", "unknown"),
    ] {
        assert_eq!(verdict(manifest), expected, "{manifest}");
    }
}

#[test]
fn s979_an_image_with_variables_in_quotes_is_one_word() {
    for (manifest, expected) in
        [("docker-run-image-quoted.sh", "fits"), ("docker-run-image-unquoted.sh", "unknown")]
    {
        assert_eq!(verdict(manifest), expected, "{manifest}");
    }
}

#[test]
fn s184_the_grace_period_is_suggested_in_the_format_of_the_manifest() {
    let stack = "Resources:\n  Orders:\n    Type: AWS::ECS::TaskDefinition\n    Properties:\n      \
                 ContainerDefinitions:\n        - {Name: orders, Image: orders, StopTimeout: 5}\n";
    let job = r#"{"Job": {"ID": "orders", "TaskGroups": [{"Tasks": [{"Name": "orders",
        "Driver": "docker", "Config": {"image": "orders"}, "KillTimeout": 5000000000}]}]}}"#;
    let folder = Folder::new(&[("stack.yaml", stack), ("job.json", job)]);
    for (name, key, before, unit) in [
        ("stack.yaml", "StopTimeout", "5", 1),
        ("job.json", "KillTimeout", "5000000000", 1_000_000_000),
    ] {
        let more = ["--max-kill-timeout", "1h"];
        let suggest = &json_of(&folder.judge(name, &more))["suggest"];
        let after = suggest[key].as_u64().unwrap();
        assert!(
            after.is_multiple_of(unit) && (20..120).contains(&(after / unit)),
            "{name}: {suggest}"
        );
        let text = if name == "stack.yaml" { stack } else { job };
        folder.write(name, &text.replace(before, &after.to_string()));
        let ran = folder.judge(name, &more);
        let is_too_short = ran.stdout.contains("short)");
        assert!(!is_too_short, "{name}: {}", ran.stdout);
    }
}
