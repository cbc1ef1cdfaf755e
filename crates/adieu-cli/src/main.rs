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
mod picture;
mod plan;
mod report;
mod screen;
mod status;
mod verbs;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// See how a service shuts down.
#[derive(Parser)]
#[command(name = "adieu", version, max_term_width = 100, after_long_help = EXIT_CODES)]
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
    /// It could not be done here: the output not be written, nobody be reached.
    pub(crate) const UNABLE: u8 = 3;
    /// Somebody pressed Ctrl-C.
    pub(crate) const INTERRUPTED: u8 = 130;
}

const EXIT_CODES: &str = "\
Exit codes:
  0    all is well: it fits, no request failed, the shutdown was clean
  1    the answer is no: it does not fit, a request failed, the shutdown was not clean
  2    the input or the command line is wrong, or the input does not show the answer
  3    it could not be done: the output could not be written, nobody answers
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
    let cli = Cli::parse();
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
    match done.and_then(|said| print(&said.text).map(|()| said.code)) {
        Ok(code) => code.into(),
        Err(Failure { message, code }) => {
            let _ = writeln!(anstream::stderr(), "adieu: {message}");
            code.into()
        }
    }
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

/// Prints, with colours only at a terminal, and if `NO_COLOR` is not set.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read the output has seen enough of it.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::unable(format!("failed to write: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// An error in one line, with what caused it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        if !text.contains(&cause.to_string()) {
            text = format!("{text}: {cause}");
        }
        source = cause.source();
    }
    text
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
    /// The answer is no.
    fn no(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::NO }
    }

    /// The input or the command line is wrong.
    fn input(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::INPUT }
    }

    /// It could not be done here.
    fn unable(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::UNABLE }
    }
}
