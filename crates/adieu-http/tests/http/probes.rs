//! The probes, on the port of the application.

use std::sync::Arc;

use adieu_core::{Config, Reason};
use adieu_http::Probes;
use axum::Router;
use axum::routing::get;
use tokio::sync::Notify;

use super::client::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s95_the_probes_tell_readiness_from_liveness() {
    let (inside, let_go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = {
        let (inside, let_go) = (Arc::clone(&inside), Arc::clone(&let_go));
        async move || {
            inside.notify_one();
            let_go.notified().await;
            "done"
        }
    };
    let app = Router::new().route("/slow", get(slow));
    let shutdown = adieu_core::Shutdown::configured(Config::for_tests()).unwrap();
    let probes = Probes::new(&shutdown).live_at("/alive");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cache = shutdown.promise("cache");
    let server = Server::adopt(shutdown.clone(), listener, |listener| {
        adieu_http::serve(listener, app, &shutdown).probes(probes).into_future()
    });
    let ask = async |path: &str| server.connect().await.get(path).await;

    let starting = ask("/readyz?verbose").await;
    assert!(starting.starts_with("http/1.1 503"), "{starting}");
    assert!(
        starting.ends_with(
            "[-]cache pending\n[+]http ok\n[+]shutdown ok\nreadyz check failed: starting\n"
        ),
        "{starting}"
    );
    assert!(ask("/startupz").await.starts_with("http/1.1 503"));
    assert!(ask("/alive").await.ends_with("alive"));
    cache.keep();
    for path in ["/readyz", "/healthz"] {
        let ready = ask(path).await;
        assert!(ready.starts_with("http/1.1 200") && ready.ends_with("ready"), "{ready}");
    }
    assert!(ask("/startupz").await.ends_with("started"));
    assert!(ask("/livez").await.starts_with("http/1.1 404"), "that one has another path");

    shutdown.cordon();
    assert!(ask("/readyz").await.ends_with("cordoned"));
    assert!(ask("/slow").await.starts_with("http/1.1 503"), "a cordon refuses");
    assert!(shutdown.uncordon());
    let mut kept = server.connect().await;
    kept.get("/alive").await;
    let mut busy = server.connect().await;
    busy.ask("/slow").await;
    inside.notified().await;
    server.close().await;
    // The doors are closed, and who is connected is still told the truth.
    let draining = kept.get("/readyz?verbose").await;
    assert!(draining.starts_with("http/1.1 503"), "{draining}");
    assert!(draining.ends_with("[-]shutdown draining\nreadyz check failed: draining\n"));
    let mut other = kept;
    assert!(other.get("/alive").await.ends_with("alive"), "alive through the whole drain");
    let_go.notify_one();
    assert!(busy.response().await.ends_with("done"));
    drop(shutdown.run(Reason::Unknown));
    assert!(server.end().await.is_clean());
}
