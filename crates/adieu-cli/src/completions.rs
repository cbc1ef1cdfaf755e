//! `adieu completions`: scripts with which a shell completes the command.

use clap_complete::Shell;

use crate::ending::{Failure, Printout};

/// Print completions for a shell.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu completions bash > ~/.local/share/bash-completion/completions/adieu
  adieu completions zsh > ~/.zfunc/_adieu
  adieu completions fish > ~/.config/fish/completions/adieu.fish")]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<Printout, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "adieu", &mut script);
    let script = String::from_utf8(script);
    script.map(Printout::success).map_err(|error| Failure::unable(error.to_string()))
}
