//! `adieu check`: whether what the platform allows is enough for the plan.

mod arithmetic;
mod compose;
mod config;
mod ecs;
mod environment;
mod files;
mod fly;
mod hcl;
mod hints;
mod ini;
mod input;
mod json;
mod judge;
mod kubernetes;
mod needs;
mod nomad;
mod place;
mod proxies;
mod quadlet;
mod run_line;
mod script;
mod shell;
mod spans;
mod stop_signal;
mod suggest;
mod supervisord;
mod systemd;
mod table;
mod tree;
mod verdict;
mod workload;
mod yaml;

use std::path::PathBuf;
use std::time::Duration;

use adieu::KillAfter;

pub(crate) use arithmetic::{Facts, whole_seconds};
pub(crate) use config::{environment as variables_here, file_of as config_file};
use input::Manifest;
pub(crate) use needs::{Counted, Needs};
use place::Fix;
pub(crate) use place::{Level, Place};
pub(crate) use spans::argument as span_argument;
pub(crate) use stop_signal::Handled;
use verdict::Answer;
pub(crate) use verdict::Verdict;
pub(crate) use workload::{GRACE_VAR, Grace, PRE_STOP_VAR, Supervisor, Told, Workload};

use crate::ending::{Failure, Printout, exit_code};
use crate::fit::harmless;

/// Check that the platform waits long enough before it kills, and that routers can move away.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu check --config service.toml --manifest deploy.yaml
  adieu check --config service.toml --manifest orders.service --manifest compose.yaml
  adieu check --config service.toml --grace 45s
  helm template . | adieu check --config service.toml --manifest - --json
  docker compose config | adieu check --config service.toml --manifest - --deny-warnings

A manifest is of Kubernetes (any workload, lists, Knative, Cloud Run), a systemd unit with its
drop-ins, a quadlet, a compose file, a task definition of ECS, a job of Nomad (HCL or JSON), a
fly.toml, a configuration of supervisord, or a script with docker run or podman run.

It fits if preStop + lame duck + critical path + exit + margin + sidecars <= grace,
and preStop + lame duck >= routing lag. Exit code 0 if all fit, 1 if one does not, 2 if that cannot
be seen or a file cannot be read. What cannot be seen is never counted as nothing.

Only the running process knows which phases have tasks. The usual service has them in
before-service-unbind, service-unbind, service-requests-done, service-stop and close-resources;
phases that the configuration adds or gives a timeout count, too. What actors use is closed after
them: in a step, or in a task of close-resources.

Requests have 5s at least to finish. Without drain-timeout they have what the process's deadline
leaves beyond the later phases and the reserve, so the process must know its grace period.")]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
    /// What the platform is told; `-` for standard input. May be given several times.
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,
    /// Without a manifest: how long the platform waits before it kills.
    #[arg(long, value_name = "SPAN", value_parser = spans::argument, conflicts_with = "manifest")]
    grace: Option<Duration>,
    /// Judge only the workload, container or service of this name.
    #[arg(long, value_name = "NAME", requires = "manifest")]
    only: Option<String>,
    /// How long one native sidecar takes to stop when the service has stopped.
    #[arg(long, value_name = "SPAN", value_parser = spans::argument, default_value = "2s")]
    sidecar: Duration,
    /// The signals that the process handles.
    #[arg(long, value_name = "NAME,NAME…", default_value = "SIGTERM,SIGINT")]
    signals: Handled,
    /// Scripts and shells in front of the process replace themselves with it.
    #[arg(long)]
    execs: bool,
    /// What the clients of Nomad allow at most: their max_kill_timeout, 30s unless they set it.
    #[arg(long, value_name = "SPAN", value_parser = spans::argument)]
    max_kill_timeout: Option<Duration>,
    /// Exit with 1 also if there are warnings.
    #[arg(long)]
    deny_warnings: bool,
    /// For programs: `verdict`, `needed_ms`, `allowed_ms` and `suggest` of the worst, and
    /// `workloads` with each. A verdict is `fits`, `too-short` or `unknown`.
    #[arg(long)]
    json: bool,
}

/// What is known of the service.
#[derive(clap::Args)]
pub(crate) struct About {
    /// The configuration; without it, what the environment says.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The phases that have tasks: `usual`, `all`, or their names.
    #[arg(long, value_name = "NAME,NAME…", default_value = "usual")]
    pub(crate) phases: Counted,
    /// How long routers take to stop sending; without it, 4s on Kubernetes and none elsewhere.
    #[arg(long, value_name = "SPAN", value_parser = spans::argument)]
    pub(crate) routing_lag: Option<Duration>,
}

/// A workload, where it is, and what is to be said about it.
struct Judged {
    /// Empty without a manifest.
    file: String,
    workload: Workload,
    /// Its own, if variables in the manifest change the configuration.
    needs: Option<Needs>,
    verdict: Verdict,
}

/// All that was judged, and with what.
struct Outcome {
    judged: Vec<Judged>,
    /// What runs nothing: the file, the line, and what it is.
    skipped: Vec<(String, Place, String)>,
    needs: Needs,
    /// What the configuration is called.
    config: String,
}

