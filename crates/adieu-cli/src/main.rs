//! The `adieu` command.

mod admin;
mod check;
mod completions;
mod consent;
#[cfg(unix)]
mod demo;
mod duration;
mod fit;
mod man;
mod manifest;
mod output;
mod picture;
mod plan;
mod report;
mod screen;
mod status;
mod verbs;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use adieu::adapter::error_text as with_causes;
use clap::{CommandFactory, Parser, Subcommand};

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
    Completions(completions::Args),
    Man(man::Args),
    #[cfg(unix)]
    #[command(hide = true)]
    Replica(demo::replica::Args),
}

/// What the command says to its caller. Part of the stable interface.
mod exit_code {
    /// All is well: it fits, nothing failed, the shutdown was clean.
    pub(crate) const WELL: u8 = 0;
    /// The answer is no: it does not fit, something failed, the shutdown was not clean.
    pub(crate) const NO: u8 = 1;
    /// The input or the command line is wrong, or the input does not show the answer.
    pub(crate) const INPUT: u8 = 2;
    /// It could not be done: the output could not be written, no service could be reached.
    pub(crate) const UNABLE: u8 = 3;
    /// Somebody pressed Ctrl-C.
    pub(crate) const INTERRUPTED: u8 = 130;
}

#[cfg(unix)]
const WITHOUT_COMMAND: &str = "\
Without a command, `adieu` runs the demo: for about 15 seconds it starts processes on this machine, \
sends them 500 requests a second, and restarts one after another.";
#[cfg(not(unix))]
const WITHOUT_COMMAND: &str = "Without a command, `adieu` shows the default plan.";

const EXIT_CODES: &str = "\
Exit codes:
  0    all is well: it fits, no request failed, the shutdown was clean
  1    the answer is no: it does not fit, a request failed, the shutdown was not clean
  2    the input or the command line is wrong, or the input does not show the answer
  3    it could not be done: the output could not be written, no service answers
  130  you pressed Ctrl-C";

/// What there is to say, and the exit code that says it to programs.
struct Said {
    /// May have colours in it; they are taken out where nobody wants them.
    text: String,
    code: u8,
}

/// What went wrong, and what to say to the caller.
struct Failure {
    message: String,
    code: u8,
}

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
        Some(Command::Status(args)) => wait(status::run(&args)),
        Some(Command::Watch(args)) => wait(watch::run(&args)),
        Some(Command::Cordon(args)) => wait(verbs::cordon(&args)),
        Some(Command::Uncordon(args)) => wait(verbs::uncordon(&args)),
        Some(Command::Drain(args)) => wait(verbs::drain(&args)),
        Some(Command::Stop(args)) => wait(verbs::stop(&args)),
        Some(Command::Completions(args)) => completions::run(&args, Cli::command()),
        Some(Command::Man(man::Args {})) => man::run(Cli::command(), EXIT_CODES),
        #[cfg(unix)]
        Some(Command::Replica(args)) => return demo::replica::run(args),
        None => without_a_command(),
    };
    let printed = done.and_then(|said| output::print(&said.text).map(|()| said.code));
    printed.unwrap_or_else(|failure| failure.report()).into()
}

/// Prints the help, the version, or what is wrong with the command line; returns the exit code.
fn explain(answer: &clap::Error) -> u8 {
    if answer.use_stderr() {
        let _ = answer.print();
        return u8::try_from(answer.exit_code()).unwrap_or(exit_code::INPUT);
    }
    let printed = output::print(&answer.render().ansi().to_string());
    printed.map_or_else(|failure| failure.report(), |()| exit_code::WELL)
}

/// The demo; where there are no signals, the default plan.
fn without_a_command() -> Result<Said, Failure> {
    #[cfg(unix)]
    return demo::run(&demo::Args::default());
    #[cfg(not(unix))]
    return plan::run(&plan::Args::default());
}

/// Does what waits for others, on this thread.
fn wait(work: impl Future<Output = Result<Said, Failure>>) -> Result<Said, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::unable(format!("failed to start: {error}")))?;
    let done = runtime.block_on(work);
    // A name that is still being looked up is not waited for.
    runtime.shutdown_background();
    done
}

// === impl Said ===

impl Said {
    /// All is well.
    fn well(text: String) -> Self {
        Self { text, code: exit_code::WELL }
    }
}

// === impl Failure ===

impl Failure {
    /// Writes the message to stderr, and returns the exit code.
    fn report(self) -> u8 {
        let Self { message, code } = self;
        // Without a place for the message, the exit code alone must do.
        let _ = writeln!(anstream::stderr(), "adieu: {message}");
        code
    }

    /// The answer is no.
    fn no(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::NO }
    }

    /// The input or the command line is wrong.
    fn input(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::INPUT }
    }

    /// Somebody pressed Ctrl-C, and has to know how things stand.
    fn interrupted(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::INTERRUPTED }
    }

    /// It could not be done here.
    fn unable(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::UNABLE }
    }
}
