//! One run: starts a service, loads it, stops it, and judges.

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use adieu::Report;
use adieu_testkit::ledger::{Ledger, Verdict};
use adieu_testkit::process::{Ended, Process};

use crate::accounts;
use crate::load::Load;
use crate::plan::{Body, Deviation, Haste, Plan, Shape};
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
    report: Option<Report>,
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
        let (problem, stderr, report) = match ran {
            Ok((verdict, ended)) => match problem(&plan, &verdict, &ended) {
                None => return Ok(verdict),
                Some(problem) => (format!("{problem}\n{verdict}"), ended.stderr, ended.report),
            },
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                (text.unwrap_or_else(|| "the driver panicked".to_owned()), String::new(), None)
            }
        };
        Err(Box::new(Failure { case: self, plan, problem, stderr, report }))
    }
}

fn problem(plan: &Plan, verdict: &Verdict, ended: &Ended) -> Option<String> {
    if !verdict.is_honest() {
        return Some("the run was not honest".to_owned());
    }
    accounts::problem(plan, verdict, ended)
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
        for (number, sent) in plan.trigger.signals.iter().enumerate() {
            if number == 0 {
                process.signal(sent.signal());
                continue;
            }
            std::thread::sleep(Duration::from_millis(plan.trigger.again_after_ms));
            // It may be over by now.
            let _ = catch_unwind(AssertUnwindSafe(|| process.signal(sent.signal())));
        }
    }
    let ended = process.wait();
    load.stop();
    let ledger = Arc::into_inner(ledger).expect("clients have ended");
    ledger.read(folder.path().join(JOURNAL)).expect("a journal");
    let verdict = accounts::with_accounts(ledger, plan).judge(&(&ended).into());
    (verdict, ended)
}

/// The phases in which accepted work is waited for.
const WAITING: [&str; 4] = [
    "service-requests-done",
    "before-cluster-shutdown",
    "before-actor-system-terminate",
    "actor-system-terminate",
];

/// Not what this machine happens to be, nor how fast it is.
fn settings(plan: &Plan) -> Vec<(String, String)> {
    let is_cut = plan.clients.iter().any(|client| client.is_cut());
    let is_stuck = plan.departments.iter().any(|department| department.is_stuck);
    let window = match (is_cut, is_stuck) {
        (true, _) => "2s",
        // Requests wait for room in the mailbox of an actor that hangs.
        (false, true) => "5s",
        (false, false) => "40s",
    };
    let mut settings = vec![("ADIEU__LAME_DUCK".to_owned(), "200ms".to_owned())];
    let mut set = |name: &str, value: &str| settings.push((name.to_owned(), value.to_owned()));
    match plan.haste {
        None => {
            set("ADIEU__KILL_AFTER", "90s");
            set(&timeout("service-requests-done"), window);
        }
        Some(Haste { allowed_ms, phase_ms }) => {
            set("ADIEU__KILL_AFTER", &format!("{allowed_ms}ms"));
            for phase in WAITING {
                phase_ms.inspect(|millis| set(&timeout(phase), &format!("{millis}ms")));
            }
        }
    }
    match plan.deviation {
        Deviation::NoDrain => set(&disabled("service-requests-done"), "false"),
        Deviation::Disabled(phase) => set(&disabled(phase), "false"),
        Deviation::KeepsActors => {
            set("ADIEU__TERMINATE_ACTOR_SYSTEM", "off");
            set("ADIEU__RUN_BY_ACTOR_SYSTEM_TERMINATE", "off");
        }
        Deviation::None | Deviation::LateBegin(_) | Deviation::PanickingTick => {}
    }
    if is_stuck {
        set(&timeout("actor-system-terminate"), "2s");
    }
    settings
}

/// Returns the variable that disables a phase.
fn disabled(phase: &str) -> String {
    variable(phase, "ENABLED")
}

/// Returns the variable with the timeout of a phase.
fn timeout(phase: &str) -> String {
    variable(phase, "TIMEOUT")
}

fn variable(phase: &str, key: &str) -> String {
    format!("ADIEU__PHASES__{}__{key}", phase.to_uppercase().replace('-', "_"))
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, plan, problem, stderr, report } = self;
        let args = case.args().join(" ");
        writeln!(f, "{problem}\n{plan}\nthe service wrote:\n{stderr}")?;
        if let Some(report) = report {
            writeln!(f, "its report:\n{report}")?;
        }
        write!(f, "repeat: cargo run --release -p adieu-tests --bin compose-fuzz -- {args}")
    }
}
