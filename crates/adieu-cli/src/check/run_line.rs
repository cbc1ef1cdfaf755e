//! Containers that are started with `docker run` or `podman run`, in scripts and in units.

use std::time::Duration;

use super::env_file::Dialect;
use super::environment::Environment;
use super::input::Source;
use super::place::{Finding, Fix, InputError, Level, Place};
use super::programs::base;
use super::run_flags::{self, Flags};
use super::script::{self, Variables, Word};
use super::signs::Sign;
use super::stop_signal::StopSignal;
use super::supervisor::{Grace, Supervisor};
use super::workload::{SetBy, Workload};
use super::{launch, tree};

pub(crate) const PROGRAMS: [&str; 3] = ["docker", "podman", "nerdctl"];

/// The options of the programs themselves, before the verb.
const GLOBAL: &str = "H: c: l: D --host: --context: --log-level: --debug --config: --tls \
                      --remote --url: --connection: --root: --runroot: --cgroup-manager: n: \
                      --namespace: --address:";

/// A command of a container engine.
pub(crate) struct Command<'a> {
    pub(crate) program: &'a str,
    pub(crate) verb: &'a str,
    pub(crate) words: &'a [Word],
}

/// Parses `docker container VERB …`. Returns `None` if another program is run.
pub(crate) fn command(words: &[Word]) -> Option<Command<'_>> {
    let (first, rest) = words.split_first()?;
    let program = base(first);
    if !PROGRAMS.contains(&program) {
        return None;
    }
    let odd = Command { program, verb: "", words: &[] };
    let Some((verb, rest)) =
        super::programs::after_options(rest, GLOBAL).and_then(<[Word]>::split_first)
    else {
        return Some(odd);
    };
    match (verb.text.as_str(), rest.split_first()) {
        ("container", Some((verb, rest))) => {
            Some(Command { program, verb: &verb.text, words: rest })
        }
        (verb, _) => Some(Command { program, verb, words: rest }),
    }
}

/// Returns the container of a `docker run` command; `None` for another command. `outer` are the variables of the
/// command itself. A container gets the ones that are passed on by name.
pub(crate) fn of_words(
    words: &[Word],
    outer: &Variables,
    place: &Place,
    source: &Source<'_>,
) -> Result<Option<Workload>, InputError> {
    let Some(command) = command(words) else { return Ok(None) };
    if !["run", "create"].contains(&command.verb) {
        return Ok(None);
    }
    let supervisor = match command.program {
        "podman" => Supervisor::PodmanRun,
        _ => Supervisor::DockerRun,
    };
    let flags = run_flags::read(command.words);
    let name = match flags.value("--name") {
        Some(name) if name.is_known => name.text.clone(),
        Some(_) => String::new(),
        None => flags.image.clone(),
    };
    if let Some(odd) = &flags.odd {
        let problem = format!("the meaning of {odd} in this command is not known here");
        let advice = "write the options out, and give the docker run line alone";
        return Ok(Some(Workload::unknown("container", &name, place.clone(), &problem, advice)));
    }
    if flags.image.is_empty() {
        let problem = "no image: write docker run OPTIONS IMAGE".into();
        return Err(InputError { place: place.clone(), problem });
    }
    let mut workload = Workload::new(supervisor, "container", &name, place.clone());
    workload.set_by = SetBy::Flags;
    apply(&flags, place, &mut workload)?;
    let mut environment = Environment::default();
    variables(&flags, supervisor, outer, place, source, &mut environment);
    mounts(&flags, source, place, &mut environment);
    let entrypoint = flags.value("--entrypoint").map(|word| script::words(&word.text));
    let entrypoint = entrypoint.unwrap_or_default().into_iter();
    let command: Vec<_> = entrypoint.chain(flags.command.iter().cloned()).collect();
    let front = launch::front(&command, &mut environment, place);
    workload.findings.extend(front.finding(place.clone()));
    environment.apply(&mut workload);
    Ok(Some(workload))
}

