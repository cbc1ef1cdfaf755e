//! `docker run` and `podman run` lines, in scripts and in units.

use std::time::Duration;

use super::environment::Environment;
use super::input::{Manifest, Source};
use super::place::{Level, Place, Wrong};
use super::script::{self, Script, Variables, Word};
use super::shell;
use super::stop_signal::StopSignal;
use super::workload::{Grace, Supervisor, Workload};

const PROGRAMS: [&str; 3] = ["docker", "podman", "nerdctl"];

/// Options without a value. All others have one, as the next word or after `=`.
const SWITCHES: [&str; 18] = [
    "--detach",
    "--interactive",
    "--tty",
    "--rm",
    "--init",
    "--privileged",
    "--read-only",
    "--publish-all",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--sig-proxy",
    "--quiet",
    "--replace",
    "--tls-verify",
    "--disable-content-trust",
    "--no-hosts",
    "--read-only-tmpfs",
    "--rmi",
];

/// Letters of those.
const LETTERS: &str = "ditPq";

/// What a container is run with.
#[derive(Default)]
struct Options {
    values: Vec<(String, Word)>,
    image: String,
    command: Vec<Word>,
}

/// Whether a text is a script that starts containers.
pub(crate) fn is_one(text: &str) -> bool {
    let lines =
        || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let starts = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| ["sudo", "exec"].contains(word));
        let program = words.next().and_then(|first| first.rsplit('/').next()).unwrap_or_default();
        let verb = words.find(|word| !word.starts_with('-'));
        PROGRAMS.contains(&program) && matches!(verb, Some("run" | "create" | "container"))
    };
    let is_script = text.starts_with("#!") || lines().next().is_some_and(starts);
    is_script && lines().any(starts)
}

pub(crate) fn read(source: &Source<'_>, into: &mut Manifest) -> Result<(), Wrong> {
    let Script::Commands(commands) = script::read(source.text, &Variables::new()) else {
        let problem =
            "this script does more than start containers: what it runs cannot be seen here";
        let advice = "give the docker run line alone";
        return into.add(Workload::unknown("script", source.name, Place::start(), problem, advice));
    };
    let mut stopped = None;
    for command in &commands {
        if let Some(timeout) = stop_timeout(&command.words) {
            stopped = stopped.max(timeout);
        }
    }
    for command in &commands {
        let at = command.words.iter().position(|word| PROGRAMS.contains(&base(&word.text)));
        let line = at.and_then(|at| line_of(source.text, &command.words[at].text)).unwrap_or(1);
        let place = Place::at(line, "");
        let words = at.map_or(&[][..], |at| &command.words[at..]);
        if let Some(mut workload) = of_words(words, &Variables::new(), &place)? {
            read_env_files(words, source, &mut workload)?;
            if let Some(seconds) = stopped {
                workload.grace = Grace::said(Some(Duration::from_secs(seconds)), place);
                workload.supervisor = Supervisor::ContainerStop;
            }
            into.add(workload)?;
        }
    }
    Ok(())
}

/// The first line in which a program is run.
fn line_of(text: &str, program: &str) -> Option<usize> {
    let is_it =
        |line: &str| line.contains(program) && (line.contains("run") || line.contains("create"));
    text.lines().position(is_it).map(|at| at + 1)
}

/// What `docker run …` says; `None` if it is another command.
pub(crate) fn of_words(
    words: &[Word],
    outer: &Variables,
    place: &Place,
) -> Result<Option<Workload>, Wrong> {
    let Some((supervisor, options)) = options(words) else { return Ok(None) };
    let name = options.value("--name").map_or(options.image.clone(), |name| name.text.clone());
    let mut workload = Workload::new(supervisor, "container", &name, place.clone());
    if let Some(timeout) = options.value("--stop-timeout") {
        match timeout.text.parse::<i64>().ok().filter(|_| timeout.is_known) {
            // Minus one is for ever.
            Some(seconds) => {
                let span = u64::try_from(seconds).ok().map(Duration::from_secs);
                workload.grace = Grace::said(span, place.clone());
            }
            None if !timeout.is_known => {
                let problem = "the value of --stop-timeout cannot be seen here";
                workload.hide_grace(place.clone(), problem, "write the number");
            }
            None => {
                let problem =
                    format!("--stop-timeout must be a number of seconds, not {}", timeout.text);
                return Err(Wrong { place: place.clone(), problem });
            }
        }
    }
    if let Some(signal) = options.value("--stop-signal") {
        let (text, fix) = (signal.text.clone(), "--stop-signal SIGTERM".into());
        workload.signals.push(StopSignal { text, place: place.clone(), fix });
    }
    let environment = environment(&options, outer, place);
    let entrypoint = options.value("--entrypoint").map(|word| script::words(&word.text));
    let entrypoint = entrypoint.unwrap_or_default().into_iter();
    let command: Vec<_> = entrypoint.chain(options.command.iter().cloned()).collect();
    let front = shell::front(&command, &environment.values());
    workload.findings.extend(front.finding(place.clone()));
    environment.apply(&mut workload);
    Ok(Some(workload))
}

