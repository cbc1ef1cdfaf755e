//! `adieu manifest`.

use adieu::{Config, Format};
use expect_test::{expect, expect_file};

use super::{Ran, adieu, adieu_reads, command, config, ran, shows};

const TARGETS: [&str; 3] = ["kubernetes", "systemd", "compose"];

#[test]
fn each_manifest_is_unchanged() {
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
fn s184_printed_manifests_pass_the_check() {
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
                // There are no warnings, except about the configuration itself.
                let warned = stdout.contains("\"warning\"");
                assert_eq!(warned, text.contains("none"), "{text} {target}\n{stdout}");
            }
        }
    }
    assert!(graces.len() > 10, "{graces:?}");
}

/// Returns the value of a key whose text has several lines.
fn block_of(printed: &str, key: &str) -> String {
    let (before, after) = printed.split_once(&format!("{key}: |\n")).unwrap();
    let indent = before.lines().last().unwrap().len() + 2;
    let lines = after.lines().map_while(|line| match line.get(..indent) {
        Some(blank) if blank.trim().is_empty() => Some(&line[indent..]),
        _ => line.is_empty().then_some(""),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn s268_the_configuration_goes_with_the_manifest() {
    for text in [
        "lame-duck = '12s'",
        "[coordinated-shutdown]\nlame-duck = '7s'\nstrict = true\nexit-code = 3\n\n\
         [coordinated-shutdown.phases.flush-it]\nafter = ['service-stop']\ntimeout = '3s'\n",
        "# a $remark with 100% of \"quotes\"\nreport-file = '/tmp/a b $HOME %n.json'\n",
    ] {
        let file = config(text);
        let path = file.path().to_str().unwrap();
        let checked = Config::read(file.path()).unwrap();
        let reads = |text: &str| Config::read(config(text).path()).unwrap();
        let print = |target: &str| shows(&["manifest", "--config", path, "--for", target]);

        let pods = print("kubernetes");
        assert_eq!(reads(&block_of(&pods, "shutdown.toml")), checked, "{pods}");
        for part in [
            "- name: ADIEU_CONFIG\n              value: /etc/service/shutdown.toml\n",
            "mountPath: /etc/service\n",
            "configMap:\n            name: service-shutdown\n",
            "kind: ConfigMap\nmetadata:\n  name: service-shutdown\n",
        ] {
            assert!(pods.contains(part), "{part}\n{pods}");
        }

        let services = print("compose");
        let content = block_of(&services, "content").replace("$$", "$");
        assert_eq!(reads(&content), checked, "{services}");
        assert!(services.contains("ADIEU_CONFIG: \"/etc/service/shutdown.toml\"\n"), "{services}");
        assert!(services.contains("target: \"/etc/service/shutdown.toml\"\n"), "{services}");

        // The unit contains the whole configuration: no other file is needed to check it.
        let unit = print("systemd");
        let values = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
        let values = values.map(|value| match value.strip_prefix('"') {
            Some(quoted) => quoted.trim_end_matches('"').replace("\\\"", "\"").replace("%%", "%"),
            None => value.replace("%%", "%"),
        });
        let values = values.filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        let read = Config::parse_with_vars("", Format::Toml, values).unwrap();
        assert_eq!(read, checked, "{unit}");
        let judged = adieu_reads(&["check", "--manifest", "-"], &unit);
        assert_eq!(judged.code, 0, "{}{}", judged.stdout, judged.stderr);
    }
    assert!(!shows(&["manifest"]).contains("ConfigMap"));
}

#[test]
fn s268_variables_and_other_formats_are_carried_too() {
    let file = config("lame-duck = '12s'");
    for target in TARGETS {
        let args = ["manifest", "--config", file.path().to_str().unwrap(), "--for", target];
        let mut command = command(&args);
        let printed = ran(&command.env("ADIEU__LAME_DUCK", "7s").output().unwrap()).stdout;
        let parts = ["ADIEU__LAME_DUCK=7s", "ADIEU__LAME_DUCK: \"7s\"", "value: \"7s\""];
        assert!(parts.iter().any(|part| printed.contains(part)), "{printed}");
        assert!(!printed.contains("ADIEU__LAME_DUCK=12s"), "{printed}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("application.conf");
    let hocon = "akka.coordinated-shutdown.default-phase-timeout = 6 s\n";
    std::fs::write(&path, hocon).unwrap();
    let args = ["manifest", "--config", path.to_str().unwrap(), "--for"];
    assert!(shows(&[&args[..], &["kubernetes"]].concat()).contains("shutdown.conf: |\n    akka."));
    let unit = shows(&[&args[..], &["systemd"]].concat());
    let installed =
        "# Install the configuration there.\nEnvironment=ADIEU_CONFIG=/etc/service/shutdown.conf\n";
    assert!(unit.contains(installed), "{unit}");
    // An included file would be missing.
    std::fs::write(folder.path().join("more.conf"), "akka.coordinated-shutdown.reserve = 5 s\n")
        .unwrap();
    std::fs::write(&path, format!("include \"more.conf\"\n{hocon}")).unwrap();
    let Ran { code, stdout, stderr } = adieu(&args[..3]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("includes other files"), "{stderr}");
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
fn impossible_configurations_and_invalid_names_are_refused() {
    let short = config("kill-after = '10s'");
    let Ran { code, stdout, stderr } =
        adieu(&["manifest", "--config", short.path().to_str().unwrap()]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    expect![[r#"
        adieu: no grace period fits this configuration: the process assumes a grace period of 10s, and cuts its phases short; change it: kill-after = "25s" in the configuration, or kill-after = "auto"
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
