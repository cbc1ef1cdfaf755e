//! Jobs of Nomad, as HCL and as JSON: one workload for each task.

use std::time::Duration;

use super::env_file::Dialect;
use super::environment::Environment;
use super::hcl::{self, LABEL};
use super::input::Manifest;
use super::place::{Finding, Fix, InputError, Level, Place};
use super::script::Word;
use super::signs::Sign;
use super::stop_signal::StopSignal;
use super::supervisor::{Grace, Supervisor};
use super::tree::Node;
use super::workload::{Format, Workload};
use super::{images, keys, launch, proxies, run_line, spans};

/// The keys of one dialect.
struct Keys {
    driver: &'static str,
    timeout: &'static str,
    signal: &'static str,
    env: &'static str,
    config: &'static str,
    templates: &'static str,
    env_of_template: &'static str,
    change_mode: &'static str,
    change_signal: &'static str,
    lifecycle: &'static str,
    vault: &'static str,
    /// The blocks that may signal the task when a value changes.
    changing: [&'static str; 4],
    data: &'static str,
    delimiter: &'static str,
    destination: &'static str,
    /// The blocks that limit where it runs, and their operator and value.
    constraint: [&'static str; 3],
    format: Format,
}

/// The job and the groups of a task.
struct Above<'a> {
    job: &'a Node<'a>,
    groups: &'a [Node<'a>],
    /// Findings about all of its tasks.
    findings: Vec<Finding>,
}

const HCL: Keys = Keys {
    driver: "driver",
    timeout: "kill_timeout",
    signal: "kill_signal",
    env: "env",
    config: "config",
    templates: "template",
    env_of_template: "env",
    change_mode: "change_mode",
    change_signal: "change_signal",
    lifecycle: "lifecycle",
    vault: "vault",
    changing: ["template", "vault", "identity", "consul"],
    data: "data",
    delimiter: "left_delimiter",
    destination: "destination",
    constraint: ["constraint", "operator", "value"],
    format: Format::Usual,
};

const JSON: Keys = Keys {
    driver: "Driver",
    timeout: "KillTimeout",
    signal: "KillSignal",
    env: "Env",
    config: "Config",
    templates: "Templates",
    env_of_template: "Envvars",
    change_mode: "ChangeMode",
    change_signal: "ChangeSignal",
    lifecycle: "Lifecycle",
    vault: "Vault",
    changing: ["Templates", "Vault", "Identities", "Consul"],
    data: "EmbeddedTmpl",
    delimiter: "LeftDelim",
    destination: "DestPath",
    constraint: ["Constraints", "Operand", "RTarget"],
    format: Format::NomadApi,
};

const COMPUTED: &str = "its value is computed, and cannot be seen here";

/// Returns whether a text is a job in HCL.
pub(crate) fn is_hcl(text: &str) -> bool {
    text.lines().any(|line| {
        let job = line.trim_start().strip_prefix("job ");
        job.is_some_and(|rest| rest.trim_end().ends_with('{') || rest.contains("\" {"))
    })
}

/// Returns whether a document is a job as Nomad's API writes it.
pub(crate) fn is_json(document: &Node<'_>) -> bool {
    document.get("Job").is_some() || document.get("TaskGroups").is_some()
}

pub(crate) fn read_hcl(
    text: &str,
    only: Option<&str>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    let tree = hcl::parse(text)?;
    for document in tree.documents() {
        for job in document.get("job").map(|jobs| jobs.items()).unwrap_or_default() {
            let name = job.text_of(LABEL).unwrap_or_default().to_owned();
            let groups = job.get("group").map(|groups| groups.items()).unwrap_or_default();
            for part in groups.iter().chain([&job]) {
                if let Some(dynamic) = part.get("dynamic") {
                    let problem = "blocks are made here that cannot be seen";
                    let advice = "render it: nomad job run -output JOB | adieu check --manifest -";
                    let unknown = Workload::unknown("job", &name, dynamic.place(), problem, advice);
                    into.add(unknown)?;
                }
            }
            let mut findings = keys::unknown(&document, &keys::nomad::FILE);
            findings.extend(keys::unknown(&job, &keys::nomad::JOB));
            let above = Above { job: &job, groups: &groups, findings };
            // A job may have a task without a group.
            let parts = groups.iter().chain([&job]);
            let tasks = parts.filter_map(|part| part.get("task")).flat_map(|all| all.items());
            let title = |task: &Node<'_>| task.text_of(LABEL).unwrap_or_default().to_owned();
            let tasks: Vec<_> = tasks.map(|task| (title(&task), task)).collect();
            read_tasks(&name, &tasks, &HCL, &above, only, into)?;
        }
    }
    Ok(())
}

