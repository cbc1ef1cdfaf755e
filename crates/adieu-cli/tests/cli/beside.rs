//! Programs beside the service, and the effects of the image, as `adieu check` finds them.

use super::check::json_of;
use super::trust::{Folder, service};

fn pod(more: &str, containers: &str) -> String {
    format!(
        "kind: Pod\nmetadata: {{name: shop}}\nspec:\n  terminationGracePeriodSeconds: 30\n{more}  \
         containers:\n{containers}"
    )
}

fn container(name: &str, image: &str, more: &str) -> String {
    format!("  - name: {name}\n    image: {image}\n{more}")
}

const WAITS: &str = "    command: [sh, -c, 'orders; true']\n";

#[test]
fn s1350_a_service_that_is_named_after_a_helper_is_judged() {
    let forever = "    lifecycle: {preStop: {exec: {command: [sleep, infinity]}}}\n";
    let agent = container("fluent-bit", "fluent/fluent-bit:3", "");
    for image in ["acme/vector-search:1", "acme/nginx-gateway", "acme/envoy-control:2"] {
        let own = container("own", image, forever);
        let folder = Folder::new(&[("pod.yaml", &pod("", &(agent.clone() + &own)))]);
        assert_eq!(folder.verdict("pod.yaml", &[]), "too-short", "{image}");
    }
    // Both are called like helpers, so either may be meant.
    let other = container("proxy", "registry.example/envoy", forever);
    let folder = Folder::new(&[("pod.yaml", &pod("", &(agent + &other)))]);
    assert_eq!(folder.verdict("pod.yaml", &[]), "unknown");
}

