//! How long commands take.

use std::time::Duration;

use super::programs::{self, Start, base};
use super::script::{self, Script, Then, Variables, Word};
use super::shell_options::{ShellInput, given};
use super::spans;

/// How long a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeTaken {
    AtMost(Duration),
    /// It never ends.
    Forever,
    /// Longer than this, as far as can be seen.
    Unknown(Duration),
}

/// Programs that only send signals.
const SIGNALLING: [&str; 3] = ["kill", "pkill", "killall"];

/// How deep commands may be nested in commands.
const DEEPEST: usize = 16;

/// Returns whether an image has, by its name, only its own program.
pub(crate) fn is_bare(image: &str) -> bool {
    let image = image.to_lowercase();
    let has_shell = image.contains("debug") || image.contains("-dev");
    let looks = ["distroless", "scratch", "chainguard/", "-static", "/static"];
    !has_shell && looks.iter().any(|part| image.contains(part))
}

/// Returns whether a command needs programs that only other images have.
pub(crate) fn needs_a_shell(words: &[Word]) -> bool {
    words
        .first()
        .is_some_and(|first| programs::SHELLS.contains(&base(first)) || base(first) == "sleep")
}

/// Returns how long a command takes where these variables are set.
pub(crate) fn takes(words: &[Word], variables: &Variables) -> TimeTaken {
    within(words, variables, DEEPEST)
}

fn within(words: &[Word], variables: &Variables, depth: usize) -> TimeTaken {
    let unknown = TimeTaken::Unknown(Duration::ZERO);
    let Some(depth) = depth.checked_sub(1) else { return unknown };
    let mut words = words;
    for _ in 0..programs::MOST_WRAPPERS {
        let Some((first, rest)) = words.split_first() else {
            return TimeTaken::AtMost(Duration::ZERO);
        };
        if !first.is_known {
            return unknown;
        }
        return match (base(first), programs::start(words)) {
            ("sleep", _) => sleeps(rest),
            ("timeout", _) => within_timeout(rest, variables, depth),
            ("curl", _) => curl(rest),
            ("tail", _) if follows(rest) => TimeTaken::Forever,
            (_, Start::Env(arguments)) => {
                words = script::after_assignments(arguments);
                continue;
            }
            (_, Start::Wrapper(inner)) => {
                words = inner;
                continue;
            }
            (_, Start::Shell) => match given(rest) {
                ShellInput::Script { text, arguments, .. } => {
                    script_takes(&script::read(text, variables, arguments), depth)
                }
                ShellInput::File | ShellInput::Unseen => unknown,
            },
            (name, _) if programs::is_quick(name) || SIGNALLING.contains(&name) => {
                TimeTaken::AtMost(Duration::ZERO)
            }
            _ => unknown,
        };
    }
    unknown
}

fn sleeps(times: &[Word]) -> TimeTaken {
    let mut sum = Duration::ZERO;
    for time in times {
        if ["inf", "infinity"].contains(&time.text.as_str()) {
            return TimeTaken::Forever;
        }
        match spans::sleep(&time.text).filter(|_| time.is_known) {
            Some(time) => sum = sum.saturating_add(time),
            None => return TimeTaken::Unknown(sum),
        }
    }
    // Without a time, it fails at once.
    TimeTaken::AtMost(sum)
}

/// `tail -f /dev/null` never ends; with `--pid`, it ends with that process.
fn follows(words: &[Word]) -> bool {
    let is = |word: &Word, options: &[&str]| options.contains(&word.text.as_str());
    words.iter().all(|word| word.is_known && !word.text.starts_with("--pid"))
        && words.iter().any(|word| is(word, &["-f", "-F", "--follow"]))
}