/// Applies the options that decide how the container is stopped.
pub(crate) fn apply(
    flags: &Flags,
    place: &Place,
    workload: &mut Workload,
) -> Result<(), InputError> {
    if let Some(timeout) = flags.value("--stop-timeout") {
        if timeout.is_known && tree::is_octal(&timeout.text) {
            let problem = format!("--stop-timeout: {}", tree::octal(&timeout.text));
            return Err(InputError { place: place.clone(), problem });
        }
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
                return Err(InputError { place: place.clone(), problem });
            }
        }
    }
    if let Some(signal) = flags.value("--stop-signal") {
        let text = if signal.is_known { signal.text.clone() } else { "${…}".into() };
        let fix = "--stop-signal SIGTERM".into();
        workload.signals.push(StopSignal { text, place: place.clone(), fix });
    }
    // Inside, podman expects systemd, which ends with another signal.
    let is_systemd = flags.value("--systemd").is_some_and(|mode| mode.text == "always");
    if is_systemd && flags.value("--stop-signal").is_none() {
        let (text, fix) = ("SIGRTMIN+3".into(), "--stop-signal SIGTERM".into());
        workload.signals.push(StopSignal { text, place: place.clone(), fix });
    }
    if let Some(limit) = flags.value("--timeout") {
        let problem =
            format!("--timeout kills the process {}s after its start, undrained", limit.text);
        let finding = Finding::new(Level::Error, place.clone(), problem, "leave --timeout out");
        workload.findings.push(finding.fixed_by(Fix::Line("no --timeout".into())));
    }
    if flags.value("--health-on-failure").is_some_and(|action| action.text == "kill") {
        workload.findings.push(kills_unhealthy(place.clone(), "--health-on-failure stop"));
    }
    let platform = flags.value("--platform").or(flags.value("--os")).or(flags.value("--isolation"));
    if platform.is_some_and(|platform| is_windows(&platform.text)) {
        workload.findings.push(on_windows(place.clone()));
    }
    if flags.value("--runtime").is_some_and(|runtime| is_runtime_of_windows(&runtime.text)) {
        workload.findings.push(on_windows(place.clone()));
    }
    if flags.value("--pod").is_some() {
        workload.findings.push(stops_with_pod(place.clone()));
    }
    if flags.value("--pid").is_some_and(|pid| !pid.is_known || is_of_other(&pid.text)) {
        workload.findings.push(ends_with_other(place.clone()));
    }
    if flags.values("--ulimit").any(|limit| limit.text.starts_with("cpu=")) {
        let fix = Fix::Line("no --ulimit cpu".into());
        workload.findings.push(launch::limits_processor_time(place.clone()).fixed_by(fix));
    }
    // Whether the image keeps it as standard input cannot be seen.
    if flags.is_on("--tty") {
        workload.signs.terminal = Sign::Unseen;
    }
    Ok(())
}

/// A health check fails also while the process drains.
pub(crate) fn kills_unhealthy(place: Place, instead: &str) -> Finding {
    let problem = "a health check that fails while requests drain kills the process at once";
    let advice = format!("write {instead}");
    let finding = Finding::new(Level::Unknown, place, problem, advice);
    finding.fixed_by(Fix::Line(instead.into()))
}

/// Returns whether the value of `platform`, `os` or `isolation` is one of Windows.
pub(crate) fn is_windows(value: &str) -> bool {
    let value = value.to_lowercase();
    value.starts_with("windows") || ["hyperv", "process"].contains(&value.as_str())
}

/// Returns whether the value of `runtime` is one of Windows.
pub(crate) fn is_runtime_of_windows(value: &str) -> bool {
    value.contains("runhcs") || value.contains("hcsshim")
}

/// Returns whether the value of `pid` is the namespace of another container.
pub(crate) fn is_of_other(value: &str) -> bool {
    ["container:", "service:"].iter().any(|kind| value.starts_with(kind)) || value.contains('$')
}

/// When the first process of a namespace ends, the kernel kills the others.
pub(crate) fn ends_with_other(place: Place) -> Finding {
    let problem = "the process is in the process namespace of another container: the kernel kills \
                   it undrained when that container stops";
    let finding = Finding::new(Level::Unknown, place, problem, "leave pid out");
    finding.fixed_by(Fix::Line("no pid of another container".into()))
}

