//! `adieu report`.

use std::io::Write;
use std::process::Stdio;

use expect_test::{Expect, expect, expect_file};
use serde_json::{Value, json};

use super::{Ran, adieu, command, ran, shows};

const BEFORE: &str = "golden/report-before.json";
const AFTER: &str = "golden/report-after.json";

/// Shows the report that is passed through the standard input.
fn piped(report: &str, format: &str) -> Ran {
    let mut command = command(&["report", "-", "--format", format]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let report = report.to_owned();
    // It may be refused before all of it is read.
    let writing = std::thread::spawn(move || drop(stdin.write_all(report.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    ran(&output)
}

#[track_caller]
fn refuses(report: &str, expected: Expect) {
    let Ran { code, stdout, stderr } = piped(report, "text");
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    expected.assert_eq(&stderr);
}

fn before() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/report-before.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A report of that many tasks, with names as long as they can be.
fn of_tasks(count: u32) -> Value {
    let mut report = before();
    let name = |number: u32| match number % 3 {
        0 => format!("task {number}"),
        1 => format!("a task whose name is much longer than any column is wide {number}"),
        _ => format!("日本語の名前は文字が広い {number}"),
    };
    let task = |number: u32| {
        let (start, took) = (f64::from(number) * 7.0, f64::from(number % 13) * 90.0);
        json!({
            "name": name(number), "outcome": { "kind": "finished" },
            "started_ms": start, "took_ms": took,
        })
    };
    report["phases"][0]["tasks"] = (0..count).map(task).collect();
    report
}

#[test]
fn a_report_in_every_format() {
    for (format, ending) in [("text", "txt"), ("svg", "svg"), ("html", "html")] {
        for (file, name) in [(BEFORE, "before"), (AFTER, "after")] {
            let shown = shows(&["report", file, "--format", format]);
            expect_file![format!("../golden/report-{name}.{ending}")].assert_eq(&shown);
        }
        let shown = shows(&["report", BEFORE, AFTER, "--format", format]);
        expect_file![format!("../golden/report-both.{ending}")].assert_eq(&shown);
    }
}

#[test]
fn s325_every_format_shows_the_deciding_phases() {
    let decided = "Phases that decided the duration";
    let text = shows(&["report", AFTER]);
    let list = text.split_once(decided).unwrap().1.split_once("\n\n").unwrap().0;
    let names: Vec<_> = list.lines().filter_map(|line| line.trim().split_once("  ")).collect();
    assert_eq!(names.len(), 3, "{text}");
    let page = shows(&["report", AFTER, "--format", "html"]);
    let both = shows(&["report", BEFORE, AFTER, "--format", "html"]);
    for page in [page, both.clone()] {
        let list = page.rsplit_once(decided).unwrap().1.split_once("</ul>").unwrap().0;
        for (took, name) in &names {
            let item = format!("<li><span>{took}</span> {}</li>", name.trim());
            assert!(list.contains(&item), "{item}: {list}");
        }
    }
    assert_eq!(both.matches(decided).count(), 2, "one for each of the two");
}

#[test]
fn answers_of_the_admin_port_are_reports() {
    let status = json!({ "stage": "over", "waiting_for": [], "report": before() });
    let shown = piped(&status.to_string(), "text");
    assert_eq!((shown.code, shown.stdout), (0, shows(&["report", BEFORE])), "{}", shown.stderr);
}

#[test]
fn s185_names_are_harmless_in_every_format() {
    let mut report = before();
    let name = "<script>alert(1)</script> & \"quoted\"\u{1b}[2J\u{202e}\n";
    report["reason"] = name.into();
    report["phases"][0]["name"] = name.into();
    report["phases"][0]["tasks"][0]["name"] = name.into();
    report["phases"][0]["tasks"][0]["detail"] = name.into();
    let error = json!({ "kind": "failed", "error": name });
    report["phases"][0]["tasks"][0]["outcome"] = error;
    for format in ["text", "svg", "html"] {
        let Ran { code, stdout, stderr } = piped(&report.to_string(), format);
        assert_eq!((code, stderr.as_str()), (0, ""));
        assert!(!stdout.contains(['\u{1b}', '\u{202e}']), "{stdout}");
        // In a pipe colours are taken out anyway: it must be seen that this was none.
        assert!(stdout.contains("\u{fffd}[2J\u{fffd}"), "{stdout}");
        assert_eq!(stdout.contains("<script"), format == "text", "{stdout}");
    }
}

#[test]
fn few_tasks_and_many_fit() {
    for count in [0, 1, 5, 60, 200] {
        let report = of_tasks(count).to_string();
        let text = piped(&report, "text").stdout;
        for line in text.lines() {
            let width = line.chars().map(|c| if c > '\u{2fff}' { 2 } else { 1 }).sum::<usize>();
            assert!(width <= 100, "{width}: {line}");
        }
        let svg = piped(&report, "svg").stdout;
        let tasks = |phase: &Value| phase["tasks"].as_array().unwrap().len();
        let report: Value = serde_json::from_str(&report).unwrap();
        // A phase without tasks is not shown.
        let shown =
            report["phases"].as_array().unwrap().iter().map(tasks).filter(|count| *count > 0);
        let rows: usize = shown.map(|tasks| tasks + 1).sum();
        assert_eq!(svg.matches("<g><title>").count(), rows, "{count}");
    }
}

#[test]
fn s185_invalid_reports_are_refused_with_the_place() {
    refuses(
        "",
        expect![[r#"
            adieu: standard input: the input is empty; a report is written when the shutdown is over
        "#]],
    );
    refuses(
        "{\n  \"outcome\": nope",
        expect![[r#"
            adieu: standard input: failed to parse JSON: expected ident at line 2 column 15; a report is JSON
        "#]],
    );
    refuses(
        "[1, 2]",
        expect![[r#"
            adieu: standard input: the JSON is not an object; this is not a report of a shutdown
        "#]],
    );
    refuses(
        "{\"report\": null, \"waiting_for\": []}",
        expect![[r#"
            adieu: standard input: the shutdown is not over, so there is no report yet
        "#]],
    );
    refuses(
        "{\"outcome\": {\"kind\": \"clean\"}}",
        expect![[r#"
            adieu: standard input: missing field `reason`; this is not a report of a shutdown
        "#]],
    );
    let mut report = before();
    report["phases"][2]["tasks"][0].as_object_mut().unwrap().remove("took_ms");
    refuses(
        &report.to_string(),
        expect![[r#"
            adieu: standard input: phases[2].tasks[0]: missing field `took_ms`; this is not a report of a shutdown
        "#]],
    );
    let mut report = before();
    report["phases"][1]["took_ms"] = (-5).into();
    refuses(
        &report.to_string(),
        expect![[r#"
            adieu: standard input: phases[1].took_ms: cannot convert float seconds to Duration: value is negative; this is not a report of a shutdown
        "#]],
    );
    refuses(
        &of_tasks(20_000).to_string(),
        expect![[r#"
            adieu: standard input: the report has 20011 phases and tasks; at most 20000 can be shown
        "#]],
    );
    refuses(
        &"[".repeat(1_000_000),
        expect![[r#"
            adieu: standard input: failed to parse JSON: recursion limit exceeded at line 1 column 128; a report is JSON
        "#]],
    );
}

#[test]
fn files_that_are_not_there_are_exit_code_2() {
    let missing = adieu(&["report", "nope.json"]);
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.starts_with("adieu: failed to read nope.json: "), "{}", missing.stderr);
    assert_eq!(adieu(&["report", "golden"]).code, 2, "a folder");
    assert_eq!(adieu(&["report"]).code, 2);
    assert_eq!(adieu(&["report", "-", "-"]).code, 2);
    assert_eq!(adieu(&["report", BEFORE, AFTER, AFTER]).code, 2);
}

#[test]
fn s185_durations_that_cannot_be_are_drawn_all_the_same() {
    let mut report = before();
    report["took_ms"] = 1e15.into();
    report["allowed_ms"] = 1e16.into();
    report["phases"][0]["tasks"][0]["took_ms"] = 1e16.into();
    for format in ["text", "svg", "html"] {
        let Ran { code, stdout, .. } = piped(&report.to_string(), format);
        assert_eq!(code, 0);
        assert!(stdout.len() < 100_000, "{}", stdout.len());
    }
}
