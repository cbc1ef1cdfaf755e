//! The findings that follow from the sums and from the numbers of a manifest.

use adieu::{KillAfter, Times};

use super::arithmetic::{Facts, Sums};
use super::place::{Finding, Fix, Level, Location};
use super::stop_signal::StopSignal;
use super::supervisor::{Cap, Supervisor};
use super::workload::{GRACE_VAR, OtherStop, PRE_STOP_VAR, STOP_TIMEOUT, Workload};
use crate::duration::span;

/// `all` are the sums for each time that the process may assume to have, the likeliest first.
pub(super) fn judge(
    times: &Times,
    workload: &Workload,
    all: &[Sums],
    facts: Facts,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some((sums, others)) = all.split_first().filter(|_| !workload.is_opaque) else {
        return findings;
    };
    findings.extend(time(workload, sums, others));
    findings.extend(capped(workload));
    findings.extend(routing(sums));
    findings.extend(sooner(times, sums));
    findings.extend(belief(times, workload, sums, others));
    findings.extend(uncertain(workload, sums, others));
    findings.extend(default_stop_timeout(workload, sums, times));
    findings.extend(asked(workload, sums, times));
    findings.extend(workload.signals.iter().filter_map(|signal| stop_signal(signal, facts)));
    findings.extend(signalled_again(workload, sums, facts));
    findings.extend(twice(workload, sums));
    findings.extend(probes(workload, sums));
    findings.extend(other_stops(workload, sums));
    findings.extend(readiness(times, workload, sums));
    findings
}

/// Checks whether there is time enough.
fn time(workload: &Workload, sums: &Sums, others: &[Sums]) -> Option<Finding> {
    let grace = sums.grace.filter(|_| !sums.has_time())?;
    let (needed, short) = (span(sums.needed()), span(sums.needed() - grace));
    let enough = span(sums.enough);
    let is_set = workload.grace.span.is_none_or(|said| said >= sums.needed());
    let (level, advice) = match &workload.cap {
        // The key is long enough, and whether the limit cuts it cannot be seen.
        Some(Cap { key: Some(key), assumed: true, .. }) if is_set => (
            Level::Unknown,
            format!("set {key} to {enough} or more, and pass --max-kill-timeout {enough}"),
        ),
        Some(Cap { key: None, most, .. }) if sums.enough > *most => {
            (Level::Error, format!("{} is the most there: shorten phases", span(*most)))
        }
        Some(_) | None => (Level::Error, format!("give it {enough} or more, or shorten phases")),
    };
    // If the process has its deadline, it needs less.
    let (level, needs) = match others.iter().any(is_enough) {
        true => (level.max(Level::Unknown), "may need"),
        false => (level, "needs"),
    };
    let problem = format!("{needs} {needed}, grace period is {} ({short} short)", span(grace));
    Some(Finding::new(level, workload.grace.place.clone(), problem, advice))
}

/// Checks whether the platform waits for less time than the manifest sets.
fn capped(workload: &Workload) -> Option<Finding> {
    let cap = workload.cap.as_ref()?;
    let said = workload.grace.span.filter(|said| *said > cap.most)?;
    let (said, most) = (span(said), span(cap.most));
    let (problem, advice) = match cap.key {
        Some(key) if cap.assumed => (
            format!("{said} is cut to {key}, {most} unless it is set"),
            "pass --max-kill-timeout if it is set to more".to_owned(),
        ),
        Some(key) => (format!("{said} is cut to {key}, {most}"), format!("raise {key}")),
        None => (format!("{said} is cut to {most}, the most there"), format!("write {most}")),
    };
    Some(Finding::new(Level::Warning, workload.grace.place.clone(), problem, advice))
}

