//! Servers whose future the application drops while requests are in flight.

use std::future::pending;
use std::time::Duration;

use adieu_core::{Config, Readiness, Reason, Shutdown};
use adieu_http::{BoxError, ServeError};
use axum::Router;
use axum::routing::get;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::client::{Client, PATIENCE};

fn slow() -> Router {
    let handler = async || {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        "worth waiting for"
    };
    Router::new().route("/slow", get(handler))
}

/// The future of a server, as the application holds it.
type Serving = std::pin::Pin<Box<dyn Future<Output = Result<(), ServeError>> + Send>>;

/// Runs `body` with the future of a server that has a request in flight when the shutdown begins.
/// Checks that the request is answered, and that the outcome is clean.
async fn answers_although_dropped<B: Future<Output: Send> + Send + 'static>(
    body: impl FnOnce(Shutdown, Serving) -> B,
) {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = adieu_http::serve(listener, slow(), &shutdown).into_future();
    let body = tokio::spawn(body(shutdown.clone(), Box::pin(serving)));
    shutdown.until_readiness(Readiness::is_ready).await;
    let mut client = Client::new(TcpStream::connect(addr).await.unwrap());
    client.request("/slow").await;
    while shutdown.gates().iter().all(|gate| gate.in_flight() == 0) {
        tokio::task::yield_now().await;
    }
    let run = shutdown.run(Reason::Unknown);
    drop(body.await);
    let report = tokio::time::timeout(PATIENCE, run).await.expect("the shutdown should end");
    let answer = client.response().await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    let report = report.unwrap();
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s460_a_server_dropped_because_another_has_ended_answers_its_requests() {
    let idle = TcpListener::bind("127.0.0.1:0").await.unwrap();
    answers_although_dropped(|shutdown, serving| {
        let idle = adieu_http::serve(idle, Router::new(), &shutdown).name("idle").into_future();
        async move {
            tokio::select! {
                served = serving => served,
                served = idle => served,
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s460_a_server_dropped_when_the_shutdown_begins_answers_its_requests() {
    answers_although_dropped(|shutdown, serving| async move {
        tokio::select! {
            served = serving => served,
            _ = shutdown.begun() => Ok(()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s460_a_server_in_a_join_set_that_is_dropped_answers_its_requests() {
    answers_although_dropped(|shutdown, serving| async move {
        let mut servers = JoinSet::new();
        servers.spawn(serving);
        shutdown.begun().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s460_a_server_beside_work_that_fails_answers_its_requests() {
    answers_although_dropped(|shutdown, serving| async move {
        let background = async {
            shutdown.begun().await;
            Err::<(), BoxError>("the background work failed".into())
        };
        tokio::try_join!(async { Ok(serving.await?) }, background)
    })
    .await;
}

/// Starts a server, and drops its future while a request is in flight and no shutdown has begun.
async fn dropped() -> (Shutdown, std::net::SocketAddr, Client) {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = tokio::spawn(adieu_http::serve(listener, slow(), &shutdown).into_future());
    shutdown.until_readiness(Readiness::is_ready).await;
    let mut client = Client::new(TcpStream::connect(addr).await.unwrap());
    client.request("/slow").await;
    while shutdown.gates().iter().all(|gate| gate.in_flight() == 0) {
        tokio::task::yield_now().await;
    }
    serving.abort();
    drop(serving.await);
    assert_eq!(shutdown.readiness(), Readiness::Unavailable);
    (shutdown, addr, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s461_a_dropped_server_accepts_nothing_more_and_answers_its_requests() {
    let (shutdown, addr, mut client) = dropped().await;
    let closed = async {
        while TcpStream::connect(addr).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), closed).await.expect("the listener should close");
    let answer = client.response().await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(client.rest().await.unwrap().is_empty(), "the connection is closed");
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean() && report.took < Duration::from_secs(1), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s461_a_dropped_server_closes_connections_without_a_request() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = tokio::spawn(adieu_http::serve(listener, slow(), &shutdown).into_future());
    shutdown.until_readiness(Readiness::is_ready).await;
    let mut idle = Client::new(TcpStream::connect(addr).await.unwrap());
    serving.abort();
    assert!(idle.rest().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s462_a_shutdown_waits_for_a_server_that_was_dropped_before_it() {
    let (shutdown, _, mut client) = dropped().await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let answer = client.response().await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s462_a_request_of_a_dropped_server_is_cut_when_its_window_has_elapsed() {
    let config = Config::for_tests().drain_timeout(Duration::from_millis(300));
    let shutdown = Shutdown::configured(config).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let app = Router::new().route("/stuck", get(async || pending::<String>().await));
    let serving = tokio::spawn(adieu_http::serve(listener, app, &shutdown).into_future());
    shutdown.until_readiness(Readiness::is_ready).await;
    let mut client = Client::new(TcpStream::connect(addr).await.unwrap());
    client.request("/stuck").await;
    while shutdown.gates().iter().all(|gate| gate.in_flight() == 0) {
        tokio::task::yield_now().await;
    }
    serving.abort();
    drop(serving.await);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(!report.is_clean(), "{report}");
    assert!(client.response().await.starts_with("http/1.1 503"));
}
