//! `adieu manifest`: a manifest for the platform, with times that match the plan.

mod carried;
mod compose;
mod kubernetes;
mod systemd;
mod yaml;

use std::time::Duration;

use adieu::KillAfter;
use clap::ValueEnum;

use carried::Carried;

use crate::check::{
    About, Facts, Grace, Handled, Level, Needs, Place, StatedTimes, Supervisor, Verdict, Workload,
    overrides_here, whole_seconds,
};
use crate::ending::{Failure, Printout};

/// Print a Deployment, a systemd unit or a compose service whose numbers match the plan.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu manifest --config service.toml --name orders --image registry.example/orders:1.4
  adieu manifest --config service.toml --for systemd --exec /usr/local/bin/orders
  adieu manifest --config service.toml --for compose --image orders > compose.yaml

The manifest passes `adieu check` with the same configuration and the same --phases, and contains
that configuration: as a ConfigMap, as variables of the unit, as a config of compose. A unit does
not contain a HOCON file: install it at the path in ADIEU_CONFIG.")]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
    /// The platform that stops the service.
    #[arg(long = "for", value_enum, default_value_t)]
    target: Target,
    /// The name of the service.
    #[arg(long, default_value = "service", value_parser = name)]
    name: String,
    /// The image; the name of the service if it is not given.
    #[arg(long, value_parser = one_word)]
    image: Option<String>,
    /// The number of replicas; for Kubernetes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    replicas: u32,
    /// The port for requests and probes.
    #[arg(long, default_value_t = 8080, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The admin port, if that answers the probes; for Kubernetes. It must then listen on more than
    /// 127.0.0.1.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    admin_port: Option<u16>,
    /// The program, for systemd; /usr/local/bin and the name of the service if it is not given.
    #[arg(long, value_name = "FILE", value_parser = one_word)]
    exec: Option<String>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Target {
    /// A Deployment and a PodDisruptionBudget.
    #[default]
    Kubernetes,
    /// A unit.
    Systemd,
    /// A service.
    Compose,
}

/// The values to fill in.
struct Numbers<'a> {
    name: &'a str,
    image: &'a str,
    replicas: u32,
    port: u16,
    admin_port: Option<u16>,
    grace: u64,
    pre_stop: u64,
    exec: &'a str,
    config: Carried,
}

pub(crate) fn run(args: &Args) -> Result<Printout, Failure> {
    let needs = args.about.needs(overrides_here())?;
    let facts = Facts {
        routing_lag: args.about.routing_lag,
        sidecar: Duration::ZERO,
        handled: Handled::default(),
    };
    let supervisor = match args.target {
        Target::Kubernetes => Supervisor::Kubernetes,
        Target::Systemd => Supervisor::Systemd,
        Target::Compose => Supervisor::Compose,
    };
    let (grace, pre_stop) = fitting(&needs, supervisor, facts)?;
    let exec = args.exec.clone().unwrap_or_else(|| format!("/usr/local/bin/{}", args.name));
    let numbers = Numbers {
        name: &args.name,
        image: args.image.as_deref().unwrap_or(&args.name),
        replicas: args.replicas,
        port: args.port,
        admin_port: args.admin_port,
        grace,
        pre_stop,
        exec: &exec,
        config: Carried::read(args.about.config.as_deref())?,
    };
    Ok(Printout::success(match args.target {
        Target::Kubernetes => kubernetes::write(&numbers),
        Target::Systemd => systemd::write(&numbers),
        Target::Compose => compose::write(&numbers),
    }))
}

/// Returns the grace period and the preStop, in seconds, with which the plan fits.
fn fitting(needs: &Needs, supervisor: Supervisor, facts: Facts) -> Result<(u64, u64), Failure> {
    let judge = |grace: u64, pre_stop: u64| {
        let some = |seconds: u64| (seconds > 0).then_some(seconds);
        Verdict::of(needs, &workload(supervisor, grace, pre_stop, some(pre_stop)), facts)
    };
    let kill_after = if let KillAfter::After(after) = needs.config.times().kill_after {
        Some(after)
    } else {
        None
    };
    // Behind routers, no less than Kubernetes' default, which has room for the usual lame duck.
    let is_pod = supervisor == Supervisor::Kubernetes;
    let is_routed = is_pod || facts.routing_lag.is_some();
    let least = if is_routed { Supervisor::Kubernetes.default_grace().as_secs() } else { 1 };
    let sums = judge(least, 0).sums;
    let missing = sums.lag.saturating_sub(sums.lame_duck);
    let pre_stop = if is_pod { missing.as_millis().div_ceil(1_000) } else { 0 };
    let pre_stop = u64::try_from(pre_stop).unwrap_or(u64::MAX);
    let enough = judge(least, pre_stop).sums.enough.as_secs();
    // At least as long as `kill-after`, on which the process relies.
    let declared = kill_after.map(|after| whole_seconds(after).as_secs().saturating_add(pre_stop));
    let grace = declared.unwrap_or(least).max(enough);
    let verdict = judge(grace, pre_stop);
    if verdict.fits() {
        return Ok((grace, pre_stop));
    }
    let errors = verdict.findings.iter().filter(|finding| finding.level == Level::Error);
    let problems = errors.map(|finding| finding.problem.as_str());
    let workload = workload(supervisor, grace, pre_stop, None);
    let mut changes = verdict.suggestion.lines(&workload, false);
    changes.extend(kill_after.map(|_| "or kill-after = \"auto\"".to_owned()));
    Err(Failure::no(format!(
        "no grace period fits this configuration: {}; change it: {}",
        problems.collect::<Vec<_>>().join("; "),
        changes.join(", "),
    )))
}

fn workload(supervisor: Supervisor, grace: u64, pre_stop: u64, stated: Option<u64>) -> Workload {
    Workload {
        supervisor,
        grace: Grace::said(Some(Duration::from_secs(grace)), Place::start()),
        pre_stop: Duration::from_secs(pre_stop),
        stated: StatedTimes { grace: Some(grace), pre_stop: stated },
        routed: true,
        ..Workload::nameless()
    }
}

/// Accepts names that are valid in Kubernetes, systemd and compose.
fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_valid = text.len() <= 63
        && text.chars().all(fits)
        && ends(text.chars().next())
        && ends(text.chars().last());
    if is_valid {
        return Ok(text.into());
    }
    Err("use up to 63 lower-case letters, digits and dashes, such as orders-api".into())
}

/// Accepts a value that needs no quotes.
fn one_word(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "./:@_-".contains(c);
    if !text.is_empty() && text.chars().all(fits) {
        return Ok(text.into());
    }
    Err("use letters, digits and ./:@_- only".into())
}
