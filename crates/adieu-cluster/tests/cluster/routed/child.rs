//! The program of the other processes: one node that serves HTTP, and notes every request that it
//! handles.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use adieu_cluster::routing::{OwnedKey, path};
use adieu_cluster::store::Files;
use adieu_cluster::{Cluster, Security};
use adieu_core::{Config, Shutdown};
use axum::routing::post;
use axum::{Extension, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use super::app::{Count, count};
use crate::child::{print_end, run_order};

/// The variable that holds an [`Order`].
pub(crate) const ORDER: &str = "ADIEU_TEST_ROUTED";

/// The settings of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) folder: PathBuf,
    pub(crate) node: String,
    pub(crate) http: SocketAddr,
    pub(crate) ttl: Duration,
}

/// A request that was handled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Noted {
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) node: String,
    pub(crate) fence: u64,
}

/// Returns the file in which the nodes note what they handle.
pub(crate) fn notes(folder: &Path) -> PathBuf {
    folder.join("notes")
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
    let cluster = Cluster::new(Files::open(order.folder.join("store")).unwrap(), "routed")
        .node(&order.node)
        .ttl(order.ttl)
        .listen("127.0.0.1:0", Security::loopback_only())
        .on(&shutdown)
        .unwrap();
    let region = cluster.region::<Count>("carts").shards(32).serve(count).unwrap();
    let (file, node) = (notes(&order.folder), order.node.clone());
    let handle = async move |Extension(owned): Extension<OwnedKey>, id: String| {
        let (key, fence) = (owned.key().to_owned(), owned.fence().get());
        let noted = Noted { key, id, node: node.clone(), fence };
        // The work takes a while, and then happens at once.
        tokio::time::sleep(Duration::from_millis(5)).await;
        owned.check().unwrap();
        let mut file = std::fs::File::options().append(true).create(true).open(&file).unwrap();
        file.write_all(format!("{}\n", serde_json::to_string(&noted).unwrap()).as_bytes()).unwrap();
        format!("{node} {fence}")
    };
    let app = Router::new().route("/carts/{id}", post(handle));
    let app = region.route(path("/carts/{id}")).unwrap().layer(app);
    cluster.join().await.unwrap();
    let listener = TcpListener::bind(order.http).await.unwrap();
    println!("@up");
    let served = adieu_http::serve(listener, app, &shutdown);
    let (served, report) = tokio::join!(served.into_future(), shutdown.completed());
    served.unwrap();
    let report = report.unwrap();
    print_end(&report);
}
