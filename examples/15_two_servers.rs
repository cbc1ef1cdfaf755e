//! Two servers in one process, HTTP and gRPC on ports of their own, drained together.
//!
//! The process is ready when both listen. From the beginning of the shutdown, both ask their clients
//! to reconnect elsewhere. The program is its own client.

use std::time::Duration;

use adieu::http::{Probes, health, serve};
use adieu::{Config, Readiness, Reason, Shutdown};
use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let config = Config::new().lame_duck(Duration::from_millis(500));
    let shutdown = Shutdown::configured(config)?;

    let slow = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        "worth waiting for"
    };
    let pages = Router::new().route("/slow", get(slow));
    let for_pages = TcpListener::bind("127.0.0.1:0").await?;
    let pages_at = for_pages.local_addr()?;
    let pages = serve(for_pages, pages, &shutdown).name("pages").probes(Probes::new(&shutdown));

    // Add your own services here. The health service follows the readiness of the process.
    let calls = tonic::service::Routes::new(health(&shutdown, ["shop.Orders"]));
    let for_calls = TcpListener::bind("127.0.0.1:0").await?;
    let calls_at = for_calls.local_addr()?;
    let calls = serve(for_calls, calls, &shutdown).name("calls");

    // Both futures are made before one of them runs: each registers its server with the shutdown,
    // so neither makes the process ready alone. The shutdown owns both servers: if one of the
    // futures is dropped, as with `select!`, the requests of its server are finished nevertheless.
    let (pages, calls) = (pages.into_future(), calls.into_future());
    let mut servers = JoinSet::new();
    servers.spawn(pages);
    servers.spawn(calls);
    shutdown.until_readiness(Readiness::is_ready).await;

    let channel = tonic::transport::Endpoint::try_from(format!("http://{calls_at}"))?;
    let mut client = HealthClient::new(channel.connect().await?);
    let request = || HealthCheckRequest { service: "shop.Orders".into() };
    println!("gRPC health: {:?}", client.check(request()).await?.into_inner().status());
    let mut clients = JoinSet::new();
    clients.spawn(get_page(pages_at, "/slow"));
    tokio::time::sleep(Duration::from_millis(100)).await;

    let report = shutdown.run(Reason::Unknown);
    shutdown.until_readiness(|readiness| readiness == Readiness::Draining).await;
    println!("/readyz: {}", get_page(pages_at, "/readyz").await?);
    while let Some(page) = clients.join_next().await {
        println!("slow page: {}", page??);
    }
    let report = report.await?;
    while let Some(served) = servers.join_next().await {
        served??;
    }
    for at in [pages_at, calls_at] {
        println!("refused now: {}", TcpStream::connect(at).await.is_err());
    }
    println!("outcome: {}", report.outcome);
    Ok(())
}

/// Requests a page, and returns its body.
async fn get_page(at: std::net::SocketAddr, path: &'static str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned())
}
