//! The programs between the signal and the process, for each kind of command.

use super::*;

/// Returns the words of a command that can all be seen.
fn words(words: &[&str]) -> Vec<Word> {
    words.iter().map(|word| Word::known(*word)).collect()
}

fn followed(command: &[&str]) -> (&'static str, Environment) {
    let mut environment = Environment::default();
    let found = match front(&words(command), &mut environment, &Place::start()) {
        Front::Nothing => "nothing",
        Front::Shell => "shell",
        Front::Managed(_) => "managed",
        Front::Unseen(_) => "unseen",
    };
    (found, environment)
}

#[track_caller]
fn check(expected: &str, cases: &[&[&str]]) {
    for command in cases {
        assert_eq!(followed(command).0, expected, "{command:?}");
    }
}

#[test]
fn s263_a_shell_stands_in_front_unless_it_replaces_itself() {
    check(
        "nothing",
        &[
            &["orders"],
            &["sh", "-c", "set -e; exec orders"],
            &["sh", "-c", "migrate && exec orders --port 8080"],
            &["sh", "-c", "migrate && exec orders || exit 1"],
            &["sh", "-c", "exec \"$@\"", "--", "orders"],
            &["sh", "-c", "exec env A=1 orders"],
            &["sh", "-c", "[ -x /fast ] && exec /fast; exec orders"],
            &["sh", "-c", "test -f /debug || exec orders"],
            &["orders", "-c", "orders.toml"],
            &["tini", "--", "orders"],
            &["sh", "-c", "exec tini -- orders"],
        ],
    );
    check(
        "shell",
        &[
            &["dash", "-c", "migrate && orders"],
            &["sh", "-c", "orders | tee log"],
            &["sh", "-c", "exec orders | tee log"],
            &["sh", "-c", "orders; true"],
            &["bash", "-ec", "cd /app\norders &\nwait"],
            &["tini", "--", "sh", "-c", "orders 2>&1 | logger"],
            &["sh", "-c", "exec sh -c 'orders | cat'"],
            &["sh", "-c", "[ -x /fast ] && exec /fast; orders; true"],
            &["sh", "-c", "migrate && exec orders; orders --no-migrate; true"],
        ],
    );
    check(
        "unseen",
        &[
            &["sh", "-c", "orders --port 8080"],
            &["bash", "-c", "migrate && orders"],
            &["sh", "-c", "set -e; migrate; orders"],
            &["sh", "-c", "orders --port $PORT"],
            &["sh", "-c", "while true; do orders; done"],
            &["sh", "-c", "(exec orders)"],
            &["sh", "-c", "exec $PROGRAM"],
            &["sh", "-c", "orders & exec envoy"],
            &["%(ENV_HOME)s/orders"],
            &["sh", "-c", "orders-old || exec orders"],
            &["sh", "/run.sh"],
            &["/docker-entrypoint.sh", "orders"],
            &["bash"],
            &["sh", "-c", "trap 'kill $P' TERM; orders & P=$!; wait $P"],
            &["sh", "-c", "if a; then exec b; fi"],
            // The shell ends at the signal, and the init process with it.
            &["dumb-init", "sh", "-c", "migrate; orders; true"],
            &["tini", "-g", "--", "sh", "-c", "orders | tee log"],
        ],
    );
    check("managed", &[&["supervisord", "-n"], &["sh", "-c", "exec docker run orders"]]);
}

#[test]
fn s500_unknown_wrappers_are_unseen() {
    check(
        "unseen",
        &[
            &["env", "-S", "sh -c 'orders; true'"],
            &["dumb-init", "--rewrite", "15:3", "orders"],
            &["make", "run"],
            &["sh", "-c", "exec flock /lock orders"],
            &["some-wrapper", "--", "orders"],
            &["${PROGRAM}", "serve"],
        ],
    );
    for wrapper in ["nohup", "env"] {
        for (count, expected) in [(3, "nothing"), (100_000, "unseen")] {
            let command = [&vec![wrapper; count][..], &["orders"]].concat();
            assert_eq!(followed(&command).0, expected, "{wrapper} {count} times");
        }
    }
}