/// `timeout -k 5 30 command`.
fn within_timeout(words: &[Word], variables: &Variables, depth: usize) -> TimeTaken {
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
            let Some(span) = spans::sleep(value) else { return TimeTaken::Unknown(Duration::ZERO) };
            kill_after = span;
        }
    }
    let Some((limit, command)) = rest.split_first() else {
        return TimeTaken::AtMost(Duration::ZERO);
    };
    let inner = within(command, variables, depth);
    match (spans::sleep(&limit.text).filter(|_| limit.is_known), inner) {
        (Some(limit), TimeTaken::AtMost(span)) if !limit.is_zero() => {
            TimeTaken::AtMost(span.min(limit))
        }
        // Zero is no limit.
        (Some(limit), TimeTaken::Forever | TimeTaken::Unknown(_)) if !limit.is_zero() => {
            TimeTaken::AtMost(limit.saturating_add(kill_after))
        }
        (Some(_), takes) => takes,
        (None, TimeTaken::AtMost(span) | TimeTaken::Unknown(span)) => TimeTaken::Unknown(span),
        (None, TimeTaken::Forever) => TimeTaken::Forever,
    }
}

/// A request has a limit only if it is given one.
fn curl(words: &[Word]) -> TimeTaken {
    let is_retried = words.iter().any(|word| word.text.starts_with("--retry"));
    let limit = words.windows(2).find(|pair| ["-m", "--max-time"].contains(&pair[0].text.as_str()));
    match limit.and_then(|pair| spans::sleep(&pair[1].text)).filter(|_| !is_retried) {
        Some(limit) => TimeTaken::AtMost(limit),
        None => TimeTaken::Unknown(Duration::ZERO),
    }
}

