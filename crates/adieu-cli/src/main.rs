//! The `adieu` command.

mod admin;
mod breaker;
mod check;
mod cluster;
mod completions;
mod consent;
#[cfg(unix)]
mod demo;
mod duration;
mod ending;
mod fit;
mod man;
mod manifest;
mod output;
mod picture;
mod plan;
mod report;
mod screen;
mod status;
mod tables;
mod verbs;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use ending::{Failure, Printout, block_on, exit_code};

/// See how a service shuts down.
#[derive(Parser)]
#[command(name = "adieu", version, max_term_width = 100)]
#[command(long_about = format!("See how a service shuts down.\n\n{WITHOUT_COMMAND}"))]
#[command(after_help = WITHOUT_COMMAND, after_long_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(unix)]
    Demo(demo::Args),
    Plan(plan::Args),
    Check(check::Args),
    Manifest(manifest::Args),
    Report(report::Args),
    Status(status::Args),
    Watch(watch::Args),
    Cordon(verbs::Cordon),
    Uncordon(verbs::Uncordon),
    Drain(verbs::Drain),
    Stop(verbs::Stop),
    Cluster(cluster::Args),
    Breaker(breaker::Args),
    Completions(completions::Args),
    Man(man::Args),
    #[cfg(unix)]
    #[command(hide = true)]
    Replica(demo::replica::Args),
}

#[cfg(unix)]
const WITHOUT_COMMAND: &str = "\
Without a command, `adieu` runs the demo: for about 15 seconds it starts processes on this machine, \
sends them 500 requests a second, and restarts one after another.";
#[cfg(not(unix))]
const WITHOUT_COMMAND: &str = "Without a command, `adieu` shows the default plan.";

const EXIT_CODES: &str = "\
Exit codes:
  0    success: the plan fits, no request failed, the shutdown was clean
  1    the answer is no: the plan does not fit, a request failed, the shutdown was not clean
  2    the input or the command line is wrong, or the input does not show the answer
  3    the command could not run: the output could not be written, no service answered
  130  you pressed Ctrl-C";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return explain(&answer).into(),
    };
    let done = match cli.command {
        #[cfg(unix)]
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Plan(args)) => plan::run(&args),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Manifest(args)) => manifest::run(&args),
        Some(Command::Report(args)) => report::run(&args),
        Some(Command::Status(args)) => block_on(status::run(&args)),
        Some(Command::Watch(args)) => block_on(watch::run(&args)),
        Some(Command::Cordon(args)) => block_on(verbs::cordon(&args)),
        Some(Command::Uncordon(args)) => block_on(verbs::uncordon(&args)),
        Some(Command::Drain(args)) => block_on(verbs::drain(&args)),
        Some(Command::Stop(args)) => block_on(verbs::stop(&args)),
        Some(Command::Cluster(args)) => block_on(cluster::run(&args)),
        Some(Command::Breaker(args)) => block_on(breaker::run(&args)),
        Some(Command::Completions(args)) => completions::run(&args, Cli::command()),
        Some(Command::Man(man::Args {})) => man::run(Cli::command(), EXIT_CODES),
        #[cfg(unix)]
        Some(Command::Replica(args)) => return demo::run_replica(args),
        None => without_a_command(),
    };
    let printed = done.and_then(|answer| output::print(&answer.text).map(|()| answer.code));
    printed.unwrap_or_else(|failure| failure.report()).into()
}

/// Prints the help, the version, or the error in the command line; returns the exit code.
fn explain(answer: &clap::Error) -> u8 {
    if answer.use_stderr() {
        let _ = answer.print();
        return u8::try_from(answer.exit_code()).unwrap_or(exit_code::INPUT);
    }
    let printed = output::print(&answer.render().ansi().to_string());
    printed.map_or_else(|failure| failure.report(), |()| exit_code::SUCCESS)
}

/// Runs the demo; on systems without signals, shows the default plan.
fn without_a_command() -> Result<Printout, Failure> {
    #[cfg(unix)]
    return demo::run(&demo::Args::default());
    #[cfg(not(unix))]
    return plan::run(&plan::Args::default());
}
