//! What the sums mean, and what the numbers mean together.

use adieu::{KillAfter, Times};

use super::arithmetic::Sums;
use super::place::{Finding, Level, Where};
use super::workload::{GRACE_VAR, PRE_STOP_VAR, Workload};
use crate::plan::span;

pub(super) fn judge(times: &Times, workload: &Workload, sums: &Sums) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(time(workload, sums));
    findings.extend(routing(sums));
    findings.extend(sooner(times, sums));
    findings.extend(belief(times, workload, sums));
    findings.extend(twice(workload, sums));
    findings.extend(readiness(times, workload, sums));
    findings
}

/// Whether there is time enough.
fn time(workload: &Workload, sums: &Sums) -> Option<Finding> {
    let grace = sums.grace.filter(|_| !sums.has_time())?;
    let (needed, short) = (span(sums.needed()), span(sums.needed() - grace));
    let enough = span(sums.enough);
    Some(Finding {
        level: Level::Error,
        place: Where::Manifest(workload.grace.place.clone()),
        problem: format!("{needed} are needed and {} are given: {short} too few", span(grace)),
        advice: format!("give it {enough} or more, or shorten phases"),
    })
}

/// Whether routers have moved away in time.
fn routing(sums: &Sums) -> Option<Finding> {
    let (lag, covered) = (span(sums.lag), span(sums.covered()));
    (!sums.has_routed()).then(|| Finding {
        level: Level::Error,
        place: Where::Config("lame-duck"),
        problem: format!("routers need {lag} to move away and have {covered}: they are refused"),
        advice: "lengthen it, or say --routing-lag if routers are faster".into(),
    })
}

/// Whether the lame duck may be over before routers have moved away, because nobody came.
fn sooner(times: &Times, sums: &Sums) -> Option<Finding> {
    let least = sums.pre_stop.saturating_add(times.lame_duck_min);
    let is_so = sums.has_routed() && sums.pre_stop < sums.lag && least < sums.lag;
    let enough = span(sums.lag.saturating_sub(sums.pre_stop));
    is_so.then(|| Finding {
        level: Level::Note,
        place: Where::Config("lame-duck-min"),
        problem: "the lame duck ends sooner if nobody has come for a second".into(),
        advice: format!("set it to {enough} if requests are few and far between"),
    })
}

/// Whether the process knows how long it has.
fn belief(times: &Times, workload: &Workload, sums: &Sums) -> Option<Finding> {
    let given = sums.grace.map(|grace| grace.saturating_sub(sums.pre_stop));
    let is_configured = matches!(times.kill_after, KillAfter::After(_) | KillAfter::Never);
    let place = match &workload.told_at {
        _ if is_configured => Where::Config("kill-after"),
        Some(place) => Where::Manifest(place.clone()),
        None => Where::Manifest(workload.grace.place.clone()),
    };
    let tell = match is_configured {
        true => "tell it what it has".to_owned(),
        false if sums.pre_stop.is_zero() => format!("tell it in its environment: {GRACE_VAR}"),
        false => format!("tell it in its environment: {GRACE_VAR} and {PRE_STOP_VAR}"),
    };
    let (level, problem, advice) = match (sums.believed, given) {
        (Some(believed), _) if sums.cuts_itself => {
            let believed = span(believed);
            let problem = format!(
                "the process takes itself to have {believed}, and would cut its phases short"
            );
            (Level::Error, problem, tell)
        }
        (Some(believed), Some(given)) if sums.overruns => {
            let (believed, given) = (span(believed), span(given.saturating_sub(sums.sidecars)));
            let problem = format!(
                "the process assumes a grace period of {believed}, but the manifest leaves it \
                 {given}: it may be killed while requests drain"
            );
            (Level::Error, problem, format!("{tell}, or set drain-timeout"))
        }
        // It may leave the sidecars their part.
        (Some(believed), Some(given))
            if believed != given && believed != given.saturating_sub(sums.sidecars) =>
        {
            let (believed, given) = (span(believed), span(given));
            let problem = format!("the process takes itself to have {believed}, and has {given}");
            (Level::Warning, problem, tell)
        }
        (None, Some(given)) => {
            let problem = format!("it is none, and the process is killed after {}", span(given));
            (Level::Warning, problem, "write auto, so that it ends in time".into())
        }
        (Some(_), _) | (None, None) => return None,
    };
    Some(Finding { level, place, problem, advice })
}

/// Whether routers are waited for twice.
fn twice(workload: &Workload, sums: &Sums) -> Option<Finding> {
    let is_so = !sums.pre_stop.is_zero() && !sums.lag.is_zero() && sums.lame_duck >= sums.lag;
    let (pre_stop, lame_duck) = (span(sums.pre_stop), span(sums.lame_duck));
    is_so.then(|| Finding {
        level: Level::Warning,
        place: Where::Manifest(workload.place.clone()),
        problem: format!("routers are waited for twice: preStop {pre_stop}, lame duck {lame_duck}"),
        advice: "leave preStop out: in the lame duck connections are sent away, too".into(),
    })
}

/// Whether those who ask for readiness see it change at a good time.
fn readiness(times: &Times, workload: &Workload, sums: &Sums) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (after, lame_duck) = (times.unready_after, sums.lame_duck);
    if !lame_duck.is_zero() && after >= lame_duck {
        let (after, lame_duck) = (span(after), span(lame_duck));
        findings.push(Finding {
            level: Level::Warning,
            place: Where::Config("unready-after"),
            problem: format!(
                "{after} is not shorter than the lame duck, {lame_duck}: nobody sees it"
            ),
            advice: "shorten it, or lengthen lame-duck".into(),
        });
    }
    if let Some(place) = workload.alone.clone().filter(|_| after.is_zero() && workload.routed) {
        let problem = "a single replica: while it stops, routers may have nobody else";
        let advice = "set unready-after, so that it stays ready until the next one is, or run two";
        findings.push(Finding::new(Level::Warning, place, problem, advice));
    }
    if let Some((lag, place)) = workload.probe.clone()
        && lag.saturating_add(after) > sums.covered().max(sums.lag)
    {
        let lag = span(lag.saturating_add(after));
        let problem = format!("a balancer that probes like this by itself sees it after {lag}");
        let advice = format!("if there is one in front, say --routing-lag {lag}");
        findings.push(Finding::new(Level::Note, place, &problem, &advice));
    }
    findings
}
