//! systemd units, with the drop-ins beside them: the keys of `[Service]` that say how it is
//! stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::environment::Environment;
use super::ini::{self, Ini, Setting};
use super::input::{Manifest, Source};
use super::place::{Finding, Fix, Level, Place, Wrong};
use super::script::{self, Word};
use super::shell::{self, Takes};
use super::stop_signal::StopSignal;
use super::workload::{Cap, Grace, Supervisor, Workload};
use super::{files, run_line, spans};

const SERVICE: &str = "Service";

pub(crate) fn read(mut unit: Ini, source: &Source<'_>, into: &mut Manifest) -> Result<(), Wrong> {
    merge_drop_ins(&mut unit, source)?;
    let Some(place) = unit.place_of(SERVICE) else {
        return Err(Wrong::at(1, "there is no [Service]: only services are stopped like this"));
    };
    let mut workload = match container(&unit)? {
        Some(workload) => workload,
        None => process(&unit, &place)?,
    };
    workload.kind = "unit".into();
    workload.name = source.name.into();
    workload.place = Place { path: String::new(), ..place };
    into.add(workload)
}

/// The grace period of a unit, as its settings say.
pub(crate) fn grace(unit: &Ini) -> Result<Grace, Wrong> {
    let place = unit.place_of(SERVICE).unwrap_or_else(Place::start);
    let mut grace = Grace::default_of(Supervisor::Systemd, place.clone());
    // The last one wins, whichever of the two it is.
    let is_one =
        |setting: &&Setting| ["TimeoutStopSec", "TimeoutSec"].contains(&setting.key.as_str());
    for setting in unit.settings(SERVICE).filter(is_one) {
        let wrong = |problem| Wrong { place: setting.place.clone(), problem };
        grace = match setting.value.as_str() {
            "" => Grace::default_of(Supervisor::Systemd, place.clone()),
            value => Grace::said(spans::systemd(value).map_err(wrong)?, setting.place.clone()),
        };
    }
    Ok(grace)
}

/// What a unit allows the command that stops its container.
pub(crate) fn cap(unit: &Grace) -> Option<Cap> {
    unit.span.map(|most| Cap { most, key: Some("TimeoutStopSec"), assumed: false })
}

/// Takes what `Environment=`, `EnvironmentFile=` and `PassEnvironment=` say.
pub(crate) fn environment(unit: &Ini, section: &str) -> Environment {
    let mut environment = Environment::default();
    for setting in unit.settings(section) {
        let place = || setting.place.clone();
        match (setting.key.as_str(), setting.value.as_str()) {
            ("Environment", "") => environment.clear(),
            ("Environment", value) => {
                for pair in script::split(value) {
                    // systemd fills in specifiers such as %i.
                    if let Some((name, value)) = pair.split_once('=') {
                        environment.set_marked(name, value, '%', place());
                    }
                }
            }
            ("PassEnvironment", value) => {
                for name in value.split_whitespace() {
                    environment.set_unseen(name, place());
                }
            }
            _ => {}
        }
    }
    // Files are on the machine where the unit runs.
    for file in unit.list(section, "EnvironmentFile") {
        environment.add_unseen(file.place.clone());
    }
    environment
}

