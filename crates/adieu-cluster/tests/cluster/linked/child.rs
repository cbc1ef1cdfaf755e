//! The program of the other processes: one node that hosts the region, asks its entities, or both.

use std::time::Duration;

use adieu_cluster::{Cluster, Entity, Security};
use adieu_core::{Config, Shutdown};
use serde::{Deserialize, Serialize};

use super::appends::{Append, Appends};
use super::load::{Load, run as run_load};
use crate::child::{print_end, run_order};
use crate::real::child::Place;

/// The variable that holds an [`Order`].
pub(crate) const ORDER: &str = "ADIEU_TEST_LINKED";

pub(crate) const SHARDS: u32 = 32;

/// The settings of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) store: Place,
    pub(crate) cluster: String,
    pub(crate) node: String,
    pub(crate) ttl: Duration,
    pub(crate) listen: String,
    /// The address at which other nodes reach it, if it is another one.
    pub(crate) address: Option<String>,
    /// The folder to which its entities append; without it, the node hosts none.
    pub(crate) appends_to: Option<String>,
    pub(crate) load: Option<Load>,
}

/// Runs a node in a process that a test has started. Returns at once in the test process itself.
#[test]
fn node_process() {
    run_order(ORDER, run);
}

#[expect(clippy::print_stdout, reason = "the test that started this process reads it")]
async fn run(order: Order) {
    let shutdown = Shutdown::configured(Config::new().run_when_down(true)).unwrap();
    shutdown.install_signals().unwrap();
    let mut builder = Cluster::new(order.store.connect().await, &order.cluster)
        .node(&order.node)
        .ttl(order.ttl)
        .listen(&order.listen, Security::loopback_only());
    if let Some(address) = &order.address {
        builder = builder.address(address);
    }
    let cluster = builder.on(&shutdown).unwrap();
    let region = cluster.region::<Append>("log").shards(SHARDS);
    let region = match &order.appends_to {
        None => region.proxy().unwrap(),
        Some(database) => {
            let (cluster, node) = (order.cluster.clone(), order.node.clone());
            let appends = Appends::connect(database, cluster, node).await.unwrap();
            region.serve(move |me| entity(me, appends.clone())).unwrap()
        }
    };
    cluster.join().await.unwrap();
    println!("@up");
    let loaded = async {
        if let Some(load) = &order.load {
            run_load(region, load, &order.node).await;
            println!("@asked");
        }
    };
    let (report, ()) = tokio::join!(shutdown.completed(), loaded);
    let report = report.unwrap();
    print_end(&report);
}

async fn entity(mut me: Entity<Append>, appends: Appends) -> Result<(), tokio_postgres::Error> {
    while let Some(mail) = me.next().await {
        appends.append(me.id(), me.fence().get(), mail.command()).await?;
        mail.reply(());
    }
    Ok(())
}
