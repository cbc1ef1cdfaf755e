//! `adieu check`: whether the platform allows enough time for the plan.

mod arithmetic;
mod compose;
mod config;
mod container_stop;
mod deploy_script;
mod ecs;
mod effects;
mod env_file;
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
mod launch;
mod needs;
mod nomad;
mod place;
mod programs;
mod proxies;
mod quadlet;
mod recognise;
mod run_flags;
mod run_line;
mod script;
mod spans;
mod stop_signal;
mod suggest;
mod supervisord;
mod systemd;
mod table;
mod takes;
mod tree;
mod verdict;
mod workload;
mod yaml;

use std::path::{Path, PathBuf};
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
be seen or a file cannot be read. A warning is about something around the shutdown, and
--deny-warnings makes it count; a note never counts.

Files beside a manifest are read: drop-ins, env files, the override of a compose file, and a
configuration that the manifest carries and ADIEU_CONFIG names. Not read: the image (its ENTRYPOINT,
STOPSIGNAL and ENV), scripts, included and extended files, secrets and maps of other files, and what
a Deployment or a unit is changed to later. Of a script, only simple commands in a row are
understood. What is not understood is `unknown`: --execs and --no-hidden-env vouch for some of it.

Of several containers in a pod, the one that is judged is named by --only, by the annotation
kubectl.kubernetes.io/default-container, or like its owner; otherwise it is the only one that is no
known helper. Containers with ADIEU__ variables are judged, too.

Only the running process knows which phases have tasks. The usual service has them in
before-service-unbind, service-unbind, service-requests-done, service-stop and close-resources;
phases that the configuration adds or gives a timeout count, too. What actors use is closed after
them: in a step, or in a task of close-resources.

Requests have 5s at least to finish. Without drain-timeout they have what the process's deadline
leaves beyond the later phases and the reserve, so the process must know its grace period.")]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
    /// The manifest to check; `-` for standard input. May be given several times.
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,
    /// Without a manifest: how long the platform waits before it kills.
    #[arg(long, value_name = "SPAN", value_parser = spans::argument, conflicts_with = "manifest")]
    grace: Option<Duration>,
    /// Judge only the workload, container or service of this name.
    #[arg(long, value_name = "NAME", requires = "manifest")]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    only: Option<String>,
    /// How long one native sidecar takes to stop when the service has stopped.
    #[arg(long, value_name = "SPAN", value_parser = spans::argument, default_value = "2s")]
    sidecar: Duration,
    /// The signals that the process handles.
    #[arg(long, value_name = "NAME,NAME…", default_value = "SIGTERM,SIGINT")]
    signals: Handled,
    #[command(flatten)]
    vouched: Vouched,
    /// The longest kill_timeout that Nomad clients allow: their max_kill_timeout, 30s by default.
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

/// Facts that cannot be seen, and that the user vouches for.
#[derive(clap::Args)]
struct Vouched {
    /// Scripts and shells in front of the process replace themselves with it.
    #[arg(long)]
    execs: bool,
    /// Secrets, maps and files of variables that cannot be seen here set no ADIEU__ variable and no
    /// grace period.
    #[arg(long)]
    no_hidden_env: bool,
}

/// The facts about the service.
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

/// A workload, its place, and its verdict.
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
    /// Documents that run nothing: the file, the line, and the kind.
    skipped: Vec<(String, Place, String)>,
    /// The files that cannot be read, each with what is wrong.
    unreadable: Vec<String>,
    needs: Needs,
    /// The name of the configuration in output.
    config: String,
}

