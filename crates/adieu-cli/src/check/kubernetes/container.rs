//! One container: its preStop hook, its environment, its command.

use std::time::Duration;

use super::maps::{self, Maps};
use crate::check::effects;
use crate::check::environment::Environment;
use crate::check::launch;
use crate::check::place::{Finding, Fix, InputError, Level, Place};
use crate::check::script::{Variables, Word};
use crate::check::stop_signal::StopSignal;
use crate::check::takes::{self, TimeTaken};
use crate::check::tree::Node;
use crate::check::workload::Workload;

const LEAVE_OUT: &str = "leave it out: the lame duck does its work";

/// Returns how long a preStop hook takes, if that can be seen.
pub(super) fn hook_takes(hook: &Node<'_>, variables: &Variables) -> Option<Duration> {
    if let Some(seconds) = hook.find(&["sleep", "seconds"]) {
        return seconds.number().ok().map(Duration::from_secs);
    }
    let words = words(&hook.get("exec")?);
    match takes::takes(&words, variables) {
        TimeTaken::AtMost(span) => Some(span),
        TimeTaken::Forever | TimeTaken::Unknown(_) => None,
    }
}

pub(super) fn pre_stop(
    container: &Node<'_>,
    variables: &Variables,
    workload: &mut Workload,
) -> Result<(), InputError> {
    let Some(hook) = container.find(&["lifecycle", "preStop"]) else { return Ok(()) };
    let handlers = ["sleep", "exec", "httpGet", "tcpSocket"];
    if handlers.iter().filter(|key| hook.get(key).is_some()).count() > 1 {
        return Err(hook.error("has several handlers, which the API server refuses: keep one"));
    }
    if let Some(sleep) = hook.get("sleep") {
        let Some(seconds) = sleep.get("seconds") else {
            return Err(sleep.error("there is no seconds: write sleep: {seconds: 5}"));
        };
        workload.pre_stop = Duration::from_secs(seconds.number()?);
        if workload.grace.span.is_some_and(|grace| workload.pre_stop > grace) {
            let problem = "sleeps longer than the grace period: the API server refuses it";
            let advice = "shorten it, or leave it out: the lame duck does its work";
            workload.findings.push(Finding::new(Level::Warning, seconds.place(), problem, advice));
        }
        return Ok(());
    }
    if let Some(exec) = hook.get("exec") {
        exec_before_stop(container, &exec, variables, workload);
        return Ok(());
    }
    if let Some(request) = hook.get("httpGet") {
        unseen(Duration::ZERO, request.place(), LEAVE_OUT, workload);
        return Ok(());
    }
    if let Some(socket) = hook.get("tcpSocket") {
        let problem = "the kubelet does not support it here: it fails, and waits no time";
        workload.findings.push(Finding::new(Level::Warning, socket.place(), problem, LEAVE_OUT));
        return Ok(());
    }
    Err(hook.error("must be sleep, exec or httpGet"))
}

/// Handles a preStop hook whose duration cannot be seen. The variable with the duration counts, if the
/// environment of the process has one. Otherwise the answer is unknown.
fn unseen(least: Duration, place: Place, advice: &str, workload: &mut Workload) {
    if let Some(seconds) = workload.stated.pre_stop {
        workload.pre_stop = Duration::from_secs(seconds);
        let problem = "how long this takes cannot be seen here: PRESTOP_SECONDS is counted";
        workload.findings.push(Finding::new(Level::Warning, place, problem, advice));
        return;
    }
    workload.pre_stop = least;
    let problem = "how long this takes cannot be seen here: SIGTERM comes after it, and the grace \
                   period runs meanwhile";
    let advice =
        format!("{advice}; or use sleep, or timeout in front of it, or set PRESTOP_SECONDS");
    let finding = Finding::new(Level::Unknown, place, problem, advice);
    workload.findings.push(finding.fixed_by(Fix::PreStop));
}

/// Returns the command of a hook.
pub(super) fn words(exec: &Node<'_>) -> Vec<Word> {
    let command = exec.get("command").map(|command| command.texts()).unwrap_or_default();
    command.into_iter().map(Word::of).collect()
}

fn exec_before_stop(
    container: &Node<'_>,
    exec: &Node<'_>,
    variables: &Variables,
    workload: &mut Workload,
) {
    let words = words(exec);
    let image = container.text_of("image").unwrap_or_default();
    if takes::is_bare(image) && takes::needs_a_shell(&words) {
        let problem = format!("{image} has neither sh nor sleep: this fails, and waits no time");
        let advice = "leave it out (the lame duck does its work), or use sleep: {seconds: …}";
        let finding = Finding::new(Level::Error, exec.place(), problem, advice);
        workload.findings.push(finding.fixed_by(Fix::PreStop));
        return;
    }
    let effects = effects::of(&words);
    let mut signals = effects.signals;
    // A script of which not all can be seen sends the signal of its `kill` to some process.
    if effects.is_unseen && words.iter().any(|word| word.text.contains("kill")) {
        signals.push("${…}".into());
    }
    for text in signals {
        let fix = "preStop without kill".into();
        workload.add_extra_signal(StopSignal { text, place: exec.place(), fix });
    }
    match takes::takes(&words, variables) {
        TimeTaken::AtMost(span) => workload.pre_stop = span,
        TimeTaken::Forever => {
            let problem = "never ends: SIGTERM comes when the grace period is over";
            let finding = Finding::new(Level::Error, exec.place(), problem, LEAVE_OUT);
            workload.findings.push(finding.fixed_by(Fix::PreStop));
        }
        TimeTaken::Unknown(least) => {
            let advice = "move it into a task of the shutdown, where it has a deadline";
            unseen(least, exec.place(), advice, workload);
        }
    }
}

