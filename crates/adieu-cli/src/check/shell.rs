//! What command lines do: how long they take, and whether they leave the process where the
//! platform signals it.

use std::time::Duration;

use super::place::{Finding, Fix, Level, Place};
use super::script::{self, Script, Simple, Then, Variables, Word};
use super::spans;

/// How long a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    AtMost(Duration),
    /// It never ends.
    Forever,
    /// Longer than this, as far as can be seen.
    Unknown(Duration),
}

/// What stands between the platform's signal and the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// Nothing: the process itself is signalled.
    Nothing,
    /// A shell that waits for it, and passes no signal on.
    Shell,
    /// Something of which that cannot be seen here.
    Unseen(String),
}

const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "zsh", "ksh"];

/// Commands that end at once, whatever their arguments are.
const QUICK: [&str; 22] = [
    "true", ":", "false", "echo", "printf", "touch", "rm", "mkdir", "cd", "export", "set", "unset",
    "test", "[", "date", "kill", "pkill", "killall", "umask", "ulimit", "exit", "trap",
];

/// Programs that run another in their place.
const REPLACED: [&str; 17] = [
    "exec",
    "env",
    "nice",
    "nohup",
    "ionice",
    "taskset",
    "stdbuf",
    "setpriv",
    "gosu",
    "su-exec",
    "chpst",
    "s6-setuidgid",
    "numactl",
    "busybox",
    "command",
    "catatonit",
    "setsid",
];

/// Programs that pass signals on to the one that they run.
const INITS: [&str; 5] = ["tini", "tini-static", "docker-init", "dumb-init", "timeout"];

/// Programs that run others as their children, and stop them by rules of their own.
const MANAGERS: [&str; 8] =
    ["supervisord", "s6-svscan", "runsvdir", "pm2", "foreman", "watchexec", "circusd", "monit"];

/// Programs that run another as their child.
const PARENTS: [&str; 5] = ["su", "sudo", "runuser", "flock", "start-stop-daemon"];

/// Whether an image looks as if there were no programs in it but its own.
pub(crate) fn is_bare(image: &str) -> bool {
    let image = image.to_lowercase();
    let has_shell = image.contains("debug") || image.contains("-dev");
    let looks = ["distroless", "scratch", "chainguard/", "-static", "/static"];
    !has_shell && looks.iter().any(|part| image.contains(part))
}

/// Whether a command runs what only other images have.
pub(crate) fn needs_a_shell(words: &[Word]) -> bool {
    words.first().is_some_and(|first| is_shell(first) || base(first) == "sleep")
}

/// How long a command takes where these variables are set.
pub(crate) fn takes(words: &[Word], variables: &Variables) -> Takes {
    let Some((first, rest)) = words.split_first() else { return Takes::AtMost(Duration::ZERO) };
    if !first.is_known {
        return Takes::Unknown(Duration::ZERO);
    }
    match base(first) {
        "sleep" => sleeps(rest),
        "timeout" => within_timeout(rest, variables),
        name if SHELLS.contains(&name) => match script_of(rest) {
            Some(Some(script)) => script_takes(&script::read(script, variables)),
            Some(None) | None => Takes::Unknown(Duration::ZERO),
        },
        name if REPLACED.contains(&name) => {
            // Its own options are not told apart: the first word that is a command is the command.
            let of_rest = |at: usize| takes(&rest[at..], variables);
            let is_option = |word: &Word| word.text.starts_with('-') || word.text.contains('=');
            rest.iter()
                .position(|word| !is_option(word))
                .map_or(Takes::AtMost(Duration::ZERO), of_rest)
        }
        name if QUICK.contains(&name) => Takes::AtMost(Duration::ZERO),
        "curl" => curl(rest),
        _ => Takes::Unknown(Duration::ZERO),
    }
}

fn sleeps(times: &[Word]) -> Takes {
    let mut sum = Duration::ZERO;
    for time in times {
        if ["inf", "infinity"].contains(&time.text.as_str()) {
            return Takes::Forever;
        }
        match spans::sleep(&time.text).filter(|_| time.is_known) {
            Some(time) => sum = sum.saturating_add(time),
            None => return Takes::Unknown(sum),
        }
    }
    if times.is_empty() { Takes::Unknown(sum) } else { Takes::AtMost(sum) }
}

