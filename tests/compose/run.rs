//! One run: starts a service, loads it, stops it, and judges.

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use adieu::Signal;
use adieu_testkit::ledger::{Fact, Ledger, Verdict};
use adieu_testkit::process::{Ended, Process};

use crate::load::Load;
use crate::plan::{Body, Deviation, Framework, Plan, Shape};
use crate::service::{JOURNAL, SOCKET};

/// One run: a seed, or a seed with one shape forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The seed from which everything random follows.
    pub seed: u64,
    /// A shape that the plan must have.
    pub shape: Option<Shape>,
}

/// How a run went that should not have gone like this.
#[derive(Debug)]
pub struct Failure {
    case: Case,
    plan: Plan,
    problem: String,
    stderr: String,
}

// === impl Case ===

impl Case {
    /// Returns the plan of this run.
    #[must_use]
    pub fn plan(self) -> Plan {
        match self.shape {
            Some(shape) => Plan::with(self.seed, shape),
            None => Plan::random(self.seed),
        }
    }

    /// Returns the arguments that repeat it.
    #[must_use]
    pub fn args(self) -> Vec<String> {
        let mut args = vec!["--seeds".to_owned(), self.seed.to_string()];
        if let Some(shape) = self.shape {
            args.extend(["--shape".to_owned(), shape.name().to_owned()]);
        }
        args
    }

    /// Runs it. `program` is `compose-fuzz`, which is also the service.
    ///
    /// # Errors
    ///
    /// If the run was not honest, or lost something that it had time to finish.
    pub fn run(self, program: &Path) -> Result<Verdict, Box<Failure>> {
        let plan = self.plan();
        let ran = catch_unwind(AssertUnwindSafe(|| run(self, &plan, program)));
        let (problem, stderr) = match ran {
            Ok((verdict, ended)) => match problem(&plan, &verdict, &ended) {
                None => return Ok(verdict),
                Some(problem) => (format!("{problem}\n{verdict}"), ended.stderr),
            },
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                (text.unwrap_or_else(|| "the driver panicked".to_owned()), String::new())
            }
        };
        Err(Box::new(Failure { case: self, plan, problem, stderr }))
    }
}

fn problem(plan: &Plan, verdict: &Verdict, ended: &Ended) -> Option<&'static str> {
    if !verdict.is_honest() {
        return Some("the run was not honest");
    }
    let is_clean = ended.report.as_ref().is_some_and(adieu::Report::is_clean);
    // A node of the service's own refuses messages without notifying its system.
    let is_counted = plan.departments.iter().all(|it| it.framework != Framework::Plain);
    if is_counted && is_clean && verdict.tally("message").refused > 0 {
        return Some("messages were refused during the drain, and the outcome is clean");
    }
    // The senders do not observe the drain, and what an actor accepts from them it processes.
    if plan.has_racer && plan.must_drain_races() && verdict.lost("message") > 0 {
        return Some("accepted messages were lost in a race, though there was time for them");
    }
    if plan.must_be_lossless() {
        if !verdict.is_lossless() {
            return Some("accepted work was lost, though there was time for it");
        }
        if !is_clean {
            return Some("everything was finished, and the outcome is not clean");
        }
    }
    None
}

