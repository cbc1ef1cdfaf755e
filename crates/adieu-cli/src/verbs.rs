//! `adieu cordon`, `uncordon`, `drain` and `stop`: the commands that change a service.

use std::time::Duration;

use adieu::Stage;

use crate::admin::{BUSY_POLL, Connect, Observed, Poll, duration};
use crate::consent::{self, Consent};
use crate::ending::{Failure, Printout};
use crate::fit::harmless;
use crate::screen::{Screen, interrupted};
use crate::watch;

/// Make a service not ready, and then let it refuse work. `uncordon` undoes it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu cordon
  adieu cordon pod-7:8558 --now

The service admits work until routers have had time to move away (its lame duck). Work in flight
continues. The command does not ask, because `adieu uncordon` undoes it.")]
pub(crate) struct Cordon {
    #[command(flatten)]
    connect: Connect,
    /// Refuse work at once, before routers have moved away.
    #[arg(long)]
    now: bool,
}

/// Undo a cordon: the service accepts work again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu uncordon
  adieu uncordon pod-7:8558

Once the shutdown has begun, it cannot be undone: exit code 1.")]
pub(crate) struct Uncordon {
    #[command(flatten)]
    connect: Connect,
}

/// Cordon a service, and wait until nothing is in flight.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu drain
  adieu drain pod-7:8558 --wait 2m --yes

The process stays up, and cordoned: `adieu uncordon` undoes that, `adieu stop` shuts it down. If
work is still in flight after --wait: exit code 1.")]
pub(crate) struct Drain {
    #[command(flatten)]
    connect: Connect,
    /// How long to wait until nothing is in flight.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    wait: Duration,
    /// Refuse work at once, before routers have moved away.
    #[arg(long)]
    now: bool,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// Shut a service down, as SIGTERM does. Each repetition is more urgent.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu stop
  adieu stop pod-7:8558 --yes --watch

With --watch the exit code is 0 if the shutdown was clean, and 1 if it was not; without, 0 as soon
as it has begun.")]
pub(crate) struct Stop {
    #[command(flatten)]
    connect: Connect,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    /// Follow the shutdown until it is over.
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn cordon(args: &Cordon) -> Result<Printout, Failure> {
    let seen = args.connect.change(cordon_path(args.now)).await?;
    let target = args.connect.target();
    // A service whose shutdown has begun admits no work, cordoned or not.
    let still = match seen.admitting {
        Some(true) => ", and admits work until routers have moved away",
        Some(false) | None => "",
    };
    Ok(Printout::success(format!("{target} is {}{still}\n", seen.readiness)))
}

pub(crate) async fn uncordon(args: &Uncordon) -> Result<Printout, Failure> {
    let seen = args.connect.change("/uncordon").await?;
    Ok(Printout::success(format!("{} is {}\n", args.connect.target(), seen.readiness)))
}

pub(crate) async fn drain(args: &Drain) -> Result<Printout, Failure> {
    let Drain { connect, wait, now, yes } = args;
    let seen = connect.status().await?;
    if seen.stage != Stage::Up {
        let how = "is shutting down, which includes a drain: adieu watch follows it";
        return Err(Failure::no(format!("{} {how}", connect.target())));
    }
    let consent = consent::ask(&question("drain", connect, &seen), *yes)?;
    drain_with(consent, connect, *wait, *now).await
}

fn cordon_path(now: bool) -> &'static str {
    if now { "/cordon?now=true" } else { "/cordon" }
}

async fn drain_with(
    _: Consent,
    connect: &Connect,
    wait: Duration,
    now: bool,
) -> Result<Printout, Failure> {
    let target = connect.target();
    connect.change(cordon_path(now)).await?;
    let mut screen = Screen::new();
    let (mut shown, mut is_read) = (None, true);
    let draining = async {
        loop {
            let seen = match connect.poll().await {
                Poll::Answered(seen) => seen,
                Poll::Gone => {
                    return Err(Failure::no(format!("{target} disappeared during the drain")));
                }
                Poll::Silent(failure) => return Err(failure),
            };
            let line = seen.in_flight_line().ok_or_else(|| {
                Failure::unable(format!(
                    "{target} is cordoned, but does not report the work in flight"
                ))
            })?;
            if is_read && shown.as_ref() != Some(&line) {
                // A drain continues whether or not its progress can be shown. The caller writes the
                // last line, which reports success, and fails if it cannot be written.
                is_read = screen.show(&format!("{line}\n")).unwrap_or(false);
            }
            shown = Some(line);
            // While the service admits work, an empty gate does not mean that it is drained.
            if seen.in_flight == Some(0) && seen.admitting != Some(true) {
                return Ok(());
            }
            tokio::time::sleep(BUSY_POLL).await;
        }
    };
    let drained = tokio::select! {
        biased;
        () = interrupted() => None,
        drained = tokio::time::timeout(wait, draining) => Some(drained),
    };
    drop(screen);
    let back = "it stays cordoned: adieu uncordon undoes that";
    match drained {
        None => Err(Failure::interrupted(format!("{target}: {back}"))),
        Some(Err(_)) => {
            let left = shown.unwrap_or_else(|| "no answer".into());
            let wait = crate::duration::short(wait);
            Err(Failure::no(format!("{target} is not drained after {wait}: {left}; {back}")))
        }
        Some(Ok(Err(failure))) => Err(failure),
        Some(Ok(Ok(()))) => Ok(Printout::success(format!("{target} is drained\n"))),
    }
}

pub(crate) async fn stop(args: &Stop) -> Result<Printout, Failure> {
    let Stop { connect, yes, watch } = args;
    let seen = connect.status().await?;
    if seen.stage == Stage::Over {
        return Ok(Printout::success(format!(
            "the shutdown of {} is over already\n",
            connect.target()
        )));
    }
    let consent = consent::ask(&question("stop", connect, &seen), *yes)?;
    if *watch {
        return watch::follow(connect, false, Some(consent)).await;
    }
    let was_up = seen.stage == Stage::Up;
    let seen = consent.stop(connect).await?;
    if !was_up {
        let line =
            format!("{} was shutting down already; its urgency is raised\n", connect.target());
        return Ok(Printout::success(line));
    }
    let reason = seen.reason.map_or_else(String::new, |reason| format!(": {reason}"));
    Ok(Printout::success(format!("{} is shutting down{}\n", connect.target(), harmless(&reason))))
}

/// `stop orders (process 7 on pod-7) at http://127.0.0.1:8558? It is ready, 3 in flight.`
fn question(verb: &str, connect: &Connect, seen: &Observed) -> String {
    let in_flight = seen.in_flight_line().map_or_else(String::new, |line| format!(", {line}"));
    let hurry = match seen.stage {
        Stage::Up => "",
        Stage::ShuttingDown | Stage::Over | _ => {
            " It is shutting down already; this raises the urgency."
        }
    };
    let hurry = if verb == "stop" { hurry } else { "" };
    let process = seen.process.as_ref();
    let process = process.map_or_else(String::new, |process| format!("{process} at "));
    format!("{verb} {process}{}? It is {}{in_flight}.{hurry}", connect.target(), seen.readiness)
}
