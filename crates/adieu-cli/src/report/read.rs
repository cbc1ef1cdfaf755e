//! Reads a report: from a file, from the standard input, or from an answer of the admin port.

use std::io::Read;
use std::path::Path;

use adieu::Report;
use serde_json::Value;

use crate::ending::Failure;
use crate::fit::harmless;

/// The maximum length of a report.
const LONGEST: u64 = 64 << 20;

/// A report with more phases or tasks cannot be shown usefully.
const MOST_ROWS: usize = 20_000;

pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub(super) fn read(path: &Path) -> Result<Report, Failure> {
    let place = if is_stdin(path) { "standard input".into() } else { path.display().to_string() };
    let text = if is_stdin(path) {
        text_of(std::io::stdin().lock())
    } else {
        std::fs::File::open(path).and_then(text_of)
    };
    let text = text.map_err(|error| Failure::input(format!("failed to read {place}: {error}")))?;
    parse(&text).map_err(|why| Failure::input(format!("{place}: {why}")))
}

fn text_of(from: impl Read) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    from.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(std::io::Error::other("the text is longer than 64 MiB; a report is shorter"));
    }
    String::from_utf8(bytes)
        .map_err(|error| std::io::Error::other(format!("the text is not UTF-8: {error}")))
}

fn parse(text: &str) -> Result<Report, String> {
    if text.trim().is_empty() {
        return Err("the input is empty; a report is written when the shutdown is over".into());
    }
    let value: Value = serde_json::from_str(text)
        .map_err(|error| format!("failed to parse JSON: {error}; a report is JSON"))?;
    from_value(value)
}

/// Returns the report from a report or from a status that contains one.
pub(crate) fn from_value(mut value: Value) -> Result<Report, String> {
    if !value.is_object() {
        return Err("the JSON is not an object; this is not a report of a shutdown".into());
    }
    let is_status = value.get("waiting_for").is_some();
    match value.get_mut("report") {
        Some(Value::Null) => {
            return Err("the shutdown is not over, so there is no report yet".into());
        }
        Some(report) => value = report.take(),
        None if is_status => return Err("this is a status without a report".into()),
        None => {}
    }
    let report: Report = serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!("{path}: ") };
        let error = error.inner().to_string();
        format!("{}{}; this is not a report of a shutdown", harmless(&place), harmless(&error))
    })?;
    let rows = report.phases.iter().map(|phase| 1 + phase.tasks.len()).sum::<usize>();
    if rows > MOST_ROWS {
        return Err(format!(
            "the report has {rows} phases and tasks; at most {MOST_ROWS} can be shown"
        ));
    }
    Ok(report)
}
