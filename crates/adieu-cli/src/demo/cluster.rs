//! `adieu demo cluster`: a cluster on this machine, under load, restarted node by node.

mod carts;
mod load;
pub(crate) mod node;
pub(crate) mod rehash;
mod result;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use adieu::Shutdown;
use adieu::cluster::store::Files;
use adieu::cluster::{Cluster, NodeId, OperateError, Region};
use adieu_core::adapter::{error_text, lock};
use anstyle::AnsiColor;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fleet::Fleet;
use super::frame::{FleetView, Row, View};
use super::member::Member;
use super::replica::Kind;
use super::{STEADY, code_of, demo_shutdown, run_watched, unusable};
use crate::ending::{Failure, Printout};
use crate::fit::output_width;
use carts::{Add, Logs, Opened};
use load::{Counts, Load, To};
use node::{REGION, SHARDS};
use result::Outcome;

/// How long the shards may take to be where they belong.
const SETTLED: Duration = Duration::from_secs(30);
/// How often that is checked.
const LOOK: Duration = Duration::from_millis(20);
/// How long a new node runs beside the old one.
const OVERLAP: Duration = Duration::from_millis(500);

/// Restart a cluster under load on this machine, and show what became of each ask.
///
/// Starts nodes as processes, with carts that are spread over them, and asks the carts while every
/// node is replaced: the new one is up, then the old one gets SIGTERM and hands its carts over. Each
/// cart keeps a log under its fence. The figures come from these logs, not from the answers alone.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu demo cluster
  adieu demo cluster --compare
  adieu demo cluster --kill
  adieu demo cluster --json | jq .unknown

Exit codes: 0 each ask ran once; 1 an ask was not run, unknown, lost or doubled, or a node ended
badly; 3 the cluster could not be started; 130 you pressed Ctrl-C. With --kill, asks may be not run
or unknown. With --compare, losses of naive re-hashing do not count.")]
pub(crate) struct Args {
    /// The number of nodes.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: u8,
    /// The number of carts.
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    carts: u32,
    /// The number of asks in a second.
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    rate: u32,
    /// How long the load runs; longer if the restarts take longer.
    #[arg(long, value_name = "TIME", default_value = "12s", value_parser = crate::check::span_argument)]
    duration: Duration,
    /// Kill the old nodes with SIGKILL: see what becomes unknown then.
    #[arg(long)]
    kill: bool,
    /// Run the same carts at the same time on the node that a hash over the live nodes names.
    #[arg(long)]
    compare: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Keep the reports and logs of the nodes in this folder.
    #[arg(long, value_name = "FOLDER")]
    report_dir: Option<PathBuf>,
}

/// The host of the carts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hosts {
    Cluster,
    Rehash,
}

/// The nodes of one kind, and the load on them.
#[derive(Debug)]
struct Side {
    hosts: Hosts,
    fleet: Arc<Fleet>,
    /// The folder of the logs of the carts.
    folder: PathBuf,
    load: OnceLock<Arc<Load>>,
    /// The nodes that had opened each shard before the restarts.
    opened: Mutex<Opened>,
    /// How often each shard moved during the restarts.
    moves: OnceLock<BTreeMap<u32, u64>>,
    /// This process as a node that hosts nothing.
    member: OnceLock<Cluster>,
}

pub(super) async fn run(args: &Args) -> Result<Printout, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::unable(error.to_string()))?;
    let began = Instant::now();
    let side = |hosts: Hosts, name: &str| {
        let reports = args.report_dir.as_deref().unwrap_or(folder.path()).join(name);
        let shared = folder.path().join(format!("{name}-shared"));
        let created = std::fs::create_dir_all(&reports).and_then(|()| carts::create(&shared));
        created.map_err(|error| unusable(&reports, &error))?;
        let fleet = Fleet::new(hosts.kind(), args.nodes.into(), shared.clone(), reports, began);
        Ok::<_, Failure>(Side {
            hosts,
            fleet: Arc::new(fleet),
            folder: shared,
            load: OnceLock::new(),
            opened: Mutex::default(),
            moves: OnceLock::new(),
            member: OnceLock::new(),
        })
    };
    let mut sides = vec![side(Hosts::Cluster, "adieu")?];
    if args.compare {
        sides.push(side(Hosts::Rehash, "rehash")?);
    }
    let ended: Vec<_> = sides.iter().map(|it| Arc::clone(&it.fleet)).collect();
    let shutdown = demo_shutdown(&ended).map_err(|error| Failure::unable(error_text(&*error)))?;
    // The shutdown stops the nodes, and this process leaves.
    let work = run_sides(&sides, args, &shutdown);
    let view = || View::new(began, sides.iter().map(Side::view).collect());
    let is_interrupted = run_watched(&shutdown, work, args.json, view).await?;
    let outcomes: Result<Vec<Outcome>, _> = sides.iter().map(Outcome::of).collect();
    let outcomes = outcomes.map_err(|error| unusable(folder.path(), &error))?;
    let text = match args.json {
        true => result::json(&outcomes),
        false => {
            let reports = args.report_dir.as_deref();
            result::table(&outcomes, is_interrupted, reports, output_width())
        }
    };
    let is_well = outcomes.first().is_some_and(|outcome| outcome.is_well(args.kill));
    Ok(Printout { text, code: code_of(is_interrupted, is_well) })
}