#[test]
fn s501_variables_that_a_command_sets_are_taken() {
    let value = |command: &[&str]| {
        let (_, environment) = followed(command);
        let values = environment.values();
        match (values.get("A"), environment.has("A"), environment.has_unseen()) {
            (Some(value), ..) => value.clone(),
            (None, true, _) => "?".into(),
            (None, false, true) => "file".into(),
            (None, false, false) => "none".into(),
        }
    };
    for (script, expected) in [
        ("export A=1; exec orders", "1"),
        ("A=1; export A; exec orders", "1"),
        ("A=1 exec orders", "1"),
        ("A=1 orders", "1"),
        ("set -a; A=1; exec orders", "1"),
        ("A=1; exec orders", "none"),
        ("set -o allexport; A=1; exec orders", "1"),
        ("set -a; set +a; A=1; exec orders", "none"),
        ("[ -f x ] && set -a; A=1; exec orders", "?"),
        ("export A=1; A+=2; exec orders", "?"),
        ("export A=1; A=2 :; exec orders", "?"),
        ("export A=1; export -n A; exec orders", "?"),
        (": ${A:=1}; exec orders", "file"),
        ("A=1 migrate; exec orders", "none"),
        ("export A=1; unset A; exec orders", "none"),
        ("[ -f x ] && export A=1; exec orders", "?"),
        ("export A=$X; exec orders", "?"),
        ("export $X; exec orders", "file"),
        ("export A=1; [ -f x ] && unset A; exec orders", "?"),
        (". /vault/env; exec orders", "file"),
        ("set -a; source ./env && exec orders", "file"),
        ("eval \"$(./env)\"; exec orders", "file"),
    ] {
        assert_eq!(value(&["sh", "-c", script]), expected, "{script}");
    }
    assert_eq!(value(&["sh", "-ac", "A=1; exec orders"]), "1");
    assert_eq!(value(&["bash", "-lc", "exec orders"]), "file");
    assert_eq!(value(&["zsh", "-c", "exec orders"]), "file");
    assert_eq!(value(&["env", "BASH_ENV=/x", "bash", "-c", "exec orders"]), "file");
    assert_eq!(value(&["env", "A=1", "orders"]), "1");
    assert_eq!(value(&["env", "b.c=1", "A=1", "orders"]), "1");
    assert_eq!(value(&["env", "A=1", "env", "-u", "A", "orders"]), "none");
    assert_eq!(value(&["env", "A=1", "env", "-i", "orders"]), "none");
    assert_eq!(value(&["tini", "--", "env", "A=1", "sh", "-c", "exec orders"]), "1");
}

/// Follows a command where all processes that it has started are signalled.
fn in_group(command: &[&str]) -> &'static str {
    let mut environment = Environment::default();
    match front_of_group(&words(command), &mut environment, &Place::start()) {
        Front::Nothing => "nothing",
        Front::Shell => "shell",
        Front::Managed(_) => "managed",
        Front::Unseen(_) => "unseen",
    }
}

#[test]
fn s832_in_a_group_only_listed_wrappers_and_shells_that_can_be_read_are_accepted() {
    let cases: [(&str, &[&[&str]]); 3] = [
        (
            "nothing",
            &[
                &["orders"],
                &["sh", "-c", "orders; true"],
                &["sh", "-c", "migrate && orders"],
                &["sh", "-c", "cd /app; orders 2>&1"],
                &["sh", "-c", "orders & wait"],
                &["sh", "-c", ". ./env; exec orders"],
                &["tini", "-g", "--", "sh", "-c", "orders; true"],
                &["chroot", "/srv", "orders"],
                &["timeout", "1d", "orders"],
            ],
        ),
        (
            "unseen",
            &[
                &["sh", "-c", "cd /app; orders 2>&1 | tee log"],
                &["sudo", "-u", "app", "orders"],
                &["su", "-", "app", "-c", "orders"],
                &["runuser", "-l", "app", "-c", "orders"],
                &["env", "-S", "A=1 orders"],
                &["env", "--block-signal=TERM", "orders"],
                &["envdir", "/env", "orders"],
                &["doppler", "run", "--", "orders"],
                &["timeout", "-k", "5", "1d", "orders"],
                &["/opt/start.sh"],
                &["sh", "/opt/start"],
                &["bash", "-ic", "orders"],
                &["sh", "-c", "migrate; sudo orders; true"],
                &["sh", "-c", "trap 'kill -9 0' TERM; orders"],
                &["sh", "-c", "while true; do orders; done"],
                &["sh", "-c", "true"],
            ],
        ),
        (
            "managed",
            &[
                &["ssh", "host", "orders"],
                &["at", "now", "-f", "x"],
                &["tmux", "new-session", "-d", "orders"],
                &["forever", "orders"],
                &["lxc-execute", "-n", "c", "--", "orders"],
                &["sh", "-c", "docker run orders; true"],
            ],
        ),
    ];
    for (expected, commands) in cases {
        for command in commands {
            assert_eq!(in_group(command), expected, "{command:?}");
        }
    }
}
