//! Verdicts for people: the sums as tables, and the suggested changes.

use std::fmt::Write;
use std::time::Duration;

use anstyle::{AnsiColor, Color, Style};

use super::arithmetic::Sums;
use super::place::{Finding, Level, Location};
use super::verdict::Answer;
use super::{Judged, Needs, Outcome, Supervisor, Workload};
use crate::duration::span;
use crate::fit::harmless;

pub(super) fn draw(outcome: &Outcome) -> String {
    let mut out = String::new();
    for judged in &outcome.judged {
        draw_one(&mut out, judged, outcome);
        out.push('\n');
    }
    for (file, place, what) in &outcome.skipped {
        let _ = writeln!(out, "{}: {}: not judged", place.within(file), harmless(what));
    }
    let (counted, not_counted) = outcome.needs.counted();
    let _ = writeln!(out, "Counted: {}.", listed(&counted));
    if !not_counted.is_empty() {
        let _ = writeln!(out, "Not counted: {}.", listed(&not_counted));
    }
    let _ = writeln!(out, "If other phases have tasks, pass --phases all, or --phases NAME,NAME…");
    out
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "no phase".into() } else { names.join(", ") }
}

fn draw_one(out: &mut String, judged: &Judged, outcome: &Outcome) {
    let Judged { file, workload, needs: _, verdict } = judged;
    let config = &outcome.config;
    let file_of_workload = workload.place.file.as_deref().unwrap_or(file);
    let place = match file.is_empty() {
        true => String::new(),
        false => format!("{file_of_workload}:{}: ", workload.place.line),
    };
    let (word, style) = match verdict.answer() {
        Answer::Fits => ("fits", coloured(AnsiColor::Green)),
        Answer::Unknown => ("cannot tell", coloured(AnsiColor::Yellow)),
        Answer::TooShort => ("does not fit", coloured(AnsiColor::Red)),
    };
    let _ = writeln!(out, "{place}{}: {style}{word}{style:#}\n", workload.title());
    if !workload.is_opaque {
        draw_sums(out, judged, &outcome.needs);
    }
    for finding in &verdict.findings {
        draw_finding(out, file, config, finding);
    }
    let lines = verdict.suggestion.lines(workload, outcome.is_shared());
    if !lines.is_empty() {
        let _ = writeln!(out, "\n  With this it fits:");
        for line in lines {
            let _ = writeln!(out, "    {}", harmless(&line));
        }
    }
}

fn draw_sums(out: &mut String, judged: &Judged, needs: &Needs) {
    let Judged { workload, verdict, needs: own, .. } = judged;
    let needs = own.as_ref().unwrap_or(needs);
    let rows = rows(workload, &verdict.sums, needs);
    let width = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
    for Row { what, takes, remark } in rows {
        let line = format!("  {what:<width$}  {takes:>8}  {remark}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    let sums = &verdict.sums;
    if !sums.lag.is_zero() {
        let (sign, word) = if sums.has_routed() { (">=", "enough") } else { ("<", "too short") };
        let (pre_stop, lame_duck) = (span(sums.pre_stop), span(sums.lame_duck));
        let lag = span(sums.lag);
        let _ = writeln!(
            out,
            "\n  Routing: preStop {pre_stop} + lame duck {lame_duck} {sign} lag {lag}: {word}"
        );
    }
    if let Some(drain) = sums.drain.map(span) {
        let gap = if sums.lag.is_zero() { "\n" } else { "" };
        let (more, why) = if sums.drain_is_open_ended {
            (" or more", "the time that the other phases leave; drain-timeout sets it")
        } else {
            ("", "as configured")
        };
        let _ = writeln!(out, "{gap}  Draining: requests have {drain}{more} to finish: {why}");
    }
    if !verdict.findings.is_empty() {
        out.push('\n');
    }
}

fn draw_finding(out: &mut String, file: &str, config: &str, finding: &Finding) {
    let Finding { level, place, problem, advice, fix: _ } = finding;
    let style = match level {
        Level::Error => coloured(AnsiColor::Red),
        Level::Unknown | Level::Warning => coloured(AnsiColor::Yellow),
        Level::Note => coloured(AnsiColor::Cyan),
    };
    let place = match place {
        Location::Manifest(_) if file.is_empty() => String::new(),
        Location::Manifest(place) => format!("{}: ", place.within(file)),
        Location::Config(key) => format!("{config}: {key}: "),
    };
    let (problem, advice) = (harmless(problem), harmless(advice));
    let _ = writeln!(out, "  {style}{level}{style:#}: {}{problem}; {advice}", harmless(&place));
}

fn coloured(colour: AnsiColor) -> Style {
    Style::new().bold().fg_color(Some(Color::Ansi(colour)))
}

struct Row {
    what: String,
    takes: String,
    remark: String,
}

/// Returns a row for each term of the first sum: whether there is time enough.
fn rows(workload: &Workload, sums: &Sums, needs: &Needs) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut put = |what: &str, takes: String, remark: &str| {
        rows.push(Row { what: what.into(), takes, remark: remark.into() });
    };
    put("preStop", span(sums.pre_stop), "");
    let beside = sums.lame_duck_on_path < sums.lame_duck;
    put("lame duck", span(sums.lame_duck_on_path), if beside { "beside the path" } else { "" });
    put("critical path", span(sums.critical_path()), "");
    for (phase, takes) in &sums.path {
        let is_rest = *phase == adieu::Phase::BEFORE_SERVICE_UNBIND;
        let is_rest = is_rest && !sums.lame_duck_on_path.is_zero();
        let planned = needs.plan.phase(phase);
        let is_part = planned.is_some_and(|phase| *takes < phase.timeout());
        let is_least = planned.is_some_and(adieu::PlannedPhase::is_open_ended);
        let remark = match () {
            () if is_rest => "the rest after the lame duck",
            () if is_part => "the part that serving needs; with tasks of your own: --phases",
            () if is_least && sums.believed.is_some() => "at least",
            () if is_least => "no deadline is known",
            () => "",
        };
        put(&format!("  {phase}"), span(*takes), remark);
    }
    put("exit", span(sums.exit), "the reserve");
    let remark = if sums.margin.is_zero() { "" } else { "for late signals and rounding" };
    put("margin", span(sums.margin), remark);
    if workload.sidecars > 0 {
        let many = if workload.sidecars == 1 { "sidecar stops" } else { "sidecars stop" };
        let remark = format!("{} native {many} after it", workload.sidecars);
        put("sidecars", span(sums.sidecars), &remark);
    }
    put("needed", span(sums.needed()), "");
    let remark = match (workload.supervisor, workload.grace.assumed) {
        (Supervisor::Unknown, true) => "assumed: the default of Kubernetes".to_owned(),
        (Supervisor::Unknown, false) => String::new(),
        (supervisor, true) => format!("assumed: {} is not set", supervisor.key()),
        (supervisor, false) => supervisor.key().to_owned(),
    };
    put("grace", sums.grace.map_or("no end".into(), span), &remark);
    if let Some(grace) = sums.grace {
        // Rounded to whole milliseconds, like all rows above, so that the shown figures add up.
        let needed = whole_millis(sums.needed());
        let (what, rest) = match grace.checked_sub(needed) {
            Some(spare) => ("to spare", spare),
            None => ("missing", needed.saturating_sub(grace)),
        };
        put(what, span(rest), "");
    }
    rows
}

/// Rounds a duration up to whole milliseconds.
fn whole_millis(span: Duration) -> Duration {
    let up = Duration::from_nanos(999_999);
    let millis = span.saturating_add(up).as_millis();
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}
