//! One container: what is done before it is signalled, what it is told, what it starts.

use std::time::Duration;

use super::{Document, name_of};
use crate::check::environment::Environment;
use crate::check::place::{Finding, Fix, Level, Place, Wrong};
use crate::check::script::{Variables, Word};
use crate::check::shell::{self, Takes};
use crate::check::stop_signal::StopSignal;
use crate::check::tree::At;
use crate::check::workload::Workload;

const LEAVE_OUT: &str = "leave it out: the lame duck does its work";

/// How long a preStop hook takes, if that can be seen.
pub(super) fn hook_takes(hook: &At<'_>, variables: &Variables) -> Option<Duration> {
    if let Some(seconds) = hook.find(&["sleep", "seconds"]) {
        return seconds.number().ok().map(Duration::from_secs);
    }
    let words = words(&hook.get("exec")?);
    match shell::takes(&words, variables) {
        Takes::AtMost(span) => Some(span),
        Takes::Forever | Takes::Unknown(_) => None,
    }
}

pub(super) fn pre_stop(
    container: &At<'_>,
    variables: &Variables,
    workload: &mut Workload,
) -> Result<(), Wrong> {
    let Some(hook) = container.find(&["lifecycle", "preStop"]) else { return Ok(()) };
    if let Some(sleep) = hook.get("sleep") {
        let Some(seconds) = sleep.get("seconds") else {
            return Err(sleep.wrong("there is no seconds: write sleep: {seconds: 5}"));
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
    Err(hook.wrong("must be sleep, exec or httpGet"))
}

/// What cannot be seen of preStop is taken to be what the process is told of it. If it is told
/// nothing, nothing is known.
fn unseen(least: Duration, place: Place, advice: &str, workload: &mut Workload) {
    if let Some(seconds) = workload.told.pre_stop {
        workload.pre_stop = Duration::from_secs(seconds);
        let problem =
            "how long this takes cannot be seen here: taken to be what PRESTOP_SECONDS says";
        workload.findings.push(Finding::new(Level::Warning, place, problem, advice));
        return;
    }
    workload.pre_stop = least;
    let problem = "how long this takes cannot be seen here: SIGTERM comes after it, and the grace \
                   period runs meanwhile";
    let advice =
        format!("{advice}; or use sleep, or timeout in front of it, or say PRESTOP_SECONDS");
    let finding = Finding::new(Level::Unknown, place, problem, advice);
    workload.findings.push(finding.fixed_by(Fix::PreStop));
}

fn words(exec: &At<'_>) -> Vec<Word> {
    let command = exec.get("command").map(|command| command.texts()).unwrap_or_default();
    command.into_iter().map(Word::of).collect()
}

fn exec_before_stop(
    container: &At<'_>,
    exec: &At<'_>,
    variables: &Variables,
    workload: &mut Workload,
) {
    let words = words(exec);
    let image = container.text_of("image").unwrap_or_default();
    if shell::is_bare(image) && shell::needs_a_shell(&words) {
        let problem = format!("{image} has neither sh nor sleep: this fails, and waits no time");
        let advice = "leave it out (the lame duck does its work), or use sleep: {seconds: …}";
        let finding = Finding::new(Level::Error, exec.place(), problem, advice);
        workload.findings.push(finding.fixed_by(Fix::PreStop));
        return;
    }
    match shell::takes(&words, variables) {
        Takes::AtMost(span) => workload.pre_stop = span,
        Takes::Forever => {
            let problem = "never ends: SIGTERM comes when the grace period is over";
            let finding = Finding::new(Level::Error, exec.place(), problem, LEAVE_OUT);
            workload.findings.push(finding.fixed_by(Fix::PreStop));
        }
        Takes::Unknown(least) => {
            let advice = "move it into a task of the shutdown, where it has a deadline";
            unseen(least, exec.place(), advice, workload);
        }
    }
}

/// The variables of a container, with those of the ConfigMaps that stand in the same file.
pub(super) fn environment(container: &At<'_>, all: &[Document<'_>]) -> Environment {
    let mut environment = Environment::default();
    let map = |name: &str| {
        let maps = all.iter().filter(|document| document.kind == "ConfigMap");
        maps.map(|document| &document.at).find(|at| name_of(at) == name)?.get("data")
    };
    for from in container.get("envFrom").map(|from| from.items()).unwrap_or_default() {
        let name = from.find(&["configMapRef", "name"]).and_then(|name| name.text());
        let prefix = from.text_of("prefix").unwrap_or_default();
        match name.and_then(map) {
            Some(data) => {
                for (name, value) in data.entries() {
                    let name = format!("{prefix}{name}");
                    environment.set(&name, value.text().unwrap_or_default(), value.place());
                }
            }
            None => environment.add_unseen(from.place()),
        }
    }
    for variable in container.get("env").map(|env| env.items()).unwrap_or_default() {
        let Some(name) = variable.text_of("name") else { continue };
        let reference = variable.find(&["valueFrom", "configMapKeyRef"]);
        let referred =
            reference.and_then(|from| map(from.text_of("name")?)?.get(from.text_of("key")?));
        let value = referred.as_ref().or(variable.get("value").as_ref()).and_then(At::text);
        match value {
            // The kubelet replaces `$(OTHER)` by what has been set before.
            Some(value) => match value.strip_prefix("$(").and_then(|rest| rest.strip_suffix(')')) {
                Some(other) => match environment.values().get(other) {
                    Some(value) => environment.set(name, value, variable.place()),
                    None => environment.set_unseen(name, variable.place()),
                },
                None => environment.set(name, value, variable.place()),
            },
            None if variable.get("valueFrom").is_some() => {
                environment.set_unseen(name, variable.place());
            }
            None => environment.set(name, "", variable.place()),
        }
    }
    environment
}

pub(super) fn stop_signal(container: &At<'_>, workload: &mut Workload) {
    if let Some(signal) = container.find(&["lifecycle", "stopSignal"])
        && let Some(text) = signal.text()
    {
        let (text, fix) = (text.to_owned(), "stopSignal: SIGTERM".into());
        workload.signals.push(StopSignal { text, place: signal.place(), fix });
    }
}

pub(super) fn command(container: &At<'_>, variables: &Variables, workload: &mut Workload) {
    let lists: Vec<_> =
        ["command", "args"].into_iter().filter_map(|key| container.get(key)).collect();
    let Some(first) = lists.first() else { return };
    let words = lists.iter().flat_map(At::texts);
    let words: Vec<_> = words.map(|text| Word::of(text.map(expanded).as_deref())).collect();
    workload.findings.extend(shell::front(&words, variables).finding(first.place()));
}

/// The kubelet replaces `$(NAME)` before the command is run; a shell would write `${NAME}`.
fn expanded(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("$(") {
        let name = after.split_once(')').filter(|(name, _)| {
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty()
        });
        out += before;
        rest = match name {
            Some((name, more)) => {
                out += &format!("${{{name}}}");
                more
            }
            None => {
                out += "$(";
                after
            }
        };
    }
    out + rest
}
