//! `adieu completions` and `adieu man`: made of the commands, so they contain all of them.

use super::{adieu, shows};

/// The commands that `adieu --help` lists.
fn commands() -> Vec<String> {
    let help = shows(&["--help"]);
    let list = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn every_command_has_an_example() {
    for name in commands().iter().filter(|name| *name != "help") {
        let help = shows(&[name, "--help"]);
        assert!(help.contains(&format!("\n  adieu {name}")), "{help}");
    }
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = shows(&["completions", shell]);
        for name in commands() {
            assert!(script.contains(&name), "{shell} does not know {name}");
        }
    }
    assert_eq!(adieu(&["completions", "abacus"]).code, 2);
}

#[test]
fn the_manual_knows_every_command_and_exit_code() {
    // Hyphens are escaped there.
    let manual = shows(&["man"]).replace("\\-", "-");
    for name in commands().iter().filter(|name| *name != "help") {
        let heading = format!(".SH \"ADIEU {}\"", name.to_uppercase());
        assert!(manual.contains(&heading), "{heading}: {manual}");
    }
    // Commands below commands have sections, and the processes of the demo have none.
    for name in ["DEMO CLUSTER", "CLUSTER MOVE", "CLUSTER STATUS", "BREAKER LIST"] {
        assert!(manual.contains(&format!(".SH \"ADIEU {name}\"")), "{name}: {manual}");
    }
    assert!(!manual.contains("ADIEU REPLICA"), "{manual}");
    for line in shows(&["--help"]).split_once("Exit codes:\n").unwrap().1.lines() {
        let meaning = line.trim().split_once("  ").unwrap().1.trim();
        assert!(manual.contains(meaning), "{meaning}");
    }
}
