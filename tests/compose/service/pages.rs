//! The HTTP routes of the service.

use std::convert::Infallible;
use std::time::Duration;

use adieu_testkit::ledger::Fact;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{Response, StatusCode};
use axum::routing::{get, post};

use super::Counter;
use super::actors::Order;
use crate::load::{FRAME, LARGE};

/// A task completes one of this many orders.
const LATER_EACH: u64 = 3;

/// How long a WebSocket handler is busy: longer than the closing handshake may take.
const BUSY: Duration = Duration::from_secs(4);

pub(super) fn router(counter: Counter) -> Router {
    Router::new()
        .route("/order/{id}", post(order))
        .route("/page/{id}", get(page))
        .route("/large/{id}", get(large))
        .route("/frame/{id}", get(frame))
        .route("/socket/{id}", get(socket))
        .with_state(counter)
}

/// Accepts an order. An order that is answered with 202 must be in the store at the end.
async fn order(State(counter): State<Counter>, Path(id): Path<u64>) -> StatusCode {
    let order = Order { kind: "order", id };
    if let Some(later) = counter.later.clone().filter(|_| id.is_multiple_of(LATER_EACH)) {
        let Ok(pass) = later.enter() else { return StatusCode::SERVICE_UNAVAILABLE };
        #[expect(clippy::disallowed_methods, reason = "the drain of its gate waits for it")]
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(counter.later_ms + id % 50)).await;
            let _ = counter.place(order).await;
            drop(pass);
        });
        return StatusCode::ACCEPTED;
    }
    match counter.place(order).await {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Takes its time, more or less. A request that has reached this handler must be answered.
async fn page(State(counter): State<Counter>, Path(id): Path<u64>) -> String {
    counter.store.record(Fact::Accepted, "page", format_args!("/page/{id}"));
    tokio::time::sleep(Duration::from_millis(id % 40)).await;
    format!("page {id}")
}

/// Upgrades to a WebSocket, and is busy with a message on it. It does not read meanwhile, so it
/// does not observe that the server has closed the connection.
async fn socket(
    State(counter): State<Counter>,
    Path(id): Path<u64>,
    request: Request,
) -> Response<Body> {
    let upgrading = hyper::upgrade::on(request);
    #[expect(clippy::disallowed_methods, reason = "the drain waits for its connection")]
    tokio::spawn(async move {
        let Ok(connection) = upgrading.await else { return };
        let path = format!("/socket/{id}");
        counter.store.record(Fact::Accepted, "socket", &path);
        tokio::time::sleep(BUSY).await;
        let _ = counter.store.write_as(Fact::Finished, "socket", &path).await;
        drop(connection);
    });
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let response = response.header("connection", "upgrade").header("upgrade", "websocket");
    response.body(Body::empty()).expect("a valid head")
}

/// Many chunks, without a length that is known beforehand.
async fn large() -> Body {
    let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
    let chunks = tokio_stream::iter(std::iter::repeat_n(chunk, LARGE / (64 * 1024)));
    Body::from_stream(tokio_stream::StreamExt::map(chunks, Ok::<_, Infallible>))
}

/// One frame of a known length.
async fn frame() -> Bytes {
    vec![b'x'; FRAME].into()
}
