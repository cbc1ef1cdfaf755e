//! A node of the demo's cluster, as a process.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adieu::cluster::store::Files;
use adieu::cluster::{Cluster, ClusterBuilder, Entity, Security};
use adieu::http::{Admin, BoxError};
use adieu::{Config, KillAfter, Phase, Runner, Shutdown};

use super::carts::{Add, Cart, note_opened};
use crate::demo::KILL_AFTER;
use crate::demo::replica::{Args, Listens, print, stop_when_abandoned};

/// The name of the cluster and of its region.
pub(super) const REGION: &str = "cart";
pub(super) const SHARDS: u32 = 24;

/// After this time without its session, the shards of a node are given to others.
pub(super) const TTL: Duration = Duration::from_secs(4);

/// The most time for the hand-off of all shards.
const HAND_OVER: Duration = Duration::from_secs(5);

pub(in crate::demo) fn run(args: Args) -> ExitCode {
    let config = Config::new()
        .kill_after(KillAfter::After(KILL_AFTER))
        .reserve(Duration::from_secs(1))
        .lame_duck(Duration::ZERO)
        .default_phase_timeout(Duration::from_secs(1))
        .phase_timeout(Phase::CLUSTER_SHARDING_SHUTDOWN_REGION, HAND_OVER)
        .report_file(&args.report);
    let body = async move |shutdown| serve(&shutdown, args).await;
    Runner::new().config(config).worker_threads(1).run(body)
}

/// Returns a node of the demo's cluster, which other nodes reach on this machine only.
pub(super) fn joins(store: Files, name: &str) -> ClusterBuilder {
    Cluster::new(store, "demo").node(name).ttl(TTL).listen("127.0.0.1:0", Security::loopback_only())
}

async fn serve(shutdown: &Shutdown, args: Args) -> Result<(), BoxError> {
    let Args { kind: _, name, folder, report: _ } = args;
    let admin = Admin::new(shutdown).name(&name).bind("127.0.0.1:0")?.start()?;
    let listens = Listens { http: admin.local_addr(), admin: Some(admin.local_addr()) };
    shutdown.keep_until_exit(admin);
    print(&listens)?;
    // All nodes that replace others are of one build: each shard moves once.
    let build = if name.ends_with('a') { "a" } else { "b" };
    let cluster = joins(Files::open(folder.join("store"))?, &name).build(build).on(shutdown)?;
    let opened = (folder.clone(), name.clone());
    let region = cluster.region::<Add>(REGION).shards(SHARDS);
    let region = region.on_open(move |shard| {
        let (folder, node) = opened.clone();
        async move {
            // A line that is missing would show as a move too few.
            let _ = note_opened(&folder, shard, &node);
        }
    });
    region.serve(move |me| cart(me, folder.clone(), name.clone()))?;
    cluster.join().await?;
    shutdown.mark_started();
    tokio::select! {
        _ = shutdown.begun() => Ok(()),
        never = stop_when_abandoned(shutdown) => match never? {},
    }
}

async fn cart(mut me: Entity<Add>, folder: PathBuf, node: String) -> std::io::Result<()> {
    static INSTANCES: AtomicU64 = AtomicU64::new(0);
    let instance = format!("{node}.{}", INSTANCES.fetch_add(1, Ordering::Relaxed));
    let mut cart = Cart::load(&folder, me.id(), instance)?;
    while let Some(mail) = me.next().await {
        let items = cart.add(*mail.command(), me.fence().get()).await?;
        mail.reply(items);
    }
    Ok(())
}
