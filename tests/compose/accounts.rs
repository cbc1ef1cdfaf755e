//! How the report of a random service accounts for work that was not finished, and how exactly.

use std::collections::BTreeMap;

use adieu::{Ending, ExitCode, Report, Rung};
use adieu_testkit::ledger::{Fact, Ledger, Verdict};
use adieu_testkit::process::Ended;

use crate::plan::{Department, Deviation, Framework, Plan};

/// The kinds of orders: those of clients, ticks, jobs, and those of the last phase before the drain. Each
/// is sent as one message after another, so one that is lost is a message that is lost.
const ORDERS: [&str; 4] = ["order", "tick", "job", "last"];

/// Returns the ledger with a rule for each way in which the report accounts for unfinished work.
pub(crate) fn with_accounts(ledger: Ledger, plan: &Plan) -> Ledger {
    let mentioned = |ledger: Ledger, words: &str| {
        let kinds = ORDERS.into_iter().chain(["message"]);
        kinds.fold(ledger, |ledger, kind| ledger.mentioned(kind, words))
    };
    // The numbers are in several texts: `problem` adds them up.
    if plan.is_cut_short() {
        return mentioned(ledger, "");
    }
    match plan.deviation {
        Deviation::None => {}
        // The report contains the messages in mailboxes, and not those that actors are processing.
        _ if plan.deviation.leaves_actors() && !plan.departments.is_empty() => {
            return mentioned(ledger, "messages queued");
        }
        // The report counts the passes of tasks that have taken an order.
        Deviation::NoDrain | Deviation::LateBegin(_) | Deviation::Disabled(_) => {
            // The report names a loop that no phase has ended, and not its jobs.
            let ledger = ledger.mentioned("job", "jobs: ");
            return ledger.counted_at_least("order", "in flight");
        }
        // The panic names the tick.
        Deviation::PanickingTick | Deviation::KeepsActors => return ledger,
    }
    // Accepted messages were handled or are dead letters, exactly. A message whose sender outside the
    // actors was refused in the race with the beginning of the shutdown or of the drain may be counted with
    // them.
    let slack = ledger.count(Fact::Refused, "message");
    // The orders are not exact: a message is counted, and not the order in it.
    let ledger = ledger.counted_up_to("message", "dead letters", slack);
    let account = |ledger: Ledger, kind| match counts_refusals(plan) {
        true => ledger.counted_at_least(kind, "dead letters"),
        // An order may be lost because such a node has refused its message.
        false => ledger.mentioned(kind, "dead letters"),
    };
    ORDERS.into_iter().fold(ledger, account)
}

/// Returns what is wrong with an honest run.
pub(crate) fn problem(plan: &Plan, verdict: &Verdict, ended: &Ended) -> Option<String> {
    let Some(report) = &ended.report else { return Some("there is no report".to_owned()) };
    wrong_code(plan, report)
        .or_else(|| too_late(plan, ended))
        .or_else(|| inexact(plan, verdict, report))
        .or_else(|| unfinished(plan, verdict, report).map(str::to_owned))
}

fn unfinished(plan: &Plan, verdict: &Verdict, report: &Report) -> Option<&'static str> {
    if counts_refusals(plan) && report.is_clean() && verdict.tally("message").refused > 0 {
        return Some("messages were refused during the drain, and the outcome is clean");
    }
    // The senders know nothing of the drain, and what an actor accepts from them it processes.
    if plan.has_racer && plan.must_drain_races() && verdict.lost("message") > 0 {
        return Some("accepted messages were lost in a race, though there was time for them");
    }
    if plan.must_be_lossless() {
        if !verdict.is_lossless() {
            return Some("accepted work was lost, though there was time for it");
        }
        if !report.is_clean() {
            return Some("everything was finished, and the outcome is not clean");
        }
    }
    None
}

/// A node of the service's own refuses messages without notifying its system.
fn counts_refusals(plan: &Plan) -> bool {
    plan.departments.iter().all(|it| it.framework != Framework::Plain)
}

/// The codes that the documents promise, for a service that configures none.
fn wrong_code(plan: &Plan, report: &Report) -> Option<String> {
    let code = report.exit_code;
    let last = plan.trigger.signals.last().map(|sent| sent.signal().number());
    let forced = last.filter(|_| plan.trigger.rung() == Rung::Exit).map(|signal| 128 + signal);
    let is_right = match &report.outcome {
        Ending::Clean => code == ExitCode::CLEAN,
        Ending::Aborted { .. } => code == ExitCode::ABORTED,
        // The watchdog may be faster if hardly any time is allowed.
        Ending::Unclean => {
            code == ExitCode::UNCLEAN
                || forced == Some(i32::from(code))
                || (plan.haste.is_some() && code == ExitCode::WATCHDOG)
        }
        _ => false,
    };
    (!is_right).then(|| format!("exit code {code} for the outcome {}", report.outcome))
}

