//! A real axum server that can work on eight requests at a time, and gets three times as many. Requests
//! come whether or not earlier ones have been answered, as those of users do.
//!
//! A request takes from 5 to 15 ms of work, as requests of real handlers differ. If each takes 10 ms, all
//! eight slots become free at the same time, and a ninth request waits for the whole of another one.

use std::sync::{Arc, Mutex, PoisonError};
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
/// The mean time of work.
const WORK: Duration = Duration::from_millis(10);
/// How many users send a request after another to find the peak: more than there are slots, so that a slot
/// never waits for the way of an answer and of the next request.
const USERS: usize = 2 * SLOTS;
/// After this time, a user has gone, and an answer is worth nothing.
const PATIENCE: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_secs(3);
/// Adaptive limits need some time to settle: that of `Bulkhead::adaptive` grows by two a second here.
const WARM_UP: Duration = Duration::from_secs(4);

/// How long requests take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// From half to one and a half of [`WORK`].
    Varied,
    Constant,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    None,
    Fixed,
    Adaptive,
    /// With a queue as long as the server has slots.
    AdaptiveWithQueue,
    Aimd,
    TowerResilience,
}

/// Answers a second, and the latencies of these answers in microseconds.
struct Measured {
    answers: f64,
    latencies: Vec<f64>,
}

/// The state of the server's handler.
#[derive(Clone)]
struct Server {
    slots: Arc<Semaphore>,
    work: Work,
    random: Arc<Mutex<fastrand::Rng>>,
}

/// As many answers a second as there can be: there are always requests that wait for a slot.
pub(crate) fn peak(work: Work) -> f64 {
    run_with(Limit::None, work, |uri| async move {
        let (client, began) = (client(), Instant::now());
        let mut users = JoinSet::new();
        for _ in 0..USERS {
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
pub(crate) fn unloaded(work: Work) -> f64 {
    p99_of(load(Limit::None, work, 1.0 / 3.0))
}

pub(crate) fn answers(limit: Limit, work: Work) -> f64 {
    load(limit, work, 3.0).answers
}

pub(crate) fn p99(limit: Limit, work: Work) -> f64 {
    p99_of(load(limit, work, 3.0))
}

fn p99_of(measured: Measured) -> f64 {
    let mut latencies = measured.latencies;
    latencies.sort_by(f64::total_cmp);
    // A server that answers no request in time has no latency to report.
    latencies.get(latencies.len() * 99 / 100).copied().unwrap_or(PATIENCE.as_secs_f64() * 1e6)
}

fn run_with<T, Fut: Future<Output = T>>(
    limit: Limit,
    work: Work,
    use_it: impl FnOnce(Uri) -> Fut,
) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (app, _shutdown) = server(limit, work);
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await });
        let uri = format!("http://{address}/").parse().expect("an address");
        let result = use_it(uri).await;
        serving.shutdown().await;
        result
    })
}

fn server(limit: Limit, work: Work) -> (Router, Shutdown) {
    let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(19)));
    let server = Server { slots: Arc::new(Semaphore::new(SLOTS)), work, random };
    let app = Router::new().route("/", get(answer)).with_state(server);
    let shutdown = Shutdown::configured(Config::for_tests()).expect("a shutdown");
    let limited = |bulkhead: Bulkhead| {
        Policy::new("server").bulkhead(bulkhead).start(&shutdown).expect("a policy").layer()
    };
    let most = 200;
    let app = match limit {
        Limit::None => app,
        // A limit that an operator might choose without knowing that 8 is the right one.
        Limit::Fixed => app.layer(limited(Bulkhead::of(64).queue(64))),
        // Without a queue, which is the default: under overload the next request is always there.
        Limit::Adaptive => app.layer(limited(Bulkhead::adaptive(4..=most))),
        Limit::AdaptiveWithQueue => app.layer(limited(Bulkhead::adaptive(4..=most).queue(8))),
        Limit::Aimd => app.layer(limited(Bulkhead::aimd(4..=most, 2 * WORK))),
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

async fn answer(State(server): State<Server>) -> &'static str {
    let factor = match server.work {
        Work::Varied => 0.5 + server.random.lock().unwrap_or_else(PoisonError::into_inner).f64(),
        Work::Constant => 1.0,
    };
    let _slot = server.slots.acquire().await;
    tokio::time::sleep(WORK.mul_f64(factor)).await;
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
fn load(limit: Limit, work: Work, factor: f64) -> Measured {
    run_with(limit, work, |uri| async move {
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
