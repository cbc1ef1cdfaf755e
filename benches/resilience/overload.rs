//! A real axum server that can work on eight requests at a time, for 10 ms each, and gets three times
//! as many. Requests come whether or not earlier ones have been answered, as those of users do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adieu::{Config, Shutdown};
use adieu_resilience::{Bulkhead, Policy};
use axum::Router;
use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::extract::State;
use axum::routing::get;
use http::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tower::ServiceBuilder;
use tower_resilience::adaptive::{AdaptiveLimiterLayer, Vegas};

/// How many requests the server works on at a time.
const SLOTS: usize = 8;
const WORK: Duration = Duration::from_millis(10);
/// After this time, a user has gone, and an answer is worth nothing.
const PATIENCE: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_secs(3);
/// Adaptive limits need some time to settle.
const WARM_UP: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    None,
    Fixed,
    Adaptive,
    Aimd,
    TowerResilience,
}

/// Answers a second, and the latencies of these answers in microseconds.
struct Measured {
    answers: f64,
    latencies: Vec<f64>,
}

/// As many answers a second as there can be: always as many requests as the server has slots.
pub(crate) fn peak() -> f64 {
    run(|uri| async move {
        let (client, began) = (client(), Instant::now());
        let mut users = JoinSet::new();
        for _ in 0..SLOTS {
            let (client, uri) = (client.clone(), uri.clone());
            users.spawn(async move {
                let mut answers = 0;
                while began.elapsed() < TIME {
                    answers += u32::from(ask(&client, uri.clone()).await.is_some());
                }
                answers
            });
        }
        let answers: u32 = users.join_all().await.into_iter().sum();
        f64::from(answers) / began.elapsed().as_secs_f64()
    })
}

/// The 99th percentile of the latency at a third of the peak.
pub(crate) fn unloaded() -> f64 {
    p99_of(load(Limit::None, 1.0 / 3.0))
}

pub(crate) fn answers(limit: Limit) -> f64 {
    load(limit, 3.0).answers
}

pub(crate) fn p99(limit: Limit) -> f64 {
    p99_of(load(limit, 3.0))
}

fn p99_of(measured: Measured) -> f64 {
    let mut latencies = measured.latencies;
    latencies.sort_by(f64::total_cmp);
    // A server that answers no request in time has no latency to report.
    latencies.get(latencies.len() * 99 / 100).copied().unwrap_or(PATIENCE.as_secs_f64() * 1e6)
}

fn run<T, Fut: Future<Output = T>>(use_it: impl FnOnce(Uri) -> Fut) -> T {
    run_with(Limit::None, use_it)
}

fn run_with<T, Fut: Future<Output = T>>(limit: Limit, use_it: impl FnOnce(Uri) -> Fut) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (app, _shutdown) = server(limit);
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await });
        let uri = format!("http://{address}/").parse().expect("an address");
        let result = use_it(uri).await;
        serving.shutdown().await;
        result
    })
}

fn server(limit: Limit) -> (Router, Shutdown) {
    let slots = Arc::new(Semaphore::new(SLOTS));
    let app = Router::new().route("/", get(work)).with_state(slots);
    let shutdown = Shutdown::configured(Config::for_tests()).expect("a shutdown");
    let limited = |bulkhead: Bulkhead| {
        Policy::new("server").bulkhead(bulkhead).start(&shutdown).expect("a policy").layer()
    };
    let most = 200;
    let app = match limit {
        Limit::None => app,
        // A limit that an operator might choose without knowing that 8 is the right one.
        Limit::Fixed => app.layer(limited(Bulkhead::of(64).queue(64))),
        // The queue holds what arrives at once, and no more: each call in it adds to the latency.
        Limit::Adaptive => app.layer(limited(Bulkhead::adaptive(4..=most).queue(8))),
        Limit::Aimd => app.layer(limited(Bulkhead::aimd(4..=most, 2 * WORK).queue(8))),
        Limit::TowerResilience => app.layer(
            ServiceBuilder::new()
                .layer(HandleErrorLayer::new(async |_| StatusCode::SERVICE_UNAVAILABLE))
                .layer(AdaptiveLimiterLayer::new(
                    Vegas::builder()
                        .initial_limit(10)
                        .min_limit(4)
                        .max_limit(200)
                        .build()
                        .expect("valid"),
                )),
        ),
    };
    (app, shutdown)
}

async fn work(State(slots): State<Arc<Semaphore>>) -> &'static str {
    let _slot = slots.acquire().await;
    tokio::time::sleep(WORK).await;
    "done"
}

fn client() -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new()).build_http()
}

/// The latency of a request that was answered in time, in microseconds.
async fn ask(client: &Client<HttpConnector, Body>, uri: Uri) -> Option<f64> {
    let began = Instant::now();
    let request = Request::get(uri).body(Body::empty()).expect("a request");
    let answer = timeout(PATIENCE, async {
        let response = client.request(request).await.ok()?;
        let is_ok = response.status() == StatusCode::OK;
        // The connection is used again only after its body was read.
        axum::body::to_bytes(Body::new(response.into_body()), 4_096).await.ok()?;
        is_ok.then_some(())
    });
    answer.await.ok()??;
    Some(began.elapsed().as_secs_f64() * 1e6)
}

/// Sends `factor` times as many requests as the server can answer.
fn load(limit: Limit, factor: f64) -> Measured {
    run_with(limit, |uri| async move {
        let client = client();
        let per_second = factor * SLOTS as f64 / WORK.as_secs_f64();
        let (began, mut sent, mut users) = (Instant::now(), 0.0, JoinSet::new());
        let mut tick = interval(Duration::from_millis(2));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while began.elapsed() < WARM_UP + TIME {
            tick.tick().await;
            let due = began.elapsed().as_secs_f64() * per_second;
            let counts = began.elapsed() > WARM_UP;
            while sent < due {
                sent += 1.0;
                let (client, uri) = (client.clone(), uri.clone());
                users.spawn(async move { ask(&client, uri).await.filter(|_| counts) });
            }
        }
        let latencies: Vec<f64> = users.join_all().await.into_iter().flatten().collect();
        Measured { answers: latencies.len() as f64 / TIME.as_secs_f64(), latencies }
    })
}
