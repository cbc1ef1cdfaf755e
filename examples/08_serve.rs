//! A server whose shutdown drops no request, and its admin port.
//!
//! The program is its own client: it requests a slow page, begins the shutdown meanwhile, and sends
//! further requests.

use std::time::Duration;

use adieu::http::{Admin, Probes, serve};
use adieu::{Config, Readiness, Reason, Shutdown};
use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // At a terminal there is no lame duck by default. Behind a router there must be one.
    let config = Config::new().lame_duck(Duration::from_millis(500));
    let shutdown = Shutdown::configured(config)?;
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0")?.start()?;
    let admin_port = admin.local_addr();

    let slow = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        "worth waiting for"
    };
    let app = Router::new().route("/", get(async || "hello")).route("/slow", get(slow));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    let serving = serve(listener, app, &shutdown).probes(Probes::new(&shutdown)).into_future();
    tasks.spawn(async { serving.await.expect("the server should start") });

    shutdown.until_readiness(Readiness::is_ready).await;
    println!("/readyz: {}", get_page(port, "/readyz").await?);
    tasks.spawn(async move {
        let page = get_page(port, "/slow").await.expect("an admitted request is answered");
        println!("slow page: {page}");
    });
    tokio::time::sleep(Duration::from_millis(100)).await;

    let report = shutdown.run(Reason::Unknown);
    shutdown.until_readiness(|readiness| readiness == Readiness::Draining).await;
    println!("/readyz: {}", get_page(admin_port, "/readyz").await?);
    println!("still served: {}", get_page(port, "/").await?);
    let report = report.await?;
    while tasks.join_next().await.is_some() {}
    println!("refused now: {}", TcpStream::connect(port).await.is_err());
    println!("/livez: {}", get_page(admin_port, "/livez").await?);
    println!("outcome: {}", report.outcome);
    Ok(())
}

/// Requests a page, and returns its body.
async fn get_page(at: std::net::SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned())
}
