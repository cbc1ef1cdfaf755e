//! `adieu cluster`: the nodes and singletons of a cluster, through the admin port of any node.

mod changes;
mod moves;
mod seen;
mod table;

use std::fmt::Write;
use std::time::Duration;

use crate::admin::{Connect, IDLE_POLL, Page, duration};
use crate::consent;
use crate::duration::short;
use crate::ending::{Failure, Printout, exit_code};
use crate::screen::{Screen, interrupted};
use seen::{Clusters, LeaveState, Seen};

/// See a cluster, let nodes leave it, move shards, or stop it, through the admin port of any of its nodes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu cluster status
  adieu cluster watch pod-7:8558
  adieu cluster leave shop-2 pod-7:8558 --wait 1m --yes
  adieu cluster out shop-3
  adieu cluster move cart/17 shop-2 --wait 30s --yes
  adieu cluster stop")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Status(Status),
    Watch(Watch),
    Leave(Leave),
    Out(Out),
    Move(Move),
    Stop(Stop),
}

/// Show the nodes of a cluster, its leader and its singletons, as one node sees them.
#[derive(clap::Args)]
struct Status {
    #[command(flatten)]
    connect: Connect,
    /// Print what the admin port answers, for programs.
    #[arg(long)]
    json: bool,
}

/// Follow a cluster until you press Ctrl-C, or the queried node has gone.
#[derive(clap::Args)]
#[command(after_help = "\
At a terminal it is redrawn in place; in a pipe there is a line for each change.")]
struct Watch {
    #[command(flatten)]
    connect: Connect,
    /// Print what the admin port answers after each change, each on a line of its own.
    #[arg(long)]
    json: bool,
}

/// Let a node leave the cluster: its shutdown runs, and its singletons move to other nodes.
#[derive(clap::Args)]
struct Leave {
    #[command(flatten)]
    change: Change,
    /// Wait until the node has left. If it has not by then: exit code 1.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
}

/// Declare a node dead: it stops acting as soon as it sees that, and its shutdown runs.
#[derive(clap::Args)]
#[command(after_help = "\
For a node that hangs, but still reaches the store. A node that cannot reach the store needs no such
command: its session ends, and its singletons move.")]
struct Out {
    #[command(flatten)]
    change: Change,
}

/// Move a shard of a region, or a singleton, to a node: its owner drains it and hands it over.
#[derive(clap::Args)]
#[command(after_help = "\
No message is lost: senders keep what arrives meanwhile. For five minutes after the move, the shard
does not move for balance; after that it moves as any other. If the node leaves or dies, the shard
moves to another.")]
struct Move {
    /// The shard, such as cart/17; the name alone for a singleton.
    shard: String,
    #[command(flatten)]
    change: Change,
    /// Wait until the node owns the shard. If it does not by then: exit code 1.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
}

