//! One run of the shutdown: the machine, and the facts on which the machine must not depend.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::accounts::Unfinished;
use super::declared::Declared;
use super::machine::{Effects, Machine, PhaseRun, PhaseState, TaskRun, TaskState};
use crate::budget::{Budget, Limits};
use crate::config::Config;
use crate::deadline::LiveDeadline;
use crate::log_thread::LogProgress;
use crate::outcome::{Ending, Outcome, SkipCause};
use crate::plan::{PhaseId, Plan, Rank};
use crate::policy::Policy;
use crate::reason::Reason;
use crate::registry::Registry;
use crate::report::{ExitCauses, Finding, PhaseReport, Report, TaskReport};
use crate::status::{Stage, Status, UncleanTask, WaitingFor};
use crate::task::{Describe, Detail, LazySpan, RunCx, TaskId, ask};
use crate::time::{Instant, wall_clock};

pub(super) struct Run {
    pub(super) machine: Machine,
    pub(super) cx: Arc<RunCx>,
    pub(super) policy: Policy,
    reason_name: String,
    plan: Plan,
    budget: Budget,
    started_at: String,
    /// The functions of tasks that describe what the task waits for.
    describes: HashMap<TaskId, Describe>,
    /// The descriptions of tasks that failed.
    details: HashMap<TaskId, Arc<Detail>>,
    /// The errors of tasks that returned them after their time was up.
    late_errors: HashMap<TaskId, Arc<str>>,
    /// The accepted work that was not finished, as of the end of the run.
    unfinished: Vec<Unfinished>,
    /// Why the process exits with another code than that of the phases, as of the end of the run.
    exit_causes: ExitCauses,
    /// The last report, until it is published.
    made: Option<Report>,
    /// The last report, from when it is about to be published.
    published: Option<Arc<Report>>,
}

/// The reason of a run, and the values that it determines. Reasons can be code of the application, which
/// must not run under a lock, so these values are read once, before.
pub(super) struct Cause {
    reason: Reason,
    pub(super) name: String,
    pub(super) has_signal: bool,
    pub(super) policy: Policy,
}

/// The facts that decide how a run goes.
pub(super) struct Beginning {
    pub(super) cause: Cause,
    pub(super) from: Option<PhaseId>,
    pub(super) plan: Plan,
    pub(super) budget: Budget,
    pub(super) limits: Limits,
    pub(super) log: LogProgress,
}

/// A status without the descriptions of the tasks.
#[derive(Clone)]
pub(super) struct Undescribed {
    stage: Stage,
    reason: String,
    elapsed: Duration,
    remaining: Duration,
    waiting_for: Vec<(WaitingFor, Option<Describe>)>,
    unclean: Vec<UncleanTask>,
}

/// How the names of tasks get into a report.
#[derive(Clone, Copy)]
enum Names {
    /// Moves the names into the report, because the run no longer needs them. Cloning an `Arc` for each
    /// of very many names would cost more than the rest of the report.
    Move,
    Share,
}

// === impl Cause ===

impl Cause {
    pub(super) fn of(reason: Reason, config: &Config) -> Self {
        Self {
            name: reason.to_string(),
            has_signal: reason.signal().is_some(),
            policy: config.policies.of(&reason),
            reason,
        }
    }
}

// === impl Run ===

impl Run {
    pub(super) fn new(now: Instant, beginning: Beginning) -> Self {
        let Beginning { cause, from, plan, budget, limits, log } = beginning;
        let Cause { reason, name: reason_name, has_signal: _, policy } = cause;
        Self {
            machine: Machine::new(&plan, from, limits, now),
            cx: Arc::new(RunCx {
                reason,
                deadline: LiveDeadline::new(now, limits.deadline),
                hurry: CancellationToken::new(),
                span: LazySpan::default(),
                log,
            }),
            policy,
            reason_name,
            plan,
            budget,
            started_at: humantime::format_rfc3339_millis(wall_clock()).to_string(),
            describes: HashMap::new(),
            details: HashMap::new(),
            late_errors: HashMap::new(),
            unfinished: Vec::new(),
            exit_causes: ExitCauses::default(),
            made: None,
            published: None,
        }
    }

