//! That `adieu check` judges what compose merges: overrides, tags and included files.

use super::trust::{Folder, TOLD, service};

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
        // Where a tag is not followed, nothing is known.
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