fn environment(options: &Options, outer: &Variables, place: &Place) -> Environment {
    let mut environment = Environment::default();
    for (name, value) in &options.values {
        match name.as_str() {
            "-e" | "--env" if value.is_known => match outer.get(&value.text) {
                Some(found) => environment.set(&value.text, found, place.clone()),
                None => environment.set_pair(&value.text, place.clone()),
            },
            "-e" | "--env" => {
                let name = value.text.split_once('=').map_or(value.text.as_str(), |(name, _)| name);
                environment.set_unseen(name, place.clone());
            }
            "--env-file" => environment.add_unseen(place.clone()),
            _ => {}
        }
    }
    environment
}

/// Takes the files that stand beside the script.
fn read_env_files(
    words: &[Word],
    source: &Source<'_>,
    workload: &mut Workload,
) -> Result<(), Wrong> {
    let Some((_, options)) = options(words) else { return Ok(()) };
    let files: Vec<_> = options.values.iter().filter(|(name, _)| name == "--env-file").collect();
    let found = files.iter().map(|(_, file)| source.beside(&file.text)).collect::<Option<Vec<_>>>();
    let Some(found) = found.filter(|found| !found.is_empty()) else { return Ok(()) };
    let mut environment = Environment::default();
    for (file, text) in found {
        environment.add_file(&text, &file);
    }
    let place = workload.place.clone();
    for (name, value) in self::environment(&options, &Variables::new(), &place).values() {
        environment.set(&name, &value, place.clone());
    }
    workload.has_unseen_variables = false;
    workload.findings.retain(|finding| finding.level != Level::Note);
    workload.overrides.clear();
    environment.apply(workload);
    Ok(())
}

/// Whether a command starts a container and does not wait for it.
pub(crate) fn is_detached(words: &[Word]) -> bool {
    let is_switch = |name: &str| {
        let letters = name.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        name == "--detach" || letters.is_some_and(|letters| letters.contains('d'))
    };
    let values = options(words).map(|(_, options)| options.values).unwrap_or_default();
    values.iter().any(|(name, value)| is_switch(name) && value.text == "true")
}

/// Whether a command is one of a container engine, or of what is built on it.
pub(crate) fn is_of_engine(words: &[Word]) -> bool {
    let engines = ["docker-compose", "podman-compose", "systemd-nspawn", "ctr", "runc", "crun"];
    let first = words.first().map(|word| base(&word.text)).unwrap_or_default();
    PROGRAMS.contains(&first) || engines.contains(&first)
}

/// The timeout of `docker stop -t 30 NAME`: `None` if it is another command, `Some(None)` if it has
/// no timeout of its own.
pub(crate) fn stop_timeout(words: &[Word]) -> Option<Option<u64>> {
    let mut words = words.iter().map(|word| word.text.as_str()).peekable();
    let program = words.next().map(base)?;
    let verb = words.by_ref().find(|word| !word.starts_with('-') && *word != "container")?;
    let stops = PROGRAMS.contains(&program) && ["stop", "restart", "rm"].contains(&verb);
    if !stops {
        return None;
    }
    let mut timeout = None;
    while let Some(word) = words.next() {
        let value = match word {
            "-t" | "--time" | "--timeout" => words.next(),
            word => ["--time=", "--timeout=", "-t"].iter().find_map(|key| word.strip_prefix(key)),
        };
        timeout = value.and_then(|value| value.parse().ok()).or(timeout);
    }
    Some(timeout)
}

fn options(words: &[Word]) -> Option<(Supervisor, Options)> {
    let mut words = words.iter();
    let program = base(&words.next()?.text);
    let supervisor = match program {
        "podman" => Supervisor::PodmanRun,
        "docker" | "nerdctl" => Supervisor::DockerRun,
        _ => return None,
    };
    let verb =
        words.by_ref().find(|word| !word.text.starts_with('-') && word.text != "container")?;
    if !["run", "create"].contains(&verb.text.as_str()) {
        return None;
    }
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if !text.starts_with('-') {
            options.image.clone_from(&word.text);
            options.command = words.cloned().collect();
            break;
        }
        let is_letters =
            |letters: &str| !letters.is_empty() && letters.chars().all(|c| LETTERS.contains(c));
        let is_switch = SWITCHES.contains(&text) || text.strip_prefix('-').is_some_and(is_letters);
        if let Some((name, value)) = text.split_once('=').filter(|_| text.starts_with("--")) {
            let value = Word { text: value.into(), is_known: word.is_known };
            options.values.push((name.into(), value));
        } else if is_switch {
            options.values.push((text.into(), Word::known("true")));
        } else if !text.starts_with("--") && text.len() > 2 && text.is_char_boundary(2) {
            // `-eNAME=value`
            let (name, value) = text.split_at(2);
            let value = Word { text: value.into(), is_known: word.is_known };
            options.values.push((name.into(), value));
        } else {
            options.values.push((text.into(), words.next()?.clone()));
        }
    }
    (!options.image.is_empty()).then_some((supervisor, options))
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

// === impl Options ===

impl Options {
    /// The last value of an option.
    fn value(&self, name: &str) -> Option<&Word> {
        self.values.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value)
    }
}