pub(crate) fn run(args: &Args) -> Result<Printout, Failure> {
    let needs = args.about.needs()?;
    let facts =
        Facts { routing_lag: args.about.routing_lag, sidecar: args.sidecar, handled: args.signals };
    let config = args.about.config.as_ref();
    let config = config.map_or("configuration".into(), |path| path.display().to_string());
    let mut outcome = Outcome { judged: Vec::new(), skipped: Vec::new(), needs, config };
    for path in &args.manifest {
        let Manifest { file, workloads, skipped } = Manifest::read(path, args.only.as_deref())?;
        outcome.skipped.extend(skipped.into_iter().map(|(at, what)| (file.clone(), at, what)));
        for mut workload in workloads {
            args.tell(&mut workload);
            let needs = args.about.needs_of(&workload, &file)?;
            outcome.judge(file.clone(), workload, needs, facts);
        }
    }
    if let (Some(only), true) = (&args.only, outcome.judged.is_empty()) {
        return Err(Failure::input(outcome.has_no(only)));
    }
    if args.manifest.is_empty() {
        let workload = without_manifest(&outcome.needs, args.grace);
        outcome.judge(String::new(), workload, None, facts);
    }
    let warnings = outcome.judged.iter().map(|judged| judged.verdict.warnings()).sum::<usize>();
    let is_denied = args.deny_warnings && warnings > 0;
    let mut text = if args.json { json::write(&outcome)? } else { table::draw(&outcome) };
    if is_denied && !args.json {
        text += &format!("Warnings are denied, and there are {warnings}.\n");
    }
    let code = match outcome.answer() {
        Answer::TooShort => exit_code::NO,
        Answer::Unknown => exit_code::INPUT,
        Answer::Fits if is_denied => exit_code::NO,
        Answer::Fits => exit_code::WELL,
    };
    Ok(Printout { text, code })
}

/// The configuration alone, on the platform that it names or is most often meant.
fn without_manifest(needs: &Needs, grace: Option<Duration>) -> Workload {
    let grace = match (grace, needs.config.times().kill_after) {
        (Some(grace), _) => Grace::said(Some(grace), Place::start()),
        (None, KillAfter::After(after)) => Grace::said(Some(after), Place::start()),
        (None, KillAfter::Never) => Grace::said(None, Place::start()),
        (None, KillAfter::Detect | _) => Grace::default_of(Supervisor::Unknown, Place::start()),
    };
    let seconds = grace.span.map(|span| span.as_secs());
    // A platform that is known well enough to say this tells the process, too.
    let told = Told { grace: seconds, pre_stop: None };
    Workload { grace, told, ..Workload::nameless() }
}

// === impl Args ===

impl Args {
    /// Adds what the command line knows of a workload to what its manifest says.
    fn tell(&self, workload: &mut Workload) {
        if self.execs {
            let is_said = |fix: &Fix| *fix == Fix::Exec;
            workload.findings.retain(|found| found.level != Level::Unknown || !is_said(&found.fix));
        }
        let is_nomad = matches!(workload.supervisor, Supervisor::Nomad | Supervisor::NomadDocker);
        if let (Some(most), Some(cap), true) = (self.max_kill_timeout, &mut workload.cap, is_nomad)
        {
            (cap.most, cap.assumed) = (most, false);
        }
    }
}

// === impl About ===

impl About {
    pub(crate) fn needs(&self) -> Result<Needs, Failure> {
        let (config, plan) = config::read(self.config.as_deref())?;
        Needs::new(config, plan, self.phases.clone()).map_err(Failure::input)
    }

    /// What counts if the variables of the workload are set; `None` if none of them matters.
    fn needs_of(&self, workload: &Workload, file: &str) -> Result<Option<Needs>, Failure> {
        if workload.overrides.is_empty() {
            return Ok(None);
        }
        let read = config::overridden(self.config.as_deref(), &workload.overrides);
        let (config, plan) = read.map_err(|(place, problem)| {
            Failure::input(format!("{}: {}", place.within(file), harmless(&problem)))
        })?;
        let needs = Needs::new(config, plan, self.phases.clone());
        needs.map(Some).map_err(Failure::input)
    }
}

// === impl Outcome ===

impl Outcome {
    fn judge(&mut self, file: String, workload: Workload, needs: Option<Needs>, facts: Facts) {
        let verdict = Verdict::of(needs.as_ref().unwrap_or(&self.needs), &workload, facts);
        self.judged.push(Judged { file, workload, needs, verdict });
    }

    /// The worst of all.
    fn answer(&self) -> Answer {
        let answers = self.judged.iter().map(|judged| judged.verdict.answer());
        answers.min().unwrap_or(Answer::Fits)
    }

    /// Nothing is called by the name that was asked for.
    fn has_no(&self, name: &str) -> String {
        let some = self.skipped.iter().take(10);
        let all: Vec<_> =
            some.map(|(file, place, what)| format!("{what} ({file}:{})", place.line)).collect();
        harmless(&format!("--only {name}: there is only {}", all.join(", "))).into_owned()
    }

    /// The one that is worst off.
    fn worst(&self) -> Option<&Judged> {
        self.judged.iter().min_by_key(|judged| {
            let sums = &judged.verdict.sums;
            let spare =
                sums.grace.map_or(Duration::MAX, |grace| grace.saturating_sub(sums.needed()));
            (judged.verdict.answer(), spare)
        })
    }
}