pub(crate) fn read_json(
    document: &Node<'_>,
    only: Option<&str>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    let job = document.get("Job").unwrap_or_else(|| document.clone());
    let name = job.text_of("ID").or(job.text_of("Name")).unwrap_or_default();
    let groups = job.get("TaskGroups").map(|groups| groups.items()).unwrap_or_default();
    let findings = keys::unknown(&job, &keys::nomad::JSON_JOB);
    let above = Above { job: &job, groups: &groups, findings };
    let tasks = groups.iter().filter_map(|group| group.get("Tasks")).flat_map(|all| all.items());
    let title = |task: &Node<'_>| task.text_of("Name").unwrap_or_default().to_owned();
    let tasks: Vec<_> = tasks.map(|task| (title(&task), task)).collect();
    read_tasks(name, &tasks, &JSON, &above, only, into)
}

/// Adds the tasks of a job. Tasks that run a known image of another vendor are listed as skipped, unless
/// there are no others.
fn read_tasks(
    job: &str,
    tasks: &[(String, Node<'_>)],
    keys: &Keys,
    above: &Above<'_>,
    only: Option<&str>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    let is_other = |title: &str, task: &Node<'_>| {
        let config = block(task, keys.config);
        let image = config.as_ref().and_then(|config| config.text_of("image")).unwrap_or_default();
        let is_known = images::is_other(image) || proxies::is_helper(title, image);
        is_known && only != Some(title) && !environment(task, keys).is_of_adieu()
    };
    let only_others = tasks.iter().all(|(title, task)| is_other(title, task));
    for (title, task) in tasks {
        let whole = format!("{job}/{title}");
        if !only_others && is_other(title, task) {
            into.skip(task.place(), format!("task {whole} (--only {title} judges it)"));
        } else {
            read_task(&whole, task, keys, above, into)?;
        }
    }
    Ok(())
}

/// Returns the place of a constraint that allows Windows alone.
fn windows(at: &Node<'_>, keys: &Keys) -> Option<Place> {
    let [list, operator, value] = keys.constraint;
    let found = at.get(list)?;
    let all = if found.is_map() { vec![found] } else { found.items() };
    let one = all.into_iter().find(|one| {
        let value = one.text_of(value).unwrap_or_default().to_lowercase();
        match one.text_of(operator) {
            Some("!=" | "not") => value == "linux",
            _ => value.contains("windows"),
        }
    });
    one.map(|one| one.place())
}

// === impl Above ===

impl<'a> Above<'a> {
    fn parts(&self) -> impl Iterator<Item = &'a Node<'a>> {
        self.groups.iter().chain([self.job])
    }
}

fn is_known_driver(name: &str) -> bool {
    ["docker", "podman", "exec", "raw_exec"].contains(&name)
}

fn read_task(
    title: &str,
    task: &Node<'_>,
    keys: &Keys,
    above: &Above<'_>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    // A process of this library has a shutdown of its own, whenever it runs.
    if task.get(keys.lifecycle).is_some() && !environment(task, keys).is_of_adieu() {
        into.skip(task.place(), format!("task {title} (it has a lifecycle of its own)"));
        return Ok(());
    }
    let supervisor = match task.text_of(keys.driver) {
        Some("docker") => Supervisor::NomadDocker,
        _ => Supervisor::Nomad,
    };
    let mut workload = Workload::new(supervisor, "task", title, task.place());
    workload.format = keys.format;
    workload.findings.extend(above.findings.iter().cloned());
    let windows = above.parts().chain([task]).find_map(|at| windows(at, keys));
    workload.findings.extend(windows.map(run_line::on_windows));
    let driver = task.get(keys.driver);
    if let Some(driver) = driver.filter(|driver| !driver.text().is_some_and(is_known_driver)) {
        let problem = "how this driver stops a task is not known here";
        let advice = "use docker, podman, exec or raw_exec";
        workload.findings.push(Finding::new(Level::Unknown, driver.place(), problem, advice));
    }
    if let Some(timeout) = task.get(keys.timeout) {
        match timeout.text() {
            Some(text) => {
                // The API writes nanoseconds.
                let span = match text.parse() {
                    Ok(nanos) => Ok(Duration::from_nanos(nanos)),
                    Err(_) => spans::go(text).map_err(|problem| timeout.error(problem)),
                };
                workload.grace = Grace::said(Some(span?), timeout.place());
            }
            None => workload.hide_grace(timeout.place(), COMPUTED, "write the value"),
        }
    }
    if let Some(signal) = task.get(keys.signal) {
        match signal.text() {
            Some("") => {}
            Some(text) => {
                let (text, fix) = (text.to_owned(), "kill_signal = \"SIGTERM\"".into());
                workload.signals.push(StopSignal { text, place: signal.place(), fix });
            }
            None => {
                let finding =
                    Finding::new(Level::Unknown, signal.place(), COMPUTED, "write the value");
                let fix = Fix::Line("kill_signal = \"SIGTERM\"".into());
                workload.findings.push(finding.fixed_by(fix));
            }
        }
    }
    let is_first = is_first_process(task, keys);
    let changes = change_signals(task, above, keys).into_iter();
    workload.signals.extend(changes.filter(|signal| !is_first || signal.reaches_first_process()));
    let config = block(task, keys.config);
    if config.as_ref().and_then(|config| config.text_of("tty")).is_some_and(|tty| tty != "false") {
        workload.signs.terminal = Sign::Unseen;
    }
    let limits = config.as_ref().and_then(|config| block(config, "ulimit"));
    if let Some(limit) = limits.and_then(|limits| limits.get("cpu")) {
        let fix = Fix::Line("no cpu in ulimit".into());
        workload.findings.push(launch::limits_processor_time(limit.place()).fixed_by(fix));
    }
    let mut environment = environment(task, keys);
    if let Some(twice) = task.get(keys.config).filter(|config| config.items().len() > 1) {
        let problem = "there are several of these, and which one holds cannot be seen here";
        let finding = Finding::new(Level::Unknown, twice.place(), problem, "write one");
        workload.findings.push(finding);
    }
    if let Some(config) = block(task, keys.config) {
        let command =
            ["entrypoint", "command", "args"].into_iter().filter_map(|key| config.get(key));
        let command: Vec<_> = command.collect();
        if let Some(first) = command.first() {
            let words: Vec<_> = command.iter().flat_map(Node::texts).map(Word::of).collect();
            let front = launch::front(&words, &mut environment, &first.place());
            workload.findings.extend(front.finding(first.place()));
        }
    }
    environment.apply(&mut workload);
    into.add(workload)
}

/// Returns whether the service is the first process of a container. The kernel ignores a signal
/// that the first process does not handle, unless no process can handle it.
fn is_first_process(task: &Node<'_>, keys: &Keys) -> bool {
    let is_container = matches!(task.text_of(keys.driver), Some("docker" | "podman"));
    let others = ["init", "entrypoint", "command"];
    let config = block(task, keys.config);
    is_container && config.is_none_or(|config| others.iter().all(|key| config.get(key).is_none()))
}

/// Returns the signals that a task gets when a template or a secret changes. A process that does not
/// handle such a signal ends undrained.
fn change_signals(task: &Node<'_>, above: &Above<'_>, keys: &Keys) -> Vec<StopSignal> {
    let own = keys.changing.iter().filter_map(|key| task.get(key));
    // Tasks inherit the block of Vault.
    let inherited = above.parts().filter_map(|part| part.get(keys.vault));
    let blocks = own.chain(inherited);
    let blocks = blocks.flat_map(|found| if found.is_map() { vec![found] } else { found.items() });
    let modes = blocks.filter_map(|block| Some((block.get(keys.change_mode)?, block)));
    // A mode that is computed may be this one.
    let signals = modes.filter(|(mode, _)| mode.text().is_none_or(|mode| mode == "signal"));
    let signals = signals.map(|(_, block)| {
        let text = block.text_of(keys.change_signal).unwrap_or("${…}").to_owned();
        let fix = "change_mode = \"restart\"".into();
        StopSignal { text, place: block.place(), fix }
    });
    signals.collect()
}

/// A block that is there once, or an attribute that holds a map.
fn block<'a>(at: &Node<'a>, key: &str) -> Option<Node<'a>> {
    let found = at.get(key)?;
    if found.is_map() { Some(found) } else { found.items().into_iter().next() }
}

