//! The verdict on a workload: the findings, the answer and the suggestion.

use adieu::KillAfter;

use super::arithmetic::{Facts, Sums};
use super::judge::judge;
use super::needs::Needs;
use super::place::{Finding, Fix, Level};
use super::suggest::Suggestion;
use super::workload::Workload;

/// A workload judged.
pub(crate) struct Verdict {
    pub(crate) sums: Sums,
    pub(crate) findings: Vec<Finding>,
    pub(crate) suggestion: Suggestion,
}

/// The answer of a verdict. The first is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// The process would be killed, or would not be signalled, before it has drained.
    TooShort,
    /// Something that decides about it cannot be seen.
    Unknown,
    Fits,
}

// === impl Verdict ===

impl Verdict {
    pub(crate) fn of(needs: &Needs, workload: &Workload, facts: Facts) -> Self {
        let (sums, findings) = found(needs, workload, facts);
        let suggestion = match answer(&findings) {
            Answer::Fits => Suggestion::default(),
            Answer::TooShort | Answer::Unknown => {
                let suggestion = Suggestion::of(needs, workload, facts, &findings);
                // A suggestion that is not enough would mislead.
                let (needs, workload) = suggestion.apply(needs, workload);
                let (_, left) = found(&needs, &workload, facts);
                if answer(&left) == Answer::Fits { suggestion } else { Suggestion::default() }
            }
        };
        Self { sums, findings, suggestion }
    }

    pub(crate) fn answer(&self) -> Answer {
        answer(&self.findings)
    }

    pub(crate) fn fits(&self) -> bool {
        self.answer() == Answer::Fits
    }

    pub(crate) fn warnings(&self) -> usize {
        self.findings.iter().filter(|finding| finding.level == Level::Warning).count()
    }
}

fn found(needs: &Needs, workload: &Workload, facts: Facts) -> (Sums, Vec<Finding>) {
    let all = Sums::all(needs, workload, facts);
    let mut findings = judge(&needs.config.times(), workload, &all, facts);
    // If the configuration sets the grace period, the environment does not count.
    let is_detected = needs.config.times().kill_after == KillAfter::Detect;
    let matters = |finding: &&Finding| is_detected || finding.fix != Fix::StateGrace;
    findings.extend(workload.findings.iter().filter(matters).cloned());
    findings.sort_by_key(|finding| finding.level);
    let sums = all.into_iter().next().unwrap_or_else(|| Sums::of(needs, workload, facts));
    (sums, findings)
}

fn answer(findings: &[Finding]) -> Answer {
    let worst = findings.iter().map(|finding| finding.level).min();
    match worst {
        Some(Level::Error) => Answer::TooShort,
        Some(Level::Unknown) => Answer::Unknown,
        Some(Level::Warning | Level::Note) | None => Answer::Fits,
    }
}

// === impl Answer ===

impl Answer {
    /// As programs read it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TooShort => "too-short",
            Self::Unknown => "unknown",
            Self::Fits => "fits",
        }
    }
}