/// `timeout -k 5 30 command`.
fn within_timeout(words: &[Word], variables: &Variables) -> Takes {
    let (mut rest, mut kill_after) = (words, Duration::ZERO);
    while let Some((option, more)) =
        rest.split_first().filter(|(word, _)| word.text.starts_with('-'))
    {
        rest = more;
        let takes_value = matches!(option.text.as_str(), "-k" | "-s" | "--kill-after" | "--signal");
        let value = match (option.text.split_once('='), rest.split_first()) {
            (Some((_, value)), _) => value,
            (None, Some((value, more))) if takes_value => {
                rest = more;
                &value.text
            }
            (None, _) => "",
        };
        if option.text.starts_with("-k") || option.text.starts_with("--kill-after") {
            let Some(span) = spans::sleep(value) else { return Takes::Unknown(Duration::ZERO) };
            kill_after = span;
        }
    }
    let Some((limit, command)) = rest.split_first() else { return Takes::AtMost(Duration::ZERO) };
    match (spans::sleep(&limit.text).filter(|_| limit.is_known), takes(command, variables)) {
        (Some(limit), Takes::AtMost(span)) => Takes::AtMost(span.min(limit)),
        // Zero is no limit.
        (Some(limit), Takes::Forever | Takes::Unknown(_)) if !limit.is_zero() => {
            Takes::AtMost(limit.saturating_add(kill_after))
        }
        (_, takes) => takes,
    }
}

/// A request has a limit only if it is given one.
fn curl(words: &[Word]) -> Takes {
    let is_retried = words.iter().any(|word| word.text.starts_with("--retry"));
    let limit = words.windows(2).find(|pair| ["-m", "--max-time"].contains(&pair[0].text.as_str()));
    match limit.and_then(|pair| spans::sleep(&pair[1].text)).filter(|_| !is_retried) {
        Some(limit) => Takes::AtMost(limit),
        None => Takes::Unknown(Duration::ZERO),
    }
}

/// Commands one after the other; all that may run are counted.
fn script_takes(script: &Script) -> Takes {
    let Script::Commands(commands) = script else { return Takes::Unknown(Duration::ZERO) };
    let (mut sum, mut is_unknown) = (Duration::ZERO, false);
    for Simple { words, then } in commands {
        if *then == Then::Background {
            continue;
        }
        // Variables have been replaced already.
        match takes(words, &Variables::new()) {
            Takes::AtMost(span) => sum = sum.saturating_add(span),
            Takes::Forever => return Takes::Forever,
            Takes::Unknown(span) => (sum, is_unknown) = (sum.saturating_add(span), true),
        }
        let ends = words.first().is_some_and(|word| ["exit", "exec"].contains(&base(word)));
        if ends && *then == Then::Next {
            break;
        }
    }
    if is_unknown { Takes::Unknown(sum) } else { Takes::AtMost(sum) }
}

/// What stands in front of the process that a command starts.
pub(crate) fn front(words: &[Word], variables: &Variables) -> Front {
    let Some((first, rest)) = words.split_first() else { return Front::Nothing };
    let name = base(first);
    let is_shell_at = |words: &[Word]| words.iter().position(is_shell);
    match name {
        name if SHELLS.contains(&name) => match script_of(rest) {
            Some(Some(script)) => in_front_of(script, name == "dash", variables),
            Some(None) => Front::Unseen("what this shell runs cannot be seen here".into()),
            None => Front::Unseen("whether this script ends in exec cannot be seen here".into()),
        },
        "dumb-init" | "tini" | "tini-static" if signals_the_group(name, rest) => Front::Nothing,
        name if REPLACED.contains(&name) || INITS.contains(&name) => match is_shell_at(rest) {
            Some(at) => front(&rest[at..], variables),
            None => rest.iter().find(|word| is_script(word)).map_or(Front::Nothing, script_unseen),
        },
        name if PARENTS.contains(&name) || MANAGERS.contains(&name) => Front::Unseen(format!(
            "{name} runs the process as its child, and stops it by its own rules"
        )),
        _ if is_script(first) => script_unseen(first),
        _ => Front::Nothing,
    }
}

/// What manages the process, if a manager of its own does, whoever is signalled.
pub(crate) fn manager(words: &[Word]) -> Option<&str> {
    words.iter().take(3).map(base).find(|name| MANAGERS.contains(name))
}

/// Whether an init process signals all that it has started, and not its child alone.
fn signals_the_group(name: &str, options: &[Word]) -> bool {
    let mut options = options.iter().map(|word| word.text.as_str());
    let mut has = |names: &[&str]| {
        options.by_ref().take_while(|word| word.starts_with('-')).any(|word| names.contains(&word))
    };
    if name == "dumb-init" { !has(&["-c", "--single-child"]) } else { has(&["-g"]) }
}

