//! The `adieu` command.

mod plan;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// See how a service shuts down.
///
/// Exit codes: 0 all is well; 1 the output could not be written; 2 the input or the command line
/// is wrong.
#[derive(Parser)]
#[command(name = "adieu", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Plan(plan::Args),
}

/// What the command says to its caller. Part of the stable interface.
mod exit_code {
    pub(crate) const OUTPUT: u8 = 1;
    pub(crate) const INPUT: u8 = 2;
}

/// What went wrong, and what to say to the caller.
struct Failure {
    message: String,
    code: u8,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Plan(args)) => plan::run(&args),
        None => plan::run(&plan::Args::default()),
    };
    match done.and_then(|text| print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            let _ = writeln!(std::io::stderr(), "adieu: {message}");
            code.into()
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read the output has seen enough of it.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            Err(Failure { message: format!("failed to write: {error}"), code: exit_code::OUTPUT })
        }
        Ok(()) => Ok(()),
    }
}
