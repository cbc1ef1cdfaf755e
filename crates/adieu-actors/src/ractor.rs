//! Actors of ractor in an [`ActorSystem`](crate::ActorSystem).
//!
//! ```
//! use adieu_actors::{ActorSystem, Timeouts, ractor::actor};
//! use ractor::{Actor, ActorProcessingErr, ActorRef};
//!
//! struct Orders;
//! struct Order;
//!
//! impl Actor for Orders {
//!     type Msg = Order;
//!     type State = u64;
//!     type Arguments = ();
//!
//!     async fn pre_start(&self, _: ActorRef<Order>, (): ()) -> Result<u64, ActorProcessingErr> {
//!         Ok(0)
//!     }
//!
//!     async fn handle(
//!         &self,
//!         _: ActorRef<Order>,
//!         _: Order,
//!         orders: &mut u64,
//!     ) -> Result<(), ActorProcessingErr> {
//!         *orders += 1;
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let system = ActorSystem::new("shop");
//! let orders = system.spawn("orders", actor(Orders, ())).await?;
//! orders.send(Order).map_err(|_| "it has stopped")?;
//! let report = system.shutdown(Timeouts::STATELESS).await?;
//! assert!(report.is_clean());
//! assert_eq!(report.drained(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! If an actor stops without being drained, or its handler fails or panics, its children are drained
//! before it ends.
//!
//! # Send through [`Ref`]
//!
//! During a drain, messages that are sent with [`Ref::send`] or [`Ref::post`] are accepted only from
//! actors that are being drained, too, until no actor has work. All others are refused, and are dead
//! letters.
//!
//! Until then, messages through ractor's own [`ActorRef`] are accepted from every sender. adieu can
//! see them when they are handled, but not in the mailbox, and cannot see when ractor refuses one.
//!
//! # Limits of ractor
//!
//! If an actor is killed, or its handler panics, ractor does not run its `post_stop`. ractor drops
//! the messages in its mailbox, and their number is unknown, unless they are [`Letter`]s.
//!
//! ractor's features `async-trait` and `cluster` change its traits. This module requires that they
//! are off.

mod counters;
mod letter;
mod node;
mod refs;
mod wrapper;

use std::fmt;
use std::sync::Arc;

#[cfg(doc)]
use ::ractor::ActorRef;
use ::ractor::{Actor, ActorRuntime};
pub use letter::Letter;
use node::RactorNode;
pub use refs::Ref;
use wrapper::Wrapper;

use crate::node::Node;
use crate::path::NodePath;
use crate::record::Record;
use crate::spawn_error::SpawnError;
use crate::system::{Place, Spawn};

/// An actor that has not started yet. Spawn it in a system, or below another actor.
#[must_use = "it does not start until it is spawned"]
pub struct Unstarted<A: Actor> {
    actor: A,
    args: A::Arguments,
}

/// Prepares an actor that will be started with these arguments.
pub fn actor<A: Actor>(actor: A, args: A::Arguments) -> Unstarted<A> {
    Unstarted { actor, args }
}

// === impl Unstarted ===

impl<A: Actor> fmt::Debug for Unstarted<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unstarted").finish_non_exhaustive()
    }
}

impl<A: Actor> Spawn for Unstarted<A> {
    type Ref = Ref<A::Msg>;

    async fn spawn_at(self, place: Place, path: NodePath) -> Result<Ref<A::Msg>, SpawnError> {
        let record = Record::new(path.clone(), &place.system.state).within(place.around.clone());
        let node = Arc::new(RactorNode::new(record));
        place.add(Arc::clone(&node) as Arc<dyn Node>)?;
        let wrapper = Wrapper::new(self.actor, Arc::clone(&node));
        // It starts in this task, not in one of its own: with very many actors that is faster.
        let started = match place.link {
            Some(parent) => ActorRuntime::spawn_linked(None, wrapper, self.args, parent).await,
            None => ActorRuntime::spawn(None, wrapper, self.args).await,
        };
        match started {
            Ok((actor, _)) => Ok(Ref::new(actor, node)),
            Err(_) if node.was_killed() => {
                Err(place.system.state.noted(SpawnError::Killed { path }))
            }
            Err(error) => Err(SpawnError::Start { path, error: error.to_string().into() }),
        }
    }
}
