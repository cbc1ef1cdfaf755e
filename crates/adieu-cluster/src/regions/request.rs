//! HTTP requests by key, without the type of the region's commands.

use std::sync::Arc;

use bytes::Bytes;

use super::hosted::RegionInner;
use crate::entity::{Inside, Path, Requests, Shard};
use crate::message::{AskError, Command, Unknown, shard_of};
use crate::time::Instant;
use crate::transport::Pending;

/// A region that requests are routed by.
pub(crate) trait Routing: Send + Sync {
    /// Lets a request enter the shard of its key, if this node owns it.
    fn enter(&self, key: &str) -> Option<Inside>;

    /// Sends a request to the node that owns the shard of its key, and returns the response.
    fn forward<'a>(
        &'a self,
        key: &'a str,
        request: Bytes,
        deadline: Instant,
    ) -> Pending<'a, Result<Bytes, AskError>>;

    /// Counts a request that was received and handled by this node, like an ask.
    fn count(&self, outcome: Result<(), Unknown>);

    /// Sets what runs the requests that enter on this node.
    fn run_by(&self, handler: Arc<dyn Requests>);
}

/// Takes a request back whose client has gone, if it was not sent.
struct TakeBack<'a, C: Command> {
    shard: &'a Shard<C>,
    number: Option<u64>,
}

impl<C: Command> RegionInner<C> {
    fn shard_of(&self, key: &str) -> &Shard<C> {
        self.shard(shard_of(key, self.shards()))
    }
}

impl<C: Command> Routing for RegionInner<C> {
    fn enter(&self, key: &str) -> Option<Inside> {
        self.shard_of(key).enter_request(key).ok()
    }

    fn forward<'a>(
        &'a self,
        key: &'a str,
        request: Bytes,
        deadline: Instant,
    ) -> Pending<'a, Result<Bytes, AskError>> {
        Box::pin(async move {
            let shard = self.shard_of(key);
            let sent = shard.request(key, request, deadline);
            let number = match sent.path {
                Path::Routed(number) => Some(number),
                Path::Direct => None,
            };
            let mut taken_back = TakeBack { shard, number };
            let outcome = sent.reply.await;
            taken_back.number = None;
            self.core.tally.ask(&outcome);
            outcome
        })
    }

    fn count(&self, outcome: Result<(), Unknown>) {
        self.core.tally.ask(&outcome.map_err(AskError::from));
    }

    fn run_by(&self, handler: Arc<dyn Requests>) {
        self.core.requests.set(handler);
    }
}

impl<C: Command> Drop for TakeBack<'_, C> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shard.cancel(number);
        }
    }
}