/// Checks whether the process handles the signal that it is sent.
fn stop_signal(signal: &StopSignal, facts: Facts) -> Option<Finding> {
    let StopSignal { text, place, fix } = signal;
    if facts.handled.handles(signal) {
        return None;
    }
    let (level, problem) = if signal.is_unseen() {
        (Level::Unknown, format!("which signal {text} is cannot be seen here"))
    } else if signal.is_uncatchable() {
        (Level::Error, format!("{text} is sent, which no process can handle: nothing is drained"))
    } else {
        let problem =
            format!("{text} is sent, which the process does not handle: it ends undrained");
        (Level::Error, problem)
    };
    let advice = match signal.is_uncatchable() {
        true => "send SIGTERM",
        false => "send SIGTERM, or pass --signals if the process handles others",
    };
    let finding = Finding::new(level, place.clone(), problem, advice);
    Some(finding.fixed_by(Fix::Line(fix.clone())))
}

/// Checks whether the platform's signal is not the first one. A second signal ends the lame duck,
/// and a second SIGINT or a third SIGTERM is a hard stop.
fn signalled_again(workload: &Workload, sums: &Sums, facts: Facts) -> Option<Finding> {
    // A signal that is not handled ends the process, and is reported as that.
    let extra = workload.extra_signals.iter().find(|signal| facts.handled.handles(signal))?;
    let is_only_hurried = workload.extra_signals.len() == 1
        && workload.signals.iter().all(StopSignal::is_term)
        && sums.lag.is_zero();
    let (level, problem) = if is_only_hurried {
        (Level::Warning, "the platform sends SIGTERM, too: the second one ends the lame duck")
    } else {
        let problem = "the platform sends its signal, too: a second one ends the lame duck, and a \
                       second SIGINT or a third SIGTERM cancels the shutdown";
        (Level::Unknown, problem)
    };
    let advice = "leave it out: the platform's signal is enough";
    let finding = Finding::new(level, extra.place.clone(), problem, advice);
    Some(finding.fixed_by(Fix::Line(extra.fix.clone())))
}

/// Checks whether routers have moved away in time.
fn routing(sums: &Sums) -> Option<Finding> {
    let (lag, covered) = (span(sums.lag), span(sums.covered()));
    (!sums.has_routed()).then(|| Finding {
        level: Level::Error,
        place: Location::Config("lame-duck"),
        problem: format!(
            "routers need {lag} to move away, but have {covered}: their requests are refused"
        ),
        advice: "lengthen it, or pass --routing-lag if routers are faster".into(),
        fix: Fix::None,
    })
}

/// Checks whether the lame duck may be over before routers have moved away, because no request
/// came.
fn sooner(times: &Times, sums: &Sums) -> Option<Finding> {
    let least = sums.pre_stop.saturating_add(times.lame_duck_min);
    let is_so = sums.has_routed() && sums.pre_stop < sums.lag && least < sums.lag;
    let enough = span(sums.lag.saturating_sub(sums.pre_stop));
    is_so.then(|| Finding {
        level: Level::Note,
        place: Location::Config("lame-duck-min"),
        problem: "the lame duck ends sooner if no request has come for a second".into(),
        advice: format!("set it to {enough} if requests are few and far between"),
        fix: Fix::None,
    })
}

