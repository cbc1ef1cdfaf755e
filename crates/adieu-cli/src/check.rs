//! `adieu check`: whether what the platform allows is enough for the plan.

mod arithmetic;
mod command;
mod compose;
mod input;
mod json;
mod judge;
mod kubernetes;
mod needs;
mod place;
mod spans;
mod suggest;
mod systemd;
mod table;
mod workload;
mod yaml;

use std::path::PathBuf;
use std::time::Duration;

use adieu::KillAfter;

pub(crate) use arithmetic::{Facts, Verdict, whole_seconds};
use input::Manifest;
pub(crate) use needs::{Counted, Needs};
pub(crate) use place::{Level, Place};
pub(crate) use spans::argument as span_argument;
pub(crate) use workload::{GRACE_VAR, Grace, PRE_STOP_VAR, Supervisor, Told, Workload};

use crate::{Failure, Said, plan};

/// Check that the platform waits long enough before it kills, and that routers can move away.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu check --config service.toml --manifest deploy.yaml
  adieu check --config service.toml --manifest orders.service --manifest compose.yaml
  adieu check --config service.toml --grace 45s
  helm template . | adieu check --config service.toml --manifest - --json

A manifest is of Kubernetes (any workload, several documents), a systemd unit or a compose file.
It fits if preStop + lame duck + critical path + exit + margin + sidecars <= grace,
and preStop + lame duck >= routing lag. Exit code 0 if all fit, 1 if one does not.

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
    /// For programs: `fits`, `needed_ms`, `allowed_ms` and `suggest` of the worst, and
    /// `workloads` with each.
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

pub(crate) fn run(args: &Args) -> Result<Said, Failure> {
    let needs = args.about.needs()?;
    let facts = Facts { routing_lag: args.about.routing_lag, sidecar: args.sidecar };
    let config = args.about.config.as_ref();
    let config = config.map_or("configuration".into(), |path| path.display().to_string());
    let mut outcome = Outcome { judged: Vec::new(), skipped: Vec::new(), needs, config };
    for path in &args.manifest {
        let Manifest { file, workloads, skipped, documents: _ } =
            Manifest::read(path, args.only.as_deref())?;
        outcome.skipped.extend(skipped.into_iter().map(|(at, what)| (file.clone(), at, what)));
        for workload in workloads {
            outcome.judge(file.clone(), workload, facts);
        }
    }
    if let (Some(only), true) = (&args.only, outcome.judged.is_empty()) {
        return Err(Failure::input(outcome.has_no(only)));
    }
    if args.manifest.is_empty() {
        let workload = without_manifest(&outcome.needs, args.grace);
        outcome.judge(String::new(), workload, facts);
    }
    let text = if args.json { json::write(&outcome)? } else { table::draw(&outcome) };
    Ok(Said::yes_or_no(outcome.fits(), text))
}

/// The configuration alone, on the platform that it names or is most often meant.
fn without_manifest(needs: &Needs, grace: Option<Duration>) -> Workload {
    let grace = match (grace, needs.config.times().kill_after) {
        (Some(grace), _) => Grace::said(Some(grace), Place::start()),
        (None, KillAfter::After(after)) => Grace::said(Some(after), Place::start()),
        (None, KillAfter::Never) => Grace::said(None, Place::start()),
        (None, KillAfter::Detect | _) => Grace::habit_of(Supervisor::Unknown, Place::start()),
    };
    let seconds = grace.span.map(|span| span.as_secs());
    // Whoever gives it the time tells it so.
    let told = Told { grace: seconds, pre_stop: None };
    Workload { grace, told, ..Workload::nameless() }
}

// === impl About ===

impl About {
    pub(crate) fn needs(&self) -> Result<Needs, Failure> {
        let (config, plan) = plan::read(self.config.as_deref())?;
        Needs::new(config, plan, self.phases.clone()).map_err(Failure::input)
    }
}

// === impl Outcome ===

impl Outcome {
    fn judge(&mut self, file: String, workload: Workload, facts: Facts) {
        let verdict = Verdict::of(&self.needs, &workload, facts);
        self.judged.push(Judged { file, workload, verdict });
    }

    fn fits(&self) -> bool {
        self.judged.iter().all(|judged| judged.verdict.fits())
    }

    /// Nothing is called by the name that was asked for.
    fn has_no(&self, name: &str) -> String {
        let some = self.skipped.iter().take(10);
        let all: Vec<_> =
            some.map(|(file, place, what)| format!("{what} ({file}:{})", place.line)).collect();
        format!("--only {name}: there is only {}", all.join(", "))
    }

    /// The one that is worst off.
    fn worst(&self) -> Option<&Judged> {
        self.judged.iter().min_by_key(|judged| {
            let sums = &judged.verdict.sums;
            let spare =
                sums.grace.map_or(Duration::MAX, |grace| grace.saturating_sub(sums.needed()));
            (judged.verdict.fits(), spare)
        })
    }
}