/// How much longer than allowed a process may take, because this machine is busy with others.
const BUSY_MS: u64 = 1_500;

/// The platform would kill a process that takes longer than it allows.
fn too_late(plan: &Plan, ended: &Ended) -> Option<String> {
    let allowed = plan.haste?.allowed_ms;
    let took = u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX);
    (took > allowed + BUSY_MS).then(|| format!("took {took} ms, and {allowed} ms are allowed"))
}

/// Compares sums, where the documents promise that nothing is missing in them.
fn inexact(plan: &Plan, verdict: &Verdict, report: &Report) -> Option<String> {
    let lost = verdict.lost("message");
    let orders: usize = ORDERS.into_iter().map(|kind| verdict.lost(kind)).sum();
    let letters = Sum::of(report, "dead letters");
    let (queued, working) =
        (Sum::of(report, "messages queued"), Sum::of(report, "actors with work"));
    let left = queued.least + working.least + Sum::of(report, "being processed").least;
    if plan.is_cut_short() {
        let flying = Sum::of(report, "in flight").least + Sum::of(report, "cut off").least;
        let is_exact = letters.is_exact && queued.is_exact;
        let admitted = letters.least + left;
        // Work behind a gate may send a message after those in mailboxes were counted.
        if is_exact && lost > admitted + flying {
            let admitted = admitted + flying;
            return Some(format!("lost {lost} messages, and the report admits {admitted}"));
        }
        // A job that was not begun is in no message.
        let orders = orders - verdict.lost("job");
        if is_exact && orders > admitted + flying {
            let admitted = admitted + flying;
            return Some(format!("lost {orders} orders, and the report admits {admitted}"));
        }
        return None;
    }
    if plan.deviation.leaves_actors() && queued.is_exact && lost > left {
        return Some(format!("lost {lost} messages, and {left} are in the report"));
    }
    if plan.deviation != Deviation::None || plan.departments.is_empty() {
        return None;
    }
    if counts_refusals(plan) && orders > lost {
        return Some(format!("lost {orders} orders, but only {lost} messages"));
    }
    if plan.counts_exactly() && !letters.is_exact {
        // A poll of an actor of kameo that nothing explains, such as one for a message that it has
        // already taken, may make its number a lower bound. The bound has all messages nevertheless.
        let is_kameo = |it: &Department| it.framework == Framework::Kameo;
        let is_bound = plan.departments.iter().all(is_kameo) && least_letters(report) == Some(lost);
        if !is_bound {
            let problem = "the number of lost messages can be known, and is not in the report";
            return Some(problem.to_owned());
        }
    }
    None
}

/// Returns the lower bound of the dead letters, as in "dead letters unknown (at least 3)".
fn least_letters(report: &Report) -> Option<usize> {
    let tasks = report.phases.iter().flat_map(|phase| &phase.tasks);
    let bounds = tasks.filter_map(|task| {
        let text = task.outcome.to_string();
        let (_, bound) = text.split_once("dead letters unknown (at least ")?;
        bound.split_once(')')?.0.parse::<usize>().ok()
    });
    bounds.reduce(|sum, bound| sum + bound)
}

/// The numbers before some words in a report.
struct Sum {
    least: usize,
    /// Whether none of them is unknown, or a lower bound.
    is_exact: bool,
}

// === impl Sum ===

impl Sum {
    /// Adds up the first number of each text: the others are parts of it. What remains is found twice,
    /// when resources begin to close and at the end, and only the higher number counts.
    fn of(report: &Report, words: &str) -> Self {
        let tasks = report.phases.iter().flat_map(|phase| &phase.tasks);
        let unclean = tasks.filter(|task| !task.outcome.is_clean());
        let mut sum = Self { least: 0, is_exact: true };
        for task in unclean {
            let detail = task.detail.as_deref().unwrap_or_default();
            sum.least += sum.read(&format!("{} {detail}", task.outcome), words);
        }
        let mut found: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in &report.findings {
            // Several accounts of one source.
            let number: usize = finding.what.split(';').map(|part| sum.read(part, words)).sum();
            let highest = found.entry(&finding.name).or_default();
            *highest = number.max(*highest);
        }
        sum.least += found.values().sum::<usize>();
        sum
    }

    /// Returns the number before the words in a text.
    fn read(&mut self, text: &str, words: &str) -> usize {
        let Some(at) = text.find(words) else { return 0 };
        let before: Vec<&str> = text[..at].split_whitespace().collect();
        self.is_exact &= !text.contains("unknown") && !matches!(before[..], [.., "least", _]);
        before.last().and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}
