//! The pages of the shop: a page, a slow one, a large one, a stream of events, a WebSocket.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use tokio_stream::{StreamExt, iter};

pub(crate) fn router() -> Router {
    Router::new()
        .route("/", get(async || "welcome"))
        .route("/slow", get(slow))
        .route("/large", get(large))
        .route("/events", get(events))
        .route("/ws", get(async |upgrade: WebSocketUpgrade| upgrade.on_upgrade(echo)))
}

async fn slow() -> &'static str {
    tokio::time::sleep(Duration::from_secs(3)).await;
    "worth waiting for"
}

/// A hundred megabytes, a megabyte at a time, each of one letter.
async fn large() -> Body {
    let letters = (b'a'..=b'z').cycle().take(100);
    let megabytes = iter(letters.map(|letter| Bytes::from(vec![letter; 1 << 20])));
    Body::from_stream(megabytes.throttle(Duration::from_millis(20)).map(Ok::<_, Infallible>))
}

async fn events() -> Sse<impl tokio_stream::Stream<Item = Result<Event, Infallible>>> {
    let ticks = iter(0..).throttle(Duration::from_millis(50));
    Sse::new(ticks.map(|tick: u64| Ok(Event::default().data(tick.to_string()))))
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}