    /// Returns the limits within which an aborted run continues.
    ///
    /// The platform's deadline stays. If that has passed, or there was none, the time starts again.
    pub(super) fn renew(&mut self, now: Instant) -> Limits {
        let mut limits = self.machine.limits();
        if self.budget.kill_after.is_none() || limits.deadline <= now {
            limits = self.budget.begin(now, &self.plan);
        }
        self.cx = Arc::new(RunCx {
            reason: self.cx.reason.clone(),
            deadline: LiveDeadline::new(now, limits.deadline),
            hurry: self.cx.hurry.clone(),
            span: LazySpan::default(),
            log: self.cx.log.clone(),
        });
        limits
    }

    pub(super) fn resume(&mut self, from: PhaseId, limits: Limits, now: Instant) -> Effects {
        self.published = None;
        self.machine.resume(&self.plan, from, limits, now)
    }

    /// Returns the worst case of all phases after this one, with the tasks that were declared, and with
    /// two graces for each phase: until a task is aborted, and until it is abandoned.
    pub(super) fn rest_after(&self, phase: PhaseId, declared: &Declared) -> Duration {
        let Declared { plan, registry, .. } = declared;
        let graces = 2 * self.machine.limits().grace;
        let takes = |id: PhaseId| Some(registry.takes(id, plan.timeout_of(id.0))? + graces);
        self.plan.around(phase, takes).1
    }

    pub(super) fn rank_of(&self, phase: PhaseId) -> Rank {
        self.plan.get(phase).rank()
    }

    pub(super) fn add_describe(&mut self, task: TaskId, describe: Describe) {
        self.describes.insert(task, describe);
    }

    pub(super) fn describe_of(&self, task: TaskId) -> Option<Describe> {
        self.describes.get(&task).cloned()
    }

    pub(super) fn add_detail(&mut self, task: TaskId, detail: Arc<Detail>) {
        self.details.insert(task, detail);
    }

    pub(super) fn add_late_error(&mut self, task: TaskId, error: Arc<str>) {
        self.late_errors.insert(task, error);
    }

    pub(super) fn late_error_of(&self, task: TaskId) -> Option<Arc<str>> {
        self.late_errors.get(&task).cloned()
    }

    /// Sets the problems that no task has reported.
    pub(super) fn set_problems(&mut self, unfinished: Vec<Unfinished>, causes: ExitCauses) {
        (self.unfinished, self.exit_causes) = (unfinished, causes);
    }

    /// Returns how the run ended. It is clean only if all accepted work was finished, and if the process
    /// does not fail for another cause.
    fn ending(&self) -> Ending {
        let ending = self.machine.ending();
        let has_problems = !self.unfinished.is_empty() || !self.exit_causes.is_empty();
        if ending == Ending::Clean && has_problems { Ending::Unclean } else { ending }
    }

    pub(super) fn status(&self, stage: Stage, now: Instant) -> Undescribed {
        let machine = &self.machine;
        let running = machine.phases().iter().filter(|phase| is_running(phase));
        let tasks = running.flat_map(|phase| phase.tasks.clone()).map(TaskId);
        let mut waiting_for: Vec<_> = tasks
            .map(|id| (id, machine.task(id)))
            .filter(|(_, task)| !matches!(task.state, TaskState::Over { .. }))
            .map(|(id, task)| {
                let waiting = WaitingFor {
                    phase: machine.phase(task.phase).name.to_string(),
                    task: Arc::clone(&task.name),
                    age: now.saturating_duration_since(machine.started(task).unwrap_or(now)),
                    left: machine
                        .cut_of(task)
                        .map_or(Duration::ZERO, |cut| cut.saturating_duration_since(now)),
                    detail: None,
                };
                (waiting, self.describe_of(id))
            })
            .collect();
        waiting_for.sort_by_key(|(waiting, _)| std::cmp::Reverse(waiting.age));
        Undescribed {
            stage,
            reason: self.reason_name.clone(),
            elapsed: now.saturating_duration_since(machine.began()),
            remaining: self.cx.deadline.get().saturating_duration_since(now),
            waiting_for,
            unclean: self.unclean(),
        }
    }