fn environment(task: &Node<'_>, keys: &Keys) -> Environment {
    let mut environment = Environment::default();
    let blocks = task.get(keys.templates).map(|all| all.items()).unwrap_or_default();
    for template in blocks {
        // Nomad fills in the text between the delimiters, which are double braces unless set.
        let data = template.text_of(keys.data).filter(|data| !data.contains("{{"));
        let delimiter = template.text_of(keys.delimiter).unwrap_or("{{");
        let data = data.filter(|_| ["", "{{"].contains(&delimiter));
        if template.text_of(keys.env_of_template) == Some("true") {
            match data {
                Some(data) => environment.add_lines(data, &template.place(), Dialect::Compose),
                None => environment.add_unseen(template.place()),
            }
        } else if let Some(path) = template.text_of(keys.destination) {
            let place = template.place();
            // The folder `local` of a task is at the root of its container.
            environment.mount(&format!("/{path}"), data.map(Into::into), place.clone());
            environment.mount(path, data.map(Into::into), place);
        }
    }
    if let Some(env) = task.get(keys.env).filter(Node::is_expression) {
        environment.add_unseen(env.place());
    }
    for (name, value) in block(task, keys.env).map(|env| env.entries()).unwrap_or_default() {
        match value.text() {
            Some(text) => environment.set(name, text, value.place()),
            None => environment.set_unseen(name, value.place()),
        }
    }
    environment
}
