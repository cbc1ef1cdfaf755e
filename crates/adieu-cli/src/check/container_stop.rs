//! Commands that stop containers: `docker stop -t 30 NAME`, `docker rm -f NAME`,
//! `podman kill NAME`.

use std::time::Duration;

use super::place::{Finding, Fix, Level, Place};
use super::programs::{self, Start};
use super::run_line::{self, Command};
use super::script::{self, Script, Variables, Word};
use super::shell_options::{ShellInput, given};
use super::stop_signal::StopSignal;
use super::supervisor::{Grace, Supervisor};
use super::tree;
use super::workload::Workload;

/// The way in which a command stops a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// The containers; empty if they cannot be seen.
    names: Vec<String>,
    how: StopMethod,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StopMethod {
    /// With the container's own signal, and after this time with SIGKILL; without one, after the
    /// container's own time.
    Timeout(Option<u64>),
    /// The same with another signal.
    Signal(String, Option<u64>),
    /// With this signal, and without waiting.
    Kill(String),
    /// In a way that is not understood.
    Unseen,
}

/// The effect of a command of a container engine on a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StopEffect {
    Nothing,
    Stops(Stop),
    Unseen,
}

/// Verbs that leave running containers as they are.
const HARMLESS: [&str; 28] = [
    "pull", "build", "buildx", "tag", "push", "login", "logout", "network", "volume", "ps", "ls",
    "images", "image", "inspect", "logs", "info", "version", "start", "wait", "port", "top",
    "stats", "search", "history", "cp", "events", "run", "create",
];

/// Returns the effect of a command, if it is one of a container engine.
pub(crate) fn of(words: &[Word]) -> Option<StopEffect> {
    let Command { program, verb, words } = run_line::command(words)?;
    if HARMLESS.contains(&verb) {
        return Some(StopEffect::Nothing);
    }
    let options = match verb {
        "stop" | "restart" => "t: s: --time: --timeout: --signal: i --ignore --cidfile: a --all",
        "rm" => "f v l t: --force --volumes --time: i --ignore --cidfile: --depend",
        "kill" => "s: --signal: a --all --cidfile:",
        _ => return Some(StopEffect::Unseen),
    };
    let Some((own, names)) = sorted(words, options) else {
        return Some(StopEffect::Stops(Stop { names: Vec::new(), how: StopMethod::Unseen }));
    };
    let is_seen = names.iter().all(|name| name.is_known);
    let text = |letter: char, longs: &[&str]| value(&own, letter, longs);
    let timeout = text('t', &["--time", "--timeout"]);
    let signal = text('s', &["--signal"]);
    let is_forced = own.iter().any(|word| {
        let letters = word.text.strip_prefix('-').filter(|word| !word.starts_with('-'));
        word.text == "--force" || letters.is_some_and(|letters| letters.contains('f'))
    });
    // A leading zero makes the number octal.
    let seconds = timeout.as_ref().map(|text| text.parse().ok().filter(|_| !tree::is_octal(text)));
    let how = match (verb, seconds) {
        (_, Some(None)) => StopMethod::Unseen,
        ("kill", _) => StopMethod::Kill(signal.unwrap_or_else(|| "SIGKILL".into())),
        // Without force, it removes only containers that have stopped.
        ("rm", _) if !is_forced => return Some(StopEffect::Nothing),
        // docker kills at once; podman stops the container first.
        ("rm", _) if program != "podman" => StopMethod::Kill("SIGKILL".into()),
        (_, seconds) => match signal {
            Some(signal) => StopMethod::Signal(signal, seconds.flatten()),
            None => StopMethod::Timeout(seconds.flatten()),
        },
    };
    let names = names.iter().filter(|_| is_seen).map(|name| name.text.clone()).collect();
    Some(StopEffect::Stops(Stop { names, how }))
}