/// Windows has no signals.
pub(crate) fn on_windows(place: Place) -> Finding {
    let problem = "Windows has no SIGTERM: how the process is stopped cannot be seen here";
    Finding::new(Level::Unknown, place, problem, "run it on Linux")
}

/// A pod is stopped with a timeout of its own.
pub(crate) fn stops_with_pod(place: Place) -> Finding {
    let problem = "the pod is stopped as a whole, with a timeout that cannot be seen here: 10s \
                   unless it is set";
    let advice = "run the container without a pod, or stop the pod with podman pod stop --time";
    Finding::new(Level::Unknown, place, problem, advice)
}

/// Adds the variables of `--env` and `--env-file`.
pub(crate) fn variables(
    flags: &Flags,
    supervisor: Supervisor,
    outer: &Variables,
    place: &Place,
    source: &Source<'_>,
    environment: &mut Environment,
) {
    let is_podman = matches!(supervisor, Supervisor::PodmanRun | Supervisor::Quadlet);
    let dialect = if is_podman { Dialect::Podman } else { Dialect::Docker };
    for file in flags.values("--env-file") {
        match source.beside(&file.text).filter(|_| file.is_known) {
            Some((path, text)) => environment.add_file(&text, &path, dialect),
            None => environment.add_unseen(place.clone()),
        }
    }
    if flags.is_on("--env-host") {
        environment.add_unseen(place.clone());
    }
    flags.values("--secret").for_each(|secret| add_secret(&secret.text, place, environment));
    for value in flags.values("--env").chain(flags.values("--env-merge")) {
        let name = value.text.split_once('=').map_or(value.text.as_str(), |(name, _)| name);
        match outer.get(&value.text) {
            _ if !value.is_known && name.is_empty() => environment.add_unseen(place.clone()),
            _ if !value.is_known => environment.set_unseen(name, place.clone()),
            Some(found) => environment.set(&value.text, found, place.clone()),
            None if name.ends_with('*') => environment.add_unseen(place.clone()),
            None => environment.set_pair(&value.text, place.clone()),
        }
    }
}

/// `NAME,type=env,target=VARIABLE`: a secret that becomes a variable.
pub(crate) fn add_secret(secret: &str, place: &Place, environment: &mut Environment) {
    let mut parts = secret.split(',');
    let name = parts.next().unwrap_or_default();
    let parts: Vec<_> = parts.collect();
    if parts.contains(&"type=env") {
        let target = parts.iter().find_map(|part| part.strip_prefix("target="));
        environment.set_unseen(target.unwrap_or(name), place.clone());
    }
}

/// Adds the files beside the script that are mounted.
fn mounts(flags: &Flags, source: &Source<'_>, place: &Place, environment: &mut Environment) {
    for volume in flags.values("--volume").filter(|volume| volume.is_known) {
        let mut parts = volume.text.split(':');
        if let (Some(from), Some(to)) = (parts.next(), parts.next()) {
            let found = source.beside(from).map(|(_, text)| text);
            environment.mount(to, found, place.clone());
        }
    }
}

/// Returns whether the client passes no signal on to the container.
pub(crate) fn keeps_signals(words: &[Word]) -> bool {
    let flags = command(words).map(|command| run_flags::read(command.words)).unwrap_or_default();
    flags.is_off("--sig-proxy") || flags.is_on("--tty")
}

/// Returns whether a command starts a container and does not wait for it.
pub(crate) fn is_detached(words: &[Word]) -> bool {
    let command = command(words);
    command.is_some_and(|command| run_flags::read(command.words).is_on("--detach"))
}

/// Returns whether a command is one of a container engine, or of a program that is built on one.
pub(crate) fn is_of_engine(words: &[Word]) -> bool {
    let engines = ["docker-compose", "podman-compose", "systemd-nspawn", "ctr", "runc", "crun"];
    let first = words.first().map(base).unwrap_or_default();
    PROGRAMS.contains(&first) || engines.contains(&first)
}