    /// Lists the tasks that have ended and were not clean.
    fn unclean(&self) -> Vec<UncleanTask> {
        let machine = &self.machine;
        let phases = machine.phases().iter().map(|phase| (phase, machine.tasks_of(phase)));
        let ended = phases.flat_map(|(phase, tasks)| {
            tasks.iter().filter_map(move |task| match &task.state {
                TaskState::Over { outcome, .. } => Some((phase, task, outcome)),
                TaskState::Running | TaskState::Cancelling(_) | TaskState::Aborting(_) => None,
            })
        });
        let unclean = ended.filter(|(_, _, outcome)| !outcome.is_clean());
        let listed = unclean.map(|(phase, task, outcome)| UncleanTask {
            phase: phase.name.to_string(),
            task: Arc::clone(&task.name),
            outcome: outcome.clone(),
        });
        listed.collect()
    }

    /// Makes the report of a run that is over. Returns how it ended, and how long it took.
    pub(super) fn end(&mut self, registry: &Registry, now: Instant) -> (Ending, Duration) {
        let outcome = self.ending();
        // After a clean end the run is not resumed, and its status lists no tasks.
        let names = if outcome == Ending::Clean { Names::Move } else { Names::Share };
        let report = self.make_report(registry, now, names);
        let took = report.took;
        self.made = Some(report);
        (outcome, took)
    }

    /// Returns the report that was made at the end, with all details, to be published.
    pub(super) fn take_report(&mut self) -> Option<Arc<Report>> {
        let mut report = self.made.take()?;
        self.add_details_to(&mut report);
        let report = Arc::new(report);
        self.published = Some(Arc::clone(&report));
        Some(report)
    }

    /// Returns the report of a process that ends now for these causes: of a run that is over, or of one
    /// that is in progress, with work that is not finished.
    pub(super) fn report_so_far(
        &mut self,
        unfinished: Vec<Unfinished>,
        causes: ExitCauses,
        registry: &Registry,
        now: Instant,
    ) -> Report {
        if let Some(published) = &self.published {
            let mut report = Report::clone(published);
            causes.add_to(&mut report);
            return report;
        }
        self.exit_causes = causes;
        let mut report = match self.made.clone() {
            Some(made) => made,
            None => {
                self.unfinished = unfinished;
                self.make_report(registry, now, Names::Share)
            }
        };
        self.add_details_to(&mut report);
        report
    }

    fn make_report(&mut self, registry: &Registry, now: Instant, names: Names) -> Report {
        let outcome = self.ending();
        let phases = 0..self.plan.len();
        Report {
            exit_code: self.policy.exit_code_of(&outcome),
            outcome,
            reason: self.reason_name.clone(),
            started_at: self.started_at.clone(),
            took: self.since_began(now),
            allowed: self.since_began(self.cx.deadline.get()),
            phases: phases
                .map(|at| self.phase_report(self.plan.ordered_ids()[at], registry, names))
                .collect(),
            findings: Vec::new(),
        }
    }

    fn phase_report(&mut self, id: PhaseId, registry: &Registry, names: Names) -> PhaseReport {
        let tasks = self.machine.phase(id).tasks.clone();
        let mut tasks: Vec<_> = tasks.map(|task| self.task_report(TaskId(task), names)).collect();
        let (planned, run) = (self.plan.get(id), self.machine.phase(id));
        // If the process ends before the shutdown is over, phases are running.
        let (outcome, started, ended) = match &run.state {
            PhaseState::Over { outcome, ran } => {
                (outcome.clone(), ran.map(|(from, _)| from), ran.map(|(_, to)| to))
            }
            PhaseState::Running { since, .. } => (Outcome::Abandoned, Some(*since), None),
            PhaseState::Waiting | PhaseState::Opening => {
                (Outcome::Skipped { because: SkipCause::OutOfTime }, None, None)
            }
        };
        // The tasks of a phase that was skipped are still in the registry.
        tasks.extend(registry.pending(id).map(|entry| TaskReport {
            name: Arc::clone(&entry.name),
            outcome: outcome.clone(),
            detail: None,
            started: None,
            took: None,
        }));
        PhaseReport {
            name: planned.name().to_string(),
            depends_on: self.plan.depends_on(planned).map(ToString::to_string).collect(),
            timeout: run.timeout(),
            started: started.map(|from| self.since_began(from)),
            took: started.zip(ended).map(|(from, to)| to.saturating_duration_since(from)),
            tasks,
            outcome,
        }
    }