fn process(unit: &Ini, place: &Place) -> Result<Workload, Wrong> {
    let mut workload = Workload::new(Supervisor::Systemd, "unit", "", place.clone());
    workload.grace = grace(unit)?;
    workload.signals = signals(unit);
    let mode = unit.last(SERVICE, "KillMode");
    let mode_is = |name: &str| mode.is_some_and(|mode| mode.value == name);
    let advice = "leave it out, or write mixed: the main process is signalled, all are killed";
    if let Some(mode) = mode.filter(|_| mode_is("none")) {
        let problem = "the process is not signalled: it goes on when the unit has stopped, and is \
                       killed undrained when the machine stops";
        let finding = Finding::new(Level::Error, mode.place.clone(), problem, advice);
        workload.findings.push(finding.fixed_by(Fix::Line("KillMode=mixed".into())));
    }
    if let Some(mode) = mode.filter(|_| mode_is("process")) {
        let problem = "what the process has started is left behind";
        workload.findings.push(Finding::new(Level::Warning, mode.place.clone(), problem, advice));
    }
    let is_no = |setting: &&Setting| ["no", "off", "false", "0"].contains(&setting.value.as_str());
    if let Some(kills) = unit.last(SERVICE, "SendSIGKILL").filter(is_no) {
        let problem = "a process that hangs is never killed";
        workload.findings.push(Finding::new(
            Level::Warning,
            kills.place.clone(),
            problem,
            "leave it out",
        ));
    }
    for stop in unit.list(SERVICE, "ExecStop") {
        workload.findings.extend(exec_stop(stop));
    }
    let start = unit.list(SERVICE, "ExecStart").into_iter().next_back();
    if let Some(start) = start
        && let Some(manager) = shell::manager(&words(&start.value))
    {
        let problem =
            format!("{manager} stops the process by its own rules, and kills it in its own time");
        let advice = "check its configuration, too; or let systemd start the process itself";
        let finding = Finding::new(Level::Unknown, start.place.clone(), problem, advice);
        workload.findings.push(finding);
    }
    // Otherwise the whole control group is signalled, with all that a shell has started.
    if let Some(start) = start.filter(|_| mode_is("mixed") || mode_is("process")) {
        let front = shell::front(&words(&start.value), &script::Variables::new());
        let advice = "write exec in front of the process, or leave KillMode out";
        let finding = front.finding(start.place.clone());
        let finding = finding.map(|finding| Finding { advice: advice.into(), ..finding });
        workload.findings.extend(finding);
    }
    environment(unit, SERVICE).apply(&mut workload);
    let kind = unit.last(SERVICE, "Type");
    if !kind.is_some_and(|kind| kind.value.starts_with("notify")) {
        let place = kind.map_or_else(
            || Place { path: "Service.Type".into(), ..place.clone() },
            |kind| kind.place.clone(),
        );
        let problem = "systemd is not told of readiness, nor asked for more time while stopping";
        let advice = "write Type=notify, with the feature `systemd` in the process";
        workload.findings.push(Finding::new(Level::Warning, place, problem, advice));
    }
    Ok(workload)
}

/// The signals that a unit sends to stop the process.
fn signals(unit: &Ini) -> Vec<StopSignal> {
    let mut signals = Vec::new();
    for key in ["KillSignal", "RestartKillSignal"] {
        if let Some(setting) = unit.last(SERVICE, key) {
            let fix = format!("{key}=SIGTERM");
            signals.push(StopSignal {
                text: setting.value.clone(),
                place: setting.place.clone(),
                fix,
            });
        }
    }
    let is_yes = |setting: &&Setting| ["yes", "on", "true", "1"].contains(&setting.value.as_str());
    if let Some(setting) = unit.last(SERVICE, "SendSIGHUP").filter(is_yes) {
        let (place, fix) = (setting.place.clone(), "SendSIGHUP=no".into());
        signals.push(StopSignal { text: "SIGHUP".into(), place, fix });
    }
    signals
}

/// What is run before the signal. It has a time limit of its own, and takes nothing of the grace
/// period; but it may stop the process in its own way.
fn exec_stop(stop: &Setting) -> Option<Finding> {
    let command = words(&stop.value);
    let text: Vec<_> = command.iter().map(|word| word.text.as_str()).collect();
    let name = text.first().and_then(|first| first.rsplit('/').next()).unwrap_or_default();
    let place = stop.place.clone();
    let leave_out = "leave it out: SIGTERM is all that it takes";
    let fix = Fix::Line("no ExecStop".into());
    if name == "kill" {
        let named = text.iter().skip(1).find_map(|word| match *word {
            "-s" | "--signal" => None,
            word if word.starts_with('$') || word == "--" => None,
            word => Some(word.trim_start_matches("--signal=").trim_start_matches('-')),
        });
        let signal = StopSignal {
            text: named.unwrap_or("TERM").to_owned(),
            place: place.clone(),
            fix: String::new(),
        };
        if !super::stop_signal::Handled::default().handles(&signal) {
            let problem = format!("{} ends the process undrained", signal.text);
            let finding = Finding::new(Level::Error, place, problem, leave_out);
            return Some(finding.fixed_by(fix));
        }
        let problem = "SIGTERM follows at once: the second one ends the lame duck";
        return Some(Finding::new(Level::Warning, place, problem, leave_out));
    }
    match shell::takes(&command, &script::Variables::new()) {
        Takes::AtMost(_) => {
            let problem = "runs before SIGTERM, with a time limit of its own: not counted";
            Some(Finding::new(Level::Warning, place, problem, leave_out))
        }
        Takes::Forever | Takes::Unknown(_) => {
            let problem =
                "runs before SIGTERM, and what it does to the process cannot be seen here";
            let finding = Finding::new(Level::Unknown, place, problem, leave_out);
            Some(finding.fixed_by(fix))
        }
    }
}

