//! HTTP requests that run on the node that owns their key.
//!
//! [`Region::route`](crate::Region::route) wraps an application, such as an axum `Router`. A request
//! whose key belongs to a shard of this node runs here, and holds the shard until its response body has
//! ended. Other requests travel over the links between the nodes to the owner, because the owner's own
//! listener closes long before its shards move. While a shard moves, its requests wait.
//!
//! ```no_run
//! use adieu_cluster::routing::{OwnedKey, path};
//! use adieu_cluster::{Command, Region};
//! use axum::{Extension, Router, routing::get};
//!
//! async fn show(Extension(cart): Extension<OwnedKey>) -> String {
//!     // No other node runs a handler for this cart now. Writes carry the fence.
//!     format!("cart {} under fence {}", cart.key(), cart.fence())
//! }
//!
//! # fn example<C: Command>(carts: Region<C>) -> Result<(), Box<dyn std::error::Error>> {
//! let app = Router::new().route("/carts/{id}", get(show));
//! let app = carts.route(path("/carts/{id}"))?.layer(app); // and then: http::serve(listener, app, …)
//! # drop(app); Ok(()) }
//! ```
//!
//! # The responses to a request
//!
//! | response | meaning |
//! |---|---|
//! | that of the handler | It ran once, on the owner. |
//! | 503 with `adieu-refused` and `Retry-After` | No handler has seen it: its shard was moving, its owner was unreachable, or a limit was reached, until its time was over. |
//! | 502 | It may have been handled: the owner died, or the handler was stopped. It is not repeated. If it was handled and its response could not be forwarded, the text of the response states that. |
//! | 504 | It may have been handled: its time was over before the response. |
//! | 413, 431, 408, 501 | No handler has seen it: it cannot be forwarded, because its body or head is too long, its client sends too slowly, or it upgrades its connection. |
//!
//! # Forwarded requests
//!
//! A forwarded request goes to the handler on the owner and never through the layer again, so there are
//! no loops, and no header that a client could forge. Bodies of forwarded requests and their responses
//! are bounded ([`KeyRoute::body_limit`]) and travel as a whole, with their trailers. Headers of the
//! connection, such as `Connection` and `Transfer-Encoding`, are removed; all others, such as
//! `X-Forwarded-For`, arrive as they were. Extensions of the request, such as axum's `ConnectInfo`, do
//! not travel. If the client goes away, a request that waits here is taken back, and one that was
//! forwarded runs to its end, or to its deadline.

mod body;
mod handler;
mod key;
mod layer;
mod outcome;
mod owned;
mod service;
mod wire;

pub use body::RoutedBody;
pub use key::{HeaderKey, PathKey, RequestKey, header, path};
pub use layer::KeyRoute;
pub use owned::OwnedKey;
pub use service::Routed;

/// Any error.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
