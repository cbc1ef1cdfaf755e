//! How a command ends: with an answer or a failure, and an exit code.

use std::io::Write;

/// The exit codes of the command. Part of the stable interface.
pub(crate) mod exit_code {
    /// Success: the plan fits, nothing failed, the shutdown was clean.
    pub(crate) const SUCCESS: u8 = 0;
    /// The answer is no: the plan does not fit, something failed, the shutdown was not clean.
    pub(crate) const NO: u8 = 1;
    /// The input or the command line is wrong, or the input does not show the answer.
    pub(crate) const INPUT: u8 = 2;
    /// The command could not run: the output could not be written, no service could be reached.
    pub(crate) const UNABLE: u8 = 3;
    /// The user pressed Ctrl-C.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// The output of a command, and the exit code that programs see.
pub(crate) struct Printout {
    /// May contain colours; they are removed where they are not wanted.
    pub(crate) text: String,
    pub(crate) code: u8,
}

/// Why a command failed, and the exit code that programs see.
pub(crate) struct Failure {
    message: String,
    code: u8,
}

/// Runs `work` on this thread.
pub(crate) fn block_on(
    work: impl Future<Output = Result<Printout, Failure>>,
) -> Result<Printout, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::unable(format!("failed to start: {error}")))?;
    let done = runtime.block_on(work);
    // Does not wait for the lookup of a name that is still in progress.
    runtime.shutdown_background();
    done
}

/// Writes a remark to stderr, where programs that read the output do not see it.
pub(crate) fn note(message: &str) {
    // If the remark cannot be written, the output alone is returned.
    let _ = writeln!(anstream::stderr(), "adieu: {}", crate::fit::harmless(message));
}

// === impl Printout ===

impl Printout {
    /// Returns output with exit code 0.
    pub(crate) fn success(text: String) -> Self {
        Self { text, code: exit_code::SUCCESS }
    }
}

// === impl Failure ===

impl Failure {
    /// Writes the message to stderr, and returns the exit code.
    pub(crate) fn report(self) -> u8 {
        let Self { message, code } = self;
        // If stderr cannot be written to, the exit code must suffice.
        let _ = writeln!(anstream::stderr(), "adieu: {message}");
        code
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Ends with the code 1: the answer is no.
    pub(crate) fn no(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::NO }
    }

    /// Ends with the code 2: the input or the command line is wrong.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::INPUT }
    }

    /// Ends with the code 130, because the user pressed Ctrl-C. The message reports the state that the
    /// command left behind.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::INTERRUPTED }
    }

    /// Ends with the code 3: the command could not run.
    pub(crate) fn unable(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: exit_code::UNABLE }
    }
}
