//! Configurations of supervisord: one workload for each program.

use std::time::Duration;

use super::environment::Environment;
use super::ini::{Ini, Setting};
use super::input::Manifest;
use super::keys;
use super::launch::{self, Front};
use super::place::{Finding, Fix, InputError, Level, Place};
use super::programs::base;
use super::script::{self, Word};
use super::stop_signal::StopSignal;
use super::supervisor::{Grace, Supervisor};
use super::workload::Workload;

/// The kinds of sections whose programs are stopped in the same way.
const PROGRAMS: [&str; 2] = ["program:", "fcgi-program:"];

/// Programs that are not the service, and often run beside one.
const OTHERS: [&str; 22] = [
    "nginx",
    "apache2",
    "apache2ctl",
    "httpd",
    "haproxy",
    "caddy",
    "php-fpm",
    "redis-server",
    "valkey-server",
    "memcached",
    "postgres",
    "mysqld",
    "mysqld_safe",
    "mariadbd",
    "mongod",
    "rabbitmq-server",
    "cron",
    "crond",
    "sshd",
    "rsyslogd",
    "fluent-bit",
    "node_exporter",
];

/// The section whose settings apply to each section that does not set them itself.
const DEFAULT: &str = "DEFAULT";

pub(crate) fn is_one(file: &Ini) -> bool {
    let is_program =
        |name: &str| PROGRAMS.iter().chain(&["eventlistener:"]).any(|kind| name.starts_with(kind));
    file.has("supervisord") || file.sections.iter().any(|found| is_program(&found.name))
}

pub(crate) fn read(file: &Ini, only: Option<&str>, into: &mut Manifest) -> Result<(), InputError> {
    let mut seen = Vec::new();
    let program_of = |section: &str| {
        PROGRAMS.iter().find_map(|kind| section.strip_prefix(kind)).map(str::to_owned)
    };
    let is_other = |section: &str| {
        program_of(section)
            .is_some_and(|program| only != Some(program.as_str()) && runs_other(file, section))
    };
    let mut sections = file.sections.iter().map(|section| section.name.as_str());
    let has_own = sections.any(|name| program_of(name).is_some() && !is_other(name));
    for section in &file.sections {
        let name = section.name.as_str();
        let place = section.place.clone();
        // supervisord merges sections of the same name.
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        if has_own && is_other(name) {
            let program = program_of(name).unwrap_or_default();
            into.skip(place, format!("program {program} (--only {program} judges it)"));
        } else if let Some(program) = program_of(name) {
            into.add(self::program(&program, name, &place, file)?)?;
        } else if name.starts_with("eventlistener:") {
            // An event listener serves supervisord itself, on its standard input.
            into.skip(place, "event listener".into());
        } else if name == "include" {
            let problem = "the programs in these files are not read";
            let advice = "give each of them with --manifest";
            into.add(Workload::unknown("include", "", place, problem, advice))?;
        }
    }
    Ok(())
}

/// Returns whether a section runs one of [`OTHERS`], and sets no variable of adieu.
fn runs_other(file: &Ini, section: &str) -> bool {
    let Some(command) = find(file, section, "command") else { return false };
    let words: Vec<_> = script::split(&command.value).into_iter().map(Word::known).collect();
    let mut environment = Environment::default();
    if let Some(setting) = find(file, section, "environment") {
        add_variables(setting, &mut environment);
    }
    let is_other = |name: &str| {
        // Packages add their version, such as php-fpm8.2.
        let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        OTHERS.contains(&name) || OTHERS.contains(&unversioned)
    };
    words.first().is_some_and(|first| is_other(base(first))) && !environment.is_of_adieu()
}

fn program(name: &str, section: &str, at: &Place, file: &Ini) -> Result<Workload, InputError> {
    let mut workload = Workload::new(Supervisor::Supervisord, "program", name, at.clone());
    let find = |key: &str| find(file, section, key);
    if let Some(setting) = find("stopwaitsecs") {
        let value = setting.value.as_str();
        if value.contains('%') {
            let problem = format!("which value {value} has cannot be seen here");
            workload.hide_grace(setting.place.clone(), problem, "write the number");
        } else {
            let problem = format!("must be a number of seconds such as 30, not {value}");
            let wrong = InputError { place: setting.place.clone(), problem };
            let seconds = value.parse().map_err(|_| wrong)?;
            workload.grace = Grace::said(Some(Duration::from_secs(seconds)), setting.place.clone());
        }
    }
    if let Some(setting) = find("stopsignal") {
        let (text, fix) = (setting.value.clone(), "stopsignal=TERM".into());
        workload.signals.push(StopSignal { text, place: setting.place.clone(), fix });
    }
    // Each program inherits the variables of supervisord itself.
    let mut environment = Environment::default();
    let outer = self::find(file, "supervisord", "environment");
    for setting in outer.into_iter().chain(find("environment")) {
        add_variables(setting, &mut environment);
    }
    if let Some(command) = find("command") {
        let words: Vec<_> = script::split(&command.value).into_iter().map(Word::known).collect();
        let front = launch::front(&words, &mut environment, &command.place);
        let group = find("stopasgroup").filter(|setting| !is_off(&setting.value));
        let place = command.place.clone();
        workload.findings.extend(match (front, group) {
            // The process also gets the signal, but supervisord does not wait for it.
            (Front::Shell, Some(_)) => {
                let problem = "the shell ends at the signal, and supervisord takes the program for \
                               stopped while the process still drains";
                let advice = "make the process itself the command";
                let finding = Finding::new(Level::Unknown, place, problem, advice);
                // Here the shell is certain to end first, so `--execs` must not remove the finding.
                Some(finding.fixed_by(Fix::Line("the process itself as the command".into())))
            }
            (front, _) => front.finding(place),
        });
    }
    environment.apply(&mut workload);
    let is_known = |name: &str| {
        let mut all = keys::supervisord::SECTIONS.iter();
        all.any(|known| name == *known || known.ends_with(':') && name.starts_with(known))
    };
    workload.findings.extend(keys::unknown_sections(file, is_known));
    for (section, table) in
        [(section, &keys::supervisord::PROGRAM), ("supervisord", &keys::supervisord::SUPERVISORD)]
    {
        workload.findings.extend(keys::unknown_settings(file.settings(section), table));
    }
    let problem = "the platform that stops supervisord itself must wait longer than this";
    let advice = "check the unit or the container that it runs in, too";
    // In the foreground, it is usually the first process of a container.
    let foreground = self::find(file, "supervisord", "nodaemon");
    let (level, place) = match foreground.filter(|setting| !is_off(&setting.value)) {
        Some(setting) => (Level::Warning, setting.place.clone()),
        None => (Level::Note, at.clone()),
    };
    workload.findings.push(Finding::new(level, place, problem, advice));
    Ok(workload)
}

/// Returns the last value of a key, in the section itself or in the defaults of all sections.
fn find<'a>(file: &'a Ini, section: &'a str, key: &str) -> Option<&'a Setting> {
    let last = |section| file.settings(section).filter(|found| found.key == key).last();
    last(section).or_else(|| last(DEFAULT))
}

fn is_off(value: &str) -> bool {
    ["false", "no", "off", "0"].contains(&value.to_lowercase().as_str())
}

/// Adds the variables of a setting such as `A="1",B='2',C=3`, which may have several lines.
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
        // supervisord replaces `%(ENV_NAME)s`.
        if let Some((name, value)) = pair.split_once('=') {
            environment.set_marked(name, value, '%', setting.place.clone());
        }
    }
}
