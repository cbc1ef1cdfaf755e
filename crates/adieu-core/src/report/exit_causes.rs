//! Why a process exits with another code than that of its phases.
//!
//! The body of `main` has failed, or the watchdog or a signal ends the process. The causes are part of the
//! report wherever it is visible, so that log, report, file and exit code agree.

use super::{Finding, Report};
use crate::outcome::Ending;

/// The causes, with the exit code of each, in the order in which they arose.
#[derive(Clone, Default)]
pub(crate) struct ExitCauses(Vec<(u8, Finding)>);

// === impl ExitCauses ===

impl ExitCauses {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a cause. Returns false if it is known.
    pub(crate) fn add(&mut self, exit_code: u8, because: Finding) -> bool {
        let cause = (exit_code, because);
        let is_new = !self.0.contains(&cause);
        if is_new {
            self.0.push(cause);
        }
        is_new
    }

    /// Adds the causes to a report, unless it has them already. The last code counts.
    pub(crate) fn add_to(&self, report: &mut Report) {
        for (exit_code, because) in &self.0 {
            report.exit_code = *exit_code;
            if report.outcome == Ending::Clean {
                report.outcome = Ending::Unclean;
            }
            if !report.findings.contains(because) {
                report.findings.push(because.clone());
            }
        }
    }
}