fn run(case: Case, plan: &Plan, program: &Path) -> (Verdict, Ended) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(program);
    command.arg("serve").arg(folder.path()).args(case.args());
    command.envs(settings(plan)).env_remove("RUST_BACKTRACE");
    let mut process = Process::start(&mut command);
    let line = process.wait_for("listening on ");
    let at: SocketAddr = line.trim_start_matches("listening on ").parse().expect("an address");
    let ledger = Arc::new(Ledger::new());
    let load = Load::start(plan, at, &folder.path().join(SOCKET), &ledger);
    if !plan.trigger.during_startup {
        process.wait_for("ready");
    }
    if plan.body != Body::Returns || plan.trigger.during_startup {
        std::thread::sleep(Duration::from_millis(plan.trigger.after_ms));
        let interrupt = plan.trigger.is_interrupt && plan.trigger.again_after_ms.is_none();
        process.signal(if interrupt { Signal::INT } else { Signal::TERM });
        if let Some(millis) = plan.trigger.again_after_ms {
            std::thread::sleep(Duration::from_millis(millis));
            // It may be over by now.
            let _ = catch_unwind(AssertUnwindSafe(|| process.signal(Signal::TERM)));
        }
    }
    let ended = process.wait();
    load.stop();
    let ledger = Arc::into_inner(ledger).expect("clients have ended");
    ledger.read(folder.path().join(JOURNAL)).expect("a journal");
    let verdict = with_accounts(ledger, plan).judge(&(&ended).into());
    (verdict, ended)
}

/// Returns the ledger with a rule for each way in which the report accounts for unfinished work.
fn with_accounts(ledger: Ledger, plan: &Plan) -> Ledger {
    match plan.deviation {
        Deviation::None => {}
        // The report contains the messages in mailboxes, and not those that actors are processing.
        _ if plan.deviation.leaves_actors() && !plan.departments.is_empty() => {
            let kinds = ["message", "order", "tick", "job", "last"];
            let mention = |ledger: Ledger, kind| ledger.mentioned(kind, "messages queued");
            return kinds.into_iter().fold(ledger, mention);
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
    // Accepted messages were handled or are dead letters, exactly. A message that was refused, and
    // whose sender outside the actors knows, may be counted with them.
    let slack = ledger.count(Fact::Refused, "message");
    ledger
        .counted_up_to("message", "dead letters", slack)
        .counted_at_least("order", "dead letters")
        .counted_at_least("tick", "dead letters")
        .counted_at_least("job", "dead letters")
        .counted_at_least("last", "dead letters")
}

/// Not what this machine happens to be, nor how fast it is.
fn settings(plan: &Plan) -> Vec<(String, &'static str)> {
    let is_cut = plan.clients.iter().any(|client| client.is_cut());
    let is_stuck = plan.departments.iter().any(|department| department.is_stuck);
    let window = match (is_cut, is_stuck) {
        (true, _) => "2s",
        // Requests wait for room in the mailbox of an actor that hangs.
        (false, true) => "5s",
        (false, false) => "40s",
    };
    let mut settings = vec![
        ("ADIEU__KILL_AFTER".to_owned(), "90s"),
        ("ADIEU__LAME_DUCK".to_owned(), "200ms"),
        ("ADIEU__PHASES__SERVICE_REQUESTS_DONE__TIMEOUT".to_owned(), window),
    ];
    match plan.deviation {
        Deviation::NoDrain => settings.push((disabled("service-requests-done"), "false")),
        Deviation::Disabled(phase) => settings.push((disabled(phase), "false")),
        Deviation::KeepsActors => {
            settings.push(("ADIEU__TERMINATE_ACTOR_SYSTEM".into(), "off"));
            settings.push(("ADIEU__RUN_BY_ACTOR_SYSTEM_TERMINATE".into(), "off"));
        }
        Deviation::None | Deviation::LateBegin(_) | Deviation::PanickingTick => {}
    }
    if is_stuck {
        settings.push(("ADIEU__PHASES__ACTOR_SYSTEM_TERMINATE__TIMEOUT".to_owned(), "2s"));
    }
    settings
}

/// Returns the variable that disables a phase.
fn disabled(phase: &str) -> String {
    format!("ADIEU__PHASES__{}__ENABLED", phase.to_uppercase().replace('-', "_"))
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, plan, problem, stderr } = self;
        let args = case.args().join(" ");
        writeln!(f, "{problem}\n{plan}\nthe service wrote:\n{stderr}")?;
        write!(f, "repeat: cargo run --release -p adieu-tests --bin compose-fuzz -- {args}")
    }
}