fn is_script(word: &Word) -> bool {
    let name = base(word);
    name.ends_with(".sh") || name.contains("entrypoint") || name.ends_with(".bash")
}

/// Whether the last command is the end of a pipeline.
fn is_piped_into(commands: &[Simple]) -> bool {
    matches!(commands, [.., before, _] if before.then == Then::Pipe)
}

fn script_unseen(word: &Word) -> Front {
    Front::Unseen(format!("whether {} ends in exec cannot be seen here", base(word)))
}

fn in_front_of(text: &str, is_dash: bool, variables: &Variables) -> Front {
    let unseen = |what: &str| Front::Unseen(what.into());
    let Script::Commands(commands) = &script::read(text, variables) else {
        let is_hidden = ["exec", "trap", "wait"].iter().any(|word| text.contains(word));
        let what = "whether this script passes signals on cannot be seen here";
        return if is_hidden { unseen(what) } else { Front::Shell };
    };
    let mut is_piped = false;
    for Simple { words, then } in commands {
        let replaces = matches!(words.as_slice(), [exec, _, ..] if exec.text == "exec");
        let stays = is_piped || matches!(then, Then::Pipe | Then::Background);
        if replaces && !stays {
            return front(&words[1..], variables);
        }
        is_piped = *then == Then::Pipe;
    }
    let has = |name: &str| commands.iter().any(|c| c.words.first().is_some_and(|w| w.text == name));
    match commands.as_slice() {
        [] => Front::Nothing,
        _ if has("trap") => {
            unseen("whether this trap passes signals on and waits cannot be seen here")
        }
        // What has been started in the background is the child of a shell that waits.
        [.., last] if last.words.first().is_some_and(|word| word.text == "wait") => Front::Shell,
        // bash replaces itself with the last command of a list, dash does not, and `sh` is either.
        [.., last] if last.then == Then::Next && !is_piped_into(commands) => {
            match front(&last.words, variables) {
                Front::Nothing if !is_dash => unseen(
                    "whether the shell replaces itself with its last command depends on the shell",
                ),
                Front::Nothing => Front::Shell,
                inner @ (Front::Shell | Front::Unseen(_)) => inner,
            }
        }
        _ => Front::Shell,
    }
}

impl Front {
    /// What is wrong with it where the first process alone is signalled.
    pub(crate) fn finding(self, place: Place) -> Option<Finding> {
        let advice = "start the process itself, or write exec in front of it";
        let (level, problem, advice) = match self {
            Self::Nothing => return None,
            Self::Shell => {
                let problem = "a shell is signalled and does not pass the signal on: the process never \
                               receives it, and is killed undrained";
                (Level::Error, problem.to_owned(), advice.to_owned())
            }
            Self::Unseen(what) => {
                let problem = format!("{what}: the stop signal may never reach the process");
                (Level::Unknown, problem, format!("{advice}, or say --execs if it does so"))
            }
        };
        Some(Finding::new(level, place, problem, advice).fixed_by(Fix::Exec))
    }
}

/// The script that a shell is given: `None` if it is in a file, `Some(None)` if it cannot be seen
/// or there is none.
fn script_of(words: &[Word]) -> Option<Option<&str>> {
    let (mut words, mut is_command) = (words.iter(), false);
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        match text.strip_prefix(['-', '+']) {
            Some(option) if !word.is_known || option.is_empty() => return Some(None),
            Some(option) if option.starts_with('-') => {}
            Some(option) => {
                is_command |= text.starts_with('-') && option.contains('c');
                if option.ends_with(['o', 'O']) {
                    words.next();
                }
            }
            None if is_command && word.is_known => return Some(Some(text)),
            None if is_command => return Some(None),
            None => return None,
        }
    }
    Some(None)
}

fn is_shell(word: &Word) -> bool {
    SHELLS.contains(&base(word))
}

fn base(word: &Word) -> &str {
    word.text.rsplit('/').next().unwrap_or(&word.text)
}