async fn run_sides(sides: &[Side], args: &Args, shutdown: &Shutdown) -> Result<(), Failure> {
    match sides {
        [one] => one.run(args, shutdown).await,
        [one, two] => {
            tokio::try_join!(one.run(args, shutdown), two.run(args, shutdown)).map(|_| ())
        }
        _ => Ok(()),
    }
}

// === impl Hosts ===

impl Hosts {
    fn kind(self) -> Kind {
        match self {
            Self::Cluster => Kind::Cluster,
            Self::Rehash => Kind::Rehash,
        }
    }
}

// === impl Side ===

impl Side {
    /// Starts the nodes and the load on them, replaces every node, and ends them.
    async fn run(&self, args: &Args, shutdown: &Shutdown) -> Result<(), Failure> {
        self.fleet.start().await?;
        let to = match self.hosts {
            Hosts::Cluster => To::Region(self.join(shutdown).await?),
            Hosts::Rehash => To::Rehash(Arc::clone(&self.fleet)),
        };
        let load = Arc::clone(self.load.get_or_init(|| Arc::new(Load::new(to))));
        let stop = CancellationToken::new();
        let restarting = async {
            let (begins, ends) = (Instant::now() + STEADY, Instant::now() + args.duration);
            let apart = args.duration.saturating_sub(2 * STEADY) / u32::from(args.nodes);
            let restarted = self.restart(begins, apart, args.kill).await;
            if restarted.is_ok() {
                tokio::time::sleep_until(ends.max(Instant::now() + STEADY)).await;
            }
            stop.cancel();
            restarted
        };
        let loading = load.run(args.carts, args.rate, stop.clone());
        let ((), restarted) = tokio::join!(loading, restarting);
        restarted?;
        // Shards that move at the end of the demo do not count.
        let logs = Logs::read(&self.folder).map_err(|error| unusable(&self.folder, &error))?;
        let moves = match self.hosts {
            Hosts::Cluster => logs.opened_since(&self.opened()),
            Hosts::Rehash => self.counts().moves(),
        };
        drop(self.moves.set(moves));
        self.fleet.end().await;
        Ok(())
    }

    /// Replaces every node, one after another.
    async fn restart(&self, begins: Instant, apart: Duration, kill: bool) -> Result<(), Failure> {
        let mut next = begins;
        for slot in 1..=self.fleet.size() {
            tokio::time::sleep_until(next).await;
            next = Instant::now() + apart;
            let end = if kill { Member::kill } else { Member::stop };
            self.fleet.replace(slot, OVERLAP, end).await?;
            // The shards of a node that was killed are given to others when its session has ended.
            self.settle("all shards are on nodes that run", |owners| {
                let runs = |owner: &&String| {
                    let members = self.fleet.members();
                    members.iter().any(|it| it.name == **owner && it.is_live())
                };
                owners.len() == SHARDS as usize && owners.values().all(|it| runs(&it))
            })
            .await?;
        }
        Ok(())
    }