/// A unit that runs a container with docker or podman, which has a grace period of its own.
fn container(unit: &Ini) -> Result<Option<Workload>, Wrong> {
    let Some(start) = unit.list(SERVICE, "ExecStart").into_iter().next_back() else {
        return Ok(None);
    };
    let outer = environment(unit, SERVICE).values();
    let command = words(&start.value);
    let mut workload = match run_line::of_words(&command, &outer, &start.place)? {
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
    let unit_grace = grace(unit)?;
    let stops: Vec<_> = unit.list(SERVICE, "ExecStop");
    let stop = stops.iter().find_map(|stop| {
        let words = words(&stop.value);
        run_line::stop_timeout(&words).map(|timeout| (timeout, stop.place.clone()))
    });
    let mode_is_none = unit.last(SERVICE, "KillMode").is_some_and(|mode| mode.value == "none");
    match stop {
        // The container's own timeout, unless the command says another; and the unit's around it.
        Some((timeout, place)) => {
            if let Some(seconds) = timeout {
                workload.grace = Grace::said(Some(Duration::from_secs(seconds)), place);
                workload.supervisor = Supervisor::ContainerStop;
            }
            workload.cap = cap(&unit_grace);
        }
        None if mode_is_none => {
            let problem = "KillMode=none, and no ExecStop stops the container";
            let advice = "leave KillMode out";
            let finding = Finding::new(Level::Error, start.place.clone(), problem, advice);
            let fix = Fix::Line("KillMode=mixed".into());
            workload.findings.push(finding.fixed_by(fix));
        }
        None if run_line::is_detached(&command) => {
            let problem = "the container runs on without the unit: no ExecStop stops it";
            let advice = "leave --detach out, or write ExecStop=docker stop --time …";
            let finding = Finding::new(Level::Unknown, start.place.clone(), problem, advice);
            workload.findings.push(finding);
        }
        // The client passes SIGTERM on.
        None => {
            workload.grace = unit_grace;
            workload.supervisor = Supervisor::Systemd;
            for stop in stops {
                workload.findings.extend(exec_stop(stop));
            }
        }
    }
    Ok(Some(workload))
}

/// The words of a command, without the prefixes that systemd gives a meaning to.
fn words(value: &str) -> Vec<Word> {
    let value = value.trim_start_matches(['@', '-', ':', '+', '!', '|']);
    script::split(value).into_iter().map(Word::known).collect()
}

/// Adds the settings of the drop-ins beside a unit, in the order in which systemd reads them.
pub(crate) fn merge_drop_ins(unit: &mut Ini, source: &Source<'_>) -> Result<(), Wrong> {
    let Some(path) = source.path else { return Ok(()) };
    for file in drop_ins(path) {
        let name = file.display().to_string();
        let wrong = |problem: String| Wrong {
            place: Place { file: Some(name.clone()), ..Place::start() },
            problem,
        };
        let bytes = files::read(&file).map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("this is not UTF-8".into()))?;
        unit.sections.extend(ini::read(&text, Some(&file))?.sections);
    }
    Ok(())
}

/// Files by their names; of two of the same name, the one for the more specific unit counts.
fn drop_ins(unit: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(folder)) =
        (unit.file_name().and_then(|name| name.to_str()), unit.parent())
    else {
        return Vec::new();
    };
    let Some((stem, ending)) = name.rsplit_once('.') else { return Vec::new() };
    // From the most specific: the unit itself, its template, its prefixes, all units of its kind.
    let mut folders = vec![format!("{name}.d")];
    if let Some((template, _)) = stem.split_once('@') {
        folders.push(format!("{template}@.{ending}.d"));
    }
    let dashes = stem.char_indices().filter(|(_, c)| *c == '-').map(|(at, _)| at);
    folders.extend(dashes.rev().map(|at| format!("{}-.{ending}.d", &stem[..at])));
    folders.push(format!("{ending}.d"));
    let mut files = BTreeMap::new();
    for one in folders {
        let Ok(entries) = std::fs::read_dir(folder.join(one)) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            if path.extension().is_some_and(|ending| ending == "conf") {
                files.entry(entry.file_name()).or_insert(path);
            }
        }
    }
    files.into_values().collect()
}
