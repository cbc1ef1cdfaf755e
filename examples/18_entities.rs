// One process of a shop whose carts are entities: start several, as `18_entities NODE ADDRESS LINK
// ADMIN`. LINK is the address at which other processes of the cluster reach this one.

use adieu::cluster::store::Files;
use adieu::cluster::{Cluster, Command, Entity, Region, Security};
use adieu::http::{self, Admin, Probes};
use axum::{Router, extract::Path, extract::State, http::StatusCode, routing::post};
use serde::{Deserialize, Serialize};
use tokio::{fs, io, net::TcpListener};

#[derive(Serialize, Deserialize)]
struct Add(u32);

impl Command for Add {
    type Reply = u32; // the new total
}

/// A cart runs on one node at a time. It starts with its first mail.
async fn cart(mut me: Entity<Add>) -> io::Result<()> {
    let file = format!("shop-carts/{}", me.id());
    fs::create_dir_all("shop-carts").await?;
    let saved = fs::read_to_string(&file).await.unwrap_or_default();
    let mut total: u32 = saved.parse().unwrap_or_default();
    while let Some(mail) = me.next().await {
        total += mail.command().0;
        fs::write(&file, total.to_string()).await?; // in a database: … WHERE fence <= me.fence()
        mail.reply(total);
    }
    println!("cart {} rests at {total}", me.id()); // it was idle, or its shard moves
    Ok(())
}

type Response = Result<String, (StatusCode, String)>;

async fn add(State(carts): State<Region<Add>>, Path((id, price)): Path<(String, u32)>) -> Response {
    let total = carts.at(&id).ask(Add(price)).await; // wherever the cart is
    total.map(|it| it.to_string()).map_err(|error| (StatusCode::BAD_GATEWAY, error.to_string()))
}

fn main() -> std::process::ExitCode {
    adieu::main(async |shutdown| {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let [node, address, link, admin] = &args[..] else {
            return Err("name a node, its address, its link and its admin port".into());
        };
        shutdown.keep_until_exit(Admin::new(&shutdown).name(node).bind(admin.as_str())?.start()?);
        let cluster = Cluster::new(Files::open("shop-cluster")?, "carts")
            .node(node)
            .listen(link, Security::loopback_only())
            .on(&shutdown)?;
        let carts = cluster.region::<Add>("cart").shards(64).serve(cart)?;
        cluster.join().await?;
        let app = Router::new().route("/carts/{id}/{price}", post(add)).with_state(carts);
        let listener = TcpListener::bind(address.as_str()).await?;
        http::serve(listener, app, &shutdown).probes(Probes::new(&shutdown)).await?;
        Ok::<_, http::BoxError>(())
    })
}