    /// Joins the cluster with this process, which hosts nothing, and spreads the shards evenly: the
    /// first node has received them all.
    async fn join(&self, shutdown: &Shutdown) -> Result<Region<Add>, Failure> {
        let failed = |error: &(dyn std::error::Error + 'static)| {
            Failure::unable(format!(
                "failed to join the cluster of the demo: {}",
                error_text(error)
            ))
        };
        let store = Files::open(self.folder.join("store")).map_err(|error| failed(&error))?;
        let cluster = node::joins(store, "load").on(shutdown).map_err(|error| failed(&error))?;
        let region = cluster.region::<Add>(REGION).shards(SHARDS).proxy();
        let region = region.map_err(|error| failed(&error))?;
        cluster.join().await.map_err(|error| failed(&error))?;
        let cluster = self.member.get_or_init(|| cluster);
        self.settle("all shards have owners", |owners| owners.len() == SHARDS as usize).await?;
        let nodes: Vec<String> = self.fleet.members().iter().map(|it| it.name.clone()).collect();
        let wanted = |shard: u32| &nodes[shard as usize % nodes.len()];
        for (shard, owner) in self.owners() {
            let to = wanted(shard);
            if *to != owner {
                let to = NodeId::new(to).map_err(|error| failed(&error))?;
                let moved: Result<(), OperateError> =
                    cluster.request_move(REGION, shard, &to).await;
                moved.map_err(|error| failed(&error))?;
            }
        }
        self.settle("the shards are spread", |owners| {
            owners.iter().all(|(shard, owner)| owner == wanted(*shard))
        })
        .await?;
        // The owners have noted that they have opened their shards, before the restarts are counted.
        let begun = Instant::now();
        loop {
            let opened = carts::opened(&self.folder).map_err(|error| failed(&error))?;
            let is_noted = |shard: u32| {
                opened.get(&shard).and_then(|nodes| nodes.last()) == Some(wanted(shard))
            };
            let are_noted = (0..SHARDS).all(is_noted);
            *lock(&self.opened) = opened;
            if are_noted {
                return Ok(region);
            }
            if begun.elapsed() > SETTLED {
                return Err(Failure::unable("the shards of the demo were not opened in time"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the owners of the shards are as wanted. Without a cluster there is nothing to wait
    /// for.
    async fn settle(
        &self,
        what: &str,
        holds: impl Fn(&BTreeMap<u32, String>) -> bool,
    ) -> Result<(), Failure> {
        if self.member.get().is_none() {
            return Ok(());
        }
        let begun = Instant::now();
        while !holds(&self.owners()) {
            if begun.elapsed() > SETTLED {
                let within = SETTLED.as_secs();
                return Err(Failure::unable(format!("not within {within}s: {what}")));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Returns the owner of each shard, as this process sees it.
    fn owners(&self) -> BTreeMap<u32, String> {
        let status = self.member.get().map(Cluster::status);
        let regions = status.into_iter().flat_map(|status| status.regions);
        let owners = regions.flat_map(|region| region.owners);
        let each = owners.flat_map(|(owner, shards)| {
            shards.into_iter().map(move |shard| (shard, owner.to_string()))
        });
        each.collect()
    }

    fn opened(&self) -> Opened {
        lock(&self.opened).clone()
    }

    fn counts(&self) -> Counts {
        self.load.get().map(|load| load.counts()).unwrap_or_default()
    }

    /// Returns the state of the nodes and the load, to be drawn.
    fn view(&self) -> FleetView {
        let (counts, owners) = (self.counts(), self.owners());
        let (ran, not_run) = (counts.answers.ran.len(), counts.answers.not_run.len());
        let unknown = counts.answers.unknown.len();
        let style = if unknown + not_run == 0 { AnsiColor::Green } else { AnsiColor::Red };
        let style = style.on_default();
        let (restarts, size) = (self.fleet.restarts(), self.fleet.size());
        let live = self.fleet.members().iter().filter(|it| it.is_live()).count();
        let rows = self.fleet.members().into_iter().map(|member| Row {
            name: member.name.clone(),
            count: match self.hosts {
                Hosts::Cluster => owners.values().filter(|it| **it == member.name).count(),
                Hosts::Rehash if member.is_live() => (SHARDS as usize).div_ceil(live.max(1)),
                Hosts::Rehash => 0,
            },
            unit: "shards",
            seen: member.seen(),
        });
        FleetView {
            title: self.hosts.kind().title(),
            what: format!("{size} nodes with carts"),
            summary: vec![
                format!("ran {ran}"),
                format!("{style}not run {not_run}  unknown {unknown}{style:#}"),
                format!("stall {} ms", counts.stall.as_millis()),
                format!("restarted {restarts} of {size}"),
            ],
            counts: format!("{ran} asks ran, {not_run} not run, {unknown} unknown"),
            rows: rows.collect(),
        }
    }
}
