//! systemd units, with the drop-ins beside them: the keys of `[Service]` that decide how it
//! is stopped.

mod command_lines;
mod drop_ins;
mod variables;

use command_lines::{commands, substituted};
pub(crate) use drop_ins::{about_instances, merge_drop_ins};
pub(crate) use variables::environment;

use super::container_stop::{self, StopEffect};
use super::ini::Ini;
use super::input::{Manifest, Source};
use super::place::{Finding, Fix, InputError, Level, Place};
use super::script::Word;
use super::stop_signal::StopSignal;
use super::supervisor::{Cap, Grace, Supervisor};
use super::unit_keys::{self, SERVICE};
use super::workload::Workload;
use super::{effects, keys, launch, run_line};

pub(crate) fn read(
    mut unit: Ini,
    source: &Source<'_>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    merge_drop_ins(&mut unit, source)?;
    let Some(place) = unit.place_of(SERVICE) else {
        return Err(InputError::at(
            1,
            "there is no [Service]: only services are stopped like this",
        ));
    };
    let mut workload = match container(&unit, source)? {
        Some(workload) => workload,
        None => process(&unit, &place, source)?,
    };
    workload.kind = "unit".into();
    workload.name = source.name.into();
    workload.place = Place { path: String::new(), ..place };
    workload.default_stop_timeout = default_stop_timeout(&unit);
    workload.findings.extend(about_instances(source));
    workload.findings.extend(unit_keys::without_shutdown(&unit));
    workload.findings.extend(unit_keys::several_starts(&unit));
    workload.findings.extend(unit_keys::cpu_limit(&unit));
    workload.findings.extend(unit_keys::job_timeout(&unit));
    workload.findings.extend(unknown_keys(&unit, &keys::systemd::SECTIONS));
    into.add(workload)
}

/// Returns the findings about sections and keys whose effect is not known.
pub(crate) fn unknown_keys(unit: &Ini, sections: &[&str]) -> Vec<Finding> {
    let is_known = |name: &str| sections.contains(&name) || name.starts_with("X-");
    let mut findings = keys::unknown_sections(unit, is_known);
    findings.extend(keys::unknown_settings(unit.settings("Unit"), &keys::systemd::UNIT));
    findings.extend(keys::unknown_settings(unit.settings(SERVICE), &keys::systemd::SERVICE));
    findings
}

/// Returns the grace period that a unit sets.
pub(crate) fn grace(unit: &Ini) -> Grace {
    match unit_keys::stop_timeout(unit) {
        Some((span, setting)) => Grace::said(span, setting.place.clone()),
        None => {
            let place = unit.place_of(SERVICE).unwrap_or_else(Place::start);
            Grace::default_of(Supervisor::Systemd, place)
        }
    }
}

/// Returns the place where the unit leaves its timeout to the default of the machine, if it does.
pub(crate) fn default_stop_timeout(unit: &Ini) -> Option<Place> {
    Some(grace(unit)).filter(|grace| grace.assumed).map(|grace| grace.place)
}

/// Returns the time that a unit allows the command that stops its container.
pub(crate) fn cap(unit: &Grace) -> Option<Cap> {
    unit.span.map(|most| Cap { most, key: Some("TimeoutStopSec"), assumed: false })
}

fn process(unit: &Ini, place: &Place, source: &Source<'_>) -> Result<Workload, InputError> {
    let mut workload = Workload::new(Supervisor::Systemd, "unit", "", place.clone());
    workload.grace = grace(unit);
    workload.signals = signals(unit);
    unit_keys::report_ignored(unit, &mut workload);
    let mode = unit_keys::kill_mode(unit);
    let mode_is = |name: &str| mode.is_some_and(|mode| mode.value == name);
    let advice = "leave it out, or write mixed: the main process is signalled, all are killed";
    if let Some(mode) = mode.filter(|_| mode_is("none")) {
        let problem = "the process is not signalled: it keeps running after the unit has stopped, and is \
                       killed undrained when the machine stops";
        let finding = Finding::new(Level::Error, mode.place.clone(), problem, advice);
        let fix = Fix::Line("KillMode=mixed".into());
        workload.findings.push(finding.fixed_by(fix));
    }
    if let Some(mode) = mode.filter(|_| mode_is("process")) {
        let problem = "child processes keep running after the unit has stopped";
        workload.findings.push(Finding::new(Level::Warning, mode.place.clone(), problem, advice));
    }
    if let Some(kills) = unit_keys::off(unit, "SendSIGKILL") {
        let problem = "a process that hangs is never killed: after TimeoutStopSec it gets a second \
                       signal, and counts as stopped while it still runs";
        workload.findings.push(Finding::new(
            Level::Warning,
            kills.place.clone(),
            problem,
            "leave it out",
        ));
    }
    for stop in unit.list(SERVICE, "ExecStop") {
        for command in commands(&stop.value) {
            exec_stop(&command, &stop.place, &mut workload);
        }
    }
    let mut environment = environment(unit, SERVICE, source);
    if let Some(start) = unit.list(SERVICE, "ExecStart").into_iter().next_back() {
        let command = commands(&start.value).pop().unwrap_or_default();
        let is_literal = start.value.trim_start_matches(['@', '-', '+', '!', '|']).starts_with(':');
        let command = match is_literal {
            true => command,
            false => command.into_iter().map(|word| substituted(word, &mut environment)).collect(),
        };
        let place = start.place.clone();
        // By default the whole control group is signalled.
        let finding = if mode_is("mixed") || mode_is("process") {
            let finding = launch::front(&command, &mut environment, &place).finding(place);
            finding.map(|finding| {
                let advice = "write exec in front of the process, or leave KillMode out";
                let is_shell = finding.fix == Fix::Exec && finding.level == Level::Error;
                if is_shell { Finding { advice: advice.into(), ..finding } } else { finding }
            })
        } else {
            launch::front_of_group(&command, &mut environment, &place).finding_in_group(place)
        };
        workload.findings.extend(finding);
    }
    workload.signs.terminal = unit_keys::terminal(unit);
    environment.apply(&mut workload);
    let kind = unit.last(SERVICE, "Type");
    if !kind.is_some_and(|kind| kind.value.starts_with("notify")) {
        let place = kind.map_or_else(
            || Place { path: "Service.Type".into(), ..place.clone() },
            |kind| kind.place.clone(),
        );
        let problem = "systemd is not notified of readiness, and gets no request for more time";
        let advice = "write Type=notify, with the feature `systemd` in the process";
        workload.findings.push(Finding::new(Level::Warning, place, problem, advice));
    }
    Ok(workload)
}

