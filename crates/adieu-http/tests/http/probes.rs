//! The probes, on the port of the application.

use std::sync::Arc;

use adieu_core::{Config, Reason, Shutdown};
use adieu_http::Probes;
use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::client::{Client, Server};

/// A server whose page `/slow` is answered when `release` is notified.
struct Probed {
    server: Server,
    is_inside: Arc<Notify>,
    release: Arc<Notify>,
}

impl Probed {
    async fn start(probes: impl FnOnce(Probes) -> Probes) -> Self {
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        let (is_inside, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = {
            let (is_inside, release) = (Arc::clone(&is_inside), Arc::clone(&release));
            async move || {
                is_inside.notify_one();
                release.notified().await;
                "done"
            }
        };
        let app = Router::new().route("/slow", get(slow));
        let probes = probes(Probes::new(&shutdown));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::adopt(shutdown.clone(), listener, |listener| {
            adieu_http::serve(listener, app, &shutdown).probes(probes).into_future()
        });
        Self { server, is_inside, release }
    }

    async fn get(&self, path: &str) -> String {
        self.server.connect().await.get(path).await
    }

    /// Closes the gate while one request is inside. Returns its client, and one that is idle.
    async fn close_gate(&self) -> (Client, Client) {
        self.server.shutdown.until_readiness(|readiness| readiness.is_ready()).await;
        let (mut busy, mut idle) = (self.server.connect().await, self.server.connect().await);
        idle.get("/livez").await;
        busy.request("/slow").await;
        self.is_inside.notified().await;
        self.server.close().await;
        (busy, idle)
    }

    async fn end(self, mut busy: Client) {
        self.release.notify_one();
        assert!(busy.response().await.ends_with("done"));
        drop(self.server.shutdown.run(Reason::Unknown));
        assert!(self.server.end().await.is_clean());
    }
}

fn is(answer: &str, status: u16, body: &str) -> bool {
    answer.starts_with(&format!("http/1.1 {status}")) && answer.ends_with(body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s95_readyz_and_healthz_report_readiness() {
    let probed = Probed::start(|probes| probes).await;
    let shutdown = probed.server.shutdown.clone();
    let cache = shutdown.add_promise("cache");
    for path in ["/readyz", "/healthz"] {
        assert!(is(&probed.get(path).await, 503, "starting"), "{path}");
    }
    cache.keep();
    shutdown.until_readiness(|readiness| readiness.is_ready()).await;
    for path in ["/readyz", "/healthz"] {
        assert!(is(&probed.get(path).await, 200, "ready"), "{path}");
    }
    shutdown.cordon();
    assert!(is(&probed.get("/readyz").await, 503, "cordoned"));
    assert!(probed.get("/slow").await.starts_with("http/1.1 503"), "a cordon refuses");
    assert!(shutdown.uncordon());
    assert!(is(&probed.get("/readyz").await, 200, "ready"));
    assert!(probed.server.end().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s383_livez_answers_200_through_the_whole_drain() {
    let probed = Probed::start(|probes| probes).await;
    assert!(is(&probed.get("/livez").await, 200, "alive"));
    let (busy, mut idle) = probed.close_gate().await;
    assert!(is(&idle.get("/livez").await, 200, "alive"));
    probed.end(busy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s384_startupz_reports_whether_start_up_has_ended() {
    let probed = Probed::start(|probes| probes).await;
    let cache = probed.server.shutdown.add_promise("cache");
    assert!(is(&probed.get("/startupz").await, 503, "starting"));
    cache.keep();
    assert!(is(&probed.get("/startupz").await, 200, "started"));
    assert!(probed.server.end().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s385_with_verbose_a_probe_lists_the_checks() {
    let probed = Probed::start(|probes| probes).await;
    let cache = probed.server.shutdown.add_promise("cache");
    let lines = "[+]http ok\n[-]cache pending\n[+]shutdown ok\nreadyz check failed: starting\n";
    let answer = probed.get("/readyz?verbose").await;
    assert!(is(&answer, 503, lines), "{answer}");
    cache.keep();
    assert!(probed.get("/readyz?verbose").await.contains("[+]cache ok\n"));
    assert!(probed.server.end().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s386_probes_are_answered_on_open_connections_when_the_gate_is_closed() {
    let probed = Probed::start(|probes| probes).await;
    let (busy, mut idle) = probed.close_gate().await;
    let lines = "[-]shutdown draining\nreadyz check failed: draining\n";
    let answer = idle.get("/readyz?verbose").await;
    assert!(is(&answer, 503, lines), "{answer}");
    probed.end(busy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s387_the_paths_of_probes_can_be_changed() {
    let probed = Probed::start(|probes| {
        probes.live_at("/alive").ready_at("/r").health_at("/h").startup_at("/up")
    })
    .await;
    assert!(is(&probed.get("/alive").await, 200, "alive"));
    assert!(is(&probed.get("/h").await, 200, "ready"));
    assert!(is(&probed.get("/up").await, 200, "started"));
    assert!(is(&probed.get("/r").await, 200, "ready"));
    for path in ["/livez", "/readyz", "/healthz", "/startupz"] {
        assert!(probed.get(path).await.starts_with("http/1.1 404"), "{path}");
    }
    assert!(probed.server.end().await.is_clean());
}
