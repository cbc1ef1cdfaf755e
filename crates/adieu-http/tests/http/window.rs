//! The time that requests have to finish.

use std::time::Duration;

use adieu_core::{Config, KillAfter, Phase};
use axum::Router;
use axum::routing::get;

use super::client::Server;

/// Phases of 300 ms, and a platform that leaves 8 s for the shutdown.
fn brief() -> Config {
    Config::for_tests()
        .kill_after(KillAfter::After(Duration::from_secs(10)))
        .default_phase_timeout(Duration::from_millis(300))
}

fn slow() -> Router {
    let handler = async || {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        "worth waiting for"
    };
    Router::new().route("/slow", get(handler))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s202_a_request_can_use_the_time_that_the_deadline_leaves() {
    let server = Server::start_with(slow(), brief(), |serve| serve).await;
    let mut client = server.connect().await;
    client.request("/slow").await;
    in_flight(&server).await;
    let report = server.end().await;
    assert!(report.is_clean(), "{report}");
    let answer = client.response().await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s203_a_drain_timeout_cuts_a_request_sooner() {
    let config = brief().drain_timeout(Duration::from_millis(300));
    let server = Server::start_with(slow(), config, |serve| serve).await;
    let mut client = server.connect().await;
    client.request("/slow").await;
    in_flight(&server).await;
    let report = server.end().await;
    let phase = report.phase(Phase::SERVICE_REQUESTS_DONE).unwrap();
    let drain = &phase.task("drain http").unwrap().outcome;
    assert_eq!(drain.to_string(), "timed out after 300ms", "{report}");
    let answer = client.response().await;
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
}

async fn in_flight(server: &Server) {
    while server.shutdown.gates().iter().all(|gate| gate.in_flight() == 0) {
        tokio::task::yield_now().await;
    }
}
