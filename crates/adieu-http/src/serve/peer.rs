//! Tells axum's handlers who is at the other end, if they want to know.

use std::task::{Context, Poll};

use axum::extract::ConnectInfo;
use http::Request;
use tower::Service;

/// An application, told of one connection's peer.
#[derive(Clone, Debug)]
pub(crate) struct Peer<S, P> {
    app: S,
    peer: Option<P>,
}

impl<S, P> Peer<S, P> {
    pub(super) fn tell(app: S, peer: Option<P>) -> Self {
        Self { app, peer }
    }
}

impl<S, P, B> Service<Request<B>> for Peer<S, P>
where
    S: Service<Request<B>>,
    P: Clone + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.app.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if let Some(peer) = &self.peer {
            request.extensions_mut().insert(ConnectInfo(peer.clone()));
        }
        self.app.call(request)
    }
}