/// Checks whether the process assumes the right time.
fn belief(times: &Times, workload: &Workload, sums: &Sums, others: &[Sums]) -> Option<Finding> {
    // It may assume another grace period, with which it fits.
    let (bad, assumes) = match others.iter().any(is_enough) {
        true => (Level::Unknown, "may assume"),
        // Whether the limit cuts the grace period, which is as the process assumes, cannot be seen.
        false if is_cut_by_assumption(workload, sums) => (Level::Unknown, "assumes"),
        false => (Level::Error, "assumes"),
    };
    let given = sums.grace.map(|grace| grace.saturating_sub(sums.pre_stop));
    let is_configured = matches!(times.kill_after, KillAfter::After(_) | KillAfter::Never);
    let place = match &workload.stated_at {
        _ if is_configured => Location::Config("kill-after"),
        Some(place) => Location::Manifest(place.clone()),
        None => Location::Manifest(workload.grace.place.clone()),
    };
    let set = match is_configured {
        true => "set it to that".to_owned(),
        false if sums.pre_stop.is_zero() => format!("set {GRACE_VAR} in its environment"),
        false => format!("set {GRACE_VAR} and {PRE_STOP_VAR} in its environment"),
    };
    let (level, problem, advice) = match (sums.believed, given) {
        (Some(believed), _) if sums.cuts_itself => {
            let believed = span(believed);
            let problem = format!(
                "the process {assumes} a grace period of {believed}, and cuts its phases short"
            );
            (bad, problem, set)
        }
        (Some(believed), Some(given)) if sums.overruns => {
            let (believed, given) = (span(believed), span(given.saturating_sub(sums.sidecars)));
            let problem = format!(
                "the process {assumes} a grace period of {believed}, but the manifest leaves it \
                 {given}: it may be killed while requests drain"
            );
            (bad, problem, format!("{set}, or set drain-timeout"))
        }
        // It may leave the sidecars their part.
        (Some(believed), Some(given))
            if believed != given && believed != given.saturating_sub(sums.sidecars) =>
        {
            let (believed, given) = (span(believed), span(given));
            let problem =
                format!("the process assumes a grace period of {believed}, but has {given}");
            (Level::Warning, problem, set)
        }
        (None, Some(given)) if is_configured => {
            let problem = format!("set to none, but the process is killed after {}", span(given));
            (Level::Warning, problem, "write auto, so that it ends in time".into())
        }
        (None, Some(given)) => {
            let problem = format!(
                "the process assumes no grace period here, but is killed after {}",
                span(given)
            );
            (Level::Warning, problem, set)
        }
        (Some(_), _) | (None, None) => return None,
    };
    Some(Finding { level, place, problem, advice, fix: Fix::None })
}

/// Returns whether the process assumes no more than the manifest sets, and only a limit that cannot
/// be seen may leave it less.
fn is_cut_by_assumption(workload: &Workload, sums: &Sums) -> bool {
    let is_assumed = workload.cap.as_ref().is_some_and(|cap| cap.assumed);
    let set = workload.grace.span.map(|set| set.saturating_sub(sums.pre_stop));
    is_assumed && !workload.grace.assumed && sums.believed.zip(set).is_some_and(|(b, set)| b <= set)
}

/// Returns whether it fits with the grace period that the process assumes.
fn is_enough(sums: &Sums) -> bool {
    sums.has_time() && !sums.cuts_itself && !sums.overruns
}

/// Checks whether it fits also with the other grace periods that the process may assume.
fn uncertain(workload: &Workload, sums: &Sums, others: &[Sums]) -> Option<Finding> {
    let bad = others.iter().find(|other| !is_enough(other)).filter(|_| is_enough(sums))?;
    let believed = bad.believed.map_or("no grace period".into(), |believed| {
        format!("a grace period of {}", span(believed))
    });
    let problem = format!("the process may assume {believed} there, which does not fit");
    let advice = format!("set {GRACE_VAR} in its environment");
    Some(Finding::new(Level::Unknown, workload.grace.place.clone(), problem, advice))
}

/// Checks whether it fits also on machines whose `DefaultTimeoutStopSec` is not 90s.
fn default_stop_timeout(workload: &Workload, sums: &Sums, times: &Times) -> Option<Finding> {
    let place = workload.default_stop_timeout.clone()?;
    if !sums.exceeds_least_stop_timeout(workload, times) || !sums.has_time() {
        return None;
    }
    let problem = "distributions have defaults from 45s to 90s, and this machine's cannot be seen";
    let grace = sums.grace.unwrap_or(sums.enough).max(sums.enough);
    let advice = format!("write {STOP_TIMEOUT}{}s", grace.as_secs());
    Some(Finding::new(Level::Unknown, place, problem, advice))
}

/// Checks whether it fits also if systemd does not answer the process.
fn asked(workload: &Workload, sums: &Sums, times: &Times) -> Option<Finding> {
    let is_asked = workload.supervisor == Supervisor::Systemd
        && workload.asks_systemd()
        && times.kill_after == KillAfter::Detect;
    let grace = sums.grace.filter(|_| is_asked)?;
    if grace >= Supervisor::Systemd.default_grace() || !sums.drain_is_open_ended {
        return None;
    }
    let problem =
        "the process queries systemd for the grace period, and assumes 90s without an answer";
    let advice = format!("write Environment={GRACE_VAR}={}, too", grace.as_secs());
    Some(Finding::new(Level::Warning, workload.grace.place.clone(), problem, advice))
}