/// Stop the whole cluster: every node shuts down, and nothing is moved to another.
#[derive(clap::Args)]
struct Stop {
    #[command(flatten)]
    connect: Connect,
    /// The cluster, if the process is in several.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// A change of one node.
#[derive(clap::Args)]
struct Change {
    /// The node, as `adieu cluster status` shows it.
    node: String,
    #[command(flatten)]
    connect: Connect,
    /// The cluster, if the process is in several.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(args: &Args) -> Result<Printout, Failure> {
    match &args.command {
        Command::Status(args) => status(args).await,
        Command::Watch(args) => watch(args).await,
        Command::Leave(args) => leave(args).await,
        Command::Out(args) => out(args).await,
        Command::Move(args) => moves::run(args).await,
        Command::Stop(args) => stop(args).await,
    }
}

async fn look(connect: &Connect) -> Result<Clusters, Failure> {
    match connect.page("/cluster").await? {
        Page::Shown(page) => Clusters::new(page).ok_or_else(|| {
            let target = connect.target();
            Failure::unable(format!("{target} shows a cluster that this version cannot read"))
        }),
        Page::Gone(failure) => {
            let failure = failure.message();
            Err(Failure::unable(format!("{failure}; the admin port of any node will do")))
        }
    }
}

async fn status(args: &Status) -> Result<Printout, Failure> {
    let clusters = look(&args.connect).await?;
    if args.json {
        let json = serde_json::to_string_pretty(&clusters.raw);
        let json = json.map_err(|error| Failure::unable(error.to_string()))?;
        return Ok(Printout::success(json + "\n"));
    }
    Ok(Printout::success(table::draw(&clusters)))
}

async fn watch(args: &Watch) -> Result<Printout, Failure> {
    let Watch { connect, json } = args;
    let mut screen = Screen::new();
    let mut last = look(connect).await?;
    let mut lines = match json {
        true => format!("{}\n", last.raw),
        false if screen.is_terminal() => table::draw(&last),
        false => changes::first(&last),
    };
    let mut interrupted = std::pin::pin!(interrupted());
    loop {
        if !lines.is_empty() && !screen.show(&lines)? {
            return Ok(Printout::success(String::new()));
        }
        let next = async {
            tokio::time::sleep(IDLE_POLL).await;
            connect.page("/cluster").await
        };
        let page = tokio::select! {
            biased;
            () = &mut interrupted => {
                return Ok(Printout { text: String::new(), code: exit_code::INTERRUPTED });
            }
            page = next => page?,
        };
        let now = match page {
            Page::Shown(page) => Clusters::new(page),
            Page::Gone(_) => {
                drop(screen);
                let target = connect.target();
                return Err(Failure::no(format!(
                    "{target} is gone; watch through the admin port of another node"
                )));
            }
        };
        let Some(now) = now else { continue };
        let changed = changes::between(&last, &now);
        lines = match json {
            true if changed.is_empty() => String::new(),
            true => format!("{}\n", now.raw),
            false if screen.is_terminal() => table::draw(&now),
            false => changed,
        };
        last = now;
    }
}

async fn leave(args: &Leave) -> Result<Printout, Failure> {
    let Leave { change, wait } = args;
    let seen = change.known().await?;
    let (node, target) = (&change.node, change.connect.target());
    let state = seen.nodes.iter().find(|it| it.node == *node).map_or("", |it| &it.state);
    let mut question = format!("let {node} leave cluster {}? It is {state}.", seen.cluster);
    let singletons = seen.owned_by(node);
    if !singletons.is_empty() {
        let _ = write!(question, " It runs {}.", singletons.join(", "));
    }
    consent::ask(&question, change.yes)?;
    change.connect.command(&change.path("leave", &seen)).await?;
    let Some(wait) = wait else {
        return Ok(Printout::success(format!("{node} leaves cluster {}\n", seen.cluster)));
    };
    let left = left(change, &seen);
    tokio::select! {
        biased;
        () = interrupted() => Err(Failure::interrupted(format!("{node} continues to leave"))),
        left = tokio::time::timeout(*wait, left) => match left {
            Ok(Ok(())) => Ok(Printout::success(format!("{node} has left cluster {}\n", seen.cluster))),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::no(format!(
                "{node} has not left cluster {} within {}; see adieu cluster status {target}",
                seen.cluster, short(*wait)
            ))),
        },
    }
}

