//! `fly.toml`: how Fly stops a machine.

use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::base64;
use super::environment::Environment;
use super::input::{Manifest, Source};
use super::place::{Finding, InputError, Level, Place};
use super::script::{self, Word};
use super::spans;
use super::stop_signal::StopSignal;
use super::supervisor::{Grace, Supervisor};
use super::tree::{DEEPEST, Id, Node, Nodes, Tree, too_deep};
use super::workload::Workload;
use super::{keys, launch};

/// The signal that Fly sends by default.
const DEFAULT_SIGNAL: &str = "SIGINT";

/// Returns whether a text is TOML with the keys of Fly, by its name or by its first key.
pub(crate) fn is_one(source: &Source<'_>) -> bool {
    let name = source.path.and_then(|path| path.file_name()).and_then(|name| name.to_str());
    let is_named = name.is_some_and(|name| name.starts_with("fly.") && name.ends_with(".toml"));
    let first =
        source.text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let begins = first.and_then(|line| line.split_once('=')).is_some_and(|(key, value)| {
        ["app", "primary_region", "kill_signal", "kill_timeout"].contains(&key.trim())
            && value
                .trim()
                .starts_with(['"', '\'', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
    });
    is_named || begins
}

pub(crate) fn read(source: &Source<'_>, into: &mut Manifest) -> Result<(), InputError> {
    let tree = parse(source.text)?;
    let Some(document) = tree.documents().next() else { return Ok(()) };
    let name = document.text_of("app").unwrap_or(source.name);
    let processes = document.get("processes").map(|all| all.entries()).unwrap_or_default();
    if processes.is_empty() {
        return into.add(machine(name, &document, None, source)?);
    }
    for (process, command) in processes {
        let mut workload = machine(name, &document, Some(&command), source)?;
        workload.container = process.into();
        into.add(workload)?;
    }
    Ok(())
}

fn machine(
    name: &str,
    document: &Node<'_>,
    command: Option<&Node<'_>>,
    source: &Source<'_>,
) -> Result<Workload, InputError> {
    let mut workload = Workload::new(Supervisor::Fly, "app", name, document.place());
    if let Some(timeout) = document.get("kill_timeout") {
        let text = timeout.text().ok_or_else(|| timeout.error("must be a duration such as 30s"))?;
        // A number alone is in seconds; a text needs a unit.
        let span = match timeout.number() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => spans::go(text).map_err(|problem| timeout.error(problem))?,
        };
        workload.grace = Grace::said(Some(span), timeout.place());
    }
    let signal = document.get("kill_signal");
    let text = signal.as_ref().and_then(Node::text).unwrap_or(DEFAULT_SIGNAL).to_owned();
    let place = signal.map_or(Place::start(), |signal| signal.place());
    workload.signals.push(StopSignal { text, place, fix: "kill_signal = \"SIGTERM\"".into() });
    workload.findings.extend(suspends(document));
    let mut environment = Environment::default();
    for (name, value) in document.get("env").map(|env| env.entries()).unwrap_or_default() {
        match value.text() {
            Some(text) => environment.set(name, text, value.place()),
            None => environment.set_unseen(name, value.place()),
        }
    }
    for file in document.get("files").map(|files| files.items()).unwrap_or_default() {
        if let Some(path) = file.text_of("guest_path") {
            let local = || Some(source.beside(file.text_of("local_path")?)?.1);
            let text = file.text_of("raw_value").and_then(base64::decoded).or_else(local);
            environment.mount(path, text, file.place());
        }
    }
    let experimental = document.get("experimental");
    let words = |at: &Node<'_>| -> Vec<Word> {
        match at.text() {
            Some(text) => script::split(text).into_iter().map(Word::known).collect(),
            None => at.texts().into_iter().map(Word::of).collect(),
        }
    };
    let entrypoint = experimental.as_ref().and_then(|found| found.get("entrypoint"));
    let arguments =
        command.cloned().or_else(|| experimental.as_ref().and_then(|found| found.get("cmd")));
    if let Some(place) = entrypoint.as_ref().or(arguments.as_ref()).map(Node::place) {
        let all: Vec<_> = entrypoint.iter().chain(arguments.iter()).flat_map(words).collect();
        let front = launch::front(&all, &mut environment, &place);
        workload.findings.extend(front.finding(place));
    }
    environment.apply(&mut workload);
    workload.findings.extend(keys::unknown(document, &keys::fly::APP));
    Ok(workload)
}

/// Returns the finding about a service whose idle machines are suspended.
fn suspends(document: &Node<'_>) -> Option<Finding> {
    let services = document.get("services").map(|all| all.items()).unwrap_or_default();
    let services = document.get("http_service").into_iter().chain(services);
    let stops = services.filter_map(|service| service.get("auto_stop_machines"));
    let suspend = stops.into_iter().find(|stop| stop.text() == Some("suspend"))?;
    let problem = "a machine that is suspended gets no signal, and its connections break";
    let advice = "write stop, so that the process drains";
    Some(Finding::new(Level::Warning, suspend.place(), problem, advice))
}

/// TOML as a tree.
fn parse(text: &str) -> Result<Tree, InputError> {
    let breaks: Vec<_> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line_of = |at: usize| breaks.partition_point(|line_break| *line_break < at) + 1;
    let parsed = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(span.start));
        InputError::at(line, format!("this is not TOML: {}", error.message()))
    })?;
    let mut nodes = Nodes::default();
    let root = table(&mut nodes, 1, parsed.get_ref(), &line_of, 0)?;
    Ok(nodes.into_tree(vec![root]))
}

fn table(
    nodes: &mut Nodes,
    line: usize,
    entries: &DeTable<'_>,
    line_of: &dyn Fn(usize) -> usize,
    depth: usize,
) -> Result<Id, InputError> {
    let mut pairs = Vec::new();
    for (key, entry) in entries {
        let at = line_of(key.span().start);
        let key = nodes.scalar(at, key.get_ref(), false)?;
        pairs.push((key, value(nodes, at, entry.get_ref(), line_of, depth + 1)?));
    }
    nodes.map(line, pairs)
}

fn value(
    nodes: &mut Nodes,
    line: usize,
    found: &DeValue<'_>,
    line_of: &dyn Fn(usize) -> usize,
    depth: usize,
) -> Result<Id, InputError> {
    if depth > DEEPEST {
        return Err(InputError::at(line, too_deep()));
    }
    match found {
        DeValue::String(text) => nodes.scalar(line, text, false),
        DeValue::Integer(number) => nodes.scalar(line, number.as_str(), true),
        DeValue::Float(number) => nodes.scalar(line, number.as_str(), true),
        DeValue::Boolean(yes) => nodes.scalar(line, if *yes { "true" } else { "false" }, true),
        DeValue::Datetime(time) => nodes.scalar(line, &time.to_string(), true),
        DeValue::Array(items) => {
            let mut ids = Vec::new();
            for item in items.iter() {
                let at = line_of(item.span().start);
                ids.push(value(nodes, at, item.get_ref(), line_of, depth + 1)?);
            }
            nodes.list(line, ids)
        }
        DeValue::Table(entries) => table(nodes, line, entries, line_of, depth + 1),
    }
}
