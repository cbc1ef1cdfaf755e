//! systemd units: the keys of `[Service]` that say how it is stopped.

use std::path::Path;

use super::command;
use super::input::Manifest;
use super::place::{Finding, Level, Place, Wrong, printable};
use super::spans;
use super::workload::{Grace, Supervisor, Told, Workload};

/// Whether a text is a unit, and not YAML: its first line that says anything names a section.
pub(crate) fn is_one(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !is_remark(line));
    first.is_some_and(|line| section(line).is_some_and(|name| name.chars().all(is_of_section)))
}

fn is_of_section(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

/// A key of `[Service]` and what it is set to.
struct Setting {
    key: String,
    value: String,
    line: usize,
}

/// Says so if there are drop-ins beside a unit: they are not read with it.
pub(crate) fn drop_ins_of(unit: &Path) -> Option<Finding> {
    let mut beside = unit.as_os_str().to_owned();
    beside.push(".d");
    let mut files = std::fs::read_dir(beside).ok()?.filter_map(Result::ok);
    files.find(|file| file.path().extension().is_some_and(|ending| ending == "conf"))?;
    let problem = "there are drop-ins beside it, which are not looked at";
    let advice = "judge the whole: systemctl cat NAME | adieu check --manifest -";
    Some(Finding::new(Level::Warning, Place::start(), problem, advice))
}

pub(crate) fn read(text: &str, name: &str, into: &mut Manifest) -> Result<(), Wrong> {
    let Service { settings, line } = settings(&printable(text))?;
    let Some(line) = line else {
        return Err(Wrong::at(1, "there is no [Service]: only services are stopped like this"));
    };
    let mut findings = Vec::new();
    let here = Place { line, path: "Service".into() };
    let habit = || Grace::habit_of(Supervisor::Systemd, here.clone());
    let (mut grace, mut told, mut told_at) = (habit(), Told::default(), None);
    for setting in &settings {
        let wrong = |problem| Wrong { place: setting.place(), problem };
        match setting.key.as_str() {
            // Later ones win, as in drop-ins; and one that is empty takes back what was said.
            "TimeoutStopSec" | "TimeoutSec" => {
                grace = match setting.value.as_str() {
                    "" => habit(),
                    value => Grace::said(spans::systemd(value).map_err(wrong)?, setting.place()),
                };
            }
            "Environment" if setting.hear(&mut told) => told_at = Some(setting.place()),
            _ => {}
        }
    }
    let last = |key: &str| settings.iter().rev().find(|setting| setting.key == key);
    let mut say = |setting: &Setting, problem: &str, advice: &str| {
        findings.push(Finding::new(Level::Warning, setting.place(), problem, advice));
    };
    if let Some(signal) = last("KillSignal")
        && !["", "SIGTERM", "TERM", "15"].contains(&signal.value.as_str())
    {
        let problem = format!("{} is sent, not SIGTERM", signal.value);
        say(signal, &problem, "leave it out, unless the process listens to that signal");
    }
    if let Some(mode) = last("KillMode") {
        let advice = "leave it out, or write mixed: the main process is told, all are killed";
        match mode.value.as_str() {
            "process" => say(mode, "what the process has started is left behind", advice),
            "none" => say(mode, "nobody is told to stop, and nobody is killed", advice),
            _ => {}
        }
    }
    if let Some(kills) = last("SendSIGKILL")
        && ["no", "off", "false", "0"].contains(&kills.value.as_str())
    {
        say(kills, "a process that hangs is never killed", "leave it out");
    }
    if let Some(stop) = last("ExecStop").filter(|stop| !stop.value.is_empty()) {
        let problem = "runs before SIGTERM, with a time limit of its own: not counted";
        say(stop, problem, "leave it out: SIGTERM is all that it takes");
    }
    if let Some(start) = last("ExecStart") {
        let command = start.value.trim_start_matches(['@', '-', ':', '+', '!']);
        let words: Vec<_> = command.splitn(3, char::is_whitespace).collect();
        let unquoted: Vec<_> = words.iter().map(|word| word.trim_matches(['"', '\''])).collect();
        findings.extend(command::shell_in_front(&unquoted, start.place()));
    }
    let kind = last("Type");
    if !kind.is_some_and(|kind| kind.value.starts_with("notify")) {
        let place = kind.map_or(Place { line, path: "Service.Type".into() }, Setting::place);
        let problem = "systemd is not told of readiness, nor asked for more time while stopping";
        let advice = "write Type=notify, with the feature `systemd` in the process";
        findings.push(Finding::new(Level::Warning, place, problem, advice));
    }
    into.add(Workload {
        kind: "unit".into(),
        name: name.into(),
        place: Place { line, path: String::new() },
        supervisor: Supervisor::Systemd,
        grace,
        told,
        told_at,
        routed: false,
        findings,
        ..Workload::nameless()
    })
}

/// What `[Service]` says, and where it begins.
struct Service {
    settings: Vec<Setting>,
    line: Option<usize>,
}

/// The sections of that name, in order.
fn settings(text: &str) -> Result<Service, Wrong> {
    let mut service = Service { settings: Vec::new(), line: None };
    let mut is_service = false;
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let (number, mut line) = (at + 1, line.trim().to_owned());
        if is_remark(&line) {
            continue;
        }
        if let Some(name) = section(&line) {
            is_service = name == "Service";
            if is_service {
                service.line.get_or_insert(number);
            }
            continue;
        }
        while line.ends_with('\\') {
            line.pop();
            // Remarks in between do not end it.
            let Some((_, more)) =
                lines.by_ref().find(|(_, line)| !line.trim().starts_with(['#', ';']))
            else {
                break;
            };
            line.truncate(line.trim_end().len());
            line.push(' ');
            line.push_str(more.trim());
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(Wrong::at(number, "must be KEY=VALUE, a [Section], or a # remark"));
        };
        if is_service {
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            service.settings.push(Setting { key, value, line: number });
        }
    }
    Ok(service)
}

fn is_remark(line: &str) -> bool {
    line.is_empty() || line.starts_with(['#', ';'])
}

fn section(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.strip_suffix(']')
}

// === impl Setting ===

impl Setting {
    fn place(&self) -> Place {
        Place { line: self.line, path: format!("Service.{}", self.key) }
    }

    /// `A=1 "B=2"`.
    fn hear(&self, told: &mut Told) -> bool {
        if self.value.is_empty() {
            *told = Told::default();
        }
        let words = self.value.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
        let all = words.filter_map(|word| word.split_once('='));
        all.fold(false, |heard, (name, value)| told.hear(name, value) || heard)
    }
}
