//! `adieu check`: whether the platform allows enough time for the plan.

mod arithmetic;
mod base64;
mod compose;
mod config;
mod container_stop;
mod deploy_script;
mod ecs;
mod effects;
mod env_file;
mod environment;
mod expansion;
mod files;
mod fly;
mod hcl;
mod hints;
mod images;
mod ini;
mod input;
mod json;
mod judge;
mod keys;
mod kubernetes;
mod launch;
mod needs;
mod nomad;
mod paths;
mod place;
mod predecessors;
mod programs;
mod proxies;
mod quadlet;
mod recognise;
mod run_flags;
mod run_line;
mod script;
mod shell_options;
mod signs;
mod spans;
mod stop_signal;
mod suggest;
mod supervisor;
mod supervisord;
mod systemd;
mod table;
mod takes;
mod tree;
mod unit_keys;
mod verdict;
mod workload;
mod yaml;

use std::path::{Path, PathBuf};
use std::time::Duration;

use adieu::KillAfter;

pub(crate) use arithmetic::{Facts, whole_seconds};
pub(crate) use config::{applied_here, file_of as config_file, overrides_here};
use input::Manifest;
pub(crate) use needs::{Counted, Needs};
use place::{Finding, Fix};
pub(crate) use place::{Level, Place};
pub(crate) use spans::argument as span_argument;
pub(crate) use stop_signal::Handled;
pub(crate) use supervisor::{Grace, Supervisor};
use verdict::Answer;
pub(crate) use verdict::Verdict;
pub(crate) use workload::{GRACE_VAR, PRE_STOP_VAR, StatedTimes, Workload};

use crate::ending::{Failure, Printout, exit_code, note};
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

Manifests: Kubernetes (any workload, lists, Knative, Cloud Run), systemd units with their drop-ins,
podman quadlets, compose files, ECS task definitions, Nomad jobs (HCL or JSON), fly.toml,
supervisord configurations, and scripts with docker run or podman run.

A workload fits if preStop + lame duck + critical path + exit + margin + sidecars <= grace, and
preStop + lame duck >= routing lag. The exit code is 0 if all workloads fit, 1 if one does not, and
2 if the answer is unknown for one or a file cannot be read. Warnings concern problems around the
shutdown, and affect the exit code only with --deny-warnings. Notes never affect it.

Files beside a manifest are read: drop-ins, env files, the override of a compose file, the files
that it includes and the Dockerfiles that it builds, and the configuration that ADIEU_CONFIG
names, if the manifest carries it. Not read: images (their ENTRYPOINT, STOPSIGNAL and ENV),
scripts, extended files, Secrets and ConfigMaps of other files, and later changes to a workload.
In scripts, only sequences of simple commands are interpreted. The answer for anything else is
`unknown`, also for a key that is neither read nor known to have no effect on stopping. With
--execs, --no-hidden-env and --ignore-key, you state facts that cannot be seen.

Only variables of the manifest override keys, and are substituted in HOCON. Variables of the
environment in which the check runs are ignored, and named on stderr.

In a pod or a task of ECS with several containers, the judged container is the one that --only
names, the one that the annotation kubectl.kubernetes.io/default-container names, or the one with
the name of the workload; otherwise the only one that is not a known helper. If there are several,
the answer is `fits` only if each of them fits. Containers with ADIEU__ variables are judged in
addition.

Only the running process knows which phases have tasks. A usual service has tasks in
before-service-unbind, service-unbind, service-requests-done, service-stop and close-resources.
Phases that the configuration adds, or for which it sets a timeout, count in addition. Resources of
actors are closed after the actors: in a step, or in a task of close-resources.

Requests have at least 5s to finish. Without drain-timeout they have the time that the deadline of
the process leaves beyond the later phases and the reserve, so the process must know its grace
period.")]
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
    stated_facts: Statements,
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

/// Facts that cannot be seen in a manifest, and that the user states.
#[derive(clap::Args)]
struct Statements {
    /// State that scripts and shells in front of the process replace themselves with it.
    #[arg(long)]
    execs: bool,
    /// State that Secrets, ConfigMaps and env files that cannot be seen here set no ADIEU__ variable
    /// and no grace period.
    #[arg(long)]
    no_hidden_env: bool,
    /// State that a key of a manifest has no effect on how the process is stopped. May be given
    /// several times.
    #[arg(long, value_name = "KEY")]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    ignore_key: Vec<String>,
}

/// The facts about the service.
#[derive(clap::Args)]
pub(crate) struct About {
    /// The configuration; without it, the file that ADIEU_CONFIG names.
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
    /// The errors about files that cannot be read.
    unreadable: Vec<String>,
    needs: Needs,
    /// The name of the configuration in output.
    config: String,
}

