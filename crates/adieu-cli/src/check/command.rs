//! Command lines: how long they sleep, and whether a shell stands in front of the process.

use std::time::Duration;

use super::place::{Finding, Level, Place};
use super::spans;

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ash", "zsh"];

/// Whether an image looks as if there were no programs in it but its own.
pub(crate) fn is_bare(image: &str) -> bool {
    let image = image.to_lowercase();
    let has_shell = image.contains("debug") || image.contains("-dev");
    let looks = ["distroless", "scratch", "chainguard/", "-static", "/static"];
    !has_shell && looks.iter().any(|part| image.contains(part))
}

/// Whether a command runs what only other images have.
pub(crate) fn needs_a_shell(words: &[&str]) -> bool {
    words.first().is_some_and(|first| is_shell(first) || base(first) == "sleep")
}

/// How long a command sleeps, and whether it does anything else.
pub(crate) fn sleeps(words: &[&str]) -> (Duration, bool) {
    match words {
        [sleep, times @ ..] if base(sleep) == "sleep" && !times.is_empty() => sum(times),
        [shell, flag, script] if is_shell(shell) && flag.ends_with('c') => {
            let parts = script.split([';', '&', '\n']).map(str::trim);
            let parts: Vec<_> =
                parts.filter(|part| !part.is_empty() && *part != "exit 0").collect();
            parts.iter().fold((Duration::ZERO, parts.is_empty()), |(slept, rest), part| {
                let words: Vec<_> = part.split_whitespace().collect();
                let nested = matches!(words.as_slice(), [sleep, _, ..] if base(sleep) == "sleep");
                let (time, other) = if nested { sleeps(&words) } else { (Duration::ZERO, true) };
                (slept.saturating_add(time), rest || other)
            })
        }
        _ => (Duration::ZERO, true),
    }
}

fn sum(times: &[&str]) -> (Duration, bool) {
    times.iter().fold((Duration::ZERO, false), |(sum, rest), time| match spans::sleep(time) {
        Some(time) => (sum.saturating_add(time), rest),
        None => (sum, true),
    })
}

/// Says so if a shell would be signalled instead of the process.
pub(crate) fn shell_in_front(words: &[&str], place: Place) -> Option<Finding> {
    let [shell, flag, script, ..] = words else { return None };
    let in_front = is_shell(shell)
        && flag.starts_with('-')
        && flag.ends_with('c')
        && !script.split([';', '&', '\n']).any(|part| part.trim().starts_with("exec "));
    let problem = "a shell is signalled, not the process: SIGTERM may never reach it";
    let advice = "start the process itself, or write exec in front of it";
    in_front.then(|| Finding::new(Level::Warning, place, problem, advice))
}

fn is_shell(word: &str) -> bool {
    SHELLS.contains(&base(word))
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sleeps_is_counted_and_what_else_is_there_is_said() {
        let cases: [(&[&str], u64, bool); 9] = [
            (&["sleep", "10"], 10, false),
            (&["/bin/sleep", "1m", "5s"], 65, false),
            (&["sh", "-c", "sleep 10"], 10, false),
            (&["/bin/sh", "-c", "sleep 5; sleep 2 && exit 0"], 7, false),
            (&["sh", "-c", "touch gone && sleep 10"], 10, true),
            (&["bash", "-lc", "nginx -s quit"], 0, true),
            (&["sleep", "$TIME"], 0, true),
            (&["sh", "-c", ""], 0, true),
            (&[], 0, true),
        ];
        for (words, seconds, rest) in cases {
            assert_eq!(sleeps(words), (Duration::from_secs(seconds), rest), "{words:?}");
        }
    }

    #[test]
    fn a_shell_stands_in_front_unless_it_steps_aside() {
        let place = || Place { line: 1, path: String::new() };
        let in_front = |words: &[&str]| shell_in_front(words, place()).is_some();
        assert!(in_front(&["sh", "-c", "orders --port 8080"]));
        assert!(!in_front(&["sh", "-c", "set -e; exec orders"]));
        assert!(!in_front(&["orders", "-c", "orders.toml"]));
        assert!(!in_front(&["sh", "-c"]));
    }

    #[test]
    fn images_without_programs_are_known_by_their_names() {
        assert!(is_bare("registry.example/distroless/cc-debian12:nonroot"));
        assert!(is_bare("registry.example/orders:1.4-static"));
        assert!(!is_bare("registry.example/distroless/cc-debian12:debug"));
        assert!(!is_bare("debian:12-slim"));
    }
}
