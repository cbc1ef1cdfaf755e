//! Asks before something is stopped.

use std::io::{BufRead, IsTerminal, Write};

use crate::admin::{Connect, Observed};
use crate::ending::Failure;

/// Proves that the user has agreed. Only [`ask`] makes one.
pub(crate) struct Consent(());

impl Consent {
    /// Begins the shutdown of a service.
    pub(crate) async fn stop(self, connect: &Connect) -> Result<Observed, Failure> {
        connect.change("/shutdown").await
    }
}

/// Asks the user, unless `--yes` was given. Without a terminal no user can answer, which is an error.
pub(crate) fn ask(question: &str, yes: bool) -> Result<Consent, Failure> {
    if yes {
        return Ok(Consent(()));
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::input(format!(
            "{question} There is no terminal to ask at: pass --yes"
        )));
    }
    let mut err = anstream::stderr();
    let asked = write!(err, "{} [y/N] ", crate::fit::harmless(question)).and_then(|()| err.flush());
    asked.map_err(|error| Failure::unable(format!("failed to ask: {error}")))?;
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.map_err(|error| Failure::unable(format!("failed to read the answer: {error}")))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(Consent(())),
        _ => Err(Failure::no("nothing was changed")),
    }
}