#[test]
fn s1353_if_several_containers_may_be_meant_all_of_them_must_fit() {
    let api = container("api", "acme/api", "");
    let worker = |more: &str| container("worker", "acme/worker", more);
    let judged = |more: &str, options: &[&str]| {
        let text = pod("", &(api.clone() + &worker(more)));
        let ran = Folder::new(&[("pod.yaml", &text)]).judge("pod.yaml", options);
        json_of(&ran)["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(judged("", &[]), "fits");
    assert_eq!(judged(WAITS, &[]), "unknown");
    assert_eq!(judged(WAITS, &["--only", "api"]), "fits");
    assert_eq!(judged(WAITS, &["--only", "worker"]), "too-short");
    // The other one cannot be the service.
    let redis = container("cache", "redis:7", WAITS);
    let folder = Folder::new(&[("pod.yaml", &pod("", &(redis + &api)))]);
    assert_eq!(folder.verdict("pod.yaml", &[]), "fits");

    let stated = r#""environment":[{"name":"TERMINATION_GRACE_PERIOD_SECONDS","value":"60"}]"#;
    let ours = r#""environment":[{"name":"ADIEU__LAME_DUCK","value":"1s"}]"#;
    for (more, expected) in [
        (format!(r#""stopTimeout":60,{stated}"#), "fits"),
        (format!(r#""stopTimeout":10,{stated}"#), "unknown"),
        (format!(r#""stopTimeout":10,{ours}"#), "too-short"),
    ] {
        let one =
            |name: &str, more: &str| format!(r#"{{"name":"{name}","image":"acme/{name}",{more}}}"#);
        let api = one("api", &format!(r#""stopTimeout":60,{stated}"#));
        let worker = one("worker", &more);
        let text = format!(r#"{{"family":"shop","containerDefinitions":[{api},{worker}]}}"#);
        let folder = Folder::new(&[("task.json", &text)]);
        assert_eq!(folder.verdict("task.json", &[]), expected, "{more}");
    }
}

#[test]
fn s1354_a_container_that_shares_its_processes_may_signal_the_service() {
    let shared = "  shareProcessNamespace: true\n";
    for (hook, more, expected) in [
        ("[pkill, '-9', orders]", shared, "unknown"),
        ("[/opt/stop]", shared, "unknown"),
        ("[sleep, '5']", shared, "fits"),
        ("[pkill, '-9', fluent-bit]", "", "fits"),
    ] {
        let hook = format!("    lifecycle: {{preStop: {{exec: {{command: {hook}}}}}}}\n");
        let agent = container("fluent-bit", "fluent/fluent-bit:3", &hook);
        let text = pod(more, &(container("orders", "acme/orders", "") + &agent));
        let folder = Folder::new(&[("pod.yaml", &text)]);
        assert_eq!(folder.verdict("pod.yaml", &[]), expected, "{hook}{more}");
    }
}

#[test]
fn s1351_the_dockerfile_that_a_service_builds_counts() {
    for (build, dockerfile, expected) in [
        (".", "FROM a\nCMD [\"/app/orders\"]\n", "fits"),
        (".", "FROM a\nCMD /app/migrate; /app/orders\n", "unknown"),
        (".", "FROM a\nCMD exec /app/orders\n", "fits"),
        (".", "FROM a\nENTRYPOINT [\"/docker-entrypoint.sh\"]\n", "unknown"),
        (".", "FROM a\nSTOPSIGNAL SIGQUIT\nCMD [\"/app/orders\"]\n", "too-short"),
        (".", "FROM a\nENV ADIEU__DRAIN_TIMEOUT=90s\n", "too-short"),
        ("{context: ., target: run}", "FROM a AS run\nCMD [\"o\"]\nFROM b\nCMD o; p\n", "fits"),
        ("{context: ., dockerfile: Other}", "FROM a\nSTOPSIGNAL SIGQUIT\n", "fits"),
        ("https://example.org/orders.git", "FROM a\nSTOPSIGNAL SIGQUIT\n", "fits"),
    ] {
        let text = service(&format!("    build: {build}\n"));
        let folder = Folder::new(&[("compose.yaml", &text), ("Dockerfile", dockerfile)]);
        assert_eq!(folder.verdict("compose.yaml", &[]), expected, "{build} {dockerfile}");
    }
    // The service replaces what the image sets.
    let text = service("    build: .\n    entrypoint: [/app/orders]\n    stop_signal: SIGINT\n");
    let dockerfile = "FROM a\nSTOPSIGNAL SIGQUIT\nCMD /app/migrate; /app/orders\n";
    let folder = Folder::new(&[("compose.yaml", &text), ("Dockerfile", dockerfile)]);
    assert_eq!(folder.verdict("compose.yaml", &[]), "fits");
    // Compose merges the keys of `build`.
    let base = service("    build: {context: api, target: run}\n");
    let dockerfile = "FROM a AS run\nCMD [\"o\"]\nFROM a AS dev\nCMD o; p\n";
    for (over, expected) in [("args: {A: b}", "fits"), ("target: dev", "unknown")] {
        let over = format!("services:\n  orders:\n    build: {{{over}}}\n");
        let files = [("compose.yaml", base.as_str()), ("api/Dockerfile", dockerfile)];
        let folder = Folder::new(&files);
        folder.write("compose.override.yaml", &over);
        assert_eq!(folder.verdict("compose.yaml", &[]), expected, "{over}");
    }
    let dockerfile = "FROM a\nSTOPSIGNAL SIGQUIT\nCMD /app/migrate; /app/orders\n";
    // The finding names the file and the line.
    let folder =
        Folder::new(&[("compose.yaml", &service("    build: .\n")), ("Dockerfile", dockerfile)]);
    let found = json_of(&folder.judge("compose.yaml", &[]))["workloads"][0]["findings"].clone();
    let signal = found.as_array().unwrap().iter().find(|one| one["level"] == "error").unwrap();
    assert!(signal["file"].as_str().unwrap().ends_with("Dockerfile"), "{signal}");
    assert_eq!(signal["line"], 2);
}

#[test]
fn s1352_a_script_that_kills_the_predecessor_is_not_trusted() {
    let run = "docker run -d --name orders-green --stop-timeout 60 -e \
               TERMINATION_GRACE_PERIOD_SECONDS=60 orders:1\n";
    for (stop, expected) in [
        ("docker rm -f orders-blue", "unknown"),
        ("docker stop -t 1 orders-blue", "unknown"),
        ("docker kill orders-old", "unknown"),
        ("docker stop orders-blue", "fits"),
        ("docker rm -f redis", "fits"),
        ("docker rm -f orders-db", "fits"),
    ] {
        let folder = Folder::new(&[("deploy.sh", &format!("#!/bin/sh\n{run}{stop}\n"))]);
        assert_eq!(folder.verdict("deploy.sh", &[]), expected, "{stop}");
    }
}

#[test]
fn s1355_known_programs_of_others_are_not_taken_for_the_service() {
    let told = "stopwaitsecs=60\nenvironment=TERMINATION_GRACE_PERIOD_SECONDS=\"60\"\n";
    let own = format!("[program:orders]\ncommand=/opt/orders\n{told}");
    let nginx = "[program:nginx]\ncommand=/usr/sbin/nginx -g 'daemon off;'\n";
    let with = |text: String, options: &[&str]| {
        Folder::new(&[("supervisord.conf", &text)]).verdict("supervisord.conf", options)
    };
    assert_eq!(with(format!("{own}{nginx}"), &[]), "fits");
    let versioned = "[program:php]\ncommand=php-fpm8.2 -F\n";
    assert_eq!(with(format!("{own}{versioned}"), &[]), "fits");
    assert_eq!(with(format!("{own}{nginx}"), &["--only", "nginx"]), "too-short");
    assert_eq!(with(nginx.to_owned(), &[]), "too-short");
    let configured = format!("{nginx}environment=ADIEU__LAME_DUCK=\"1s\"\n");
    assert_eq!(with(format!("{own}{configured}"), &[]), "too-short");

    let task = |name: &str, image: &str, more: &str| {
        format!(
            "task \"{name}\" {{\n driver = \"docker\"\n config {{\n image = \"{image}\"\n }}\n{more}}}\n"
        )
    };
    let stated =
        " kill_timeout = \"30s\"\n env {\n TERMINATION_GRACE_PERIOD_SECONDS = \"30\"\n }\n";
    let hook = " lifecycle {\n hook = \"prestart\"\n sidecar = true\n }\n";
    let ours = " env {\n ADIEU__LAME_DUCK = \"1s\"\n }\n";
    for (other, expected) in [
        (task("cache", "redis:7-alpine", ""), "fits"),
        (task("log", "fluent/fluent-bit:3", ""), "fits"),
        (task("worker", "acme/worker", ""), "too-short"),
        (task("cache", "redis:7", ours), "too-short"),
        (task("relay", "acme/relay", hook), "fits"),
        (task("relay", "acme/relay", &format!("{hook}{ours}")), "too-short"),
    ] {
        let own = task("orders", "acme/orders", stated);
        let text = format!("job \"shop\" {{\ngroup \"api\" {{\n{own}{other}}}\n}}\n");
        let folder = Folder::new(&[("shop.nomad.hcl", &text)]);
        assert_eq!(folder.verdict("shop.nomad.hcl", &[]), expected, "{other}");
    }
}