/// Returns the options with their values, and the names. Options may stand after names. `None` if an
/// option is not known.
fn sorted(words: &[Word], known: &str) -> Option<(Vec<Word>, Vec<Word>)> {
    let (mut options, mut names, mut rest) = (Vec::new(), Vec::new(), words);
    loop {
        let after = super::programs::after_options(rest, known)?;
        options.extend_from_slice(&rest[..rest.len() - after.len()]);
        let Some((name, more)) = after.split_first() else { return Some((options, names)) };
        names.push(name.clone());
        rest = more;
    }
}

/// Returns the value of an option: `-t 30`, `-t30`, `--time=30`, `-ft 30`.
fn value(words: &[Word], letter: char, longs: &[&str]) -> Option<String> {
    let mut found = None;
    for (at, word) in words.iter().enumerate() {
        let text = word.text.as_str();
        let next = || words.get(at + 1).map(|word| word.text.clone());
        let is_whole = |rest: &&str| rest.is_empty() || rest.starts_with('=');
        let long = longs.iter().find_map(|long| text.strip_prefix(long).filter(is_whole));
        found = match (long, text.strip_prefix('-').filter(|rest| !rest.starts_with('-'))) {
            (Some(""), _) => next(),
            (Some(value), _) => value.strip_prefix('=').map(str::to_owned),
            (None, Some(letters)) => match letters.split_once(letter) {
                Some((_, "")) => next(),
                Some((_, value)) => Some(value.trim_start_matches('=').to_owned()),
                None => None,
            },
            (None, None) => None,
        }
        .or(found);
    }
    found
}

/// Returns whether a command, or a script in it, may stop a container with one of these names, at
/// once or in a way that cannot be seen.
pub(crate) fn may_stop(words: &[Word], is_meant: &dyn Fn(&str) -> bool) -> bool {
    let of_command = |words: &[Word]| match of(programs::without_wrappers(words)) {
        Some(StopEffect::Stops(stop)) => {
            let is_forced = !matches!(stop.how, StopMethod::Timeout(None));
            is_forced && (stop.names.is_empty() || stop.names.iter().any(|name| is_meant(name)))
        }
        Some(StopEffect::Unseen) => true,
        Some(StopEffect::Nothing) | None => false,
    };
    let inner = programs::without_wrappers(words);
    let Start::Shell = programs::start(inner) else { return of_command(inner) };
    let names_engine = |text: &str| run_line::PROGRAMS.iter().any(|name| text.contains(name));
    match given(&inner[1..]) {
        ShellInput::Script { text, arguments, .. } => {
            match script::read(text, &Variables::new(), arguments) {
                Script::Commands(all) => all.iter().any(|command| of_command(&command.words)),
                Script::Complex => names_engine(text),
            }
        }
        ShellInput::File | ShellInput::Unseen => false,
    }
}

// === impl Stop ===

impl Stop {
    /// Returns whether it may be for the container of this name, which is empty if it cannot be
    /// seen.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        self.names.is_empty() || name.is_empty() || self.names.iter().any(|found| found == name)
    }

    /// Returns whether it stops a container with one of these names in another way than with the
    /// container's own signal and time.
    pub(crate) fn is_hasty_for(&self, is_meant: &dyn Fn(&str) -> bool) -> bool {
        let is_hasty = !matches!(self.how, StopMethod::Timeout(None));
        is_hasty && self.names.iter().any(|name| is_meant(name))
    }
}

