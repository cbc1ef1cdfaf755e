//! `adieu breaker`: the policies of a service, and opening them by hand, through the admin port of any
//! replica.

use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;

use crate::admin::{Connect, Page, duration};
use crate::cluster::encoded;
use crate::consent;
use crate::duration::short;
use crate::ending::{Failure, Printout};
use crate::fit::harmless;

/// See the policies of a service, or open and release one in its whole fleet, through an admin port.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu breaker list
  adieu breaker open payments --for 10m --by ops
  adieu breaker release payments pod-7:8558")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    List(List),
    Open(Open),
    Release(Release),
}

/// List the policies of a service, and the state of their breakers.
#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    connect: Connect,
    /// Print what the admin port answers, for programs.
    #[arg(long)]
    json: bool,
}

/// Refuse every call of a policy for a time, in all replicas that share it.
#[derive(clap::Args)]
struct Open {
    /// The policy, as `adieu breaker list` shows it.
    policy: String,
    #[command(flatten)]
    connect: Connect,
    /// For how long: from a millisecond to a day.
    #[arg(long = "for", value_name = "DURATION", value_parser = in_millis)]
    time: Duration,
    /// The name of the person or tool that requests it. The replicas log and show it.
    #[arg(long, value_name = "NAME", default_value = "adieu breaker")]
    by: String,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// Undo `open`: the calls of a policy pass again.
#[derive(clap::Args)]
struct Release {
    /// The policy, as `adieu breaker list` shows it.
    policy: String,
    #[command(flatten)]
    connect: Connect,
    /// The name of the person or tool that requests it.
    #[arg(long, value_name = "NAME", default_value = "adieu breaker")]
    by: String,
}

pub(crate) async fn run(args: &Args) -> Result<Printout, Failure> {
    match &args.command {
        Command::List(args) => list(args).await,
        Command::Open(args) => open(args).await,
        Command::Release(args) => release(args).await,
    }
}

async fn list(args: &List) -> Result<Printout, Failure> {
    let page = match args.connect.page("/resilience").await? {
        Page::Shown(page) => page,
        Page::Gone(failure) => return Err(failure),
    };
    if args.json {
        let json = serde_json::to_string_pretty(&page);
        let json = json.map_err(|error| Failure::unable(error.to_string()))?;
        return Ok(Printout::success(json + "\n"));
    }
    let policies = page["policies"].as_array().ok_or_else(|| {
        let target = args.connect.target();
        Failure::unable(format!("{target} shows policies that this version cannot read"))
    })?;
    if policies.is_empty() {
        return Ok(Printout::success("no policies\n".to_owned()));
    }
    let width = policies.iter().filter_map(|policy| policy["name"].as_str()).map(str::len).max();
    let mut out = String::new();
    for policy in policies {
        let name = harmless(policy["name"].as_str().unwrap_or("?")).into_owned();
        let (width, state) = (width.unwrap_or(0), harmless(&described(policy)).into_owned());
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:width$}  {state}");
    }
    Ok(Printout::success(out))
}

/// `forced open for 9m 58s by ops; breaker closed; shared as checkout by 3 replicas`
fn described(policy: &Value) -> String {
    let time = |value: &Value| value.as_u64().map(|millis| short(Duration::from_millis(millis)));
    let mut parts = Vec::new();
    let forced = &policy["forced"];
    if let Some(left) = time(&forced["left_ms"]) {
        let by = forced["by"].as_str().map_or_else(String::new, |by| format!(" by {by}"));
        parts.push(format!("forced open for {left}{by}"));
    }
    let breaker = &policy["breaker"];
    parts.push(match (breaker["state"].as_str(), time(&breaker["left_ms"])) {
        (None, _) => "no breaker".to_owned(),
        (Some(state), None) => format!("breaker {state}"),
        (Some(state), Some(left)) => format!("breaker {state} for {left}"),
    });
    if let Some(open @ 1..) = policy["open_keys"].as_u64() {
        parts.push(format!("{open} of {} keys open", policy["keys"]));
    }
    let store = &policy["store"];
    if let Some(service) = store["service"].as_str() {
        let away = if store["away"] == true { ", store away" } else { "" };
        parts.push(format!("shared as {service} by {} replicas{away}", store["replicas"]));
    }
    parts.join("; ")
}

/// Parses a duration of at least a millisecond: the admin port takes no less.
fn in_millis(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < Duration::from_millis(1) => {
            Err("the duration must be at least a millisecond".into())
        }
        time => Ok(time),
    }
}

async fn open(args: &Open) -> Result<Printout, Failure> {
    let Open { policy, connect, time, by, yes } = args;
    let question = format!(
        "open {policy} at {} for {}? All its calls are refused, in every replica that shares it.",
        connect.target(),
        short(*time)
    );
    consent::ask(&question, *yes)?;
    let (name, by) = (encoded(policy), encoded(by));
    let path = format!("/resilience/open?policy={name}&millis={}&by={by}", time.as_millis());
    let done = connect.command(&path).await?;
    let line = format!("{policy} is open for {}, {}\n", short(*time), reach(&done));
    Ok(Printout::success(line))
}

async fn release(args: &Release) -> Result<Printout, Failure> {
    let Release { policy, connect, by } = args;
    let path = format!("/resilience/release?policy={}&by={}", encoded(policy), encoded(by));
    let done = connect.command(&path).await?;
    Ok(Printout::success(format!("{policy} is released, {}\n", reach(&done))))
}

/// Returns where the change is in effect: in all replicas, or in this process.
fn reach(done: &Value) -> String {
    match done["service"].as_str() {
        Some(service) => format!("in all replicas of {}", harmless(service)),
        None => "in this process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1787_a_time_below_a_millisecond_is_refused() {
        for text in ["1ns", "999us", "0s"] {
            assert!(in_millis(text).is_err(), "{text}");
        }
        assert_eq!(in_millis("1ms"), Ok(Duration::from_millis(1)));
    }
}