pub(crate) fn run(args: &Args) -> Result<Printout, Failure> {
    let needs = args.needs()?;
    let ignored: Vec<_> = applied_here(args.about.config.as_deref()).into_iter().collect();
    if !ignored.is_empty() {
        let names = ignored.join(", ");
        note(&format!(
            "variables of this environment are not applied: {names}; set them in the manifest"
        ));
    }
    let facts =
        Facts { routing_lag: args.about.routing_lag, sidecar: args.sidecar, handled: args.signals };
    let config = config_file(args.about.config.as_deref());
    let config = config.map_or("configuration".into(), |path| path.display().to_string());
    let mut outcome = Outcome::new(needs, config);
    for path in &args.manifest {
        // One file that cannot be read does not hide the answers for the others.
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
        Answer::Fits => exit_code::SUCCESS,
    };
    Ok(Printout { text, code })
}

/// Judges the configuration alone, on the platform that it names, or else on the most common one.
fn without_manifest(needs: &Needs, grace: Option<Duration>) -> Workload {
    let grace = match (grace, needs.config.times().kill_after) {
        (Some(grace), _) => Grace::said(Some(grace), Place::start()),
        (None, KillAfter::After(after)) => Grace::said(Some(after), Place::start()),
        (None, KillAfter::Never) => Grace::said(None, Place::start()),
        (None, KillAfter::Detect | _) => Grace::default_of(Supervisor::Unknown, Place::start()),
    };
    let seconds = grace.span.map(|span| span.as_secs());
    // The process gets the grace period, too.
    let stated = StatedTimes { grace: seconds, pre_stop: None };
    Workload { grace, stated, ..Workload::nameless() }
}

// === impl Args ===

impl Args {
    /// Judges the workloads of a file, or none of them if the file cannot be read.
    fn judge_file(&self, path: &Path, facts: Facts, outcome: &mut Outcome) -> Result<(), Failure> {
        let Manifest { file, workloads, skipped } = Manifest::read(path, self.only.as_deref())?;
        let mut judged = Vec::new();
        for mut workload in workloads {
            let candidates = std::mem::take(&mut workload.candidates);
            let needs = self.complete(&mut workload, &file, facts)?;
            if !candidates.is_empty() {
                let place = workload.place.clone();
                let finding = self.choose(place, candidates, &file, facts, &outcome.needs)?;
                workload.findings.push(finding);
            }
            judged.push((workload, needs));
        }
        outcome.skipped.extend(skipped.into_iter().map(|(at, what)| (file.clone(), at, what)));
        for (workload, needs) in judged {
            outcome.judge(file.clone(), workload, needs, facts);
        }
        Ok(())
    }

    /// Reads the configuration without variables. The manifests may set variables without which it
    /// cannot be read: then each workload has its own.
    fn needs(&self) -> Result<Needs, Failure> {
        let path = self.about.config.as_deref();
        self.about.needs(Vec::new()).or_else(|failure| {
            let is_left_to_manifests = !self.manifest.is_empty() && config::needs_variables(path);
            if !is_left_to_manifests {
                return Err(failure);
            }
            let config = adieu::Config::new();
            let plan = config.plan().map_err(|error| Failure::input(error.to_string()))?;
            Needs::new(config, plan, self.about.phases.clone()).map_err(Failure::input)
        })
    }

    /// Applies to a workload what its manifest does not contain. Returns its own configuration, if it
    /// has one.
    fn complete(
        &self,
        workload: &mut Workload,
        file: &str,
        facts: Facts,
    ) -> Result<Option<Needs>, Failure> {
        for late in std::mem::take(&mut workload.late) {
            self.charge_late(&late, workload, file, facts)?;
        }
        self.apply_statements(workload);
        let needs = self.about.needs_of(workload, file)?;
        workload.findings.extend(config::about(self.about.config.as_deref(), workload));
        Ok(needs)
    }

    /// Judges the other containers that the configuration may be for. If all of them fit, it does not
    /// matter which of them is meant.
    fn choose(
        &self,
        place: Place,
        candidates: Vec<Workload>,
        file: &str,
        facts: Facts,
        shared: &Needs,
    ) -> Result<Finding, Failure> {
        let (mut names, mut all_fit) = (Vec::new(), true);
        for mut candidate in candidates {
            let needs = self.complete(&mut candidate, file, facts)?;
            all_fit &= Verdict::of(needs.as_ref().unwrap_or(shared), &candidate, facts).fits();
            names.push(candidate.container);
        }
        let names = names.join(", ");
        let (level, problem) = match all_fit {
            true => (
                Level::Note,
                format!("the configuration may be for {names} instead, which fits, too"),
            ),
            false => (
                Level::Unknown,
                format!("the configuration may be for {names} instead, which is not known to fit"),
            ),
        };
        let advice = "name the container that the configuration is for with --only";
        Ok(Finding::new(level, place, problem, advice))
    }