    /// Adds the descriptions of tasks that failed, and of work that was not finished.
    fn add_details_to(&self, report: &mut Report) {
        let unfinished = self.unfinished.iter();
        report.findings = unfinished
            .map(|Unfinished { name, what, .. }| Finding::new(Arc::clone(name), what.text()))
            .collect();
        self.exit_causes.add_to(report);
        // Most shutdowns have no details, and some have very many tasks.
        if self.details.is_empty() && self.late_errors.is_empty() {
            return;
        }
        for (phase, &id) in report.phases.iter_mut().zip(self.plan.ordered_ids()) {
            let tasks = self.machine.phase(id).tasks.clone();
            for (task, id) in phase.tasks.iter_mut().zip(tasks) {
                let detail = self.details.get(&TaskId(id)).map(|detail| detail.text());
                task.detail = match self.late_errors.get(&TaskId(id)) {
                    Some(error) => Some(with_error(detail.unwrap_or_default(), error)),
                    None => detail,
                };
            }
        }
    }

    fn task_report(&mut self, id: TaskId, names: Names) -> TaskReport {
        let name = match names {
            Names::Move => self.machine.take_name(id),
            Names::Share => Arc::clone(&self.machine.task(id).name),
        };
        let task: &TaskRun = self.machine.task(id);
        let (outcome, took) = match &task.state {
            TaskState::Over { outcome, took } => (outcome.clone(), Some(*took)),
            TaskState::Running | TaskState::Cancelling(_) | TaskState::Aborting(_) => {
                (Outcome::Abandoned, None)
            }
        };
        TaskReport {
            name,
            outcome,
            detail: None,
            started: self.machine.started(task).map(|at| self.since_began(at)),
            took,
        }
    }

    fn since_began(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.machine.began())
    }
}

/// Adds the error of a task to its description, which may contain it already.
pub(super) fn with_error(description: String, error: &str) -> String {
    if description.contains(error) {
        description
    } else if description.is_empty() {
        error.to_owned()
    } else {
        format!("{error}; {description}")
    }
}

fn is_running(phase: &PhaseRun) -> bool {
    matches!(phase.state, PhaseState::Running { .. })
}

// === impl Undescribed ===

impl Undescribed {
    /// Returns how long it is until the first of these tasks is cancelled.
    pub(super) fn until_cut(&self) -> Option<Duration> {
        self.waiting_for.iter().map(|(waiting, _)| waiting.left).min()
    }

    /// Returns the status without descriptions, for callers that cannot wait for them.
    pub(super) fn without_details(self) -> Status {
        self.described_by(|_| None)
    }

    /// Has the tasks describe what they wait for. This runs code of the application, so it must not be
    /// called under a lock.
    pub(super) fn describe(self) -> Status {
        self.described_by(|describe| Some(ask(describe)))
    }

    fn described_by(self, describe_task: impl Fn(&Describe) -> Option<String>) -> Status {
        let Self { stage, reason, elapsed, remaining, waiting_for, unclean } = self;
        let described = waiting_for.into_iter().map(|(waiting, describe)| WaitingFor {
            detail: describe.as_ref().and_then(&describe_task).filter(|text| !text.is_empty()),
            ..waiting
        });
        let (reason, waiting_for) = (Some(reason), described.collect());
        Status { stage, reason, elapsed, remaining, waiting_for, unclean }
    }
}