/// Applies the commands that stop a container to its workload. Of several, the shortest time counts.
/// `fix` is the line that stops it as it should be. `is_followed` if the platform sends its own signal
/// after them.
pub(crate) fn apply(
    stops: &[(Stop, Place)],
    fix: &str,
    is_followed: bool,
    workload: &mut Workload,
) {
    // The other commands wait for the container to end.
    let waits = stops.iter().rposition(|(stop, _)| !matches!(stop.how, StopMethod::Kill(_)));
    let last = if is_followed { stops.len() } else { stops.len().saturating_sub(1) };
    let mut shortest: Option<(u64, &Place)> = None;
    let mut is_own = stops.is_empty();
    for (at, (Stop { how, .. }, place)) in stops.iter().enumerate() {
        match how {
            StopMethod::Timeout(Some(seconds)) | StopMethod::Signal(_, Some(seconds)) => {
                let is_shorter = shortest.is_none_or(|(least, _)| *seconds < least);
                shortest = if is_shorter { Some((*seconds, place)) } else { shortest };
            }
            StopMethod::Timeout(None) | StopMethod::Signal(_, None) | StopMethod::Kill(_) => {
                is_own = true
            }
            StopMethod::Unseen => {
                let problem = "how this stops the container cannot be seen here";
                let advice = "write docker stop --time, the seconds, and the name";
                let finding = Finding::new(Level::Unknown, place.clone(), problem, advice);
                workload.findings.push(finding.fixed_by(Fix::Line(fix.into())));
            }
        }
        if let StopMethod::Signal(text, _) | StopMethod::Kill(text) = how {
            let (text, fix) = (text.clone(), fix.to_owned());
            let signal = StopSignal { text, place: place.clone(), fix };
            let is_extra = at < last && waits.is_none_or(|waits| at < waits);
            if is_extra && matches!(how, StopMethod::Kill(_)) {
                workload.add_extra_signal(signal);
            } else {
                workload.signals.push(signal);
            }
        }
    }
    // A command without a timeout leaves the container its own.
    let own = workload.grace.span.filter(|_| is_own);
    if let Some((seconds, place)) = shortest
        && own.is_none_or(|own| Duration::from_secs(seconds) < own)
    {
        workload.grace = Grace::said(Some(Duration::from_secs(seconds)), place.clone());
        workload.supervisor = Supervisor::ContainerStop;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::script::split;

    #[test]
    fn s505_commands_that_kill_containers_differ_from_those_that_stop_them() {
        let shown = |line: &str| {
            let words: Vec<_> = split(line).into_iter().map(Word::known).collect();
            match of(&words) {
                None => "other".to_owned(),
                Some(StopEffect::Nothing) => "nothing".into(),
                Some(StopEffect::Unseen) => "unseen".into(),
                Some(StopEffect::Stops(Stop { names, how })) => {
                    format!("{how:?} {}", names.join(" "))
                }
            }
        };
        for (line, expected) in [
            ("docker stop -t 30 a b", "Timeout(Some(30)) a b"),
            ("docker stop --time=30 a", "Timeout(Some(30)) a"),
            ("docker stop -t30 a", "Timeout(Some(30)) a"),
            ("docker stop --timeout=3 a", "Timeout(Some(3)) a"),
            ("docker stop --timeout 3 a", "Timeout(Some(3)) a"),
            ("docker --context prod container stop a", "Timeout(None) a"),
            ("docker stop -s KILL a", "Signal(\"KILL\", None) a"),
            ("docker stop -t soon a", "Unseen a"),
            ("docker stop --surprise a", "Unseen "),
            ("docker stop a -t 3", "Timeout(Some(3)) a"),
            ("docker stop a b --time=3", "Timeout(Some(3)) a b"),
            ("docker stop a --surprise", "Unseen "),
            ("docker rm a -f", "Kill(\"SIGKILL\") a"),
            ("docker kill a -s TERM", "Kill(\"TERM\") a"),
            ("docker rm a", "nothing"),
            ("docker rm -f a", "Kill(\"SIGKILL\") a"),
            ("docker container rm -fv a", "Kill(\"SIGKILL\") a"),
            ("podman rm -f -t 0 a", "Timeout(Some(0)) a"),
            ("podman kill a", "Kill(\"SIGKILL\") a"),
            ("docker kill --signal=TERM a", "Kill(\"TERM\") a"),
            ("docker compose down -t 1", "unseen"),
            ("docker exec a kill 1", "unseen"),
            ("docker pull a", "nothing"),
            ("ls", "other"),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
    }
}
