//! Stops the children of an actor of kameo before its stop hook runs, however the actor ends.
//!
//! kameo calls no hook between the last message of an actor and its stop hook, and whether an actor
//! ends after a panic is decided by its `on_panic`, later than our code runs. But before kameo
//! calls the stop hook, it stops the actors that the actor supervises, and waits until they have
//! ended. So an actor with children supervises one child stopper.

use std::sync::{Arc, Weak};

use ::kameo::Actor;
use ::kameo::actor::{ActorRef, Spawn, WeakActorRef};
use ::kameo::error::Infallible;
use ::kameo::mailbox::{MailboxReceiver, Signal};
use ::kameo::supervision::RestartPolicy;

use super::node::KameoNode;
use crate::node::Node;
use crate::record::HasRecord;
use crate::system::ActorSystem;

/// An actor of kameo that the parent supervises. It ends when the children have ended.
pub(super) struct ChildStopper<A: Actor> {
    /// Weak, because the parent owns the factory that restarts this actor.
    parent: Weak<KameoNode<A>>,
}

// === impl ChildStopper ===

impl<A: Actor> ChildStopper<A> {
    /// Makes the actor supervise a child stopper, if it does not yet.
    pub(super) async fn ensure(node: &Arc<KameoNode<A>>, actor: &ActorRef<A>) {
        let spawn = async || {
            let stopper = Self::supervise(actor, Arc::downgrade(node));
            drop(stopper.restart_policy(RestartPolicy::Never).spawn().await);
        };
        node.children().supervise(spawn).await;
    }

    /// Keeps a reference to an actor whose handler has panicked, until the actor has stopped its
    /// children or continues.
    pub(super) fn keep_parent(node: &Arc<KameoNode<A>>, actor: &ActorRef<A>) {
        let children = node.children();
        if !children.keep(actor) {
            return;
        }
        let continuing = Arc::clone(node);
        let continues = Signal::Callback {
            actor_ref: actor.clone(),
            callback: Box::new(move |_, _| {
                continuing.children().release();
                Box::pin(std::future::ready(()))
            }),
        };
        // If the mailbox is full, the actor would not be released if it continues.
        if actor.mailbox_sender().try_send(continues).is_err() {
            children.release();
        }
    }
}

impl<A: Actor> Actor for ChildStopper<A> {
    type Args = Weak<KameoNode<A>>;
    type Error = Infallible;

    fn name() -> &'static str {
        "adieu child stopper"
    }

    async fn on_start(parent: Self::Args, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(Self { parent })
    }

    async fn next(
        &mut self,
        _: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, Infallible> {
        let Some(node) = self.parent.upgrade() else { return Ok(None) };
        let signal = tokio::select! {
            biased;
            signal = mailbox.recv() => signal,
            // The parent was aborted, or had begun to end before this actor was linked to it.
            _ = node.terminated() => return Ok(None),
        };
        // kameo sends the same signal when the parent ends, and when the parent restarts all actors
        // that it supervises. In the second case the parent processes messages.
        if matches!(signal, Some(Signal::SupervisorRestart)) && !node.probe().await {
            node.mark_ending();
            ActorSystem::end_children(HasRecord::record(&*node)).await;
            node.children().release();
        }
        Ok(signal)
    }
}
