// A backend, `17_resilience payments ADDRESS ADMIN`, and the replicas of a service that calls it,
// `17_resilience checkout ADDRESS ADMIN PAYMENTS REDIS`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use adieu::Shutdown;
use adieu::http::{self, Admin, BoxError, Probes};
use adieu::resilience::{Breaker, Bulkhead, Policies, Policy, Rate, Redis, Retry};
use axum::{Router, http::StatusCode, routing::get};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt};

static IS_BROKEN: AtomicBool = AtomicBool::new(false);

fn main() -> std::process::ExitCode {
    adieu::main(async |shutdown| {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (address, admin, app) = match args[..] {
            ["payments", address, admin] => (address, admin, payments(&shutdown)?),
            ["checkout", address, admin, backend, redis] => {
                (address, admin, checkout(&shutdown, backend, redis).await?)
            }
            _ => return Err("name a role and its addresses".into()),
        };
        shutdown.keep_until_exit(Admin::new(&shutdown).bind(admin)?.start()?);
        let listener = TcpListener::bind(address).await?;
        http::serve(listener, app, &shutdown).probes(Probes::new(&shutdown)).await?;
        Ok::<_, BoxError>(())
    })
}

/// The backend limits itself: what it cannot do in time is refused with 503 and `Retry-After`.
fn payments(shutdown: &Shutdown) -> Result<Router, BoxError> {
    let charges = Policy::new("charges").bulkhead(Bulkhead::adaptive(4..=64).queue(64));
    let charge = async || {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if IS_BROKEN.load(Relaxed) { Err(StatusCode::INTERNAL_SERVER_ERROR) } else { Ok("charged") }
    };
    Ok(Router::new()
        .route("/charge", get(charge))
        .layer(charges.start(shutdown)?.layer())
        .route("/break", get(async || IS_BROKEN.store(true, Relaxed)))
        .route("/mend", get(async || IS_BROKEN.store(false, Relaxed))))
}

/// The replicas share the rate of their orders, and the breaker around the backend.
async fn checkout(shutdown: &Shutdown, backend: &str, redis: &str) -> Result<Router, BoxError> {
    let orders = Policy::new("orders").rate(Rate::per_second(500).burst(50)).start(shutdown)?;
    let payments = Policy::new("payments")
        .within(Duration::from_secs(2)) // everything, pauses and retries included
        .breaker(Breaker::at(0.5).of(10).opens_for(Duration::from_secs(2)))
        .retry(Retry::times(1))
        .timeout(Duration::from_millis(300)) // each attempt
        .start(shutdown)?;
    let policies: Policies = [orders.clone(), payments.clone()].into_iter().collect();
    policies.shared(Redis::connect(redis).await?, "checkout")?;

    let client = reqwest::Client::new();
    let service = ServiceBuilder::new().layer(payments.client()).service(client.clone());
    let url = format!("http://{backend}/charge");
    let order = move || {
        let (service, charge) = (service.clone(), client.get(&url).build());
        async move {
            let charge = charge.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
            match service.oneshot(charge).await {
                Ok(response) if response.status().is_success() => Ok("ordered\n"),
                Ok(_) | Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
            }
        }
    };
    Ok(Router::new().route("/order", get(order)).layer(orders.layer()))
}
