//! Verdicts for programs.

use std::time::Duration;

use serde_json::{Value, json};

use super::place::{Finding, Location, Place};
use super::verdict::Answer;
use super::{Judged, Outcome};
use crate::ending::Failure;

/// Writes the worst answer of all workloads at the top, then the answer of each.
pub(super) fn write(outcome: &Outcome) -> Result<String, Failure> {
    let (counted, not_counted) = outcome.needs.counted();
    let sums = outcome.worst().map(|worst| &worst.verdict.sums);
    let document = json!({
        "fits": outcome.answer() == Answer::Fits,
        "verdict": outcome.answer().name(),
        "needed_ms": sums.map(|sums| millis(sums.needed())),
        "allowed_ms": sums.and_then(|sums| sums.grace).map(millis),
        "suggest": outcome.worst().map(|worst| suggest(worst, outcome)),
        "counted": counted,
        "not_counted": not_counted,
        "workloads": outcome.judged.iter().map(|judged| {
            workload(judged, outcome)
        }).collect::<Vec<_>>(),
        "skipped": outcome.skipped.iter().map(|(file, place, what)| {
            json!({ "file": file, "line": place.line, "what": what })
        }).collect::<Vec<_>>(),
        "unreadable": outcome.unreadable,
    });
    let text = serde_json::to_string_pretty(&document);
    Ok(text.map_err(|error| Failure::unable(error.to_string()))? + "\n")
}

fn workload(judged: &Judged, outcome: &Outcome) -> Value {
    let Judged { file, workload, needs: _, verdict } = judged;
    let sums = &verdict.sums;
    json!({
        "file": file,
        "line": workload.place.line,
        "kind": workload.kind,
        "name": workload.name,
        "container": workload.container,
        "fits": verdict.fits(),
        "verdict": verdict.answer().name(),
        "needed_ms": (!workload.is_opaque).then(|| millis(sums.needed())),
        "allowed_ms": sums.grace.filter(|_| !workload.is_opaque).map(millis),
        "pre_stop_ms": millis(sums.pre_stop),
        "lame_duck_ms": millis(sums.lame_duck),
        "critical_path_ms": millis(sums.critical_path()),
        "drain_ms": sums.drain.map(millis),
        "drain_is_open_ended": sums.drain_is_open_ended,
        "exit_ms": millis(sums.exit),
        "margin_ms": millis(sums.margin),
        "sidecars_ms": millis(sums.sidecars),
        "routing_lag_ms": millis(sums.lag),
        "findings": verdict.findings.iter().map(|found| {
            finding(found, file, &outcome.config)
        }).collect::<Vec<_>>(),
        "suggest": suggest(judged, outcome),
    })
}

fn suggest(judged: &Judged, outcome: &Outcome) -> Value {
    judged.verdict.suggestion.to_json(&judged.workload, outcome.is_shared())
}

fn finding(finding: &Finding, file: &str, config: &str) -> Value {
    let Finding { level, place, problem, advice, fix: _ } = finding;
    let (file, line, key) = match place {
        Location::Manifest(Place { file: other, line, path }) => {
            (other.as_deref().unwrap_or(file), Some(line), path.as_str())
        }
        Location::Config(key) => (config, None, *key),
    };
    json!({
        "level": level.to_string(),
        "file": file,
        "line": line,
        "key": key,
        "problem": problem,
        "advice": advice,
    })
}

/// Rounded up, as in the table.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
