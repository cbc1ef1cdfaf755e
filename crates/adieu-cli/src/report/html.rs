//! A report as a page: one file that needs nothing else.

use std::time::Duration;

use adieu::Report;

use super::compare::Comparison;
use super::gantt::Gantt;
use super::{svg, table};
use crate::duration::short;
use crate::picture::escape;

pub(super) fn draw(gantt: &Gantt<'_>) -> String {
    let mut body = head(gantt.report, "");
    let findings = gantt.report.findings.iter().map(|found| {
        let (name, what) = (escape(&found.name), escape(&found.what));
        format!("<li><b class=\"failed\">!</b> {name}: {what}</li>\n")
    });
    let failures: String = gantt
        .failures()
        .map(|row| {
            let (sign, name, ended) =
                (row.outcome.sign().to_string(), row.full_name(), row.ended());
            let class = super::gantt::appearance(row.outcome).1;
            let sign = escape(&sign);
            let (name, ended) = (escape(&name), escape(&ended));
            format!("<li><b class=\"{class}\">{sign}</b> {name}: {ended}</li>\n")
        })
        .chain(findings)
        .collect();
    if !failures.is_empty() {
        body += &format!("<h2>Failures</h2>\n<ul class=\"signs\">\n{failures}</ul>\n");
    }
    body += &decided(gantt, "h2");
    body += &format!("<div class=\"wide\">\n{}</div>\n", svg::draw(gantt));
    page(&gantt.heading(), &(body + &table::of(gantt)))
}

pub(super) fn compare(comparison: &Comparison<'_>) -> String {
    let Comparison { before, after, pairs: _ } = comparison;
    let verdict = escape(&comparison.verdict());
    let mut body = format!("<h1>Two shutdowns: {verdict}</h1>\n<div class=\"two\">\n");
    for (gantt, lead) in [(before, "before: "), (after, "after: ")] {
        let (head, decided) = (head(gantt.report, lead), decided(gantt, "h3"));
        body += &format!("<section>{head}{decided}</section>\n");
    }
    body += "</div>\n";
    let changes = comparison.changes();
    if !changes.is_empty() {
        let items = changes.iter().map(|change| format!("<li>{}</li>\n", escape(change)));
        body += &format!("<h2>Changes</h2>\n<ul>\n{}</ul>\n", items.collect::<String>());
    }
    body += &format!("<div class=\"wide\">\n{}</div>\n", svg::compare(comparison));
    page(&format!("two shutdowns: {}", comparison.verdict()), &(body + &table::compare(comparison)))
}

/// Returns the list of the phases that decided the duration, the first phase first.
fn decided(gantt: &Gantt<'_>, level: &str) -> String {
    let item = |(took, name): &(Duration, String)| {
        format!("<li><span>{}</span> {}</li>\n", short(*took), escape(name))
    };
    let items: String = gantt.decided().iter().map(item).collect();
    if items.is_empty() {
        return String::new();
    }
    format!(
        "<{level}>Phases that decided the duration</{level}>\n<ul class=\"times\">\n{items}</ul>\n"
    )
}

fn head(report: &Report, lead: &str) -> String {
    let Report { outcome, reason, started_at, took, allowed, exit_code, .. } = report;
    let class = if report.is_clean() { "finished" } else { "failed" };
    let sign = if report.is_clean() { '+' } else { '!' };
    let (took, allowed) = (short(*took), short(*allowed));
    let facts = [
        ("reason", reason.clone()),
        ("took", format!("{took} of {allowed}")),
        ("exit code", exit_code.to_string()),
        ("began", started_at.clone()),
    ];
    let facts: String = facts
        .iter()
        .map(|(name, fact)| format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(fact)))
        .collect();
    let level = if lead.is_empty() { "h1" } else { "h2" };
    let outcome = escape(&outcome.to_string());
    format!(
        "<{level}>{lead}<b class=\"{class}\">{sign}</b> shutdown {outcome}</{level}>\n<dl>{facts}</dl>\n"
    )
}

fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem; background: #ffffff; color: #1c2126 }}
h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.15rem }} h3 {{ font-size: 1rem }} h1, h2, h3, dd, li, th, td {{ overflow-wrap: anywhere }}
dl {{ display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 0 0 1rem }} dt {{ color: #56606b; font-size: .85rem }} dd {{ margin: 0 }}
.two {{ display: flex; flex-wrap: wrap; gap: 0 3rem }} .wide {{ overflow-x: auto; margin: 1rem 0 }} .signs, .times {{ list-style: none; padding: 0 }} .times span {{ display: inline-block; min-width: 4rem; margin-right: .6rem; text-align: right; font-variant-numeric: tabular-nums }}
table {{ border-collapse: collapse; width: 100% }} th, td {{ text-align: left; padding: .2rem .6rem; vertical-align: top }}
thead th {{ border-bottom: 1px solid #8a94a0; font-size: .85rem; color: #56606b; white-space: nowrap }} .phase th, .phase td {{ border-top: 1px solid #dfe4e9 }}
.task th {{ font-weight: 400; padding-left: 1.8rem }} .number {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }}
b.finished {{ color: #2f8f4e }} b.skipped {{ color: #56606b }} b.stopped {{ color: #7d55c7 }} b.failed {{ color: #c21f30 }} b.late {{ color: #c06a00 }} b.left {{ color: #a3157a }} b.critical {{ color: #1a5fd0 }}
@media (prefers-color-scheme: dark) {{
body {{ background: #15181c; color: #e8ecf0 }} dt, thead th {{ color: #a8b2bd }} .phase th, .phase td {{ border-color: #2c333b }}
b.finished {{ color: #4fb873 }} b.skipped {{ color: #a8b2bd }} b.stopped {{ color: #b394f0 }} b.failed {{ color: #ff6b74 }} b.late {{ color: #f0a040 }} b.left {{ color: #ee6cc0 }} b.critical {{ color: #6ea8ff }}
}}
</style>
</head>
<body>
{body}</body>
</html>
"#
    )
}