/// Returns the variables of a container and its files, with those of the ConfigMaps and Secrets
/// that stand in the same file.
pub(super) fn environment(
    container: &Node<'_>,
    spec: &Node<'_>,
    maps: &Maps<'_>,
) -> Result<Environment, InputError> {
    let mut environment = Environment::default();
    for from in container.get("envFrom").map(|from| from.items()).unwrap_or_default() {
        let prefix = from.text_of("prefix").unwrap_or_default();
        match maps.referred(&from, ["configMapRef", "secretRef"], "name") {
            Some(entries) => {
                for (name, value, place) in entries {
                    environment.set_copied(&format!("{prefix}{name}"), value.as_deref(), place);
                }
            }
            None => environment.add_unseen(from.place()),
        }
    }
    for variable in container.get("env").map(|env| env.items()).unwrap_or_default() {
        let Some(name) = variable.text_of("name") else { continue };
        let place = variable.place();
        if let Some(from) = variable.get("valueFrom") {
            environment.set_copied(name, maps.value(&from).as_deref(), place);
            continue;
        }
        let value = variable.get("value");
        if let Some(typed) = value.as_ref().filter(|value| value.is_typed()) {
            return Err(
                typed.error("must be a text, which the API server insists on: put it in quotes")
            );
        }
        let value = value.as_ref().and_then(Node::text).unwrap_or_default();
        match expanded(value, &mut environment) {
            Expanded::Known(value) => environment.set(name, &value, place),
            Expanded::Shell(_) => environment.set_unseen(name, place),
        }
    }
    if let Some(folder) = container.text_of("workingDir") {
        environment.set_working_folder(folder);
    }
    maps::mounts(container, spec, maps, &mut environment);
    Ok(environment)
}

pub(super) fn stop_signal(container: &Node<'_>, workload: &mut Workload) {
    if let Some(signal) = container.find(&["lifecycle", "stopSignal"])
        && let Some(text) = signal.text()
    {
        let (text, fix) = (text.to_owned(), "stopSignal: SIGTERM".into());
        workload.signals.push(StopSignal { text, place: signal.place(), fix });
    }
}

pub(super) fn command(
    container: &Node<'_>,
    environment: &mut Environment,
    workload: &mut Workload,
) -> Result<(), InputError> {
    let lists: Vec<_> =
        ["command", "args"].into_iter().filter_map(|key| container.get(key)).collect();
    if let Some(text) = lists.iter().find(|list| list.text().is_some()) {
        return Err(
            text.error("must be a list, which the API server insists on: write [\"/app/orders\"]")
        );
    }
    let Some(first) = lists.first() else { return Ok(()) };
    let mut words = Vec::new();
    for text in lists.iter().flat_map(Node::texts) {
        words.push(match text.map(|text| expanded(text, environment)) {
            Some(Expanded::Known(text) | Expanded::Shell(text)) => Word::known(text),
            None => Word::of(None),
        });
    }
    let front = launch::front(&words, environment, &first.place());
    workload.findings.extend(front.finding(first.place()));
    Ok(())
}

/// A text in which the kubelet has replaced `$(NAME)`.
enum Expanded {
    Known(String),
    /// A variable whose value cannot be seen is not replaced. It has the syntax of a shell.
    Shell(String),
}

/// Replaces `$(NAME)` by the value that was set before, as the kubelet does. A name that is not set is
/// not replaced.
fn expanded(text: &str, environment: &mut Environment) -> Expanded {
    let (mut out, mut rest, mut is_known) = (String::new(), text, true);
    while let Some((before, after)) = rest.split_once('$') {
        out += before;
        rest = after;
        let name = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        };
        match name.filter(|(name, _)| is_name(name)) {
            // Twice stands for itself.
            _ if after.starts_with('$') => {
                out.push('$');
                rest = &after[1..];
            }
            Some((name, more)) if environment.has(name) || environment.has_unseen() => {
                rest = more;
                match environment.substitute(name) {
                    Some(value) => out += &value,
                    None => {
                        out += &format!("${{{name}}}");
                        is_known = false;
                    }
                }
            }
            Some(_) | None => out.push('$'),
        }
    }
    out += rest;
    if is_known { Expanded::Known(out) } else { Expanded::Shell(out) }
}
