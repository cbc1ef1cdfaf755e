//! systemd units, with the drop-ins beside them: the keys of `[Service]` that decide how it
//! is stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::container_stop::{self, StopEffect};
use super::env_file::Dialect;
use super::environment::Environment;
use super::ini::{self, Ini};
use super::input::{Manifest, Source};
use super::place::{Finding, Fix, InputError, Level, Place};
use super::script::{self, Word};
use super::stop_signal::StopSignal;
use super::supervisor::{Cap, Grace, Supervisor};
use super::unit_keys::{self, SERVICE};
use super::workload::Workload;
use super::{effects, files, keys, launch, run_line};

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

/// The time that a unit allows the command that stops its container.
pub(crate) fn cap(unit: &Grace) -> Option<Cap> {
    unit.span.map(|most| Cap { most, key: Some("TimeoutStopSec"), assumed: false })
}

/// Returns the variables of `Environment=`, `EnvironmentFile=` and `PassEnvironment=`.
pub(crate) fn environment(unit: &Ini, section: &str, source: &Source<'_>) -> Environment {
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
    // Files count more than the lines of the unit.
    for file in unit.list(section, "EnvironmentFile") {
        let (path, is_optional) = match file.value.strip_prefix('-') {
            Some(path) => (path, true),
            None => (file.value.as_str(), false),
        };
        match environment_file(path, section, source) {
            Some((name, text)) => environment.add_file(&text, &name, Dialect::Systemd),
            // An optional file beside a quadlet may be missing.
            None if is_optional && is_beside(path) && source.path.is_some() => {}
            None => environment.add_unseen(file.place.clone()),
        }
    }
    for unset in unit.list(section, "UnsetEnvironment") {
        for word in script::split(&unset.value) {
            match word.split_once('=') {
                None => environment.unset(&word),
                // Only a variable with this value is removed.
                Some((name, value)) => match environment.values().get(name) {
                    Some(set) if set == value => environment.unset(name),
                    Some(_) => {}
                    None => environment.unset_perhaps(name, unset.place.clone()),
                },
            }
        }
    }
    environment
}

/// The file that a unit names, if it is there on this machine; or one of its name beside the unit,
/// from where it is copied.
fn environment_file(path: &str, section: &str, source: &Source<'_>) -> Option<(String, String)> {
    let name = Path::new(path).file_name()?.to_str()?;
    // Specifiers and patterns are filled in later.
    if path.contains(['%', '*', '?', '[']) {
        return None;
    }
    let beside = || source.beside(name).filter(|_| section == SERVICE);
    source.beside(path).or_else(beside)
}

fn is_beside(path: &str) -> bool {
    !path.starts_with('/') && !path.contains('%')
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

/// The signals that a unit sends to stop the process.
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

/// Returns the commands of a line, without the prefixes that have a meaning to systemd. A word `;`
/// separates commands.
fn commands(value: &str) -> Vec<Vec<Word>> {
    let words: Vec<_> = script::split(value).into_iter().map(Word::known).collect();
    let commands = words.split(|word| word.text == ";").filter(|words| !words.is_empty());
    commands.map(command).collect()
}

/// Replaces `${NAME}` in a word, as systemd does before it starts a command. A name that the unit does
/// not set stays, because systemd may set it. Then the value of `NAME=${NAME}` cannot be seen.
fn substituted(mut word: Word, environment: &mut Environment) -> Word {
    let text = std::mem::take(&mut word.text);
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("${") {
        word.text += before;
        let Some((name, more)) = after.split_once('}') else {
            word.text += "${";
            rest = after;
            continue;
        };
        match environment.substitute(name).filter(|_| !before.ends_with('$')) {
            Some(value) => word.text += &value,
            None => {
                // In a script, the shell replaces it.
                word.is_known &=
                    !word.text.contains('=') || word.text.contains(char::is_whitespace);
                word.text += &format!("${{{name}}}");
            }
        }
        rest = more;
    }
    word.text += rest;
    word
}

fn command(words: &[Word]) -> Vec<Word> {
    let Some((first, rest)) = words.split_first() else { return Vec::new() };
    let program = first.text.trim_start_matches(['@', '-', ':', '+', '!', '|']);
    let prefixes = &first.text[..first.text.len() - program.len()];
    // `|` runs the line with the shell of a user, as a login shell.
    let program = Word { is_known: !prefixes.contains('|'), ..Word::known(program) };
    // After `@`, the first argument is the name of the process.
    let arguments = rest.get(usize::from(prefixes.contains('@'))..).unwrap_or_default();
    [&[program], arguments].concat()
}

/// Adds the settings of the drop-ins beside a unit, in the order in which systemd reads them.
pub(crate) fn merge_drop_ins(unit: &mut Ini, source: &Source<'_>) -> Result<(), InputError> {
    let Some(path) = source.path else { return Ok(()) };
    for file in drop_ins(path).into_iter().filter(|file| !is_mask(file)) {
        let name = file.display().to_string();
        let wrong = |problem: String| InputError {
            place: Place { file: Some(name.clone()), ..Place::start() },
            problem,
        };
        let bytes = files::read(&file).map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("this is not UTF-8".into()))?;
        unit.sections.extend(ini::read(&text, Some(&file))?.sections);
    }
    Ok(())
}

/// Returns the finding about an instance of a template that has drop-ins of its own.
pub(crate) fn about_instances(source: &Source<'_>) -> Option<Finding> {
    let unit = source.path?;
    let (stem, ending) = unit.file_name()?.to_str()?.split_once("@.")?;
    let (start, end) = (format!("{stem}@"), format!(".{ending}.d"));
    let is_own = |name: &String| {
        name.strip_prefix(&start)
            .and_then(|rest| rest.strip_suffix(&end))
            .is_some_and(|instance| !instance.is_empty())
    };
    let folder = unit.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?.filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    // The first one by name: the order of a folder is not certain.
    let name = names.filter(is_own).min()?;
    let problem = format!("an instance has drop-ins of its own, which are not read: {name}");
    let advice = "copy the template to the name of the instance beside them, and check that";
    Some(Finding::new(Level::Unknown, Place::start(), problem, advice))
}

/// Whether a drop-in is a link to `/dev/null`, which disables the files of its name in other folders.
fn is_mask(file: &Path) -> bool {
    file.canonicalize().is_ok_and(|file| file == Path::new("/dev/null"))
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
            // systemd ignores hidden files.
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            if path.extension().is_some_and(|ending| ending == "conf") && !is_hidden {
                files.entry(entry.file_name()).or_insert(path);
            }
        }
    }
    files.into_values().collect()
}
