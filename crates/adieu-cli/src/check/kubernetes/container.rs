//! One container: what is done before it is signalled, what it is told, what it starts.

use std::time::Duration;

use crate::check::command;
use crate::check::place::{Finding, Level, Place, Wrong};
use crate::check::workload::{Grace, Told};
use crate::check::yaml::At;

/// What preStop comes to.
#[derive(Default)]
pub(super) struct PreStop {
    pub(super) waits: Duration,
    /// It fails at once, so that it does not wait.
    pub(super) fails: bool,
}

/// What cannot be seen of preStop is taken to be what the process is told of it.
fn unseen(waits: Duration, told: Told, place: Place, advice: &str) -> (PreStop, Finding) {
    let (waits, how) = match told.pre_stop {
        Some(seconds) => (Duration::from_secs(seconds), "taken to be what PRESTOP_SECONDS says"),
        None if waits.is_zero() => (waits, "counted as nothing"),
        None => (waits, "only its sleep is counted"),
    };
    let problem = format!("how long this takes cannot be seen here: {how}");
    let finding = Finding::new(Level::Warning, place, &problem, advice);
    (PreStop { waits, fails: false }, finding)
}

pub(super) fn pre_stop(
    container: &At<'_>,
    grace: &Grace,
    told: Told,
    findings: &mut Vec<Finding>,
) -> Result<PreStop, Wrong> {
    let Some(hook) = container.find(&["lifecycle", "preStop"]) else {
        return Ok(PreStop::default());
    };
    if let Some(sleep) = hook.get("sleep") {
        let Some(seconds) = sleep.get("seconds") else {
            return Err(sleep.wrong("there is no seconds: write sleep: {seconds: 5}"));
        };
        let waits = Duration::from_secs(seconds.number()?);
        if grace.span.is_some_and(|grace| waits > grace) {
            let problem = "sleeps longer than the grace period: the API server refuses it";
            let advice = "shorten it, or leave it out: the lame duck does its work";
            findings.push(Finding::new(Level::Error, seconds.place(), problem, advice));
        }
        return Ok(PreStop { waits, fails: false });
    }
    if let Some(exec) = hook.get("exec") {
        return Ok(exec_before_stop(container, &exec, told, findings));
    }
    if let Some(request) = hook.get("httpGet") {
        let advice = "leave it out: the lame duck does its work";
        let (pre_stop, finding) = unseen(Duration::ZERO, told, request.place(), advice);
        findings.push(finding);
        return Ok(pre_stop);
    }
    Err(hook.wrong("must be sleep, exec or httpGet"))
}

fn exec_before_stop(
    container: &At<'_>,
    exec: &At<'_>,
    told: Told,
    findings: &mut Vec<Finding>,
) -> PreStop {
    let words = exec.get("command").map(|command| command.items()).unwrap_or_default();
    let words: Vec<&str> = words.iter().filter_map(At::text).collect();
    let image = container.get("image").and_then(|image| image.text()).unwrap_or_default();
    if command::is_bare(image) && command::needs_a_shell(&words) {
        let problem = format!("{image} has neither sh nor sleep: this fails, and waits no time");
        let advice = "leave it out (the lame duck does its work), or use sleep: {seconds: …}";
        findings.push(Finding::new(Level::Error, exec.place(), &problem, advice));
        return PreStop { waits: Duration::ZERO, fails: true };
    }
    let (waits, rest) = command::sleeps(&words);
    if rest {
        let advice = "move it into a task of the shutdown, where it has a deadline";
        let (pre_stop, finding) = unseen(waits, told, exec.place(), advice);
        findings.push(finding);
        return pre_stop;
    }
    PreStop { waits, fails: false }
}

/// Takes what its environment says of the grace period. Where it does, if it does.
pub(super) fn hear(
    container: &At<'_>,
    told: &mut Told,
    findings: &mut Vec<Finding>,
) -> Option<Place> {
    let mut told_at = None;
    for variable in container.get("env").map(|env| env.items()).unwrap_or_default() {
        let name = variable.get("name").and_then(|name| name.text());
        let value = variable.get("value").and_then(|value| value.text());
        let (Some(name), Some(value)) = (name, value) else { continue };
        if told.hear(name, value) {
            told_at = Some(variable.place());
        }
        if name.starts_with("ADIEU__") {
            let problem = format!("{name} overrides the configuration, and does not count here");
            let advice = "put it into the configuration, or set it for this command, too";
            findings.push(Finding::new(Level::Warning, variable.place(), &problem, advice));
        }
    }
    told_at
}

pub(super) fn look_at_command(container: &At<'_>, findings: &mut Vec<Finding>) {
    let Some(list) = ["command", "args"].into_iter().find_map(|key| container.get(key)) else {
        return;
    };
    let words = ["command", "args"].into_iter().filter_map(|key| container.get(key));
    let words: Vec<At<'_>> = words.flat_map(|list| list.items()).collect();
    let words: Vec<&str> = words.iter().filter_map(At::text).collect();
    findings.extend(command::shell_in_front(&words, list.place()));
}