/// Waits until a node has left, as far as the queried node can see.
async fn left(change: &Change, before: &Seen) -> Result<(), Failure> {
    let Seen { cluster, node: asked, .. } = before;
    let node = &change.node;
    let unseen = || {
        Failure::unable(format!(
            "{node} was requested to leave cluster {cluster}, but the queried node {asked} is \
             itself no longer in it; see adieu cluster status with the admin port of another node"
        ))
    };
    loop {
        match change.connect.page("/cluster").await {
            Ok(Page::Shown(page)) => {
                let now = Clusters::new(page).and_then(|now| now.named(cluster));
                match now.map_or(LeaveState::Present, |now| now.leave_state(node)) {
                    LeaveState::Present => {}
                    LeaveState::Left => return Ok(()),
                    LeaveState::Lost => {
                        return Err(Failure::no(format!(
                            "{node} died or lost its place before it had left cluster {cluster}"
                        )));
                    }
                    LeaveState::Blind => return Err(unseen()),
                }
            }
            // The node that was asked is the one that leaves.
            Ok(Page::Gone(_)) if asked == node => return Ok(()),
            Ok(Page::Gone(_)) => return Err(unseen()),
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(IDLE_POLL).await;
    }
}

async fn out(args: &Out) -> Result<Printout, Failure> {
    let Out { change } = args;
    let seen = change.known().await?;
    let node = &change.node;
    let question = format!("declare {node} of cluster {} dead? It stops at once.", seen.cluster);
    consent::ask(&question, change.yes)?;
    change.connect.command(&change.path("out", &seen)).await?;
    Ok(Printout::success(format!("{node} of cluster {} is declared dead\n", seen.cluster)))
}

async fn stop(args: &Stop) -> Result<Printout, Failure> {
    let Stop { connect, cluster, yes } = args;
    let seen = sighted(chosen(look(connect).await?, cluster.as_deref(), connect)?)?;
    let nodes: Vec<_> = seen.nodes.iter().map(|it| it.node.as_str()).collect();
    let name = &seen.cluster;
    let question = format!("stop cluster {name}? All nodes shut down: {}.", nodes.join(", "));
    consent::ask(&question, *yes)?;
    connect.command(&format!("/cluster/stop?cluster={}", encoded(name))).await?;
    Ok(Printout::success(format!("cluster {name} stops: {}\n", nodes.join(", "))))
}

/// Returns the cluster of this name, or the only one.
fn chosen(all: Clusters, name: Option<&str>, connect: &Connect) -> Result<Seen, Failure> {
    let names: Vec<_> = all.clusters.iter().map(|it| it.cluster.clone()).collect();
    let names = names.join(", ");
    let target = connect.target();
    match name {
        Some(name) => all.named(name).ok_or_else(|| {
            Failure::input(format!("{target} is in no cluster {name}; it is in {names}"))
        }),
        None if all.clusters.len() > 1 => Err(Failure::input(format!(
            "{target} is in several clusters: --cluster one of {names}"
        ))),
        None => all
            .clusters
            .into_iter()
            .next()
            .ok_or_else(|| Failure::unable(format!("{target} is in no cluster"))),
    }
}

/// Returns the cluster, if the queried node still sees it.
fn sighted(seen: Seen) -> Result<Seen, Failure> {
    if !seen.is_blind() {
        return Ok(seen);
    }
    let Seen { node, cluster, loss, .. } = &seen;
    let why = loss.as_ref().map_or_else(String::new, |loss| format!(": {loss}"));
    Err(Failure::unable(format!(
        "{node} is no longer in cluster {cluster}{why}; use the admin port of another node"
    )))
}

// === impl Change ===

impl Change {
    /// Returns the cluster, and fails if it does not have this node.
    async fn known(&self) -> Result<Seen, Failure> {
        let seen = chosen(look(&self.connect).await?, self.cluster.as_deref(), &self.connect)?;
        let seen = sighted(seen)?;
        if seen.nodes.iter().any(|it| it.node == self.node) {
            return Ok(seen);
        }
        let known: Vec<_> = seen.nodes.iter().map(|it| it.node.as_str()).collect();
        let (node, cluster) = (&self.node, &seen.cluster);
        let known = match known.is_empty() {
            true => "it has none: query a node that has joined".to_owned(),
            false => format!("there are {}", known.join(", ")),
        };
        Err(Failure::no(format!("no node {node} in cluster {cluster}; {known}")))
    }

    fn path(&self, command: &str, seen: &Seen) -> String {
        let (cluster, node) = (encoded(&seen.cluster), encoded(&self.node));
        format!("/cluster/{command}?cluster={cluster}&node={node}")
    }
}

/// Returns the text, encoded for a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
