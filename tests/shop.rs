//! A small shop for the tests of rolling restarts, served by `adieu::http::serve`, or by axum alone
//! for comparison.
//!
//! `shop adieu|plain ADDRESS`

#[path = "shop/counter.rs"]
mod counter;
mod orders;
#[path = "shop/pages.rs"]
mod pages;

use adieu::http::{BoxError, Probes, serve};
use tokio::net::TcpListener;

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1);
    let (kind, addr) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    match kind.as_str() {
        "adieu" => adieu::main(async move |shutdown| with_adieu(&shutdown, &addr).await),
        "plain" => plain(&addr),
        other => panic!("unknown shop: {other:?}"),
    }
}

async fn with_adieu(shutdown: &adieu::Shutdown, addr: &str) -> Result<(), BoxError> {
    let health = adieu::http::health(shutdown, ["shop.Orders"]);
    let grpc = tonic::service::Routes::new(health).add_service(counter::Orders);
    let app = pages::router().merge(grpc.into_axum_router());
    let listener = listen(addr).await?;
    serve(listener, app, shutdown).probes(Probes::new(shutdown)).await?;
    Ok(())
}

/// Runs the shop with the graceful shutdown of axum's documentation.
#[tokio::main]
async fn plain(addr: &str) -> std::process::ExitCode {
    let app = pages::router().route("/readyz", axum::routing::get(async || "ready"));
    let served = async {
        let listener = listen(addr).await?;
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let stopped = async move {
            term.recv().await;
        };
        axum::serve(listener, app).with_graceful_shutdown(stopped).await
    };
    served.await.map_or(std::process::ExitCode::FAILURE, |()| std::process::ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "the tests wait for it")]
async fn listen(addr: &str) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(addr).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(listener)
}
