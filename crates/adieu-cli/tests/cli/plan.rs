//! `adieu plan`.

use std::process::Command;

use expect_test::{Expect, expect, expect_file};

use super::{Ran, adieu, config, shows};

#[track_caller]
fn refuses(config: &str, ending: &str, expected: Expect) {
    let file = tempfile::Builder::new().prefix("plan").suffix(ending).tempfile().unwrap();
    std::fs::write(&file, config).unwrap();
    let path = file.path().to_str().unwrap();
    let Ran { code, stdout, stderr } = adieu(&["plan", "--config", path]);
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    expected.assert_eq(&stderr.replace(path, &format!("FILE{ending}")));
}

#[test]
fn the_default_plan() {
    expect_file!["../golden/default.txt"].assert_eq(&shows(&["plan"]));
}

#[test]
fn s206_it_says_how_long_requests_have() {
    let says = |text: &str| {
        let config = config(text);
        let plan = shows(&["plan", "--config", config.path().to_str().unwrap()]);
        plan.lines().last().unwrap().to_owned()
    };
    assert_eq!(
        says("kill-after = '200s'"),
        "+ Requests have 96.8s or more to finish, with kill-after 200s; drain-timeout sets it.",
    );
    assert_eq!(
        says("kill-after = 'none'"),
        "+ Requests have 10s to finish, because no deadline is known; drain-timeout sets it.",
    );
    assert!(says("drain-timeout = '20s'").starts_with("Worst case 95s"));
}

#[test]
fn a_plan_in_every_format() {
    for format in ["text", "json", "dot", "mermaid", "svg"] {
        let plan = shows(&["plan", "--config", "golden/service.toml", "--format", format]);
        expect_file![format!("../golden/service.{format}")].assert_eq(&plan);
    }
}

#[test]
fn the_json_of_the_default_plan_has_the_documented_shape() {
    let plan: serde_json::Value =
        serde_json::from_str(&shows(&["plan", "--format", "json"])).unwrap();
    assert_eq!(
        plan["phases"][1],
        serde_json::json!({
            "name": "service-unbind", "depends_on": ["before-service-unbind"], "timeout_ms": 5000,
            "recover": true, "enabled": true,
        }),
    );
    assert_eq!(plan["order"][11], "actor-system-terminate");
    assert_eq!(plan["order"][12], "close-resources");
    assert_eq!(plan["critical_path"]["worst_case_ms"], 80_000);
    assert_eq!(plan["critical_path"]["phases"].as_array().unwrap().len(), 13);
}

#[test]
fn all_three_formats_say_the_same() {
    let toml = shows(&["plan", "--config", "golden/service.toml", "--format", "json"]);
    for other in ["golden/service-config.json", "golden/service.conf"] {
        assert_eq!(shows(&["plan", "--config", other, "--format", "json"]), toml, "{other}");
    }
}

#[test]
fn the_environment_overrides_the_file() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adieu"));
    command.args(["plan", "--format", "json"]).env("ADIEU__PHASES__SERVICE_UNBIND__TIMEOUT", "7s");
    let plan: serde_json::Value =
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert_eq!(plan["phases"][1]["timeout_ms"], 7_000);
}

#[test]
fn mistakes_are_named_with_their_place() {
    refuses(
        "phases.a.timout = '5s'",
        ".toml",
        expect![[r#"
        adieu: FILE.toml: unknown key phases.a.timout; did you mean phases.a.timeout?
    "#]],
    );
    refuses(
        "phases.a.depends-on = ['a']",
        ".toml",
        expect![[r#"
        adieu: FILE.toml: phases: phases wait for each other: a -> a
    "#]],
    );
    refuses(
        "[phases",
        ".toml",
        expect![[r#"
        adieu: FILE.toml: failed to parse TOML: TOML parse error at line 1, column 8
          |
        1 | [phases
          |        ^
        unclosed table, expected `]`
    "#]],
    );
    refuses(
        "{ \"phases\": [",
        ".json",
        expect![[r#"
        adieu: FILE.json: failed to parse JSON: EOF while parsing a list at line 1 column 13
    "#]],
    );
    refuses(
        "akka.coordinated-shutdown { phases { a { timeout = infinite } } }",
        ".conf",
        expect![[r#"
        adieu: FILE.conf: akka.coordinated-shutdown.phases.a.timeout: infinite is longer than the maximum (one year): write one such as 30s
    "#]],
    );
    refuses(
        "akka { coordinated-shutdown { exit-jvm = ",
        ".conf",
        expect![[r#"
        adieu: FILE.conf: failed to parse HOCON: ParseError at 1:42: expected value
    "#]],
    );
    refuses(
        "",
        ".yaml",
        expect![[r#"
        adieu: unknown format of FILE.yaml: name it .toml, .json, .conf or .hocon
    "#]],
    );
}

#[test]
fn a_missing_file_and_a_wrong_command_line_are_exit_code_2() {
    let missing = adieu(&["plan", "--config", "nope.toml"]);
    assert_eq!(missing.code, 2);
    assert_eq!(
        missing.stderr,
        "adieu: failed to read nope.toml: No such file or directory (os error 2)\n",
    );
    assert_eq!(adieu(&["plna"]).code, 2);
}
