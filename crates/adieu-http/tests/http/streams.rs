//! Event streams.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::response::sse::{Event, Sse};
use axum::routing::get;

use super::client::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s92_an_event_stream_ends_at_once_with_its_last_chunk() {
    let ticks = async || {
        let ticks = tokio_stream::StreamExt::throttle(
            tokio_stream::iter(std::iter::repeat(())),
            Duration::from_millis(20),
        );
        let event = |()| Ok::<_, Infallible>(Event::default().data("tick"));
        Sse::new(tokio_stream::StreamExt::map(ticks, event))
    };
    let server = Server::start(Router::new().route("/events", get(ticks))).await;
    let mut client = server.connect().await;
    client.request("/events").await;
    client.until("data: tick").await;
    let report = server.end().await;
    assert!(report.is_clean(), "{report}");
    assert!(report.took < Duration::from_secs(3), "{report}");
    // The last chunk of a complete body. A body that is cut does not have it.
    assert!(client.rest().await.unwrap().ends_with("0\r\n\r\n"));
}