/// Returns the signals that a unit sends to stop the process.
fn signals(unit: &Ini) -> Vec<StopSignal> {
    let mut signals = Vec::new();
    for key in ["KillSignal", "RestartKillSignal"] {
        if let Some(setting) = unit_keys::last(unit, key) {
            let fix = format!("{key}=SIGTERM");
            signals.push(StopSignal {
                text: setting.value.clone(),
                place: setting.place.clone(),
                fix,
            });
        }
    }
    if let Some(setting) = unit_keys::on(unit, "SendSIGHUP") {
        let (place, fix) = (setting.place.clone(), "SendSIGHUP=no".into());
        signals.push(StopSignal { text: "SIGHUP".into(), place, fix });
    }
    signals
}

/// A command that systemd runs before the signal.
fn exec_stop(command: &[Word], place: &Place, workload: &mut Workload) {
    effects::before_signal(command, place, "no ExecStop", workload);
}

/// A unit that runs a container with docker or podman, which has a grace period of its own.
fn container(unit: &Ini, source: &Source<'_>) -> Result<Option<Workload>, InputError> {
    let Some(start) = unit.list(SERVICE, "ExecStart").into_iter().next_back() else {
        return Ok(None);
    };
    let outer = environment(unit, SERVICE, source).values();
    let command = commands(&start.value).pop().unwrap_or_default();
    let mut workload = match run_line::of_words(&command, &outer, &start.place, source)? {
        Some(workload) => workload,
        None if run_line::is_of_engine(&command) => {
            let place = start.place.clone();
            let mut workload = Workload::new(Supervisor::ContainerStop, "unit", "", place.clone());
            let problem = "how the container was made cannot be seen here: its command, its signal and \
                           its variables are in another file";
            let advice = "check the compose file, or write docker run into the unit";
            workload.findings.push(Finding::new(Level::Unknown, place, problem, advice));
            workload.has_unseen_variables = true;
            workload
        }
        None => return Ok(None),
    };
    let unit_grace = grace(unit);
    unit_keys::report_ignored(unit, &mut workload);
    let stops = stop_commands(unit, &mut workload);
    let mode_is_none = unit_keys::kill_mode(unit).is_some_and(|mode| mode.value == "none");
    match () {
        // The container's own timeout counts, unless the command sets another. The unit's timeout limits
        // both.
        () if !stops.is_empty() => {
            let program = command.first().map(|word| word.text.as_str()).unwrap_or_default();
            let fix = format!("ExecStop={program} stop --time SECONDS {}", workload.name);
            container_stop::apply(&stops, fix.trim_end(), true, &mut workload);
            workload.cap = cap(&unit_grace);
        }
        () if mode_is_none => {
            let problem = "KillMode=none, and no ExecStop stops the container";
            let advice = "leave KillMode out";
            let finding = Finding::new(Level::Error, start.place.clone(), problem, advice);
            let fix = Fix::Line("KillMode=mixed".into());
            workload.findings.push(finding.fixed_by(fix));
        }
        () if run_line::is_detached(&command) => {
            let problem = "the container keeps running without the unit: no ExecStop stops it";
            let advice = "leave --detach out, or write ExecStop=docker stop --time …";
            let finding = Finding::new(Level::Unknown, start.place.clone(), problem, advice);
            workload.findings.push(finding);
        }
        // Otherwise the client passes SIGTERM on.
        () => {
            workload.grace = unit_grace;
            workload.supervisor = Supervisor::Systemd;
        }
    }
    if stops.is_empty() && run_line::keeps_signals(&command) {
        let problem = "the client passes no signal on to the container: it has a terminal, or \
                       --sig-proxy=false";
        let advice = "leave these options out, or write ExecStop=docker stop --time …";
        let finding = Finding::new(Level::Unknown, start.place.clone(), problem, advice);
        workload.findings.push(finding);
    }
    Ok(Some(workload))
}

/// Returns the commands with which a unit stops its container. Its other commands are judged like
/// the commands of any unit.
pub(crate) fn stop_commands(
    unit: &Ini,
    workload: &mut Workload,
) -> Vec<(container_stop::Stop, Place)> {
    let mut stops = Vec::new();
    for stop in unit.list(SERVICE, "ExecStop") {
        for command in commands(&stop.value) {
            match container_stop::of(&command) {
                Some(StopEffect::Stops(found)) => stops.push((found, stop.place.clone())),
                Some(StopEffect::Nothing) => {}
                Some(StopEffect::Unseen) | None => exec_stop(&command, &stop.place, workload),
            }
        }
    }
    stops
}
