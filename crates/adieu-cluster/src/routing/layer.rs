//! The layer that routes requests by key, and its options.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::BoxError;
use super::body::RoutedBody;
use super::handler::Handles;
use super::key::RequestKey;
use super::service::{Route, Routed};
use crate::cluster::ClusterError;
use crate::message::Command;
use crate::regions::{Region, Routing};
use crate::time::Duration;

/// How long a request may wait for its shard and run on another node.
const WITHIN: Duration = Duration::from_secs(30);

const BODY_LIMIT: usize = 1024 * 1024;

/// A payload of a link has at most 4 MiB, and the rest of them is for heads.
const MOST_BODY: usize = 4 * 1024 * 1024 - 256 * 1024;

/// Routes the requests of an application by key: a tower layer. Created by
/// [`Region::route`](crate::Region::route).
///
/// Wrap the whole application with it, as in `carts.route(path("/carts/{id}"))?.layer(app)`. Axum's
/// `Router::layer` would wrap each handler anew for each connection, and a node without connections
/// could run nothing that other nodes forward. So the layer cannot be cloned, which `Router::layer`
/// requires.
#[must_use = "requests are routed when the layer is applied to an application"]
pub struct KeyRoute {
    region: Arc<dyn Routing>,
    key: Arc<dyn RequestKey>,
    within: Duration,
    body_limit: usize,
}

impl<C: Command> Region<C> {
    /// Routes HTTP requests by key: an application that is wrapped in the layer runs a request on the
    /// node that owns its key; see [`routing`](crate::routing).
    ///
    /// Every node that serves the region must route its requests, and the application must be built
    /// before the node joins. A node with a [`proxy`](crate::RegionBuilder::proxy) forwards all.
    ///
    /// # Errors
    ///
    /// If this node has joined: other nodes could have forwarded requests that it cannot run.
    pub fn route(&self, key: impl RequestKey) -> Result<KeyRoute, ClusterError> {
        let core = &self.inner().core;
        if core.here.has_joined() {
            return Err(ClusterError::TooLate { name: Arc::clone(&core.name) });
        }
        let region = Arc::clone(self.inner()) as Arc<dyn Routing>;
        Ok(KeyRoute { region, key: Arc::new(key), within: WITHIN, body_limit: BODY_LIMIT })
    }
}

// === impl KeyRoute ===

impl KeyRoute {
    /// Sets how long a request may take that another node runs, or whose shard moves: to read its body,
    /// to wait, and to run. Default: 30 seconds.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Sets how many bytes the bodies of a forwarded request and of its response may have. A request
    /// that runs on the node that has received it has no limit. Default: 1 MiB; at most 3.75 MiB.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes.min(MOST_BODY);
        self
    }

    /// Wraps an application. Its requests run on the nodes that own their keys, and requests that other
    /// nodes forward run in it, from now on. The same as the method of `tower::Layer`.
    pub fn layer<S, B>(&self, app: S) -> Routed<S>
    where
        S: Service<Request<RoutedBody>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let Self { region, key, within, body_limit } = self;
        region.run_by(Arc::new(Handles::new(app.clone(), *body_limit)));
        let route = Route {
            region: Arc::clone(region),
            key: Arc::clone(key),
            within: *within,
            body_limit: *body_limit,
        };
        Routed::new(app, Arc::new(route))
    }
}

impl<S, B> Layer<S> for KeyRoute
where
    S: Service<Request<RoutedBody>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Service = Routed<S>;

    fn layer(&self, app: S) -> Routed<S> {
        Self::layer(self, app)
    }
}

impl fmt::Debug for KeyRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRoute")
            .field("within", &self.within)
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}
