//! A service in a cluster: axum accepts orders, a kameo actor books them, and one node of the cluster
//! audits.
//!
//! `branch FOLDER NODE`

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use adieu::Shutdown;
use adieu::actors::ActorSystem;
use adieu::actors::kameo::{Ref, actor};
use adieu::cluster::store::Files;
use adieu::cluster::{Cluster, SingletonCx};
use adieu::http::{BoxError, Probes, serve};
use adieu_testkit::ledger::{Fact, Journal};
use axum::Router;
use axum::extract::{Path as Part, State};
use axum::http::StatusCode;
use axum::routing::post;
use kameo::Actor;
use kameo::message::{Context, Message};
use tokio::net::TcpListener;

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1);
    let (folder, node) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    adieu::main(async move |shutdown| branch(&shutdown, folder.into(), node).await)
}

#[expect(clippy::print_stdout, reason = "the tests wait for it")]
async fn branch(shutdown: &Shutdown, folder: PathBuf, node: String) -> Result<(), BoxError> {
    let table = Files::open(folder.join("cluster"))?;
    let ttl = Duration::from_secs(3);
    let cluster = Cluster::new(table, "bank").node(&node).ttl(ttl).on(shutdown)?;
    let (audit, auditor) = (folder.join("audit"), node.clone());
    cluster.singleton("auditor", move |me: SingletonCx| {
        let (audit, auditor) = (audit.clone(), auditor.clone());
        async move { work(&audit, &auditor, &me).await }
    })?;

    let system = ActorSystem::on(shutdown, "branch")?;
    let clerk = Clerk { book: Journal::open(folder.join(&node))? };
    let clerk = system.spawn("clerk", actor::<Clerk>(clerk)).await?;
    cluster.join().await?;
    let app = Router::new().route("/orders/{id}", post(place)).with_state(clerk);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener, app, shutdown).probes(Probes::new(shutdown)).await?;
    Ok(())
}

/// Writes when it begins, while it works, and when it ends.
async fn work(audit: &Path, node: &str, me: &SingletonCx) -> Result<(), BoxError> {
    // A line is one write at the end of the file, so those of several processes do not mix.
    let mut file = OpenOptions::new().create(true).append(true).open(audit)?;
    let mut line = |what: &str| {
        let fence = me.check()?;
        file.write_all(format!("{what} {node} {fence}\n").as_bytes()).map_err(BoxError::from)
    };
    line("begin")?;
    while !me.is_stopped() {
        line("tick")?;
        let pause = tokio::time::sleep(Duration::from_millis(10));
        tokio::select! {
            () = me.stopped() => {}
            () = pause => {}
        }
    }
    // It takes some time to end, so that a hand-off that does not wait for that would be seen.
    for _ in 0..30 {
        line("tick")?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    line("end")
}

struct Order(String);

#[derive(Actor)]
struct Clerk {
    book: Journal,
}

impl Message<Order> for Clerk {
    type Reply = ();

    #[expect(clippy::print_stderr, reason = "an error that the tests detect")]
    async fn handle(&mut self, Order(id): Order, _: &mut Context<Self, ()>) {
        if let Err(error) = self.book.record(Fact::Finished, "order", &id) {
            eprintln!("order not booked: {id}: {error}");
        }
    }
}

/// An order that is answered with 202 will be in the book.
async fn place(State(clerk): State<Ref<Clerk>>, Part(id): Part<String>) -> StatusCode {
    match clerk.tell(Order(id)).await {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