pub(crate) fn run(args: &Args) -> Result<Printout, Failure> {
    let needs = args.about.needs()?;
    let facts =
        Facts { routing_lag: args.about.routing_lag, sidecar: args.sidecar, handled: args.signals };
    let config = args.about.config.as_ref();
    let config = config.map_or("configuration".into(), |path| path.display().to_string());
    let mut outcome = Outcome::new(needs, config);
    for path in &args.manifest {
        // One file that cannot be read does not hide what is known of the others.
        if let Err(failure) = args.judge_file(path, facts, &mut outcome) {
            outcome.unreadable.push(failure.message().to_owned());
            failure.report();
        }
    }
    if let Some(only) = &args.only
        && outcome.judged.is_empty()
        && outcome.unreadable.is_empty()
    {
        return Err(Failure::input(outcome.has_no(only)));
    }
    if args.manifest.is_empty() {
        let workload = without_manifest(&outcome.needs, args.grace);
        outcome.judge(String::new(), workload, None, facts);
    }
    let warnings = outcome.judged.iter().map(|judged| judged.verdict.warnings()).sum::<usize>();
    let is_denied = args.deny_warnings && warnings > 0;
    let mut text = match () {
        () if args.json => json::write(&outcome)?,
        () if outcome.judged.is_empty() => String::new(),
        () => table::draw(&outcome),
    };
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
    /// Judges all that is in a file; nothing of it if it cannot be read.
    fn judge_file(&self, path: &Path, facts: Facts, outcome: &mut Outcome) -> Result<(), Failure> {
        let Manifest { file, workloads, skipped } = Manifest::read(path, self.only.as_deref())?;
        let mut judged = Vec::new();
        for mut workload in workloads {
            self.tell(&mut workload);
            let needs = self.about.needs_of(&workload, &file)?;
            workload.findings.extend(config::about(self.about.config.as_deref(), &workload));
            judged.push((workload, needs));
        }
        outcome.skipped.extend(skipped.into_iter().map(|(at, what)| (file.clone(), at, what)));
        for (workload, needs) in judged {
            outcome.judge(file.clone(), workload, needs, facts);
        }
        Ok(())
    }

    /// Adds what the command line knows of a workload to what its manifest says.
    fn tell(&self, workload: &mut Workload) {
        if self.vouched.execs {
            let is_said = |fix: &Fix| *fix == Fix::Exec;
            workload.findings.retain(|found| found.level != Level::Unknown || !is_said(&found.fix));
        }
        if self.vouched.no_hidden_env {
            workload.findings.retain(|found| found.fix != Fix::Say(environment::NO_HIDDEN));
            // A variable whose name can be seen is not vouched for.
            workload.has_unseen_variables &=
                workload.findings.iter().any(|found| found.fix == Fix::Told);
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
        let is_carried = workload.configured.as_ref().is_some_and(|found| found.text.is_some());
        if workload.overrides.is_empty() && !is_carried {
            return Ok(None);
        }
        let read = config::of_workload(self.config.as_deref(), workload);
        let (config, plan) = read.map_err(|(place, problem)| {
            Failure::input(format!("{}: {}", place.within(file), harmless(&problem)))
        })?;
        let needs = Needs::new(config, plan, self.phases.clone());
        needs.map(Some).map_err(Failure::input)
    }
}

// === impl Outcome ===

impl Outcome {
    fn new(needs: Needs, config: String) -> Self {
        let (judged, skipped, unreadable) = (Vec::new(), Vec::new(), Vec::new());
        Self { judged, skipped, unreadable, needs, config }
    }

    /// Whether several workloads have one configuration.
    fn is_shared(&self) -> bool {
        self.judged.len() > 1
    }

    fn judge(&mut self, file: String, workload: Workload, needs: Option<Needs>, facts: Facts) {
        let verdict = Verdict::of(needs.as_ref().unwrap_or(&self.needs), &workload, facts);
        self.judged.push(Judged { file, workload, needs, verdict });
    }

    /// The worst of all.
    fn answer(&self) -> Answer {
        let answers = self.judged.iter().map(|judged| judged.verdict.answer());
        let unreadable = self.unreadable.iter().map(|_| Answer::Unknown);
        answers.chain(unreadable).min().unwrap_or(Answer::Fits)
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
