//! HTTP requests to a shard: one that arrives at the node that owns it enters, and one that arrives at
//! another node is routed to the owner like an ask.

use std::sync::Arc;

use bytes::Bytes;

use super::after::After;
use super::finish::Finish;
use super::owning::{Loopback, refuse};
use super::running::{Admitted, Answering, Inside};
use super::sending::{Path, Sent};
use super::{Arrived, From, Inner, Shard};
use crate::entity::reply;
use crate::grant::Grant;
use crate::message::Command;
use crate::route::Kind;
use crate::time::{Instant, now};
use crate::transport::{Answer, Event, Refusal};

impl<C: Command> Shard<C> {
    /// Lets a request of this node enter, if it owns the shard.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only HTTP is routed"))]
    pub(crate) fn enter_request(&self, key: &str) -> Result<Inside, Grant> {
        let mut inner = self.lock();
        let open = inner.admission.open().filter(|_| self.core.here.is_good());
        if open.is_none() {
            return Err(inner.grant.clone());
        }
        inner.admission.enter();
        Ok(self.inside(&mut inner, key.into()))
    }

    /// Sends a request to the node that owns the shard.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only HTTP is routed"))]
    pub(crate) fn request(&self, key: &str, request: Bytes, deadline: Instant) -> Sent<Bytes> {
        let (to, reply) = reply::channel();
        let number = self.route_encoded(key, request, Kind::Ask, deadline, Finish::Request(to));
        Sent { reply, path: Path::Routed(number) }
    }

    /// Runs a request that another node, or the route of this one, has sent. The admission has counted
    /// it.
    pub(super) fn admit_request(
        &self,
        inner: &mut Inner<C>,
        arrived: Arrived<C>,
        after: &mut After<C>,
    ) -> Option<Event> {
        let Arrived { envelope, from, .. } = arrived;
        let is_here = matches!(from, From::Here);
        let Some((handler, this)) = self.core.requests.get().zip(self.this.upgrade()) else {
            inner.admission.leave();
            let (node, region) = (&self.core.here.id, &self.core.name);
            let problem = format!("node {node} does not route the requests of region {region}");
            return refuse(from, Refusal::Unsupported(problem), after);
        };
        let answer: Box<dyn Answer> = match from {
            From::There(mut answer) => {
                answer.admit();
                answer
            }
            From::Here => Box::new(Loopback { shard: this, number: envelope.id.sequence }),
        };
        after.requests.push(Admitted {
            inside: self.inside(inner, envelope.entity),
            handler,
            request: envelope.payload,
            deadline: envelope.deadline,
            answer: Answering(Some(answer)),
        });
        is_here.then_some(Event::Admitted)
    }

    /// Returns the guard that holds the shard for a request that the admission has counted.
    fn inside(&self, inner: &mut Inner<C>, key: Arc<str>) -> Inside {
        inner.passes += 1;
        let (number, killed) = inner.running.add(Arc::clone(&key), now());
        let this = self.this.clone();
        let leave = move || {
            if let Some(this) = this.upgrade() {
                this.change(|inner, after| {
                    inner.running.remove(number);
                    inner.passes -= 1;
                    inner.admission.leave();
                    after.is_drained = inner.admission.inside() == 0;
                });
            }
        };
        let here = Arc::clone(&self.core.here);
        Inside::new(key, inner.epoch, here, (inner.closing.clone(), killed), leave)
    }
}
