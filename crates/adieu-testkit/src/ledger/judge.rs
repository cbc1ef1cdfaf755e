//! Compares facts with a report. Pure: no clock, no files, no process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use adieu_core::{Ending, ExitCode, Report};

use super::{Account, Entry, Fact, Run};

/// The result of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a verdict has no effect unless it is checked"]
pub struct Verdict {
    tallies: BTreeMap<String, Tally>,
    charges: Vec<Charge>,
}

/// The amount of work of one kind, by how it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// The service took responsibility for this much.
    pub accepted: usize,
    /// This much of it was completed.
    pub finished: usize,
    /// This much of it was handed back to its source.
    pub returned: usize,
    /// The rest of it.
    pub lost: usize,
    /// This much was never accepted: the sender was refused.
    pub refused: usize,
}

/// A way in which the run was not honest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Charge {
    /// Accepted work was not finished, and the outcome is clean.
    LostBehindClean {
        /// The kind of work.
        kind: String,
        /// The ids of the pieces.
        ids: Vec<String>,
    },
    /// Accepted work was not finished, and the report does not account for all of it.
    Understated {
        /// The kind of work.
        kind: String,
        /// How many pieces were lost.
        lost: usize,
        /// How many of them the report admits.
        admitted: usize,
        /// The ids of the pieces.
        ids: Vec<String>,
    },
    /// The report admits more losses than there were.
    Overstated {
        /// The kind of work.
        kind: String,
        /// How many pieces were lost.
        lost: usize,
        /// How many the report admits.
        admitted: usize,
    },
    /// Work was refused, and done nevertheless.
    RefusedYetDone {
        /// The kind of work.
        kind: String,
        /// The ids of the pieces.
        ids: Vec<String>,
    },
    /// An answer broke off, and looked complete to its client.
    Disguised {
        /// The kind of work.
        kind: String,
        /// The ids of the pieces.
        ids: Vec<String>,
    },
    /// The outcome is clean, and a task is reported that is not.
    Contradiction {
        /// The task, and how it ended.
        task: String,
    },
    /// The exit code differs from that in the report.
    ExitCode {
        /// The code in the report.
        reported: u8,
        /// The exit code. `None` if a signal killed the process.
        actual: Option<i32>,
    },
    /// The code in the report does not fit the outcome in the report.
    CodeOfOutcome {
        /// The code.
        code: u8,
        /// The outcome.
        outcome: String,
    },
    /// There is no report.
    NoReport {
        /// The exit code. `None` if a signal killed the process.
        exit_code: Option<i32>,
    },
}

/// How many ids a message lists.
const LISTED: usize = 5;

pub(super) fn judge(
    accounts: &BTreeMap<String, Account>,
    entries: &BTreeMap<Entry, BTreeSet<Fact>>,
    run: &Run<'_>,
) -> Verdict {
    let mut verdict = Verdict::default();
    for (kind, of_kind) in by_kind(entries) {
        let tally = verdict.tallies.entry(kind.to_owned()).or_default();
        for facts in of_kind.values() {
            tally.add(facts);
        }
        let with = |condition: fn(&BTreeSet<Fact>) -> bool| -> Vec<String> {
            let ids = of_kind.iter().filter(|(_, facts)| condition(facts));
            ids.map(|(id, _)| (*id).to_owned()).collect()
        };
        let lost = with(is_lost);
        let account = accounts.get(kind).cloned().unwrap_or_default();
        verdict.charges.extend(charge_losses(kind, lost, &account, run.report));
        let kind = kind.to_owned();
        let ids = with(|facts| facts.contains(&Fact::Refused) && facts.contains(&Fact::Finished));
        if !ids.is_empty() {
            verdict.charges.push(Charge::RefusedYetDone { kind: kind.clone(), ids });
        }
        let ids = with(|facts| facts.contains(&Fact::Disguised));
        if !ids.is_empty() {
            verdict.charges.push(Charge::Disguised { kind, ids });
        }
    }
    verdict.charges.extend(charge_run(run));
    verdict
}

fn by_kind(
    entries: &BTreeMap<Entry, BTreeSet<Fact>>,
) -> BTreeMap<&str, BTreeMap<&str, &BTreeSet<Fact>>> {
    let mut kinds: BTreeMap<&str, BTreeMap<&str, &BTreeSet<Fact>>> = BTreeMap::new();
    for (entry, facts) in entries {
        kinds.entry(&entry.kind).or_default().insert(&entry.id, facts);
    }
    kinds
}

