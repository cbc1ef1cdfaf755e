//! `adieu manifest`.

use expect_test::{expect, expect_file};

use super::{Ran, adieu, adieu_reads, config, shows};

const TARGETS: [&str; 3] = ["kubernetes", "systemd", "compose"];

#[test]
fn each_is_what_it_was() {
    for target in TARGETS {
        let text = shows(&[
            "manifest",
            "--config",
            "golden/service.toml",
            "--for",
            target,
            "--name",
            "orders",
            "--image",
            "registry.example/orders:1.4",
        ]);
        expect_file![format!("../golden/manifest-{target}.txt")].assert_eq(&text);
    }
}

#[test]
fn s184_what_it_prints_passes_the_check_with_the_same_configuration() {
    let mut graces = std::collections::BTreeSet::new();
    for text in [
        "",
        "lame-duck = '0s'",
        "lame-duck = '12s'",
        "default-phase-timeout = '100ms'",
        "kill-after = '45s'",
        "kill-after = 'none'",
        "reserve = '9s'",
        "unready-after = '2s'",
        "phases.service-requests-done.timeout = '90s'",
        "phases.before-service-unbind.timeout = '2s'",
        "phases.before-service-unbind.enabled = false",
        "phases.flush.after = ['service-stop']",
    ] {
        let config = config(text);
        let path = config.path().to_str().unwrap();
        for target in TARGETS {
            for phases in ["usual", "all"] {
                let about = ["--config", path, "--phases", phases];
                let made = adieu(&[&["manifest", "--for", target], &about[..]].concat());
                if text.starts_with("kill-after = '45s'") && phases == "all" {
                    assert_eq!(made.code, 1, "{}", made.stdout);
                    continue;
                }
                assert_eq!((made.code, made.stderr.as_str()), (0, ""), "{text} {target}");
                let check = [&["check", "--manifest", "-", "--json"], &about[..]].concat();
                let Ran { code, stdout, .. } = adieu_reads(&check, &made.stdout);
                assert_eq!(code, 0, "{text} {target} {phases}\n{}{stdout}", made.stdout);
                let verdict: serde_json::Value = serde_json::from_str(&stdout).unwrap();
                graces.insert(verdict["allowed_ms"].as_u64().unwrap());
                // Nor is there anything to warn of, but of what the configuration says itself.
                let warned = stdout.contains("\"warning\"");
                assert_eq!(warned, text.contains("none"), "{text} {target}\n{stdout}");
            }
        }
    }
    assert!(graces.len() > 10, "{graces:?}");
}

#[test]
fn the_flags_are_filled_in() {
    let text = shows(&[
        "manifest",
        "--name",
        "orders",
        "--replicas",
        "5",
        "--port",
        "9000",
        "--admin-port",
        "9001",
        "--routing-lag",
        "31s",
    ]);
    for part in [
        "name: orders\n",
        "replicas: 5\n",
        "containerPort: 9000\n",
        "containerPort: 9001\n",
        "port: admin\n",
        "seconds: 27\n",
        "name: PRESTOP_SECONDS\n              value: \"27\"\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(
        shows(&["manifest", "--for", "systemd", "--exec", "/opt/orders"])
            .contains("ExecStart=/opt/orders\n")
    );
}

#[test]
fn names_are_texts_also_for_yaml() {
    for (name, written) in [("123", "\"123\""), ("null", "\"null\""), ("orders", "orders")] {
        let printed = shows(&["manifest", "--name", name]);
        assert!(printed.contains(&format!("  name: {written}\n")), "{printed}");
        let judged = adieu_reads(&["check", "--manifest", "-"], &printed);
        assert!(judged.stdout.contains(&format!("Deployment {name}, ")), "{}", judged.stdout);
    }
    let printed = shows(&["manifest", "--for", "compose", "--image", "@x"]);
    assert!(printed.contains("image: \"@x\"\n"), "{printed}");
}

#[test]
fn what_cannot_fit_is_said_and_what_is_no_name_is_refused() {
    let short = config("kill-after = '10s'");
    let Ran { code, stdout, stderr } =
        adieu(&["manifest", "--config", short.path().to_str().unwrap()]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    expect![[r#"
        adieu: no number fits this configuration: the process takes itself to have 10s, and would cut its phases short; change it: kill-after = "25s" in the configuration, or kill-after = "auto"
    "#]].assert_eq(&stderr);
    for args in [
        ["--name", "Orders API"],
        ["--image", "orders\n  evil: yes"],
        ["--replicas", "0"],
        ["--port", "70000"],
        ["--phases", "nope"],
    ] {
        assert_eq!(adieu(&["manifest", args[0], args[1]]).code, 2, "{args:?}");
    }
}
