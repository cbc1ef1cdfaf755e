//! `adieu plan`: the phases, what each waits for, and how long it can take.

mod dot;
mod mermaid;
mod svg;
mod text;

use std::path::{Path, PathBuf};

use adieu::{BudgetCheck, Config, KillAfter, Phase, Plan, PlanView, PlannedPhase};
use clap::ValueEnum;

use crate::check::applied_here;
use crate::duration::{span, time};
use crate::ending::{Failure, Printout, note};
use crate::tables;
use adieu_core::adapter::{error_text, has_table};

/// Show the phases of a shutdown, their order and the worst case.
#[derive(clap::Args, Default)]
#[command(after_help = "\
Examples:
  adieu plan
  adieu plan --config service.toml
  adieu plan --config application.conf --format svg > plan.svg
  ADIEU__PHASES__SERVICE_UNBIND__TIMEOUT=7s adieu plan --format json

The configuration is TOML, JSON or HOCON, by the extension of the file (.toml, .json, .conf, .hocon).

As in the service, ADIEU__ variables of the environment override keys, and HOCON substitutes
variables. The names of the applied variables are written to stderr.")]
pub(crate) struct Args {
    /// The configuration; without it, the file that ADIEU_CONFIG names, if there is one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Format {
    /// A table.
    #[default]
    Text,
    /// For programs.
    Json,
    /// For graphviz.
    Dot,
    /// For Markdown.
    Mermaid,
    /// A picture, readable in light and dark.
    Svg,
}

pub(crate) fn run(args: &Args) -> Result<Printout, Failure> {
    let (config, plan) = read(args.config.as_deref())?;
    let applied = applied_here(args.config.as_deref());
    if !applied.is_empty() {
        let names: Vec<_> = applied.into_iter().collect();
        note(&format!("variables of this environment are applied: {}", names.join(", ")));
    }
    let view = PlanView::from(&plan);
    Ok(Printout::success(match args.format {
        Format::Text => {
            let drain = drain(&config, &plan);
            text::draw(&view, plan.is_sequential(), drain.as_deref()) + &cluster_tasks(&config)
        }
        Format::Json => {
            let json = serde_json::to_string_pretty(&view);
            json.map_err(|error| Failure::unable(error.to_string()))? + "\n"
        }
        Format::Dot => dot::draw(&view),
        Format::Mermaid => mermaid::draw(&view),
        Format::Svg => svg::draw(&view),
    }))
}

/// Lists the tasks with which a node leaves its cluster, if the configuration has one.
fn cluster_tasks(config: &Config) -> String {
    if !has_table(config, "cluster") {
        return String::new();
    }
    let tasks = adieu::cluster::TASKS;
    let width = tasks.iter().map(|(phase, _)| phase.as_str().len()).max().unwrap_or(0);
    let lines = tasks.iter().map(|(phase, task)| format!("  {:<width$}  {task}\n", phase.as_str()));
    format!(
        "\nThe configuration has a cluster. A node leaves it with these tasks:\n{}",
        lines.collect::<String>()
    )
}

/// Returns how long admitted work has to finish, if every phase has tasks. `None` if that is
/// configured.
fn drain(config: &Config, plan: &Plan) -> Option<String> {
    let times = config.times();
    let within = |kill_after| {
        let takes = |phase: &PlannedPhase| Some(phase.timeout());
        let check = BudgetCheck::of(plan, takes, times.reserve, kill_after);
        check.drain.filter(|_| check.drain_is_open_ended).map(span)
    };
    let least = within(None)?;
    let without = plan.phase(Phase::SERVICE_REQUESTS_DONE)?.timeout_without_deadline();
    let without = span(without);
    Some(match times.kill_after {
        KillAfter::After(after) => {
            format!("{} or more to finish, with kill-after {}", within(Some(after))?, span(after))
        }
        KillAfter::Never => format!("{without} to finish, because no deadline is known"),
        KillAfter::Detect | _ => format!(
            "{least} or more to finish, as the deadline leaves time, or {without} if there is none"
        ),
    })
}

/// Reads a configuration from the file or from the environment, and builds its plan.
pub(crate) fn read(path: Option<&Path>) -> Result<(Config, Plan), Failure> {
    let config = path.map_or_else(Config::from_env, Config::read);
    let built = config.and_then(|config| {
        tables::validate(&config)?;
        config.plan().map(|plan| (config, plan))
    });
    built.map_err(|error| Failure::input(error_text(&error)))
}

/// Returns the timeout of a phase as text.
fn timeout(phase: &adieu::PhaseView) -> String {
    let or_more = if phase.open_ended { " or more" } else { "" };
    format!("{}{or_more}", time(phase.timeout_ms))
}
