//! Quadlets: containers of podman that systemd starts and stops.
//!
//! systemd stops them with `podman rm --force`, which kills the container after the container's own
//! timeout. So this timeout is the grace period, unless `TimeoutStopSec` is shorter.

use std::time::Duration;

use super::environment::Environment;
use super::ini::Ini;
use super::input::{Manifest, Source};
use super::place::{Finding, Fix, InputError, Level, Place};
use super::script::{self, Variables, Word};
use super::stop_signal::StopSignal;
use super::supervisor::{Grace, Supervisor};
use super::workload::Workload;
use super::{container_stop, keys, launch, run_flags, run_line, systemd, tree, unit_keys};

/// The section of a container.
const SECTION: &str = "Container";

const SECTIONS: [&str; 3] = ["Container", "Kube", "Pod"];

pub(crate) fn is_one(file: &Ini) -> bool {
    SECTIONS.iter().any(|section| file.has(section))
}

pub(crate) fn read(
    mut file: Ini,
    source: &Source<'_>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    systemd::merge_drop_ins(&mut file, source)?;
    let Some(place) = file.place_of(SECTION) else {
        let place = SECTIONS.iter().find_map(|section| file.place_of(section));
        let problem = "the containers of this quadlet are described in another file";
        let advice = "check that file: the manifest of a [Kube], the containers of a [Pod]";
        let place = place.unwrap_or_else(Place::start);
        return into.add(Workload::unknown("quadlet", source.name, place, problem, advice));
    };
    let mut workload = Workload::new(Supervisor::Quadlet, "quadlet", source.name, place);
    read_stop(&file, &mut workload)?;
    let mut environment = environment_of(&file, source);
    read_podman_args(&file, source, &mut workload, &mut environment)?;
    workload.cap = systemd::cap(&systemd::grace(&file));
    workload.default_stop_timeout = systemd::default_stop_timeout(&file);
    unit_keys::report_ignored(&file, &mut workload);
    let stops = systemd::stop_commands(&file, &mut workload);
    container_stop::apply(&stops, "no ExecStop", true, &mut workload);
    read_command(&file, &mut workload, &mut environment);
    environment.apply(&mut workload);
    add_findings(&file, source, &mut workload);
    into.add(workload)
}

/// Returns the value of a key and its place.
fn set(file: &Ini, key: &str) -> Option<(String, Place)> {
    file.last(SECTION, key).map(|found| (found.value.clone(), found.place.clone()))
}

/// Reads how the container is stopped.
fn read_stop(file: &Ini, workload: &mut Workload) -> Result<(), InputError> {
    let number = |text: &str, place: &Place| {
        let wrong = |problem| InputError { place: place.clone(), problem };
        // Quadlet passes it on to podman as it is.
        if tree::is_octal(text.trim()) {
            return Err(wrong(tree::octal(text.trim())));
        }
        let problem = format!("must be a number of seconds such as 30, not {text}");
        text.trim().parse().map(Duration::from_secs).map_err(|_| wrong(problem))
    };
    if let Some((value, place)) = set(file, "StopTimeout") {
        workload.grace = Grace::said(Some(number(&value, &place)?), place);
    }
    if let Some((text, place)) = set(file, "StopSignal") {
        workload.signals.push(StopSignal { text, place, fix: "StopSignal=SIGTERM".into() });
    }
    if let Some((_, place)) = set(file, "HealthOnFailure").filter(|(action, _)| action == "kill") {
        workload.findings.push(run_line::kills_unhealthy(place, "HealthOnFailure=stop"));
    }
    // systemd stops the unit of a container before the unit of its pod (`BindsTo`, `After`), so the
    // container has its own time. Other pods are refused by quadlet.
    if let Some((_, place)) = set(file, "Pod").filter(|(pod, _)| !pod.ends_with(".pod")) {
        workload.findings.push(run_line::stops_with_pod(place));
    }
    Ok(())
}

fn environment_of(file: &Ini, source: &Source<'_>) -> Environment {
    let mut environment = systemd::environment(file, SECTION, source);
    let is_yes = |value: &str| ["yes", "on", "true", "1"].contains(&value.to_lowercase().as_str());
    if let Some((_, place)) = set(file, "EnvironmentHost").filter(|(value, _)| is_yes(value)) {
        environment.add_unseen(place);
    }
    for secret in file.list(SECTION, "Secret") {
        run_line::add_secret(&secret.value, &secret.place, &mut environment);
    }
    for volume in file.list(SECTION, "Volume") {
        let mut parts = volume.value.split(':');
        if let (Some(from), Some(to)) = (parts.next(), parts.next()) {
            let text = source.beside(from).map(|(_, text)| text);
            environment.mount(to, text, volume.place.clone());
        }
    }
    environment
}

/// Reads the options of `podman run`.
fn read_podman_args(
    file: &Ini,
    source: &Source<'_>,
    workload: &mut Workload,
    environment: &mut Environment,
) -> Result<(), InputError> {
    // Quadlet puts `PodmanArgs` after the options that it generates from other keys, so they have
    // priority.
    for args in file.list(SECTION, "PodmanArgs") {
        let words: Vec<_> = script::split(&args.value).into_iter().map(Word::known).collect();
        let flags = run_flags::read(&words);
        if let Some(odd) = flags.odd.clone().or(Some(flags.image.clone()).filter(|i| !i.is_empty()))
        {
            let problem = format!("the meaning of {odd} in PodmanArgs is not known here");
            let advice = "use the keys of [Container], such as StopTimeout and Environment";
            let finding = Finding::new(Level::Unknown, args.place.clone(), problem, advice);
            workload.findings.push(finding);
        }
        if flags.value("--stop-signal").is_some() {
            workload.signals.clear();
        }
        run_line::apply(&flags, &args.place, workload)?;
        if flags.value("--stop-timeout").is_some() {
            workload.supervisor = Supervisor::QuadletArgs;
        }
        let none = Variables::new();
        let supervisor = Supervisor::Quadlet;
        run_line::variables(&flags, supervisor, &none, &args.place, source, environment);
    }
    Ok(())
}

/// Reads what the container runs.
fn read_command(file: &Ini, workload: &mut Workload, environment: &mut Environment) {
    let command = ["Entrypoint", "Exec"].into_iter().filter_map(|key| file.last(SECTION, key));
    let command: Vec<_> = command.collect();
    if let Some(first) = command.first() {
        let words = command.iter().flat_map(|found| script::words(&found.value));
        let words: Vec<_> = words.collect();
        let front = launch::front(&words, environment, &first.place);
        workload.findings.extend(front.finding(first.place.clone()));
    }
}

/// Adds the findings about keys that this check does not read, or that have no effect.
fn add_findings(file: &Ini, source: &Source<'_>, workload: &mut Workload) {
    workload.findings.extend(systemd::about_instances(source));
    workload.findings.extend(unit_keys::job_timeout(file));
    workload.findings.extend(unit_keys::without_shutdown(file));
    workload.findings.extend(systemd::unknown_keys(file, &keys::quadlet::SECTIONS));
    let settings = file.settings(SECTION);
    workload.findings.extend(keys::unknown_settings(settings, &keys::quadlet::CONTAINER));
    if let Some((_, place)) = set(file, "ContainersConfModule") {
        let problem = "this file may set variables and timeouts, and is not read";
        let advice = "use the keys of [Container], such as StopTimeout and Environment";
        let finding = Finding::new(Level::Unknown, place, problem, advice);
        let fix = Fix::Line("no ContainersConfModule".into());
        workload.findings.push(finding.fixed_by(fix));
    }
}
