//! Configurations of supervisord: one workload for each program.

use std::time::Duration;

use super::environment::Environment;
use super::ini::{Ini, Section, Setting};
use super::input::Manifest;
use super::launch;
use super::place::{Finding, Fix, Level, Wrong};
use super::script::{self, Word};
use super::stop_signal::StopSignal;
use super::workload::{Grace, Supervisor, Workload};

const PROGRAM: &str = "program:";

pub(crate) fn is_one(file: &Ini) -> bool {
    file.has("supervisord") || file.sections.iter().any(|found| found.name.starts_with(PROGRAM))
}

pub(crate) fn read(file: &Ini, into: &mut Manifest) -> Result<(), Wrong> {
    for section in &file.sections {
        if let Some(name) = section.name.strip_prefix(PROGRAM) {
            into.add(program(name, section, file)?)?;
        } else if ["fcgi-program:", "eventlistener:"]
            .iter()
            .any(|kind| section.name.starts_with(kind))
        {
            let problem = "how programs of this kind are stopped is not judged here";
            let advice = "make it a [program:…], or judge the others with --only";
            let place = section.place.clone();
            into.add(Workload::unknown("section", &section.name, place, problem, advice))?;
        } else if section.name == "include" {
            let problem = "the programs in these files are not read";
            let advice = "give each of them with --manifest";
            let place = section.place.clone();
            into.add(Workload::unknown("include", "", place, problem, advice))?;
        }
    }
    Ok(())
}

fn program(name: &str, section: &Section, file: &Ini) -> Result<Workload, Wrong> {
    let mut workload =
        Workload::new(Supervisor::Supervisord, "program", name, section.place.clone());
    let find = |key: &str| section.settings.iter().rev().find(|found| found.key == key);
    if let Some(setting) = find("stopwaitsecs") {
        let value = without_remark(&setting.value);
        if value.contains('%') {
            let problem = format!("which value {value} has cannot be seen here");
            workload.hide_grace(setting.place.clone(), problem, "write the number");
        } else {
            let problem = format!("must be a number of seconds such as 30, not {value}");
            let wrong = Wrong { place: setting.place.clone(), problem };
            let seconds = value.parse().map_err(|_| wrong)?;
            workload.grace = Grace::said(Some(Duration::from_secs(seconds)), setting.place.clone());
        }
    }
    if let Some(setting) = find("stopsignal") {
        let text = without_remark(&setting.value).to_owned();
        let fix = "stopsignal=TERM".into();
        workload.signals.push(StopSignal { text, place: setting.place.clone(), fix });
    }
    // The variables of supervisord itself are those of each program, too.
    let mut environment = Environment::default();
    for setting in file.last("supervisord", "environment").into_iter().chain(find("environment")) {
        add_variables(setting, &mut environment);
    }
    let is_yes = |setting: &&Setting| {
        ["true", "yes", "on", "1"].contains(&without_remark(&setting.value).to_lowercase().as_str())
    };
    let is_group = find("stopasgroup").filter(is_yes).is_some();
    if let Some(command) = find("command") {
        let words: Vec<_> =
            script::split(without_remark(&command.value)).into_iter().map(Word::known).collect();
        let front = launch::front(&words, &mut environment, &command.place);
        let place = command.place.clone();
        // The whole group is signalled then, with all that a shell has started.
        let finding = if is_group { front.finding_in_group(place) } else { front.finding(place) };
        workload.findings.extend(finding.map(|finding| {
            let advice = "write exec in front of the process, or stopasgroup=true";
            let fix = Fix::Line("stopasgroup=true".into());
            let is_exec = finding.fix == Fix::Exec;
            if is_exec { Finding { advice: advice.into(), fix, ..finding } } else { finding }
        }));
    }
    environment.apply(&mut workload);
    let problem = "whatever stops supervisord itself must wait longer than this";
    let advice = "check the unit or the container that it runs in, too";
    workload.findings.push(Finding::new(Level::Note, section.place.clone(), problem, advice));
    Ok(workload)
}

/// `A="1",B='2',C=3`, over several lines.
fn add_variables(setting: &Setting, environment: &mut Environment) {
    let (mut quote, mut pairs) = (None, vec![String::new()]);
    for c in setting.value.chars() {
        match (c, quote) {
            (',' | '\n', None) => pairs.push(String::new()),
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            (c, _) => pairs.last_mut().into_iter().for_each(|pair| pair.push(c)),
        }
    }
    for pair in pairs.iter().map(|pair| pair.trim()) {
        // supervisord fills in `%(ENV_NAME)s`.
        if let Some((name, value)) = pair.split_once('=') {
            environment.set_marked(name, value, '%', setting.place.clone());
        }
    }
}

/// A semicolon after white space begins a remark.
fn without_remark(value: &str) -> &str {
    value.split_once(" ;").map_or(value, |(value, _)| value).trim()
}
