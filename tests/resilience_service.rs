//! A backend, and the replicas of a service that calls it, built as the guide to policies shows. Each
//! order has a number, so that a test can count what became of it.
//!
//! - `resilience-service payments ADDRESS ADMIN LOG`: writes the number of each charge to the file.
//! - `resilience-service checkout ADDRESS ADMIN PORT PAYMENTS PAYMENTS REDIS`: calls two backends, which
//!   listen on the same port of two addresses.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use adieu::Shutdown;
use adieu::http::{self, Admin, BoxError, Probes};
use adieu::resilience::{Breaker, Bulkhead, CallError, Policies, Policy, Rate, Redis, Retry};
use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt};

fn main() -> std::process::ExitCode {
    adieu::main(async |shutdown| {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (address, admin, app) = match args[..] {
            ["payments", address, admin, log] => (address, admin, payments(&shutdown, log)?),
            ["checkout", address, admin, port, one, other, redis] => {
                let backends = [one, other].map(|host| format!("{host}:{port}").parse());
                let [one, other] = backends;
                (address, admin, checkout(&shutdown, [one?, other?], redis).await?)
            }
            _ => return Err("name a role and its addresses".into()),
        };
        shutdown.keep_until_exit(Admin::new(&shutdown).bind(admin)?.start()?);
        let listener = TcpListener::bind(address).await?;
        http::serve(listener, app, &shutdown).probes(Probes::new(&shutdown)).await?;
        Ok::<_, BoxError>(())
    })
}

fn payments(shutdown: &Shutdown, log: &str) -> Result<Router, BoxError> {
    let charges = Policy::new("charges").bulkhead(Bulkhead::adaptive(4..=64).queue(64));
    let log = Arc::new(std::fs::OpenOptions::new().append(true).open(log)?);
    let charge = async move |Path(order): Path<u64>| {
        // One write, so that the lines of two processes do not mix.
        let written = (&*log).write_all(format!("{order}\n").as_bytes());
        tokio::time::sleep(Duration::from_millis(5)).await;
        written.map_or(StatusCode::INTERNAL_SERVER_ERROR, |()| StatusCode::OK)
    };
    Ok(Router::new().route("/charge/{order}", post(charge)).layer(charges.start(shutdown)?.layer()))
}

async fn checkout(
    shutdown: &Shutdown,
    backends: [SocketAddr; 2],
    redis: &str,
) -> Result<Router, BoxError> {
    let orders = Policy::new("orders")
        .rate(Rate::per_second(400).burst(40))
        .bulkhead(Bulkhead::of(64).queue(64))
        .start(shutdown)?;
    // Timeouts that a busy machine does not reach.
    let payments = Policy::new("payments")
        .within(Duration::from_secs(20))
        .breaker(Breaker::at(0.5).of(10))
        .retry(Retry::times(2))
        .timeout(Duration::from_secs(5))
        .start(shutdown)?;
    let policies: Policies = [orders.clone(), payments.clone()].into_iter().collect();
    policies.shared(Redis::connect(redis).await?, "checkout")?;

    // A backend that does not listen is passed over, as a balancer does it.
    let client = reqwest::Client::builder().resolve_to_addrs("payments", &backends).build()?;
    let service = ServiceBuilder::new().layer(payments.client()).service(client.clone());
    let port = backends[0].port();
    let order = move |Path(order): Path<u64>| {
        let charge = client.post(format!("http://payments:{port}/charge/{order}")).build();
        let service = service.clone();
        async move {
            let charge = charge.map_err(|error| failed(format!("request: {error}")))?;
            match service.oneshot(charge).await {
                Ok(response) if response.status().is_success() => Ok("ordered"),
                Ok(response) => Err(failed(format!("answered {}", response.status()))),
                Err(CallError::Refused(refused)) => {
                    Err(failed(format!("refused {}", refused.code().as_str())))
                }
                Err(error) => Err(failed(format!("failed: {error:?}"))),
            }
        }
    };
    Ok(Router::new().route("/order/{order}", post(order)).layer(orders.layer()))
}

fn failed(why: String) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, why)
}
