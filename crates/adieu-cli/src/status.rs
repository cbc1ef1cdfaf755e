//! `adieu status`: the current state of a service.

use std::fmt::Write;

use adieu::{CheckState, Readiness, Stage};
use anstyle::{AnsiColor, Style};

use crate::admin::{Check, Connect, Observed, Target, WaitingFor};
use crate::duration::short;
use crate::ending::{Failure, Printout};
use crate::fit::{fitted, harmless, width};

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

/// Show the state of a service: its readiness, the tasks it waits for, the result of its shutdown.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu status
  adieu status pod-7:8558 --json
  ADIEU_ADMIN_TOKEN=... adieu status http://10.0.0.7:8558

The exit code is 0 if the service answered, 3 if it did not. For readiness as an exit code, request
/readyz, for example with `curl --fail`.")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,
    /// Print the answer of the admin port, for programs.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args) -> Result<Printout, Failure> {
    let seen = args.connect.status().await?;
    if args.json {
        let json = serde_json::to_string_pretty(&seen.raw);
        return Ok(Printout::success(
            json.map_err(|error| Failure::unable(error.to_string()))? + "\n",
        ));
    }
    let mut text = draw(&seen, args.connect.target());
    if let Some(report) = &seen.report {
        text += "\n";
        text += &crate::report::chart(report);
    }
    Ok(Printout::success(text))
}

pub(crate) fn draw(seen: &Observed, target: &Target) -> String {
    let Observed {
        process,
        stage,
        readiness,
        reason,
        elapsed,
        remaining,
        waiting_for,
        checks,
        in_flight: _,
        gates: _,
        report: _,
        admitting,
        unclean: _,
        raw: _,
    } = seen;
    let reason = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let stage = match (stage, process) {
        (Stage::ShuttingDown, _) => {
            let (elapsed, remaining) = (short(*elapsed), short(*remaining));
            format!("shutting down for {elapsed}, {remaining} left{reason}")
        }
        (Stage::Over, _) => format!("its shutdown is over{reason}"),
        (Stage::Up | _, Some(process)) => format!("up for {}", short(process.uptime())),
        (Stage::Up | _, None) => "up".into(),
    };
    let stage = harmless(&stage);
    let mut out = match process {
        Some(process) => format!("{BOLD}{process}{BOLD:#} at {target}\n  {stage}\n"),
        None => format!("{BOLD}{target}{BOLD:#}  {stage}\n"),
    };
    let (sign, style) = match readiness {
        Readiness::Ready => ('+', AnsiColor::Green.on_default()),
        Readiness::Unavailable => ('!', AnsiColor::Red.on_default()),
        Readiness::Starting
        | Readiness::Cordoned
        | Readiness::Draining
        | Readiness::Stopping
        | _ => ('-', AnsiColor::Yellow.on_default()),
    };
    let admits = match (readiness, admitting) {
        (Readiness::Cordoned, Some(true)) => ", admits work until routers have moved away",
        (Readiness::Cordoned, Some(false)) => ", refuses work",
        _ => "",
    };
    let _ = writeln!(out, "  {style}{sign}{style:#} {readiness}{admits}");
    if let Some(line) = seen.in_flight_line() {
        let _ = writeln!(out, "    {}", harmless(&line));
    }
    // In a shutdown the owners of checks end, so failing checks are not reported.
    let checks = if seen.stage == Stage::Up { &checks[..] } else { &[] };
    draw_checks(checks, &mut out);
    draw_waiting(waiting_for, &mut out);
    out
}

fn draw_checks(checks: &[Check], out: &mut String) {
    if !checks.is_empty() {
        let _ = writeln!(out, "\n{BOLD}Checks{BOLD:#}");
    }
    let names = checks.iter().map(|check| width(&harmless(&check.name))).max().unwrap_or(0).min(40);
    for check in checks {
        let (sign, style, word) = match check.state {
            CheckState::Ready => ('+', AnsiColor::Green.on_default(), "ready"),
            CheckState::Failed => ('!', AnsiColor::Red.on_default(), "failed"),
            CheckState::Pending | _ => ('.', AnsiColor::Yellow.on_default(), "not yet"),
        };
        let detail = check.detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}"));
        let (name, detail) = (fitted(&check.name, names), harmless(&detail));
        let _ = writeln!(out, "  {style}{sign}{style:#} {name}  {word}{detail}");
    }
}

fn draw_waiting(waiting_for: &[WaitingFor], out: &mut String) {
    if !waiting_for.is_empty() {
        let _ = writeln!(out, "\n{BOLD}Waiting for{BOLD:#}");
        let _ = writeln!(out, "  {DIM}{:>7}  {:>9}{DIM:#}", "running", "left");
    }
    let name = |waiting: &WaitingFor| format!("{} / {}", waiting.phase, waiting.task);
    let names = waiting_for.iter().map(|waiting| width(&harmless(&name(waiting))));
    let names = names.max().unwrap_or(0).min(60);
    for waiting in waiting_for {
        let left = match waiting.left() {
            None => "-".into(),
            Some(left) if left.is_zero() => "cancelled".into(),
            Some(left) => short(left),
        };
        let (age, name) = (short(waiting.age()), fitted(&name(waiting), names));
        let detail = harmless(waiting.detail.as_deref().unwrap_or_default());
        let line = format!("  {age:>7}  {left:>9}  {name}  {detail}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
}