/// An answer that broke off was accepted: its first bytes had been sent.
fn is_accepted(facts: &BTreeSet<Fact>) -> bool {
    [Fact::Accepted, Fact::Cut, Fact::Disguised].iter().any(|fact| facts.contains(fact))
}

fn is_lost(facts: &BTreeSet<Fact>) -> bool {
    is_accepted(facts) && !facts.contains(&Fact::Finished) && !facts.contains(&Fact::Returned)
}

fn charge_losses(
    kind: &str,
    ids: Vec<String>,
    account: &Account,
    report: Option<&Report>,
) -> Option<Charge> {
    // Without a report nothing is accounted for, which is a separate charge.
    let report = report?;
    let (kind, lost) = (kind.to_owned(), ids.len());
    if lost > 0 && report.is_clean() {
        return Some(Charge::LostBehindClean { kind, ids });
    }
    let texts = unclean_texts(report);
    let (admitted, slack) = match account {
        Account::Named => {
            let is_named = |id: &&String| texts.iter().any(|text| names(text, id));
            (Admitted::exactly(ids.iter().filter(is_named).count()), 0)
        }
        Account::Counted { words, slack } => (admitted(&texts, words), *slack),
        Account::Mentioned { words } => {
            let is_mentioned = texts.iter().any(|text| text.contains(words));
            (Admitted::exactly(if is_mentioned { lost } else { 0 }), 0)
        }
    };
    let Admitted { least, is_exact } = admitted;
    if least > lost.saturating_add(slack) {
        return Some(Charge::Overstated { kind, lost, admitted: least });
    }
    (is_exact && least < lost).then_some(Charge::Understated { kind, lost, admitted: least, ids })
}

/// Returns whether a text contains an id, and not as a part of a longer one: "17" is not in "order 170".
fn names(text: &str, id: &str) -> bool {
    let continues = |next: Option<char>, end: Option<char>| {
        next.is_some_and(char::is_alphanumeric) && end.is_some_and(char::is_alphanumeric)
    };
    text.match_indices(id).any(|(at, _)| {
        let before = continues(text[..at].chars().next_back(), id.chars().next());
        let after = continues(text[at + id.len()..].chars().next(), id.chars().next_back());
        !before && !after
    })
}

/// Returns the texts of a report about each task that did not end cleanly, and its findings.
fn unclean_texts(report: &Report) -> Vec<String> {
    let tasks = report.phases.iter().flat_map(|phase| &phase.tasks);
    let unclean = tasks.filter(|task| !task.outcome.is_clean());
    unclean
        .map(|task| {
            let detail = task.detail.as_deref().unwrap_or_default();
            format!("{}: {} {detail}", task.name, task.outcome)
        })
        .chain(report.findings.iter().map(|found| format!("{}: {}", found.name, found.what)))
        .collect()
}

/// The number of pieces that a report admits.
struct Admitted {
    least: usize,
    /// Whether it is not a lower bound.
    is_exact: bool,
}

impl Admitted {
    fn exactly(count: usize) -> Self {
        Self { least: count, is_exact: true }
    }
}