/// Commands one after the other; all that may run are counted.
fn script_takes(script: &Script, depth: usize) -> TimeTaken {
    let Script::Commands(commands) = script else { return TimeTaken::Unknown(Duration::ZERO) };
    let (mut sum, mut is_unknown, mut is_branch) = (Duration::ZERO, false, false);
    let mut background = Vec::new();
    for command in commands.iter().filter(|command| !command.words.is_empty()) {
        if command.then == Then::Background {
            is_branch = false;
            background.push((sum, within(&command.words, &Variables::new(), depth)));
            continue;
        }
        if command.words.first().is_some_and(|word| word.text == "wait") {
            for (began, takes) in background.drain(..) {
                match takes {
                    TimeTaken::AtMost(span) => sum = sum.max(began.saturating_add(span)),
                    TimeTaken::Forever => return TimeTaken::Forever,
                    TimeTaken::Unknown(span) => {
                        (sum, is_unknown) = (sum.max(began.saturating_add(span)), true);
                    }
                }
            }
            continue;
        }
        // Variables have been replaced already.
        match within(&command.words, &Variables::new(), depth) {
            TimeTaken::AtMost(span) => sum = sum.saturating_add(span),
            TimeTaken::Forever => return TimeTaken::Forever,
            TimeTaken::Unknown(span) => (sum, is_unknown) = (sum.saturating_add(span), true),
        }
        let ends = command.words.first().is_some_and(|word| ["exit", "exec"].contains(&base(word)));
        if ends && !is_branch && command.then == Then::Next {
            break;
        }
        is_branch = matches!(command.then, Then::And | Then::Or | Then::Pipe);
    }
    if is_unknown { TimeTaken::Unknown(sum) } else { TimeTaken::AtMost(sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s262_sleeps_are_charged_and_other_commands_are_unknown() {
        let at_most = |seconds| TimeTaken::AtMost(Duration::from_secs(seconds));
        let unknown = |seconds| TimeTaken::Unknown(Duration::from_secs(seconds));
        let cases: [(&[&str], TimeTaken); 52] = [
            (&["sleep", "10"], at_most(10)),
            (&["/bin/sleep", "1m", "5s"], at_most(65)),
            (&["sleep", "infinity"], TimeTaken::Forever),
            (&["sh", "-c", "sleep inf"], TimeTaken::Forever),
            (&["sh", "-c", "sleep 10"], at_most(10)),
            (&["sh", "-e", "-c", "sleep 10"], at_most(10)),
            (&["bash", "-euo", "pipefail", "-c", "sleep 10"], at_most(10)),
            (&["/bin/sh", "-c", "sleep 5; sleep 2 && exit 0"], at_most(7)),
            (&["sh", "-c", "touch gone && sleep 10"], at_most(10)),
            (&["sh", "-c", "sleep 3\nsleep 4\n"], at_most(7)),
            (&["sh", "-c", "sleep $DELAY"], at_most(25)),
            (&["sh", "-c", "sleep ${DELAY:-3}"], at_most(25)),
            (&["sh", "-c", "export W=40; sleep $W"], at_most(40)),
            (&["sh", "-c", "sleep $0", "40"], at_most(40)),
            (&["sh", "-c", "exit 0; sleep 40"], at_most(0)),
            (&["sh", "-c", "test -f x && exit 0; sleep 40"], at_most(40)),
            (&["sh", "-c", "sleep $OTHER"], unknown(0)),
            (&["sh", "-c", "sleep ${OTHER:-3}"], unknown(0)),
            (&["sh", "-c", "sleep 5; nginx -s quit"], unknown(5)),
            (&["sh", "-c", "trap 'sleep 40' EXIT; sleep 5"], unknown(5)),
            (&["sh", "-c", "alias nap='sleep 40'; nap"], unknown(0)),
            (&["bash", "-lc", "nginx -s quit"], unknown(0)),
            (&["sh", "-c", "while true; do sleep 1; done"], unknown(0)),
            (&["sh", "-c", "until ! pidof orders; do sleep 1; done"], unknown(0)),
            (&["sh", "-c", "timeout 20 orders-drain"], at_most(20)),
            (&["timeout", "-k", "5", "20s", "sleep", "infinity"], at_most(25)),
            (&["timeout", "20", "sleep", "3"], at_most(3)),
            (&["timeout", "0", "sleep", "30"], at_most(30)),
            (&["sh", "-c", "curl -m 5 localhost:8080/drain"], at_most(5)),
            (&["sh", "-c", "curl localhost:8080/drain"], unknown(0)),
            (&["sh", "-c", "sleep 90 & sleep 5"], at_most(5)),
            (&["sh", "-c", "sleep 90 & wait"], at_most(90)),
            (&["sh", "-c", "sleep 20 & sleep 5; wait $!; sleep 1"], at_most(21)),
            (&["sh", "-c", "drain & wait"], unknown(0)),
            (&["sh", "-c", "sleep inf & wait"], TimeTaken::Forever),
            (&["sleep", "1e1"], at_most(10)),
            (&["sleep", "0x10"], unknown(0)),
            (&["sh", "-c", "sleep", "20"], at_most(0)),
            (&["sh", "-c", "! sleep 20"], at_most(20)),
            (&["sh", "-c", "for i in 1 2 3 4; do sleep 5; done; sleep 1"], at_most(21)),
            (&["sh", "-c", "for i in a b\ndo\n  touch x\n  sleep 5\ndone\n"], at_most(10)),
            (&["sh", "-c", "for i in 1 9; do sleep $i; done"], unknown(0)),
            (&["sh", "-c", "for i in *; do sleep 5; done"], unknown(0)),
            (&["sh", "-c", "for i in {1..4}; do sleep 5; done"], unknown(0)),
            (&["sh", "-c", "for i in 1 2; do sleep 5; break; done"], unknown(0)),
            (&["sh", "-c", "for i in 1 2; do for j in 1 2; do sleep 5; done; done"], unknown(0)),
            (&["sh", "-c", "for i in 1 2; do sleep 5; done | cat"], unknown(0)),
            (&["sh", "-c", "for i in 1 2; do sleep 5"], unknown(0)),
            (&["tail", "-f", "/dev/null"], TimeTaken::Forever),
            (&["tail", "--pid", "7", "-f", "/dev/null"], unknown(0)),
            (&["sh", "/drain.sh"], unknown(0)),
            (&["sleep", "$DELAY"], unknown(0)),
        ];
        let variables = Variables::from([("DELAY".into(), "25".into())]);
        for (command, expected) in cases {
            let words: Vec<_> = command.iter().map(|word| Word::known(*word)).collect();
            assert_eq!(takes(&words, &variables), expected, "{command:?}");
        }
    }

    #[test]
    fn images_without_programs_are_known_by_their_names() {
        assert!(is_bare("registry.example/distroless/cc-debian12:nonroot"));
        assert!(is_bare("registry.example/orders:1.4-static"));
        assert!(!is_bare("registry.example/distroless/cc-debian12:debug"));
        assert!(!is_bare("debian:12-slim"));
    }
}
