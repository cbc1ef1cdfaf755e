//! A tracked message on its way to an actor. It is handled, or it is a dead letter; none is lost.
//!
//! kameo drops the messages that remain in a mailbox. A message that is accepted while the mailbox
//! closes may stay in it for ever. So a tracked message is sent as a callback that owns it: if the
//! callback is dropped without being called, the message was not handled.

use std::any::type_name;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

use ::kameo::Actor;
use ::kameo::actor::ActorRef;
use ::kameo::mailbox::Signal;
use ::kameo::message::{Context, Message};
use ::kameo::reply::BoxReplySender;
use adieu_core::adapter::lock;
use futures_util::FutureExt;

use super::Ref;
use super::child_stopper::ChildStopper;
use super::node::{Handling, KameoNode};
use crate::path::NodePath;
use crate::record::Record;

/// The sender's half of a tracked message.
pub(super) struct Parcel<A: Actor, M> {
    shared: Arc<Shared<A, M>>,
}

struct Shared<A: Actor, M> {
    node: Arc<KameoNode<A>>,
    from: Option<NodePath>,
    state: Mutex<State<M>>,
}

enum State<M> {
    /// It is not known yet whether the mailbox accepts the message.
    Sending(M),
    Accepted(M),
    /// The handler took the message, or its sender took it back.
    Taken,
    /// The callback was dropped before it was known that the mailbox had accepted it.
    Dropped,
}

/// The actor's half of a tracked message. The callback owns it.
struct Delivery<A: Actor, M> {
    shared: Arc<Shared<A, M>>,
}

// === impl Parcel ===

impl<A, M> Parcel<A, M>
where
    A: Actor + Message<M>,
    M: Send + 'static,
{
    /// Creates a signal from a message, and counts the message.
    ///
    /// # Errors
    ///
    /// If the actor refuses it. The message is returned, and is a dead letter.
    pub(super) fn new(
        to: &Ref<A>,
        message: M,
        reply: Option<BoxReplySender>,
    ) -> Result<(Self, Signal<A>), M> {
        let (node, actor) = (&to.node, &to.actor);
        node.begin_send(); // Before admission is checked; see `Admission`.
        if !node.admits(actor) {
            node.record().count_refused(type_name::<M>());
            node.finish(); // After the message was counted; see `until_sent`.
            return Err(message);
        }
        let state = Mutex::new(State::Sending(message));
        let shared = Shared { node: Arc::clone(node), from: Record::current_path(), state };
        let shared = Arc::new(shared);
        let delivery = Delivery { shared: Arc::clone(&shared) };
        let signal = Signal::Callback {
            actor_ref: actor.clone(),
            callback: Box::new(move |actor, cx| Box::pin(handle(delivery, reply, actor, cx))),
        };
        Ok((Self { shared }, signal))
    }

    /// Notes that the mailbox has accepted the message.
    ///
    /// # Errors
    ///
    /// If the mailbox was closed meanwhile, and the message was not delivered. The message is
    /// returned, and is a dead letter.
    pub(super) fn accepted(self, actor: &ActorRef<A>) -> Result<(), M> {
        let is_closed = actor.mailbox_sender().is_closed();
        let (lost, back) = {
            let mut state = self.shared.state();
            match std::mem::replace(&mut *state, State::Taken) {
                State::Sending(message) if is_closed => (false, Some(message)),
                State::Sending(message) => {
                    *state = State::Accepted(message);
                    (false, None)
                }
                State::Dropped => (true, None),
                State::Accepted(_) | State::Taken => (false, None),
            }
        };
        if lost {
            self.shared.count_unprocessed();
        }
        back.map_or(Ok(()), |message| {
            self.shared.node.record().count_refused(type_name::<M>());
            self.shared.node.finish();
            Err(message)
        })
    }

    /// Takes the message back, because the mailbox has not accepted it.
    ///
    /// Call it before the signal is dropped. Otherwise the message is gone, and it returns `None`.
    pub(super) fn take_back(self) -> Option<M> {
        let message = self.shared.take()?;
        self.shared.node.finish();
        Some(message)
    }

    /// Takes the message back as [`Parcel::take_back`] does, and counts it as a dead letter.
    pub(super) fn take_back_refused(self) -> Option<M> {
        let message = self.shared.take()?;
        self.shared.node.record().count_refused(type_name::<M>());
        self.shared.node.finish();
        Some(message)
    }
}

// === impl Shared ===

impl<A: Actor, M> Shared<A, M> {
    fn state(&self) -> MutexGuard<'_, State<M>> {
        lock(&self.state)
    }

    fn take(&self) -> Option<M> {
        match std::mem::replace(&mut *self.state(), State::Taken) {
            State::Sending(message) | State::Accepted(message) => Some(message),
            State::Taken | State::Dropped => None,
        }
    }

    fn count_unprocessed(&self) {
        self.node.record().count_unprocessed(self.from.clone(), Some(type_name::<M>()), 1);
    }
}

// === impl Delivery ===

impl<A: Actor, M> Drop for Delivery<A, M> {
    fn drop(&mut self) {
        let (message, was_accepted) = {
            let mut state = self.shared.state();
            match std::mem::replace(&mut *state, State::Taken) {
                State::Sending(message) => {
                    *state = State::Dropped;
                    (message, false)
                }
                State::Accepted(message) => (message, true),
                State::Taken | State::Dropped => return,
            }
        };
        if was_accepted {
            self.shared.node.mark_ending(); // Only an actor that ends drops its messages.
            self.shared.count_unprocessed();
        }
        self.shared.node.finish();
        drop(message); // After the lock was released: its destructor is code of the user.
    }
}

/// Calls the handler of a message as kameo does.
async fn handle<A, M>(
    delivery: Delivery<A, M>,
    reply: Option<BoxReplySender>,
    actor: &mut A,
    cx: &mut Context<A, ()>,
) where
    A: Actor + Message<M>,
    M: Send + 'static,
{
    let Some(message) = delivery.shared.take() else { return };
    let (node, from) = (Arc::clone(&delivery.shared.node), delivery.shared.from.clone());
    drop(delivery);
    let mut handling = Handling::begin(&node, from, type_name::<M>());
    let mut stop = false;
    let handled = actor.on_message(Box::new(message), cx.actor_ref().clone(), reply, &mut stop);
    let handled = AssertUnwindSafe(handled).catch_unwind().await;
    let panic = match handled {
        Ok(result) => {
            handling.done();
            result.err().map(|error| Box::new(format!("{error:?}")) as Box<_>)
        }
        Err(panic) => Some(panic),
    };
    if let Some(panic) = panic {
        node.note_failure();
        if node.record().is_draining() {
            ChildStopper::ensure(&node, cx.actor_ref()).await;
        }
        ChildStopper::keep_parent(&node, cx.actor_ref());
        // Whether the actor ends is decided by its `on_panic`, which kameo calls now.
        resume_unwind(panic);
    }
    if stop {
        node.record().wait_for_children().await;
        cx.stop();
    }
}