/// Returns the sum of the numbers before the first `words` of each text. If a text contains "unknown" or
/// a lower bound instead, which is honest, the sum is a lower bound.
fn admitted(texts: &[String], words: &str) -> Admitted {
    let mut sum = Admitted::exactly(0);
    for text in texts {
        let Some(at) = text.find(words) else { continue };
        let word_list = |text: &str| -> Vec<String> {
            let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        let (before, after) = (word_list(&text[..at]), word_list(&text[at + words.len()..]));
        let near = &before[before.len().saturating_sub(3)..];
        let is_unknown = |words: &[String]| words.iter().any(|word| word == "unknown");
        if is_unknown(near) || is_unknown(&after[..after.len().min(2)]) {
            sum.is_exact = false;
            sum.least += bound_of(&after);
            continue;
        }
        if let [.., number] = near {
            sum.least += number.parse().unwrap_or(0);
        }
        if matches!(near, [.., at, least, _] if at == "at" && least == "least") {
            sum.is_exact = false;
        }
    }
    sum
}

/// Returns the lower bound after an unknown number, as in "unknown (at least 3)".
fn bound_of(after: &[String]) -> usize {
    match after {
        [unknown, at, least, number, ..]
            if unknown == "unknown" && at == "at" && least == "least" =>
        {
            number.parse().unwrap_or(0)
        }
        _ => 0,
    }
}

fn charge_run(run: &Run<'_>) -> Vec<Charge> {
    let Some(report) = run.report else {
        return vec![Charge::NoReport { exit_code: run.exit_code }];
    };
    let mut charges = Vec::new();
    if report.is_clean()
        && let [first, ..] = &unclean_texts(report)[..]
    {
        charges.push(Charge::Contradiction { task: first.clone() });
    }
    let code = report.exit_code;
    if report.outcome != Ending::Clean && code == ExitCode::CLEAN {
        charges.push(Charge::CodeOfOutcome { code, outcome: report.outcome.to_string() });
    }
    if run.exit_code != Some(i32::from(code)) {
        charges.push(Charge::ExitCode { reported: code, actual: run.exit_code });
    }
    charges
}

// === impl Tally ===

impl Tally {
    fn add(&mut self, facts: &BTreeSet<Fact>) {
        let is_finished = facts.contains(&Fact::Finished);
        if is_accepted(facts) {
            self.accepted += 1;
            self.finished += usize::from(is_finished);
            self.returned += usize::from(!is_finished && facts.contains(&Fact::Returned));
            self.lost += usize::from(is_lost(facts));
        } else if facts.contains(&Fact::Refused) {
            self.refused += 1;
        }
    }
}

// === impl Verdict ===

impl Verdict {
    /// Returns whether the report accounts for all lost work.
    #[must_use]
    pub fn is_honest(&self) -> bool {
        self.charges.is_empty()
    }

    /// Returns the ways in which the run was not honest.
    #[must_use]
    pub fn charges(&self) -> &[Charge] {
        &self.charges
    }

    /// Returns how the work of this kind ended.
    #[must_use]
    pub fn tally(&self, kind: &str) -> Tally {
        self.tallies.get(kind).copied().unwrap_or_default()
    }

    /// Returns how much accepted work of this kind was neither finished nor returned, reported or
    /// not.
    #[must_use]
    pub fn lost(&self, kind: &str) -> usize {
        self.tally(kind).lost
    }

    /// Returns whether all accepted work, of every kind, was finished or returned.
    #[must_use]
    pub fn is_lossless(&self) -> bool {
        self.tallies.values().all(|tally| tally.lost == 0)
    }

    /// Fails the test if the run was not honest.
    ///
    /// # Panics
    ///
    /// If there is a charge. The message lists all of them.
    #[track_caller]
    pub fn assert_honest(&self) {
        assert!(self.is_honest(), "{self}");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, tally) in &self.tallies {
            let Tally { accepted, finished, returned, lost, refused } = tally;
            write!(f, "{kind}: {accepted} accepted, {finished} finished, {returned} returned, ")?;
            writeln!(f, "{lost} lost; {refused} refused")?;
        }
        for charge in &self.charges {
            writeln!(f, "dishonest: {charge}")?;
        }
        Ok(())
    }
}

// === impl Charge ===

impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LostBehindClean { kind, ids } => {
                write!(f, "lost {}, and the outcome is clean", listed(kind, ids))
            }
            Self::Understated { kind, lost, admitted, ids } => {
                let ids = listed(kind, ids);
                write!(f, "lost {ids}; the report admits {admitted} of {lost}")
            }
            Self::Overstated { kind, lost, admitted } => {
                write!(f, "lost {lost} of kind {kind}, and the report admits {admitted}")
            }
            Self::RefusedYetDone { kind, ids } => {
                write!(f, "refused {}, and did it nevertheless", listed(kind, ids))
            }
            Self::Disguised { kind, ids } => {
                write!(f, "cut {}, and it looked complete to the client", listed(kind, ids))
            }
            Self::Contradiction { task } => write!(f, "the outcome is clean, but: {task}"),
            Self::ExitCode { reported, actual } => {
                write!(f, "exit code {}, but the report contains {reported}", code(*actual))
            }
            Self::CodeOfOutcome { code, outcome } => {
                write!(f, "exit code {code} for the outcome {outcome}")
            }
            Self::NoReport { exit_code } => {
                write!(f, "no report; exit code {}", code(*exit_code))
            }
        }
    }
}

fn code(code: Option<i32>) -> String {
    code.map_or_else(|| "none (killed by a signal)".to_owned(), |code| code.to_string())
}

fn listed(kind: &str, ids: &[String]) -> String {
    let more = ids.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{kind} {}{more}", ids[..ids.len().min(LISTED)].join(", "))
}

#[cfg(test)]
mod tests;