/// The words of a command that can all be seen.
#[cfg(test)]
pub(crate) fn words(words: &[&str]) -> Vec<Word> {
    words.iter().map(|word| Word::known(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s262_commands_are_charged_for_what_they_sleep_and_the_rest_is_unknown() {
        let at_most = |seconds| Takes::AtMost(Duration::from_secs(seconds));
        let unknown = |seconds| Takes::Unknown(Duration::from_secs(seconds));
        let cases: [(&[&str], Takes); 26] = [
            (&["sleep", "10"], at_most(10)),
            (&["/bin/sleep", "1m", "5s"], at_most(65)),
            (&["sleep", "infinity"], Takes::Forever),
            (&["sh", "-c", "sleep inf"], Takes::Forever),
            (&["sh", "-c", "sleep 10"], at_most(10)),
            (&["sh", "-e", "-c", "sleep 10"], at_most(10)),
            (&["bash", "-euo", "pipefail", "-c", "sleep 10"], at_most(10)),
            (&["/bin/sh", "-c", "sleep 5; sleep 2 && exit 0"], at_most(7)),
            (&["sh", "-c", "touch gone && sleep 10"], at_most(10)),
            (&["sh", "-c", "sleep 3\nsleep 4\n"], at_most(7)),
            (&["sh", "-c", "sleep $DELAY"], at_most(25)),
            (&["sh", "-c", "sleep ${DELAY:-3}"], at_most(25)),
            (&["sh", "-c", "sleep $OTHER"], unknown(0)),
            (&["sh", "-c", "sleep ${OTHER:-3}"], unknown(0)),
            (&["sh", "-c", "sleep 5; nginx -s quit"], unknown(5)),
            (&["bash", "-lc", "nginx -s quit"], unknown(0)),
            (&["sh", "-c", "while true; do sleep 1; done"], unknown(0)),
            (&["sh", "-c", "until ! pidof orders; do sleep 1; done"], unknown(0)),
            (&["sh", "-c", "timeout 20 orders-drain"], at_most(20)),
            (&["timeout", "-k", "5", "20s", "sleep", "infinity"], at_most(25)),
            (&["timeout", "20", "sleep", "3"], at_most(3)),
            (&["sh", "-c", "curl -m 5 localhost:8080/drain"], at_most(5)),
            (&["sh", "-c", "curl localhost:8080/drain"], unknown(0)),
            (&["sh", "-c", "sleep 90 & sleep 5"], at_most(5)),
            (&["sh", "/drain.sh"], unknown(0)),
            (&["sleep", "$DELAY"], unknown(0)),
        ];
        let variables = Variables::from([("DELAY".into(), "25".into())]);
        for (command, expected) in cases {
            assert_eq!(takes(&words(command), &variables), expected, "{command:?}");
        }
    }

    #[test]
    fn s263_a_shell_stands_in_front_unless_it_replaces_itself() {
        let check = |expected: &str, cases: &[&[&str]]| {
            for command in cases {
                let found = match front(&words(command), &Variables::new()) {
                    Front::Nothing => "nothing",
                    Front::Shell => "shell",
                    Front::Unseen(_) => "unseen",
                };
                assert_eq!(found, expected, "{command:?}");
            }
        };
        check(
            "nothing",
            &[
                &["orders"],
                &["sh", "-c", "set -e; exec orders"],
                &["sh", "-c", "migrate && exec orders --port 8080"],
                &["sh", "-c", "exec \"$@\"", "--", "orders"],
                &["sh", "-c", "exec env A=1 orders"],
                &["orders", "-c", "orders.toml"],
                &["tini", "--", "orders"],
                &["dumb-init", "sh", "-c", "migrate && orders"],
                &["tini", "-g", "--", "sh", "-c", "migrate && orders"],
            ],
        );
        check(
            "shell",
            &[
                &["dash", "-c", "migrate && orders"],
                &["sh", "-c", "orders | tee log"],
                &["sh", "-c", "exec orders | tee log"],
                &["sh", "-c", "while true; do orders; done"],
                &["bash", "-ec", "cd /app\norders &\nwait"],
                &["tini", "--", "sh", "-c", "orders 2>&1 | logger"],
                &["sh", "-c", "exec sh -c 'orders | cat'"],
            ],
        );
        check(
            "unseen",
            &[
                &["sh", "-c", "orders --port 8080"],
                &["bash", "-c", "migrate && orders"],
                &["sh", "-c", "set -e; migrate; orders"],
                &["sh", "-c", "orders --port $PORT"],
                &["sh", "/run.sh"],
                &["/docker-entrypoint.sh", "orders"],
                &["bash"],
                &["sh", "-c", "trap 'kill $P' TERM; orders & P=$!; wait $P"],
                &["supervisord", "-n"],
                &["sh", "-c", "if a; then exec b; fi"],
            ],
        );
    }

    #[test]
    fn images_without_programs_are_known_by_their_names() {
        assert!(is_bare("registry.example/distroless/cc-debian12:nonroot"));
        assert!(is_bare("registry.example/orders:1.4-static"));
        assert!(!is_bare("registry.example/distroless/cc-debian12:debug"));
        assert!(!is_bare("debian:12-slim"));
    }
}
