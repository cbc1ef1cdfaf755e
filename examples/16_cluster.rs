// One process of a service that forms a cluster: start several, as `16_cluster NODE ADDRESS ADMIN`.

use adieu::cluster::store::Files;
use adieu::cluster::{Cluster, SingletonCx};
use adieu::http::{self, Admin, Probes};
use axum::{Router, routing::get};
use tokio::net::TcpListener;

fn main() -> std::process::ExitCode {
    adieu::main(async |shutdown| {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let [node, address, admin] = &args[..] else {
            return Err("name a node, its address and the address of its admin port".into());
        };
        shutdown.keep_until_exit(Admin::new(&shutdown).name(node).bind(admin.as_str())?.start()?);
        let table = Files::open("shop-cluster")?;
        let cluster = Cluster::new(table, "shop").node(node).address(address).on(&shutdown)?;
        let name = node.clone();
        cluster.singleton("sweeper", move |me: SingletonCx| {
            let name = name.clone();
            async move {
                println!("{name} sweeps with fence {}", me.fence());
                me.stopped().await; // the node leaves: end soon, the next instance waits for that
                println!("{name} has swept with fence {}", me.fence());
            }
        })?;
        cluster.join().await?; // the process is ready from here on
        let app = Router::new().route("/", get(async || "hello"));
        let listener = TcpListener::bind(address.as_str()).await?;
        http::serve(listener, app, &shutdown).probes(Probes::new(&shutdown)).await?;
        Ok::<_, http::BoxError>(())
    })
}
