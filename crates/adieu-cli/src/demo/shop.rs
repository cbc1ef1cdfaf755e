//! The order service of the demo, for both servers.
//!
//! Orders are taken over HTTP by an actor that numbers them, and put on a [`Spool`]; a consumer
//! ships them from there.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::{get, post};
use kameo::Actor;
use kameo::actor::ActorRef;
use kameo::message::{Context, Message};
use tokio_stream::StreamExt;

use super::spool::Spool;

/// How long shipping takes.
pub(super) const SHIPPING: Duration = Duration::from_millis(20);
/// How long an invoice takes.
const INVOICE: Duration = Duration::from_secs(2);
/// How often the ticker ticks.
const TICK: Duration = Duration::from_millis(250);

/// Owns the orders of one replica.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) replica: String,
    pub(super) spool: Arc<Spool>,
    /// How many orders it has taken.
    pub(super) taken: u64,
}

/// The message that places an order.
struct Order;

/// The message that requests the number of orders.
struct Count;

impl Actor for Desk {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(desk: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(desk)
    }
}

impl Message<Order> for Desk {
    type Reply = Result<String, std::io::Error>;

    /// An order is taken when it is on the spool, and not before.
    async fn handle(&mut self, _: Order, _: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let number = format!("{}-{}", self.replica, self.taken + 1);
        self.spool.put(&number)?;
        self.taken += 1;
        Ok(number)
    }
}

impl Message<Count> for Desk {
    type Reply = u64;

    async fn handle(&mut self, _: Count, _: &mut Context<Self, u64>) -> u64 {
        self.taken
    }
}

/// Returns the pages of the shop.
pub(super) fn pages(desk: ActorRef<Desk>) -> Router {
    Router::new()
        .route("/", get(front))
        .route("/orders", post(order))
        .route("/invoice", get(invoice))
        .route("/ticker", get(ticker))
        .with_state(desk)
}

type Answer = Result<(StatusCode, String), (StatusCode, String)>;

async fn front(State(desk): State<ActorRef<Desk>>) -> Answer {
    let taken = desk.ask(Count).await.map_err(unavailable)?;
    Ok((StatusCode::OK, format!("{taken} orders taken here\n")))
}

async fn order(State(desk): State<ActorRef<Desk>>) -> Answer {
    let number = desk.ask(Order).await.map_err(unavailable)?;
    Ok((StatusCode::CREATED, format!("order {number}\n")))
}

/// A slow request, which a shutdown must wait for.
async fn invoice() -> &'static str {
    tokio::time::sleep(INVOICE).await;
    "worth waiting for\n"
}

/// A stream that never ends on its own.
async fn ticker() -> Sse<impl tokio_stream::Stream<Item = Result<Event, Infallible>>> {
    let ticks = tokio_stream::iter(0_u64..).throttle(TICK);
    let events = ticks.map(|tick| Ok(Event::default().data(tick.to_string())));
    Sse::new(events).keep_alive(KeepAlive::default())
}

fn unavailable(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
}