    /// Charges a workload with the whole shutdown of a process that is signalled when it has ended.
    fn charge_late(
        &self,
        late: &Workload,
        workload: &mut Workload,
        file: &str,
        facts: Facts,
    ) -> Result<(), Failure> {
        let own = match self.about.needs_of(late, file)? {
            Some(own) => own,
            None => self.about.needs(Vec::new())?,
        };
        let sums = arithmetic::Sums::of(&own, late, facts);
        // Its margin is a part of its own time, and does not grow with the time of the pod.
        workload.sidecar_hooks = workload.sidecar_hooks.saturating_add(sums.enough);
        workload.findings.extend(late.findings.iter().cloned());
        workload.findings.extend(config::about(self.about.config.as_deref(), late));
        if sums.drain_is_open_ended {
            let problem = format!(
                "{} is signalled when the service has ended, and drains as long as it assumes to \
                 have time",
                late.container
            );
            let advice = "set ADIEU__DRAIN_TIMEOUT in its environment";
            let finding = Finding::new(Level::Unknown, late.place.clone(), problem, advice);
            workload.findings.push(finding);
        }
        Ok(())
    }

    /// Applies the facts of the command line to a workload.
    fn apply_statements(&self, workload: &mut Workload) {
        if self.stated_facts.execs {
            let is_stated = |fix: &Fix| *fix == Fix::Exec;
            workload
                .findings
                .retain(|found| found.level != Level::Unknown || !is_stated(&found.fix));
        }
        if self.stated_facts.no_hidden_env {
            workload.findings.retain(|found| found.fix != Fix::Say(environment::NO_HIDDEN));
            // The option does not cover a variable whose name can be seen.
            workload.has_unseen_variables &=
                workload.findings.iter().any(|found| found.fix == Fix::StateGrace);
        }
        let is_ignored =
            |fix: &Fix| matches!(fix, Fix::Key(key) if self.stated_facts.ignore_key.contains(key));
        workload.findings.retain(|found| !is_ignored(&found.fix));
        let is_nomad = matches!(workload.supervisor, Supervisor::Nomad | Supervisor::NomadDocker);
        if let (Some(most), Some(cap), true) = (self.max_kill_timeout, &mut workload.cap, is_nomad)
        {
            (cap.most, cap.assumed) = (most, false);
        }
    }
}

// === impl About ===

impl About {
    /// Reads the configuration under these variables.
    pub(crate) fn needs(&self, variables: config::Variables) -> Result<Needs, Failure> {
        let (config, plan) = config::read(self.config.as_deref(), variables)?;
        Needs::new(config, plan, self.phases.clone()).map_err(Failure::input)
    }

    /// Reads the configuration under the variables of a workload. Returns `None` if it is the same
    /// for every workload.
    fn needs_of(&self, workload: &Workload, file: &str) -> Result<Option<Needs>, Failure> {
        if !config::is_own(self.config.as_deref(), workload) {
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

    /// Returns whether several workloads have one configuration.
    fn is_shared(&self) -> bool {
        self.judged.len() > 1
    }

    fn judge(&mut self, file: String, workload: Workload, needs: Option<Needs>, facts: Facts) {
        let verdict = Verdict::of(needs.as_ref().unwrap_or(&self.needs), &workload, facts);
        self.judged.push(Judged { file, workload, needs, verdict });
    }

    /// Returns the worst answer.
    fn answer(&self) -> Answer {
        let answers = self.judged.iter().map(|judged| judged.verdict.answer());
        let unreadable = self.unreadable.iter().map(|_| Answer::Unknown);
        answers.chain(unreadable).min().unwrap_or(Answer::Fits)
    }

    /// Returns the error for a name of `--only` that no workload has.
    fn has_no(&self, name: &str) -> String {
        let some = self.skipped.iter().take(10);
        let all: Vec<_> =
            some.map(|(file, place, what)| format!("{what} ({file}:{})", place.line)).collect();
        harmless(&format!("--only {name}: there is only {}", all.join(", "))).into_owned()
    }

    /// Returns the workload with the worst answer, and of several the one with the least time left.
    fn worst(&self) -> Option<&Judged> {
        self.judged.iter().min_by_key(|judged| {
            let sums = &judged.verdict.sums;
            let spare =
                sums.grace.map_or(Duration::MAX, |grace| grace.saturating_sub(sums.needed()));
            (judged.verdict.answer(), spare)
        })
    }
}