/// Checks whether a failing probe leaves less time than the process needs.
fn probes(workload: &Workload, sums: &Sums) -> Vec<Finding> {
    let graces = workload.probe_graces.iter().map(|(grace, place)| {
        let (given, needed) = (span(*grace), span(sums.needed()));
        let (level, problem) = if *grace < sums.needed() {
            let problem =
                format!("if this probe fails, the process has {given} and needs {needed}");
            (Level::Warning, problem)
        } else {
            (Level::Note, "replaces the grace period when this probe fails".to_owned())
        };
        let advice = "leave it out, unless a process that hangs is to be killed sooner";
        Finding::new(level, place.clone(), problem, advice)
    });
    graces.collect()
}

/// Checks whether a component that stops the process in its own way leaves less time than it
/// needs.
fn other_stops(workload: &Workload, sums: &Sums) -> Vec<Finding> {
    let is_short = |stop: &&OtherStop| {
        let may_drain_longer = sums.believed.is_none_or(|believed| believed > stop.limit);
        stop.limit < sums.needed() || sums.drain_is_open_ended && may_drain_longer
    };
    let findings = workload.other_stops.iter().filter(is_short).map(|stop| {
        let OtherStop { who, limit, key, level, place } = stop;
        let (limit, needed) = (span(*limit), span(sums.needed()));
        let problem = format!("{who} kills it {limit} after the signal, and it needs {needed}");
        let enough = sums.grace.unwrap_or(sums.enough).max(sums.enough).as_secs();
        match key {
            Some(key) => {
                let line = match key.starts_with('-') {
                    true => format!("{key} {enough}s in the command of {who}"),
                    false => format!("{key}={enough}s in the environment of {who}"),
                };
                let finding = Finding::new(*level, place.clone(), problem, format!("set {line}"));
                finding.fixed_by(Fix::Line(line))
            }
            None => {
                let advice = "shorten phases, or run it on other nodes";
                Finding::new(*level, place.clone(), problem, advice)
            }
        }
    });
    findings.collect()
}

/// Checks whether routers are waited for twice.
fn twice(workload: &Workload, sums: &Sums) -> Option<Finding> {
    let is_so = workload.supervisor.has_pre_stop()
        && !sums.pre_stop.is_zero()
        && !sums.lag.is_zero()
        && sums.lame_duck >= sums.lag;
    let (pre_stop, lame_duck) = (span(sums.pre_stop), span(sums.lame_duck));
    is_so.then(|| Finding {
        level: Level::Warning,
        place: Location::Manifest(workload.place.clone()),
        problem: format!("routers are waited for twice: preStop {pre_stop}, lame duck {lame_duck}"),
        advice: "leave preStop out: in the lame duck connections are sent away, too".into(),
        fix: Fix::None,
    })
}

/// Checks whether readiness changes at a good time for probes and balancers.
fn readiness(times: &Times, workload: &Workload, sums: &Sums) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (after, lame_duck) = (times.unready_after, sums.lame_duck);
    if !lame_duck.is_zero() && after >= lame_duck {
        let (after, lame_duck) = (span(after), span(lame_duck));
        findings.push(Finding {
            level: Level::Warning,
            place: Location::Config("unready-after"),
            problem: format!(
                "{after} is not shorter than the lame duck, {lame_duck}: it has no effect"
            ),
            advice: "shorten it, or lengthen lame-duck".into(),
            fix: Fix::None,
        });
    }
    if let Some(place) = workload.alone.clone().filter(|_| after.is_zero() && workload.routed) {
        let problem = "a single replica: while it stops, routers may have no other";
        let advice = "set unready-after, so that it stays ready until the next one is, or run two";
        findings.push(Finding::new(Level::Warning, place, problem, advice));
    }
    if let Some((lag, place)) = workload.probe.clone()
        && lag.saturating_add(after) > sums.covered().max(sums.lag)
    {
        let lag = span(lag.saturating_add(after));
        let problem = format!("a balancer with a probe like this of its own notices after {lag}");
        let advice = format!("if there is one in front, pass --routing-lag {lag}");
        findings.push(Finding::new(Level::Note, place, &problem, &advice));
    }
    findings
}
